// Package second asks for two people where one mistake, or one stolen token, would do harm:
// the first request is stored and answered with 202, and the same request of another
// administrator within the hour is carried out.
package second

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/edge/oidcauth"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/edge/tokens"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/front/adminapi"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/audit"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/db"
)

// window is how long the first request waits for the second.
const window = time.Hour

// Person keeps the requests that wait for a second person. It is safe for concurrent use,
// and several replicas may share its database.
type Person struct {
	// Database has the table. Required.
	Database *db.Database
	// Admins returns the current administrators: a first request counts while its author is one.
	// Required.
	Admins tokens.Admins
	// People are the administrators who sign in with OpenID Connect. Nil: there are none.
	People *oidcauth.People
	// Actions are those that need two people; see [Actions]. Empty: none.
	Actions []string
}

// Actions are what can need two people.
func Actions() []string {
	return []string{adminapi.ActionApprove, adminapi.ActionEpoch, adminapi.ActionAbandon}
}

// Check returns the error for an action that is none of [Actions].
func Check(actions []string) error {
	for _, action := range actions {
		if !slices.Contains(Actions(), action) {
			return fmt.Errorf("is %.80q, must be some of %s, with commas between", action, strings.Join(Actions(), ", "))
		}
	}
	return nil
}

// Agree reports whether a request with this body may be carried out now. If it may not, it
// has answered that another person is needed, or returns why the request is refused.
func (p *Person) Agree(w http.ResponseWriter, r *http.Request, action string, admin tokens.Admin, body any) (bool, error) {
	if p == nil || !slices.Contains(p.Actions, action) {
		return true, nil
	}
	if admin.Name == "" {
		return false, &adminapi.Error{
			Status:  http.StatusForbidden,
			Code:    "nameless_token",
			Message: action + " needs two people, and this token has no name: set name=... before it in --admin-token-file",
		}
	}
	request, err := hash(r.Method, r.URL.Path, r.URL.Query().Encode(), body)
	if err != nil {
		return false, err
	}
	first, same, err := p.asked(r.Context(), request, asking{admin, change(r, action)})
	switch {
	case err != nil:
		return false, fmt.Errorf("second person: %w", err)
	case !first && !same:
		return true, nil
	case first:
		return false, adminapi.WriteJSON(w, http.StatusAccepted, adminapi.Waiting{
			Action: action, First: admin.Actor(), Until: time.Now().Add(window).UTC().Truncate(time.Second),
			Message: "another administrator must send the same request; then it is carried out",
		})
	}
	return false, &adminapi.Error{
		Status: http.StatusConflict, Code: "same_person",
		Message: action + " needs two people: " + admin.Actor() + " has asked for it already, and another administrator must",
	}
}

// hash returns what a request is stored by.
func hash(method, path, query string, body any) (string, error) {
	text, err := json.Marshal(body)
	sum := sha256.Sum256(append([]byte(method+" "+path+"?"+query+"\n"), text...))
	return hex.EncodeToString(sum[:]), err
}

// Waiting returns the name of the administrator whose POST of this path and body waits for the
// same of another one, and until when. The name is empty if none does.
func Waiting(ctx context.Context, database *db.Database, path string, body any) (name string, until time.Time, err error) {
	request, err := hash(http.MethodPost, path, "", body)
	if err != nil {
		return "", time.Time{}, err
	}
	err = database.Read(ctx, func(tx *db.Tx) error {
		name, until = "", time.Time{}
		var asked int64
		err := tx.QueryRowContext(ctx, `SELECT name, asked_at FROM second_person WHERE request = ? AND asked_at > ?`,
			request, time.Now().Add(-window).UnixMilli()).Scan(&name, &asked)
		if errors.Is(err, sql.ErrNoRows) {
			return nil
		}
		until = time.UnixMilli(asked).Add(window).UTC()
		return err
	})
	if err != nil {
		return "", time.Time{}, fmt.Errorf("second person: %w", err)
	}
	return name, until, nil
}

// asking is the entry of the audit for a first request, and its administrator.
type asking struct {
	by tokens.Admin
	audit.Change
}

// requester identifies the administrator of a first request.
type requester struct {
	name, fingerprint string
	person            tokens.Person
}

