package main

import (
	"context"
	"database/sql"
	"encoding/json"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver pgx

	"github.com/seed-9e1ffd66/trueup/statesync"
	"github.com/seed-9e1ffd66/trueup/statesync/sqlstore"
	"github.com/seed-9e1ffd66/trueup/statesync/sqlstore/pgxlisten"
)

const scope = "bench"

// sequenced is package sqlstore: the change goes with the caller's transaction.
type sequenced struct {
	db    *sql.DB
	store *sqlstore.Store
}

func (s *sequenced) start(ctx context.Context, url string) (err error) {
	if s.db, err = open(ctx, url); err != nil {
		return err
	}
	s.store = &sqlstore.Store{DB: s.db, Dialect: sqlstore.PostgreSQL, Listen: pgxlisten.On(s.db)}
	if err := s.store.Migrate(ctx); err != nil {
		return err
	}
	go s.store.Start(ctx) //nolint:errcheck // nil when ctx ends
	return s.store.Commit(ctx, change("first", "first"))
}

func change(key, value string) statesync.Change {
	text, _ := json.Marshal(value) // a string has a JSON form
	return statesync.Change{Scope: scope, Key: statesync.Key{Collection: "things", ID: key}, Value: text}
}

func (s *sequenced) write(ctx context.Context, key, value string) error {
	release, err := s.stall(ctx, key, value)
	if err != nil {
		return err
	}
	return release()
}

func (s *sequenced) stall(ctx context.Context, key, value string) (release func() error, err error) {
	return within(ctx, s.db, func(tx *sql.Tx) error { return s.store.Append(ctx, tx, change(key, value)) }, s.store.Wake)
}

func (s *sequenced) follow(ctx context.Context, got func(string)) error {
	var after uint64
	for {
		page, err := s.store.Read(ctx, scope, after, 1000)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			pause(ctx, think)
			continue
		}
		for _, i := range page.Items {
			var value string
			if err := json.Unmarshal(i.Value, &value); err != nil {
				return err
			}
			got(value)
			after = i.Version
		}
		if !page.More {
			_ = s.store.Wait(ctx, scope, page.Position) // the next read says why
		}
	}
}

// open opens the database, with a table whose rows every writer changes beside
// what it says of it.
func open(ctx context.Context, url string) (*sql.DB, error) {
	db, err := sql.Open("pgx", url)
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(2 * writers)
	db.SetMaxIdleConns(2 * writers)
	_, err = db.ExecContext(ctx, `CREATE TABLE state (key text PRIMARY KEY, value text NOT NULL)`)
	return db, err
}

// within begins a transaction that do is part of.
func within(ctx context.Context, db *sql.DB, do func(*sql.Tx) error, after func()) (release func() error, err error) {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return nil, err
	}
	if err := do(tx); err != nil {
		return nil, rolledBack(err, tx.Rollback())
	}
	return func() error {
		if err := tx.Commit(); err != nil {
			return err
		}
		after()
		return nil
	}, nil
}
