// Command config is a whole service: settings in SQLite, changed over HTTP, and streamed to any
// number of readers, which get each change and know when they have all.
package main

import (
	"context"
	"crypto/subtle"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"syscall"
	"time"

	_ "modernc.org/sqlite"

	"github.com/seed-9e1ffd66/trueup/reconcile"
	"github.com/seed-9e1ffd66/trueup/statesync"
	"github.com/seed-9e1ffd66/trueup/statesync/sqlstore"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:8080", "address of the service")
	file := flag.String("database", "config.db", "file of SQLite")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *listen, *file, os.Getenv("CONFIG_TOKEN")); err != nil {
		fmt.Fprintln(os.Stderr, "config:", err)
		os.Exit(1) //nolint:gocritic // nothing is left to stop
	}
}

func run(ctx context.Context, listen, file, token string) error {
	if token == "" {
		return errors.New("CONFIG_TOKEN: is empty, must be the bearer token of writers and readers")
	}
	options := "_pragma=journal_mode(WAL)&_pragma=busy_timeout(5000)&_txlock=immediate"
	db, err := sql.Open("sqlite", (&url.URL{Scheme: "file", Opaque: (&url.URL{Path: file}).EscapedPath(), RawQuery: options}).String())
	if err != nil {
		return err
	}
	store := &sqlstore.Store{DB: db, Dialect: sqlstore.SQLite}
	table := `CREATE TABLE IF NOT EXISTS settings (service TEXT, key TEXT, value BLOB, PRIMARY KEY (service, key))`
	_, noTable := db.ExecContext(ctx, table)
	if err := errors.Join(noTable, store.Migrate(ctx)); err != nil {
		return errors.Join(err, db.Close())
	}
	authorize := func(r *http.Request, _ string) (reader string, err error) {
		if subtle.ConstantTimeCompare([]byte(r.Header.Get("Authorization")), []byte("Bearer "+token)) != 1 {
			return "", statesync.ErrUnauthenticated
		}
		return "reader", nil // every holder of the token may read everything
	}
	server := &statesync.Server{Log: store}
	mux := http.NewServeMux()
	mux.Handle("/sync/", http.StripPrefix("/sync", &statesync.Handler{Server: server, Authorize: authorize}))
	for _, method := range []string{http.MethodPut, http.MethodDelete} {
		mux.HandleFunc(method+" /settings/{service}/{key}", func(w http.ResponseWriter, r *http.Request) {
			_, err := authorize(r, "")
			if err == nil {
				err = change(db, store, w, r)
			}
			answer(w, err)
		})
	}
	web := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	group := reconcile.Group{Members: []reconcile.Member{
		{Name: "store", Starter: store},
		{Name: "streams", Starter: server}, // at the end it tells its readers to come back
		{Name: "web", Starter: reconcile.StarterFunc(func(ctx context.Context) error { return serve(ctx, web, listen) })},
	}}
	return errors.Join(group.Start(ctx), db.Close())
}

// change writes one setting and its change in one transaction.
func change(db *sql.DB, store *sqlstore.Store, w http.ResponseWriter, r *http.Request) error {
	c := statesync.Change{Scope: r.PathValue("service"), Deleted: r.Method == http.MethodDelete}
	c.Key = statesync.Key{Collection: "settings", ID: r.PathValue("key")}
	statement, args := `DELETE FROM settings WHERE service = $1 AND key = $2`, []any{c.Scope, c.ID}
	if !c.Deleted {
		value, err := io.ReadAll(http.MaxBytesReader(w, r.Body, statesync.MaxValue))
		if err != nil {
			return fmt.Errorf("%w: body: %w", statesync.ErrInvalid, err)
		}
		c.Value, args = value, append(args, value)
		statement = `INSERT INTO settings VALUES ($1, $2, $3) ON CONFLICT DO UPDATE SET value = excluded.value`
	}
	tx, err := db.BeginTx(r.Context(), nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // after a commit it does nothing
	if _, err := tx.ExecContext(r.Context(), statement, args...); err != nil {
		return err
	}
	if err := store.Append(r.Context(), tx, c); err != nil {
		return err
	}
	defer store.Wake()
	return tx.Commit()
}

func answer(w http.ResponseWriter, err error) {
	switch {
	case errors.Is(err, statesync.ErrUnauthenticated):
		http.Error(w, "a bearer token is required", http.StatusUnauthorized)
	case errors.Is(err, statesync.ErrInvalid):
		http.Error(w, err.Error(), http.StatusBadRequest)
	case err != nil:
		fmt.Fprintln(os.Stderr, "config:", err)
		http.Error(w, "the service failed; its log says why", http.StatusInternalServerError)
	}
}

// serve serves until ctx ends, and then until the last answer is out.
func serve(ctx context.Context, web *http.Server, listen string) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", listen)
	if err != nil {
		return err
	}
	fmt.Println("listening on", listener.Addr())
	served := make(chan error, 1)
	go func() { served <- web.Serve(listener) }()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	return web.Shutdown(ending)
}
