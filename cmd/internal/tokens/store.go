package tokens

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/seed-9e1ffd66/trueup/cmd/internal/audit"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/db"
)

// Store has the tokens of one table of the database. It is safe for concurrent
// use.
type Store struct {
	// Database has the table. Required.
	Database *db.Database
	// Table has the columns id, token_hash, previous_token_hash and
	// previous_token_until, a Unix time in milliseconds. Required, and never from a
	// request: it becomes part of the SQL.
	Table string
	// Kind is that of the rows in the audit of rotations. Required for Rotate.
	Kind string
}

// Authenticate returns the id of the row whose token this is, or [ErrUnknown].
func (s Store) Authenticate(ctx context.Context, token string) (id string, err error) {
	hash := Hash(token)
	err = s.Database.Read(ctx, func(tx *db.Tx) error {
		var current, previous string
		var until int64
		err := tx.QueryRowContext(ctx, `SELECT id, token_hash, previous_token_hash, previous_token_until
			FROM `+s.Table+` WHERE token_hash = ? OR previous_token_hash = ?`, hash, hash).
			Scan(&id, &current, &previous, &until)
		if err != nil {
			return db.Missing(err, ErrUnknown)
		}
		if sameHash(hash, current) || sameHash(hash, previous) && time.Now().UnixMilli() < until {
			return nil
		}
		return ErrUnknown
	})
	if err != nil {
		return "", fmt.Errorf("authenticate: %w", err)
	}
	return id, nil
}

// Valid returns the hashes of all tokens that are valid now.
func (s Store) Valid(ctx context.Context) (valid map[string]bool, err error) {
	valid = map[string]bool{}
	now := time.Now().UnixMilli()
	err = s.Database.Read(ctx, func(tx *db.Tx) error {
		rows, err := tx.QueryContext(ctx, `SELECT token_hash, previous_token_hash, previous_token_until FROM `+s.Table)
		_, err = db.Collect(rows, err, func(rows *sql.Rows, _ *struct{}) error {
			var current, previous string
			var until int64
			if err := rows.Scan(&current, &previous, &until); err != nil {
				return err
			}
			valid[current] = true
			if now < until {
				valid[previous] = true
			}
			return nil
		})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("valid tokens: %w", err)
	}
	return valid, nil
}

// Rotate gives the row of that id a new token and returns it. The old token stays
// valid for overlap; zero revokes it at once. A token that was still valid from a
// rotation before is revoked in either case. The error wraps sql.ErrNoRows if
// there is no such row.
func (s Store) Rotate(ctx context.Context, id string, overlap time.Duration) (token string, err error) {
	token, hash := New()
	err = s.Database.Write(ctx, func(tx *db.Tx) error {
		var old string
		if err := tx.QueryRowContext(ctx, `SELECT token_hash FROM `+s.Table+` WHERE id = ?`+tx.Lock, id).Scan(&old); err != nil {
			return err
		}
		var until int64
		if overlap > 0 {
			until = time.Now().Add(overlap).UnixMilli()
		} else {
			old = ""
		}
		if _, err := tx.ExecContext(ctx, `UPDATE `+s.Table+` SET token_hash = ?, previous_token_hash = ?, previous_token_until = ? WHERE id = ?`, hash, old, until, id); err != nil {
			return err
		}
		return audit.Record(ctx, tx, audit.Change{Verb: "rotate-token", Kind: s.Kind, Name: id})
	})
	if err != nil {
		return "", fmt.Errorf("rotate token: %w", err)
	}
	return token, nil
}
