package sqlstore

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/seed-9e1ffd66/trueup/statesync"
)

// Read implements [statesync.Log]. It is one query.
func (s *Store) Read(ctx context.Context, scope string, after uint64, limit int) (page statesync.Page, err error) {
	if err := s.ready(); err != nil {
		return statesync.Page{}, err
	}
	if limit < 1 {
		return statesync.Page{}, invalid(fmt.Errorf("limit: is %d, must be at least 1", limit))
	}
	ctx, cancel := s.within(ctx)
	defer cancel()
	found, err := s.readPage(ctx, scope, int64(min(after, maxVersion)), limit, &page) //nolint:gosec // bounded
	if err != nil {
		return statesync.Page{}, fmt.Errorf("read scope %q: %w", scope, err)
	}
	if !found {
		return statesync.Page{}, unknown(scope)
	}
	// The newest item is at the head, and is never pruned.
	page.More = len(page.Items) > 0 && page.Items[len(page.Items)-1].Version < page.Head
	return page, nil
}

func (s *Store) readPage(ctx context.Context, scope string, after int64, limit int, page *statesync.Page) (found bool, err error) {
	rows, err := s.readDB().QueryContext(ctx, s.sql.read, scope, after, limit)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var at place
		var since, version sql.NullInt64
		var collection, id sql.NullString
		var deleted sql.NullBool
		var value []byte
		if err := rows.Scan(append(at.into(), &since, &version, &collection, &id, &deleted, &value)...); err != nil {
			return found, err
		}
		if !found {
			page.Position = at.position(scope)
			page.Since = seal(at.secret, scope, uint64(after), since.Int64) //nolint:gosec // bounded
		}
		found = true
		if !version.Valid {
			continue // there is nothing above after
		}
		page.Items = append(page.Items, statesync.Item{
			Version: uint64(version.Int64), //nolint:gosec // counted from 1
			Key:     statesync.Key{Collection: collection.String, ID: id.String},
			Deleted: deleted.Bool,
			Value:   json.RawMessage(value),
		})
	}
	return found, rows.Err()
}

// Scopes returns the names of all scopes, sorted.
func (s *Store) Scopes(ctx context.Context) ([]string, error) {
	if err := s.ready(); err != nil {
		return nil, err
	}
	ctx, cancel := s.within(ctx)
	defer cancel()
	scopes, err := collect(ctx, s.readDB(), func(row *sql.Rows, scope *string) error { return row.Scan(scope) }, s.sql.scopes)
	if err != nil {
		return nil, fmt.Errorf("scopes: %w", err)
	}
	return scopes, nil
}

func (s *Store) position(ctx context.Context, scope string) (statesync.Position, error) {
	ctx, cancel := s.within(ctx)
	defer cancel()
	var p place
	err := s.readDB().QueryRowContext(ctx, s.sql.position, scope).Scan(p.into()...)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return statesync.Position{}, unknown(scope)
	case err != nil:
		return statesync.Position{}, fmt.Errorf("position of scope %q: %w", scope, err)
	}
	return p.position(scope), nil
}

func unknown(scope string) error { return fmt.Errorf("%w %q", statesync.ErrUnknownScope, scope) }

// querier is a *sql.DB, *sql.Conn or *sql.Tx.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// collect reads all rows, each with scan.
func collect[T any](ctx context.Context, from querier, scan func(*sql.Rows, *T) error, query string, args ...any) (list []T, err error) {
	rows, err := from.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
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
