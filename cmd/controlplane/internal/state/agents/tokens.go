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

const (
	// handover is how long a token stays valid after the first use of its successor: other
	// requests of the agent are under way, and other replicas of it read the successor when they
	// are refused.
	handover = time.Minute
	// firstLifetime bounds the lifetime of a token that was shown to a person.
	firstLifetime = 24 * time.Hour
)

// keys are the tokens of a scope, as hashes. Times are Unix times in milliseconds; 0 is never,
// but of previous, which then is not valid. The end of the current token, and the next one, are zero
// unless they were written for the current one.
type keys struct {
	id                           string
	current, previous, next      string
	until, previousUntil, nextTo int64
}

const keyColumns = `id, token_hash, token_until, previous_token_hash, previous_token_until, next_token_hash, next_token_until, terms_of`

func (k *keys) scan(scan func(...any) error) error {
	var termsOf string
	err := scan(&k.id, &k.current, &k.until, &k.previous, &k.previousUntil, &k.next, &k.nextTo, &termsOf)
	if err == nil && termsOf != k.current {
		k.until, k.next, k.nextTo = 0, "", 0
	}
	return err
}

// ended reports whether a time after which a token is not valid has passed. Without a lifetime tokens
// have no end, also those that were given one before: none is renewed now.
func (s Scopes) ended(until, now int64) bool { return s.Lifetime > 0 && until != 0 && now >= until }

// standing is what a token is to its scope.
type standing int

const (
	invalid standing = iota
	current
	previous
	next
)

// standing returns what the token with this hash is now, a Unix time in milliseconds.
func (s Scopes) standing(k *keys, hash string, now int64) standing {
	switch {
	case tokens.SameHash(hash, k.current) && !s.ended(k.until, now):
		return current
	case tokens.SameHash(hash, k.previous) && now < k.previousUntil:
		return previous
	case tokens.SameHash(hash, k.next) && !s.ended(k.nextTo, now):
		return next
	}
	return invalid
}

// Authenticate returns the agent whose token this is, or [tokens.ErrUnknown]. The first use of a
// token that was made by Renew ends the one of before.
func (s Scopes) Authenticate(ctx context.Context, token string) (Agent, error) {
	hash := tokens.Hash(token)
	var k keys
	err := s.Database.Read(ctx, func(tx *db.Tx) error {
		row := tx.QueryRowContext(ctx, `SELECT `+keyColumns+` FROM `+s.table()+`
			WHERE token_hash = ? OR previous_token_hash = ? OR next_token_hash = ?`, hash, hash, hash)
		return db.Missing(k.scan(row.Scan), tokens.ErrUnknown)
	})
	now := time.Now()
	agent := Agent{ID: k.id, Hash: hash}
	if err == nil {
		switch s.standing(&k, hash, now.UnixMilli()) {
		case current:
			agent.Renew = s.due(k.until, now)
		case previous:
		case next:
			err = s.succeed(ctx, k.id, hash)
		default:
			err = tokens.ErrUnknown
		}
	}
	if err != nil {
		return Agent{}, fmt.Errorf("authenticate: %w", err)
	}
	return agent, nil
}

// due reports whether a token that is valid until then should be renewed: less than half of its
// life is left, or more than a whole one, from a time when lives were longer.
func (s Scopes) due(until int64, now time.Time) bool {
	left := time.UnixMilli(until).Sub(now)
	return s.Lifetime > 0 && (until == 0 || left < s.Lifetime/2 || left > s.Lifetime)
}

// succeed makes the next token of a scope, with this hash, the current one.
func (s Scopes) succeed(ctx context.Context, id, hash string) error {
	ctx = audit.NewContext(ctx, s.Kind+"/"+id)
	return s.Database.Write(ctx, func(tx *db.Tx) error {
		k, err := s.lockKeys(ctx, tx, id)
		if err != nil {
			return db.Missing(err, tokens.ErrUnknown)
		}
		now := time.Now()
		switch s.standing(&k, hash, now.UnixMilli()) {
		case current: // another request was first
			return nil
		case next:
		default:
			return tokens.ErrUnknown
		}
		if err := s.replace(ctx, tx, k, hash, k.nextTo, now.Add(handover)); err != nil {
			return err
		}
		return audit.Record(ctx, tx, audit.Change{Verb: "renew-token", Kind: s.Kind, Name: id, Ended: tokens.Mark(k.current)})
	})
}

// replace makes the token with this hash, which is valid until then, the current one, without a next
// one. The one of before stays valid until overlap, but not beyond its own end; zero ends it at once.
func (s Scopes) replace(ctx context.Context, tx *db.Tx, k keys, hash string, until int64, overlap time.Time) error {
	previous, previousUntil := "", int64(0)
	if !overlap.IsZero() {
		previous, previousUntil = k.current, overlap.UnixMilli()
		if s.Lifetime > 0 && k.until != 0 {
			previousUntil = min(previousUntil, k.until)
		}
	}
	_, err := tx.ExecContext(ctx, `UPDATE `+s.table()+` SET token_hash = ?, token_until = ?, terms_of = ?,
		previous_token_hash = ?, previous_token_until = ?, next_token_hash = '', next_token_until = 0 WHERE id = ?`,
		hash, until, hash, previous, previousUntil, k.id)
	return err
}

