package sqlstore

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"strings"
)

// ErrNewerSchema is a database whose tables were made by a newer version of
// this package.
var ErrNewerSchema = errors.New("tables are of a newer version")

//go:embed migrations
var migrations embed.FS

// Migrate makes the tables, or brings those of an older version up to date. It leaves
// current ones as they are. Several processes may call it at once. It needs the right
// to create tables; no other method does.
func (s *Store) Migrate(ctx context.Context) error {
	if err := s.ready(); err != nil {
		return err
	}
	if err := s.waits(ctx); err != nil {
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
	if _, err := tx.ExecContext(ctx, in(`CREATE TABLE IF NOT EXISTS {p}schema (version integer PRIMARY KEY)`)); err != nil {
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
