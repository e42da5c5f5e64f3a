package statuspage

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/edge/oidcauth"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/edge/tokens"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/audit"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/db"
)

const (
	// sessionAge is how long after the login a session ends.
	sessionAge = 12 * time.Hour
	// maxSessions is how many sessions are kept, the newest.
	maxSessions = 1000
)

// sessions are the logins that have not ended.
type sessions struct {
	db *db.Database
	// admins are the keys: a session is found as long as the token is valid that it was
	// opened with, or as long as the person has a right who has signed in.
	admins tokens.Admins
	people *oidcauth.People
}

// ofPerson begins the cookies of people who have signed in with OpenID Connect.
const ofPerson = "oidc."

// personSessionID returns the database's id of the session whose cookie a person has. The cookie
// is random, so a plain hash is enough.
func personSessionID(cookie string) string { return tokens.Hash("status session\n" + cookie) }

// sessionID returns the database's id of the session that the administrator has opened and
// whose cookie has secret.
func sessionID(admin tokens.Admin, secret string) string {
	return admin.MAC("status session\n" + secret)
}

// open begins a session and returns the secret for its cookie.
func (s *sessions) open(ctx context.Context, admin tokens.Admin) (secret string, err error) {
	secret, _ = tokens.New()
	id, change := sessionID(admin, secret), audit.Change{Verb: "login", Kind: audit.KindSession, Outcome: audit.Created}
	if admin.Person.Known() {
		secret = ofPerson + secret
		id, change.Name = personSessionID(secret), admin.Fingerprint()
	}
	groups, err := json.Marshal(admin.Person.Groups)
	if err != nil {
		return "", fmt.Errorf("open session: %w", err)
	}
	name := ""
	if admin.Person.Known() {
		name = admin.Name
	}
	now := time.Now()
	err = s.db.Write(ctx, func(tx *db.Tx) error {
		if _, err := tx.ExecContext(ctx, `INSERT INTO status_sessions (id, created_at, expires_at, issuer, subject, name, member_of)
			VALUES (?, ?, ?, ?, ?, ?, ?)`,
			id, now.UnixMilli(), now.Add(sessionAge).UnixMilli(), admin.Person.Issuer, admin.Person.Subject, name, string(groups)); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, `DELETE FROM status_sessions WHERE expires_at <= ? OR created_at <
			(SELECT created_at FROM status_sessions ORDER BY created_at DESC LIMIT 1 OFFSET ?)`, now.UnixMilli(), maxSessions-1); err != nil {
			return err
		}
		return audit.Record(ctx, tx, change)
	})
	if err != nil {
		return "", fmt.Errorf("open session: %w", err)
	}
	return secret, nil
}

// find returns the session whose cookie has secret; no id if there is none.
func (s *sessions) find(ctx context.Context, secret string) (visitor, error) {
	if strings.HasPrefix(secret, ofPerson) {
		return s.findPerson(ctx, secret)
	}
	for _, admin := range s.admins() {
		if admin.Expired(time.Now()) {
			continue
		}
		asked := sessionID(admin, secret)
		var expires int64
		err := s.db.Read(ctx, func(tx *db.Tx) error {
			return tx.QueryRowContext(ctx, `SELECT expires_at FROM status_sessions WHERE id = ?`, asked).Scan(&expires)
		})
		ends := time.UnixMilli(expires)
		switch {
		case err == nil && time.Now().Before(ends):
			return visitor{sessionID: asked, actor: admin.Actor(), until: earlier(ends, admin.Expires)}, nil
		case err != nil && !errors.Is(err, sql.ErrNoRows):
			return visitor{}, fmt.Errorf("find session: %w", err)
		}
	}
	return visitor{}, nil
}

// findPerson returns the session of a person whose groups have a right now.
func (s *sessions) findPerson(ctx context.Context, cookie string) (visitor, error) {
	id := personSessionID(cookie)
	var expires int64
	var name, memberOf string
	var person tokens.Person
	err := s.db.Read(ctx, func(tx *db.Tx) error {
		return tx.QueryRowContext(ctx, `SELECT expires_at, issuer, subject, name, member_of FROM status_sessions WHERE id = ?`, id).
			Scan(&expires, &person.Issuer, &person.Subject, &name, &memberOf)
	})
	if err == nil {
		err = json.Unmarshal([]byte(memberOf), &person.Groups)
	}
	ends := time.UnixMilli(expires)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return visitor{}, nil
	case err != nil:
		return visitor{}, fmt.Errorf("find session: %w", err)
	case !time.Now().Before(ends), !person.Known():
		return visitor{}, nil
	}
	admin, err := s.people.Admin(person, name)
	if err != nil {
		return visitor{}, nil //nolint:nilerr // without a right there is no session
	}
	return visitor{sessionID: id, actor: admin.Actor(), until: ends}, nil
}

// earlier returns the earlier of two times, of which the second may be none.
func earlier(a, b time.Time) time.Time {
	if !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// end ends the session.
func (s *sessions) end(ctx context.Context, id string) error {
	err := s.db.Write(ctx, func(tx *db.Tx) error {
		if _, err := tx.ExecContext(ctx, `DELETE FROM status_sessions WHERE id = ?`, id); err != nil {
			return err
		}
		return audit.Record(ctx, tx, audit.Change{Verb: "logout", Kind: audit.KindSession, Outcome: audit.Deleted})
	})
	if err != nil {
		return fmt.Errorf("end session: %w", err)
	}
	return nil
}
