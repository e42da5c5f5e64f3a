package tokens

import (
	"context"
	"database/sql"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/front/adminapi"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/db"
)

const (
	// noted is the age from which the last use of a token is stored again.
	noted = 10 * time.Minute
	// noteTimeout bounds the write, which a request waits for.
	noteTimeout = time.Second
)

// Uses stores when each token of an administrator was used last, to ten minutes. It is safe
// for concurrent use.
type Uses struct {
	// Database has the table. Required.
	Database *db.Database
	// Logger gets what could not be stored. Required.
	Logger *slog.Logger

	mu   sync.Mutex
	last map[string]time.Time // by fingerprint
}

// Note stores that the token was used now. What cannot be stored is logged: the request goes
// on. The tokens of people who have signed in with OpenID Connect are not stored.
func (u *Uses) Note(ctx context.Context, admin Admin) {
	if u == nil || admin.Person.Known() {
		return
	}
	name, now := admin.Fingerprint(), time.Now()
	u.mu.Lock()
	known := now.Sub(u.last[name]) < noted
	if !known {
		if u.last == nil {
			u.last = map[string]time.Time{}
		}
		u.last[name] = now
	}
	u.mu.Unlock()
	if known {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), noteTimeout)
	defer cancel()
	err := u.Database.Write(ctx, func(tx *db.Tx) error {
		_, err := tx.ExecContext(ctx, `INSERT INTO admin_token_uses (fingerprint, used_at) VALUES (?, ?)
			ON CONFLICT (fingerprint) DO UPDATE SET used_at = excluded.used_at`, name, now.UnixMilli())
		return err
	})
	if err != nil {
		u.Logger.WarnContext(ctx, "last use of an admin token not stored", slog.String("token", admin.label()), slog.Any("error", err))
	}
}

// all returns the last use of each token, by fingerprint.
func (u *Uses) all(ctx context.Context) (map[string]time.Time, error) {
	type use struct {
		name string
		at   int64
	}
	used := map[string]time.Time{}
	list, err := db.List(ctx, u.Database, `SELECT fingerprint, used_at FROM admin_token_uses`, nil,
		func(rows *sql.Rows, one *use) error { return rows.Scan(&one.name, &one.at) })
	for _, one := range list {
		used[one.name] = time.UnixMilli(one.at).UTC()
	}
	return used, err
}

// view is one token as GET shows it: never the token itself.
type view struct {
	// Fingerprint names the token in logs.
	Fingerprint string `json:"fingerprint"`
	// Actor is the holder in the audit.
	Actor string `json:"actor"`
	Role  Role   `json:"role"`
	// Projects and Regions are the ids of what an operator may change, or * for all.
	Projects []string `json:"projects,omitempty"`
	Regions  []string `json:"regions,omitempty"`
	// ExpiresAt is when the token ends. It is absent for never.
	ExpiresAt time.Time `json:"expires_at,omitzero"`
	Expired   bool      `json:"expired"`
	// LastUsedAt is when it was last used, to ten minutes. It is absent for never.
	LastUsedAt time.Time `json:"last_used_at,omitzero"`
}

// listing is the body of the list.
type listing struct {
	Tokens []view `json:"tokens"`
}

// Routes returns the endpoint that lists the tokens of administrators.
func Routes(admins Admins, uses *Uses) []adminapi.Route {
	route := adminapi.Get(adminapi.Prefix+"tokens", adminapi.Everything, func(ctx context.Context, _ struct{}) (listing, error) {
		used, err := uses.all(ctx)
		body := listing{Tokens: []view{}}
		for _, a := range admins() {
			body.Tokens = append(body.Tokens, view{
				Fingerprint: a.Fingerprint(), Actor: a.Actor(), Role: a.Role, Projects: a.Projects, Regions: a.Regions,
				ExpiresAt: a.Expires, Expired: a.Expired(time.Now()), LastUsedAt: used[a.Fingerprint()],
			})
		}
		return body, err
	}).Named("listTokens", "List the tokens of administrators: who has them, what they open, and when they were last used.")
	route.Operation.Right = adminapi.RightAdminister
	return []adminapi.Route{route.Refuses(http.StatusForbidden, "forbidden")}
}
