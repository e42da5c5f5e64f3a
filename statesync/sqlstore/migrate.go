package sqlstore

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
	"testing/fstest"
)

// ErrNewerSchema is a database whose tables were made by a newer version of
// this package.
var ErrNewerSchema = errors.New("tables are of a newer version")

//go:embed migrations
var migrations embed.FS

// schemaTable has a row for each migration that was made.
const schemaTable = `CREATE TABLE IF NOT EXISTS {p}schema (version integer PRIMARY KEY)`

// Migrations returns the migrations of Migrate as files, 0001_tables.sql and so on, for a
// tool that runs a program's own: each is plain SQL for the tables whose names begin with
// prefix, empty for the default, and has the line that goose asks for, a comment for others.
// They record themselves as Migrate does, so that it may be called before and after them. It
// returns an error for a dialect or prefix that a [Store] would not take.
func Migrations(dialect Dialect, prefix string) (fs.FS, error) {
	s := &Store{Dialect: dialect, Prefix: prefix}
	if err := errors.Join(s.named()...); err != nil {
		return nil, err
	}
	known, err := fs.Glob(migrations, "migrations/"+dialect.String()+"/*.sql")
	if err != nil {
		return nil, err
	}
	files := fstest.MapFS{}
	for i, name := range known {
		text, err := migrations.ReadFile(name)
		if err != nil {
			return nil, err
		}
		whole := fmt.Sprintf("-- +goose Up\n%s\n%s;\nINSERT INTO {p}schema (version) VALUES (%d);\n",
			strings.TrimSpace(string(text)), schemaTable, i+1)
		files[path.Base(name)] = &fstest.MapFile{Data: []byte(strings.ReplaceAll(whole, "{p}", s.prefix())), Mode: 0o444}
	}
	return files, nil
}

// Migrate makes the tables, or brings those of an older version up to date. It leaves
// current ones as they are. Several processes may call it at once. It needs the right
// to create tables; no other method does.
func (s *Store) Migrate(ctx context.Context) error {
	if err := s.ready(); err != nil {
		return err
	}
	if err := s.opened(ctx); err != nil {
		return err
	}
	err := s.retry(ctx, func() error {
		return s.transact(ctx, func(tx *sql.Tx) error { return s.migrate(ctx, tx) })
	})
	if err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	return nil
}

func (s *Store) migrate(ctx context.Context, tx *sql.Tx) error {
	in := strings.NewReplacer("{p}", s.prefix()).Replace
	known, err := fs.Glob(migrations, "migrations/"+s.Dialect.String()+"/*.sql")
	if err != nil {
		return err
	}
	if s.Dialect == PostgreSQL {
		if _, err := tx.ExecContext(ctx, `SELECT pg_advisory_xact_lock($1)`, s.lockKey("migrate")); err != nil {
			return err
		}
	}
	if _, err := tx.ExecContext(ctx, in(schemaTable)); err != nil {
		return err
	}
	var version int
	if err := tx.QueryRowContext(ctx, in(`SELECT coalesce(max(version), 0) FROM {p}schema`)).Scan(&version); err != nil {
		return err
	}
	if version > len(known) {
		return fmt.Errorf("%w: %d, this one knows %d", ErrNewerSchema, version, len(known))
	}
	for i, name := range known[version:] {
		text, err := migrations.ReadFile(name)
		if err != nil {
			return err
		}
		// One statement at a time: a prepared statement holds only one.
		for statement := range strings.SplitSeq(in(string(text)), ";\n") {
			if strings.TrimSpace(statement) == "" {
				continue
			}
			if _, err := tx.ExecContext(ctx, statement); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
		if _, err := tx.ExecContext(ctx, in(`INSERT INTO {p}schema (version) VALUES ($1)`), version+i+1); err != nil {
			return err
		}
	}
	return nil
}