// requesterOf returns an administrator as requester.
func requesterOf(a tokens.Admin) requester { return requester{a.Name, a.Fingerprint(), a.Person} }

// is reports whether both are one person. Of two whom the issuer identifies the subject decides,
// and not the name; in all other cases the same name, in any case, is the same person.
func (q requester) is(other requester) bool {
	if q.person.Known() && other.person.Known() {
		return q.person.Key() == other.person.Key()
	}
	return strings.EqualFold(q.name, other.name) || q.fingerprint == other.fingerprint
}

// counts reports whether a first request still counts: its author is an administrator now, with
// the token of then, or by the groups of then.
func (p *Person) counts(first requester) bool {
	if first.person.Known() {
		admin, err := p.People.Admin(first.person, first.name)
		return err == nil && admin.Role == tokens.RoleAdministrator
	}
	now := time.Now()
	return slices.ContainsFunc(p.Admins(), func(a tokens.Admin) bool {
		return a.Name == first.name && a.Fingerprint() == first.fingerprint && a.Role == tokens.RoleAdministrator && !a.Expired(now)
	})
}

// change is the entry of the audit for a request.
func change(r *http.Request, action string) audit.Change {
	c := audit.Change{Verb: "ask-" + action, Kind: audit.KindLog, Name: "regions", Outcome: audit.Created}
	if id := r.PathValue("cluster_id"); id != "" {
		c.Kind, c.Name = audit.KindCluster, id
	} else if id := r.PathValue("region_id"); id != "" {
		c.Kind, c.Name = audit.KindRegion, id
	}
	return c
}

// asked is note, again if the first request has gone meanwhile: another request has carried it
// out.
func (p *Person) asked(ctx context.Context, request string, change asking) (first, same bool, err error) {
	const attempts = 5
	for range attempts {
		if first, same, err = p.note(ctx, request, change); !errors.Is(err, sql.ErrNoRows) {
			return first, same, err
		}
	}
	return false, false, fmt.Errorf("%w: many ask for the same", db.ErrBusy)
}

// note stores the requester if there is no other within the window, and reports whether this one
// is the first now, or the same person as the first. If it is neither the request is carried
// out, and forgotten: the next of its kind needs two people again.
func (p *Person) note(ctx context.Context, request string, change asking) (first, same bool, err error) {
	now, by := time.Now(), requesterOf(change.by)
	groups, err := json.Marshal(by.person.Groups)
	if err != nil {
		return false, false, err
	}
	values := []any{by.name, by.fingerprint, by.person.Issuer, by.person.Subject, string(groups), now.UnixMilli(), request}
	err = p.Database.Write(ctx, func(tx *db.Tx) error {
		first, same = false, false
		if _, err := tx.ExecContext(ctx, `DELETE FROM second_person WHERE asked_at <= ?`, now.Add(-window).UnixMilli()); err != nil {
			return err
		}
		stored, err := tx.Affected(ctx, `INSERT INTO second_person (name, fingerprint, issuer, subject, member_of, asked_at, request)
			VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (request) DO NOTHING`, values...)
		if err != nil {
			return err
		}
		if first = stored == 1; first {
			return audit.Record(ctx, tx, change.Change)
		}
		var before requester
		var memberOf string
		err = tx.QueryRowContext(ctx, `SELECT name, fingerprint, issuer, subject, member_of
			FROM second_person WHERE request = ?`+tx.Lock, request).
			Scan(&before.name, &before.fingerprint, &before.person.Issuer, &before.person.Subject, &memberOf)
		if err != nil {
			return err
		}
		if err := json.Unmarshal([]byte(memberOf), &before.person.Groups); err != nil {
			return err
		}
		switch {
		case !p.counts(before):
			// The first requester has lost the role: this one becomes the first.
			first = true
			if _, err := tx.ExecContext(ctx, `UPDATE second_person
				SET name = ?, fingerprint = ?, issuer = ?, subject = ?, member_of = ?, asked_at = ? WHERE request = ?`, values...); err != nil {
				return err
			}
			return audit.Record(ctx, tx, change.Change)
		case by.is(before):
			same = true
			return nil
		}
		_, err = tx.ExecContext(ctx, `DELETE FROM second_person WHERE request = ?`, request)
		return err
	})
	return first, same, err
}
