package main

import (
	"context"
	"database/sql"
	"time"
)

// polled is a table with a version that the database hands out when a row is
// written, and a reader that asks for what is above the greatest it has seen: at
// once as long as there is something, else every second.
type polled struct{ db *sql.DB }

func (p *polled) start(ctx context.Context, url string) (err error) {
	if p.db, err = open(ctx, url); err != nil {
		return err
	}
	_, err = p.db.ExecContext(
		ctx,
		`CREATE SEQUENCE versions; CREATE TABLE rows (key text PRIMARY KEY, value text NOT NULL, version bigint NOT NULL UNIQUE)`,
	)
	return err
}

func (p *polled) write(ctx context.Context, key, value string) error {
	release, err := p.stall(ctx, key, value)
	if err != nil {
		return err
	}
	return release()
}

func (p *polled) stall(ctx context.Context, key, value string) (release func() error, err error) {
	return within(ctx, p.db, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `INSERT INTO rows VALUES ($1, $2, nextval('versions'))
			ON CONFLICT (key) DO UPDATE SET value = excluded.value, version = excluded.version`, key, value)
		return err
	}, func() {})
}

func (p *polled) follow(ctx context.Context, got func(string)) error {
	var cursor int64
	for {
		n, err := p.page(ctx, &cursor, got)
		if err != nil {
			return err
		}
		if n == 0 {
			pause(ctx, time.Second)
		}
	}
}

func (p *polled) page(ctx context.Context, cursor *int64, got func(string)) (n int, err error) {
	rows, err := p.db.QueryContext(ctx, `SELECT value, version FROM rows WHERE version > $1 ORDER BY version LIMIT 100`, *cursor)
	if err != nil {
		return 0, err
	}
	for rows.Next() {
		var value string
		if err := rows.Scan(&value, cursor); err != nil {
			return n, rolledBack(err, rows.Close())
		}
		got(value)
		n++
	}
	return n, rolledBack(rows.Err(), rows.Close())
}
