package db

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
)

// ErrNoBackup is a database that has better means of its own to be copied.
var ErrNoBackup = errors.New("is copied with the tools of PostgreSQL: pg_dump, or a base backup")

// Backup writes a copy of the database that source names to the file into: one state of
// it, complete, also while other processes write. The file appears when it is whole and
// checked, with mode 0600; one that is there already is an error. The schema stays as it is,
// so that a copy can be made before a newer version is started. The error wraps
// [ErrNoBackup] for a PostgreSQL.
func Backup(ctx context.Context, source, into string) error {
	path, err := fileOf(source)
	if err != nil {
		return err
	}
	if path == "" {
		return ErrNoBackup
	}
	return SQLite{Path: path}.backup(ctx, into)
}

func (c SQLite) backup(ctx context.Context, into string) (err error) {
	if _, err := os.Stat(c.Path); err != nil {
		return fmt.Errorf("database: %w", err)
	}
	if _, err := os.Lstat(into); err == nil {
		return fmt.Errorf("%s: %w: choose another file", into, os.ErrExist)
	}
	path, err := filepath.Abs(c.Path)
	if err != nil {
		return err
	}
	if into, err = filepath.Abs(into); err != nil {
		return err
	}
	// SQLite would make the file readable for everybody; it takes one that is empty.
	file, err := os.CreateTemp(filepath.Dir(into), filepath.Base(into)+".*.tmp")
	if err != nil {
		return err
	}
	defer func() {
		if closed := file.Close(); err == nil {
			err = closed
		}
		if err != nil {
			os.Remove(file.Name()) //nolint:errcheck // it is gone after the rename
		}
	}()
	if err := c.copyTo(ctx, path, file.Name()); err != nil {
		return fmt.Errorf("database %s: %w", c.Path, classifySQLite(err))
	}
	if err := file.Sync(); err != nil {
		return err
	}
	// A link, since a rename would replace a file that has appeared meanwhile.
	if err := os.Link(file.Name(), into); err != nil {
		return err
	}
	if err := os.Remove(file.Name()); err != nil {
		return err
	}
	folder, err := os.Open(filepath.Dir(into))
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}

// copyTo copies one state of the file, and checks the copy.
func (c SQLite) copyTo(ctx context.Context, from, to string) error {
	open := func(path string) (*sql.DB, error) {
		return sql.Open("sqlite", (&url.URL{Scheme: "file", Path: path, RawQuery: url.Values{
			"mode": {"rw"}, "_busy_timeout": {fmt.Sprint(cmp.Or(c.BusyTimeout, defaultBusyTimeout).Milliseconds())}, "_error_rc": {"1"},
		}.Encode()}).String())
	}
	source, err := open(from)
	if err != nil {
		return err
	}
	defer source.Close() //nolint:errcheck // it was read
	var application int
	if err := source.QueryRowContext(ctx, "PRAGMA application_id").Scan(&application); err != nil {
		return err
	}
	if application != applicationID {
		return fmt.Errorf("%w (application id %#x)", ErrForeign, application)
	}
	if _, err := source.ExecContext(ctx, "VACUUM INTO ?", to); err != nil {
		return err
	}
	made, err := open(to)
	if err != nil {
		return err
	}
	defer made.Close() //nolint:errcheck // it was read
	var verdict string
	if err := made.QueryRowContext(ctx, "PRAGMA integrity_check(1)").Scan(&verdict); err != nil {
		return err
	}
	if verdict != "ok" {
		return fmt.Errorf("%w (%.200q)", ErrCorrupt, verdict)
	}
	return nil
}
