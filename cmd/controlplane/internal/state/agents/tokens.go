package agents

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"time"

	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/edge/tokens"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/audit"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/db"
)

// Authenticate returns the id of the scope whose token this is, or [tokens.ErrUnknown].
func (s Scopes) Authenticate(ctx context.Context, token string) (id string, err error) {
	hash := tokens.Hash(token)
	err = s.Database.Read(ctx, func(tx *db.Tx) error {
		var current, previous string
		var until int64
		err := tx.QueryRowContext(ctx, `SELECT id, token_hash, previous_token_hash, previous_token_until
			FROM `+s.table()+` WHERE token_hash = ? OR previous_token_hash = ?`, hash, hash).
			Scan(&id, &current, &previous, &until)
		if err != nil {
			return db.Missing(err, tokens.ErrUnknown)
		}
		if tokens.SameHash(hash, current) || tokens.SameHash(hash, previous) && time.Now().UnixMilli() < until {
			return nil
		}
		return tokens.ErrUnknown
	})
	if err != nil {
		return "", fmt.Errorf("authenticate: %w", err)
	}
	return id, nil
}

// Valid returns the hashes of all tokens that are valid now.
func (s Scopes) Valid(ctx context.Context) (valid map[string]bool, err error) {
	valid = map[string]bool{}
	now := time.Now().UnixMilli()
	query := `SELECT token_hash, previous_token_hash, previous_token_until FROM ` + s.table()
	_, err = db.List(ctx, s.Database, query, nil, func(rows *sql.Rows, _ *struct{}) error {
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
	if err != nil {
		return nil, fmt.Errorf("valid tokens: %w", err)
	}
	return valid, nil
}

// Rotate gives the scope a new token and returns it. The old token stays valid for
// overlap; zero revokes it at once. A token that was still valid from a rotation before
// is revoked in either case.
func (s Scopes) Rotate(ctx context.Context, id string, overlap time.Duration) (token string, err error) {
	token, hash := tokens.New()
	err = s.Database.Write(ctx, func(tx *db.Tx) error {
		var old string
		if err := tx.QueryRowContext(ctx, `SELECT token_hash FROM `+s.table()+` WHERE id = ?`+tx.Lock, id).Scan(&old); err != nil {
			return db.Missing(err, s.Unknown)
		}
		ended := tokens.Mark(old)
		var until int64
		if overlap > 0 {
			until = time.Now().Add(overlap).UnixMilli()
		} else {
			old = ""
		}
		if _, err := tx.ExecContext(
			ctx,
			`UPDATE `+s.table()+` SET token_hash = ?, previous_token_hash = ?, previous_token_until = ? WHERE id = ?`,
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
		return "", s.wrap("rotate token of", id, err)
	}
	return token, nil
}

// revoked begins the text stored as the hash of a revoked token: no token has that hash.
const revoked = "revoked "

// AfterRestore is for a database restored from a backup, which lacks the token rotations after
// the backup. It revokes the tokens that were already superseded when the backup was made, and
// the token of each scope for which revoke returns true; mark is the [tokens.Mark] of the token. It
// returns all scopes. A second call finds the tokens that the first has revoked.
func (s Scopes) AfterRestore(ctx context.Context, revoke func(id, mark string) bool) (rows []Restored, err error) {
	err = s.Database.Write(ctx, func(tx *db.Tx) error {
		found, err := tx.QueryContext(ctx, `SELECT id, token_hash, previous_token_hash <> '' FROM `+s.table()+` ORDER BY id`)
		rows, err = db.Collect(found, err, func(rows *sql.Rows, r *Restored) error { return rows.Scan(&r.ID, &r.hash, &r.Superseded) })
		if err != nil {
			return err
		}
		for n, r := range rows {
			was := strings.HasPrefix(r.hash, revoked)
			rows[n].Revoked = was || revoke(r.ID, tokens.Mark(r.hash))
			change := audit.Change{Verb: "revoke-token", Kind: s.Kind, Name: r.ID}
			if rows[n].Revoked && !was {
				change.Ended = tokens.Mark(r.hash)
				_, none := tokens.New() // the column is unique
				if _, err := tx.ExecContext(ctx, `UPDATE `+s.table()+` SET token_hash = ? WHERE id = ?`, revoked+none, r.ID); err != nil {
					return err
				}
			} else if !r.Superseded {
				continue
			}
			if _, err := tx.ExecContext(
				ctx,
				`UPDATE `+s.table()+` SET previous_token_hash = '', previous_token_until = 0 WHERE id = ?`,
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

// Restored is a scope of a database that was put back.
type Restored struct {
	ID string
	// Superseded is true if it had an older token, which is revoked now; Revoked if it has
	// none any more.
	Superseded, Revoked bool

	hash string
}
