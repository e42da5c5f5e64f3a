package tokens

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"time"

	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/audit"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/db"
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
	// Kind is the kind of the rows in the audit of rotations. Required for Rotate.
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
		ended := Mark(old)
		var until int64
		if overlap > 0 {
			until = time.Now().Add(overlap).UnixMilli()
		} else {
			old = ""
		}
		if _, err := tx.ExecContext(
			ctx,
			`UPDATE `+s.Table+` SET token_hash = ?, previous_token_hash = ?, previous_token_until = ? WHERE id = ?`,
			hash,
			old,
			until,
			id,
		); err != nil {
			return err
		}
		return audit.Record(ctx, tx, audit.Change{Verb: "rotate-token", Kind: s.Kind, Name: id, Ended: ended})
	})
	if err != nil {
		return "", fmt.Errorf("rotate token: %w", err)
	}
	return token, nil
}

// revoked begins the text stored as the hash of a revoked token: no token has that hash.
const revoked = "revoked "

// AfterRestore is for a database restored from a backup, which lacks the token rotations after
// the backup. It revokes the tokens that were already superseded when the backup was made, and
// the token of each row for which revoke returns true; mark is the [Mark] of the token. It
// returns all rows. A second call finds the tokens that the first has revoked.
func (s Store) AfterRestore(ctx context.Context, revoke func(id, mark string) bool) (rows []Restored, err error) {
	err = s.Database.Write(ctx, func(tx *db.Tx) error {
		found, err := tx.QueryContext(ctx, `SELECT id, token_hash, previous_token_hash <> '' FROM `+s.Table+` ORDER BY id`)
		rows, err = db.Collect(found, err, func(rows *sql.Rows, r *Restored) error { return rows.Scan(&r.ID, &r.hash, &r.Superseded) })
		if err != nil {
			return err
		}
		for n, r := range rows {
			was := strings.HasPrefix(r.hash, revoked)
			rows[n].Revoked = was || revoke(r.ID, Mark(r.hash))
			change := audit.Change{Verb: "revoke-token", Kind: s.Kind, Name: r.ID}
			if rows[n].Revoked && !was {
				change.Ended = Mark(r.hash)
				_, none := New() // the column is unique
				if _, err := tx.ExecContext(ctx, `UPDATE `+s.Table+` SET token_hash = ? WHERE id = ?`, revoked+none, r.ID); err != nil {
					return err
				}
			} else if !r.Superseded {
				continue
			}
			if _, err := tx.ExecContext(
				ctx,
				`UPDATE `+s.Table+` SET previous_token_hash = '', previous_token_until = 0 WHERE id = ?`,
				r.ID,
			); err != nil {
				return err
			}
			if err := audit.Record(ctx, tx, change); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("tokens after a restore: %w", err)
	}
	return rows, nil
}

// Restored is a row of a database that was put back.
type Restored struct {
	ID string
	// Superseded is true if it had an older token, which is revoked now; Revoked if it has
	// none any more.
	Superseded, Revoked bool

	hash string
}
