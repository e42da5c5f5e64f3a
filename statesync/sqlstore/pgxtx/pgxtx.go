// Package pgxtx lets a sqlstore.Store take changes in transactions of github.com/jackc/pgx/v5
// and its pool, without database/sql in the caller's code.
//
// The store itself works on a *sql.DB. With a pool, stdlib.OpenDBFromPool makes one on the
// same connections:
//
//	db := stdlib.OpenDBFromPool(pool)
//	store := &sqlstore.Store{DB: db, Dialect: sqlstore.PostgreSQL, Listen: pgxlisten.On(db)}
//
// [sqlstore.Store.Start] keeps up to three connections for itself: the pool needs as many
// more.
package pgxtx

import (
	"context"
	"database/sql"
	"database/sql/driver"

	"github.com/jackc/pgx/v5"

	"github.com/seed-9e1ffd66/trueup/statesync/sqlstore"
)

// Of returns tx for [sqlstore.Store.Append] and [sqlstore.Store.AddScope]. The caller commits
// tx as before, and then calls [sqlstore.Store.Wake].
func Of(tx pgx.Tx) sqlstore.Tx { return transaction{tx} }

type transaction struct{ tx pgx.Tx }

// ExecContext implements [sqlstore.Tx].
func (t transaction) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	tag, err := t.tx.Exec(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	return driver.RowsAffected(tag.RowsAffected()), nil
}

// Rollback implements [sqlstore.Tx].
func (t transaction) Rollback() error {
	return t.tx.Rollback(context.Background()) //nolint:forbidigo // as that of a *sql.Tx it takes no ctx
}
