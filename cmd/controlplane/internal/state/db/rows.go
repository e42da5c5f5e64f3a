package db

import (
	"context"
	"database/sql"
	"errors"
)

// Missing returns condition in place of the error of a row that is not there,
// and any other err unchanged.
func Missing(err, condition error) error {
	if errors.Is(err, sql.ErrNoRows) {
		return condition
	}
	return err
}

// List returns all rows of a query in a transaction of its own, each read with scan.
func List[T any](ctx context.Context, d *Database, query string, args []any, scan func(*sql.Rows, *T) error) (list []T, err error) {
	err = d.Read(ctx, func(tx *Tx) error {
		rows, err := tx.QueryContext(ctx, query, args...)
		list, err = Collect(rows, err, scan)
		return err
	})
	return list, err
}

// Collect reads all rows, each with scan, and closes them. It takes both results
// of a query, and returns queryErr if there is one.
func Collect[T any](rows *sql.Rows, queryErr error, scan func(*sql.Rows, *T) error) (list []T, err error) {
	if queryErr != nil {
		return nil, queryErr
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var item T
		if err := scan(rows, &item); err != nil {
			return nil, err
		}
		list = append(list, item)
	}
	return list, rows.Err()
}
