package db

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
)

//go:embed migrations/*.sql
var migrations embed.FS

// expands is the first line of a migration that only adds: tables, indexes that are not unique,
// and columns that have a default or may be NULL. The program of before it reads and writes as
// it did, so that old and new replicas run side by side, and a rollback needs no backup.
//
// Any other migration contracts: it takes away what the program of before it needs, and that one
// refuses the database from then on. Contract in the version after the one that expanded and
// stopped to use what goes.
const expands = "-- expands\n"

// schema is what a program knows of the schema of its database: all migrations, in order.
type schema []struct{ name, text string }

// The databases that a migration can be for alone: its name ends with one and .sql.
const (
	sqliteOnly     = ".sqlite"
	postgresqlOnly = ".postgresql"
)

// readSchema reads the migrations of files, and without any the ones of this program. It leaves
// out what is for the other database alone.
func readSchema(files fs.FS, other string) (schema, error) {
	if files == nil {
		files = migrations
	}
	names, err := fs.Glob(files, "migrations/*.sql")
	if err != nil {
		return nil, err
	}
	names = slices.DeleteFunc(names, func(name string) bool { return strings.HasSuffix(name, other+".sql") })
	known := make(schema, len(names))
	for n, name := range names {
		text, err := fs.ReadFile(files, name)
		if err != nil {
			return nil, err
		}
		known[n].name, known[n].text = name, string(text)
	}
	return known, nil
}

// oldest returns how many migrations a program must know to use a database that has all of s.
func (s schema) oldest() int {
	n := len(s)
	for n > 0 && strings.HasPrefix(s[n-1].text, expands) {
		n--
	}
	return n
}

const notes = `CREATE TABLE IF NOT EXISTS controlplane_compatible (version INTEGER NOT NULL PRIMARY KEY, oldest INTEGER NOT NULL)`

// migrate runs the migrations after the first version ones, and notes which programs may use
// the result. A database with more than s is left as it is if it has the note that s is enough;
// else the error wraps [ErrNewerSchema], and tx must not be committed.
func (s schema) migrate(ctx context.Context, tx *sql.Tx, version int) error {
	if version == len(s) {
		return nil
	}
	if _, err := tx.ExecContext(ctx, notes); err != nil {
		return err
	}
	if version > len(s) {
		oldest := version
		err := tx.QueryRowContext(ctx, `SELECT oldest FROM controlplane_compatible WHERE version = $1`, version).Scan(&oldest)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		if oldest > len(s) {
			return fmt.Errorf("%w (schema %d, which needs %d; this program knows %d)", ErrNewerSchema, version, oldest, len(s))
		}
		return nil
	}
	for _, migration := range s[version:] {
		if _, err := tx.ExecContext(ctx, migration.text); err != nil {
			return fmt.Errorf("%s: %w", migration.name, err)
		}
	}
	_, err := tx.ExecContext(ctx, `INSERT INTO controlplane_compatible (version, oldest) VALUES ($1, $2)`, len(s), s.oldest())
	return err
}
