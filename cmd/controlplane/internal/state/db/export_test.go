package db

import (
	"io/fs"
	"testing"
	"time"
)

// Knowing returns c for a program with other migrations, in the folder migrations of files.
func (c SQLite) Knowing(files fs.FS) SQLite {
	c.migrations = files
	return c
}

// Knowing returns c for a program with other migrations, in the folder migrations of files.
func (c PostgreSQL) Knowing(files fs.FS) PostgreSQL {
	c.migrations = files
	return c
}

// ReplacingAtOnce returns c which replaces its connections as often as one is found to be read-only.
func (c PostgreSQL) ReplacingAtOnce() PostgreSQL {
	c.between = 1
	return c
}

// Migrations are what this program has.
func Migrations() fs.FS { return migrations }

// Kept returns how many statements the connection that writes to SQLite keeps.
func Kept(tb testing.TB, d *Database) (n int) {
	tb.Helper()
	conn, err := d.writer.Conn(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	defer conn.Close()
	if err := conn.Raw(func(raw any) error { n = len(raw.(*keptConn).statements); return nil }); err != nil {
		tb.Fatal(err)
	}
	return n
}

// Replaced returns how often a pool that looks read-only n times, a step apart, has its connections replaced.
func Replaced(n int, between, step time.Duration) int {
	g := &generations{between: between}
	for range n {
		g.end()
		time.Sleep(step)
	}
	return g.now()
}
