package db

import (
	"context"
	"database/sql"
	"slices"
	"strconv"
	"strings"
)

// Tx is a transaction that takes SQL with ? for parameters, whatever the
// database calls them.
type Tx struct {
	*sql.Tx
	bind func(string) string
	// Lock ends a SELECT of rows that are going to be changed: other transactions
	// that lock the same rows wait.
	Lock string

	notes []any
}

// Note leaves a note for [Database.Notes]. It is dropped unless the transaction is committed.
func (t *Tx) Note(note any) { t.notes = append(t.notes, note) }

// ExecContext is the method of [sql.Tx].
func (t *Tx) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	return t.Tx.ExecContext(ctx, t.bind(query), args...)
}

// Affected runs a statement and returns how many rows it has inserted, updated or deleted.
func (t *Tx) Affected(ctx context.Context, query string, args ...any) (int64, error) {
	result, err := t.ExecContext(ctx, query, args...)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// ExecEach runs the statements, in which each ? stands for arg, one after the other.
func (t *Tx) ExecEach(ctx context.Context, arg any, statements ...string) error {
	for _, statement := range statements {
		if _, err := t.ExecContext(ctx, statement, slices.Repeat([]any{arg}, strings.Count(statement, "?"))...); err != nil {
			return err
		}
	}
	return nil
}

// QueryContext is the method of [sql.Tx].
func (t *Tx) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	return t.Tx.QueryContext(ctx, t.bind(query), args...)
}

// QueryRowContext is the method of [sql.Tx].
func (t *Tx) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	return t.Tx.QueryRowContext(ctx, t.bind(query), args...)
}

// PrepareContext is the method of [sql.Tx].
func (t *Tx) PrepareContext(ctx context.Context, query string) (*sql.Stmt, error) {
	return t.Tx.PrepareContext(ctx, t.bind(query))
}

// asIs is the bind of SQLite.
func asIs(query string) string { return query }

// numbered turns each ? into $1, $2 and so on. Our SQL has no ? elsewhere.
func numbered(query string) string {
	parts := strings.Split(query, "?")
	var text strings.Builder
	text.WriteString(parts[0])
	for n, part := range parts[1:] {
		text.WriteString("$" + strconv.Itoa(n+1))
		text.WriteString(part)
	}
	return text.String()
}
