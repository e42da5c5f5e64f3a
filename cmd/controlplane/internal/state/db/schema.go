package db

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"embed"
	"encoding/hex"
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

// digest identifies the first n migrations.
func (s schema) digest(n int) string {
	hash := sha256.New()
	for _, migration := range s[:n] {
		// A hash takes all that it gets.
		_, _ = fmt.Fprintf(hash, "%q %q\n", migration.name, migration.text)
	}
	return hex.EncodeToString(hash.Sum(nil))
}

// check compares the texts of the migrations that made the schema with those that this program has. A version
// between two releases may have had another text under the same number; columns may then be missing.
func (s schema) check(ctx context.Context, tx *sql.Tx) error {
	if _, err := tx.ExecContext(ctx, digests); err != nil {
		return err
	}
	rows, err := tx.QueryContext(ctx, `SELECT version, digest FROM controlplane_digests WHERE version <= $1 ORDER BY version`, len(s))
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }() // Err returns the same error
	for rows.Next() {
		var version int
		var digest string
		if err := rows.Scan(&version, &digest); err != nil {
			return err
		}
		if digest != s.digest(version) {
			return fmt.Errorf("%w: up to %s it was made by another text", ErrOtherSchema, s[version-1].name)
		}
	}
	return rows.Err()
}

const digests = `CREATE TABLE IF NOT EXISTS controlplane_digests (version INTEGER NOT NULL PRIMARY KEY, digest TEXT NOT NULL)`

const notes = `CREATE TABLE IF NOT EXISTS controlplane_compatible (version INTEGER NOT NULL PRIMARY KEY, oldest INTEGER NOT NULL)`

// migrate runs the migrations after the first version ones, and notes which programs may use
// the result. A database with more than s is left as it is if it has the note that s is enough;
// else the error wraps [ErrNewerSchema], or [ErrOtherSchema], and tx must not be committed.
func (s schema) migrate(ctx context.Context, tx *sql.Tx, version int) error {
	if err := s.check(ctx, tx); err != nil || version == len(s) {
		return err
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
	_, err := tx.ExecContext(ctx, `INSERT INTO controlplane_digests (version, digest) VALUES ($1, $2)`, len(s), s.digest(len(s)))
	if err == nil {
		_, err = tx.ExecContext(ctx, `INSERT INTO controlplane_compatible (version, oldest) VALUES ($1, $2)`, len(s), s.oldest())
	}
	return err
}
