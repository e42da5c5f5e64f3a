package sqlstore_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"

	_ "modernc.org/sqlite"

	"github.com/seed-9e1ffd66/trueup/statesync"
	"github.com/seed-9e1ffd66/trueup/statesync/sqlstore"
)

// A program changes its own table and appends the change in the same transaction.
func Example() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir) //nolint:errcheck // best effort
	db, err := sql.Open(
		"sqlite",
		"file:"+filepath.Join(dir, "app.db")+"?_pragma=journal_mode(WAL)&_pragma=busy_timeout(5000)&_txlock=immediate",
	)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer db.Close()

	store := &sqlstore.Store{DB: db, Dialect: sqlstore.SQLite}
	if err := store.Migrate(ctx); err != nil {
		fmt.Println(err)
		return
	}
	started := make(chan error)
	go func() { started <- store.Start(ctx) }()

	// The program's own state, and the change of it, are committed together.
	err = func() error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback() //nolint:errcheck // after a commit it does nothing
		if _, err := tx.ExecContext(ctx, `CREATE TABLE deployments (id TEXT PRIMARY KEY, image TEXT)`); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, `INSERT INTO deployments VALUES ('web', 'web:1')`); err != nil {
			return err
		}
		if err := store.Append(ctx, tx, statesync.Change{
			Scope: "eu-west", Key: statesync.Key{Collection: "deployments", ID: "web"}, Value: []byte(`{"image":"web:1"}`),
		}); err != nil {
			return err
		}
		return tx.Commit()
	}()
	if err != nil {
		fmt.Println(err)
		return
	}
	store.Wake()

	// The scope is made with its first change, a moment after the commit.
	var page statesync.Page
	for page.Head == 0 {
		if page, err = store.Read(ctx, "eu-west", 0, 100); err != nil && ctx.Err() != nil {
			fmt.Println(err)
			return
		}
	}
	for _, item := range page.Items {
		fmt.Println(item.Version, item.Key, string(item.Value))
	}
	stop()
	fmt.Println(<-started)
	// Output:
	// 1 deployments/web {"image":"web:1"}
	// <nil>
}

// A failed transaction of the program can be run again if its error is retryable.
func ExampleRetryable() {
	db, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer db.Close()
	_, err = db.ExecContext(context.Background(), `SELECT * FROM missing`)
	fmt.Println(sqlstore.Retryable(err))
	// Output: false
}