// lockKeys returns the tokens of a scope, whose row it locks.
func (s Scopes) lockKeys(ctx context.Context, tx *db.Tx, id string) (k keys, err error) {
	return k, k.scan(tx.QueryRowContext(ctx, `SELECT `+keyColumns+` FROM `+s.table()+` WHERE id = ?`+tx.Lock, id).Scan)
}

// Renew returns the next token of the agent, which replaces one that was not used, and how long
// it is valid. It is [tokens.ErrUnknown] if the token that the agent has is not the current one.
func (s Scopes) Renew(ctx context.Context, agent Agent) (token string, lifetime time.Duration, err error) {
	token, hash := tokens.New()
	err = s.Database.Write(ctx, func(tx *db.Tx) error {
		k, err := s.lockKeys(ctx, tx, agent.ID)
		if err != nil {
			return db.Missing(err, tokens.ErrUnknown)
		}
		now := time.Now()
		if s.standing(&k, agent.Hash, now.UnixMilli()) != current {
			return tokens.ErrUnknown
		}
		_, err = tx.ExecContext(ctx, `UPDATE `+s.table()+` SET token_until = ?, next_token_hash = ?, next_token_until = ?, terms_of = ?
			WHERE id = ?`, k.until, hash, now.Add(s.Lifetime).UnixMilli(), k.current, agent.ID)
		return err
	})
	if err != nil {
		return "", 0, s.wrap("renew token of", agent.ID, err)
	}
	return token, s.Lifetime, nil
}

// Shown returns until when a token is valid that is shown to a person now: its agent renews it
// at once. 0: it has no end.
func (s Scopes) Shown() (until int64) {
	if s.Lifetime == 0 {
		return 0
	}
	return time.Now().Add(min(s.Lifetime/2, firstLifetime)).UnixMilli()
}

// Valid returns the hashes of all tokens that are valid now.
func (s Scopes) Valid(ctx context.Context) (valid map[string]bool, err error) {
	valid = map[string]bool{}
	now := time.Now().UnixMilli()
	_, err = db.List(ctx, s.Database, `SELECT `+keyColumns+` FROM `+s.table(), nil, func(rows *sql.Rows, _ *struct{}) error {
		var k keys
		if err := k.scan(rows.Scan); err != nil {
			return err
		}
		for _, hash := range []string{k.current, k.previous, k.next} {
			if s.standing(&k, hash, now) != invalid {
				valid[hash] = true
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("valid tokens: %w", err)
	}
	return valid, nil
}

// Rotate gives the scope a new token and returns it. The old token stays valid for
// overlap; zero revokes it at once. A token that was still valid from a rotation before, and
// one that the agent has renewed and not used, are revoked in either case.
func (s Scopes) Rotate(ctx context.Context, id string, overlap time.Duration) (token string, err error) {
	token, hash := tokens.New()
	err = s.Database.Write(ctx, func(tx *db.Tx) error {
		k, err := s.lockKeys(ctx, tx, id)
		if err != nil {
			return db.Missing(err, s.Unknown)
		}
		var end time.Time
		if overlap > 0 {
			end = time.Now().Add(overlap)
		}
		if err := s.replace(ctx, tx, k, hash, s.Shown(), end); err != nil {
			return err
		}
		return audit.Record(ctx, tx, audit.Change{Verb: "rotate-token", Kind: s.Kind, Name: id, Ended: tokens.Mark(k.current)})
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
		found, err := tx.QueryContext(ctx, `SELECT id, token_hash, previous_token_hash <> '', next_token_hash FROM `+s.table()+` ORDER BY id`)
		rows, err = db.Collect(found, err, func(rows *sql.Rows, r *Restored) error {
			return rows.Scan(&r.ID, &r.hash, &r.Superseded, &r.next)
		})
		if err != nil {
			return err
		}
		for n, r := range rows {
			was := strings.HasPrefix(r.hash, revoked)
			rows[n].Revoked = was || revoke(r.ID, tokens.Mark(r.hash))
			change := audit.Change{Verb: "revoke-token", Kind: s.Kind, Name: r.ID}
			// An agent that was renewing its token may have the next one.
			if r.next != "" && revoke(r.ID, tokens.Mark(r.next)) {
				if _, err := tx.ExecContext(
					ctx,
					`UPDATE `+s.table()+` SET next_token_hash = '', next_token_until = 0 WHERE id = ?`,
					r.ID,
				); err != nil {
					return err
				}
			}
			if rows[n].Revoked && !was {
				change.Ended = tokens.Mark(r.hash)
				_, none := tokens.New() // the column is unique
				// A next token goes on: it was made for this row.
				if _, err := tx.ExecContext(ctx, `UPDATE `+s.table()+` SET token_hash = ?,
					terms_of = CASE WHEN terms_of = token_hash THEN ? ELSE '' END WHERE id = ?`, revoked+none, revoked+none, r.ID); err != nil {
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

	hash, next string
}
