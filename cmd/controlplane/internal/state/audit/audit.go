package audit

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/edge/origin"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/edge/requestid"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/db"
)

// Actors that have no name after a slash.
const (
	// ControlPlane is what the program does by itself.
	ControlPlane = "controlplane"
	// SharedToken is the agent of any region that has the shared token.
	SharedToken = "shared-agent-token"
	// Stranger is a client whose credential was refused.
	Stranger = "stranger"
)

// The logs. Each has bounds of its own; see the package documentation.
const (
	// Changes is what administrators, commands and the program have changed.
	Changes = "changes"
	// Agents is what agents have changed.
	Agents = "agents"
	// Access is logins, logouts, and reads of what may be secret.
	Access = "access"
	// Refused is credentials that were not valid.
	Refused = "refused"
)

// Logs are all logs.
func Logs() []string { return []string{Changes, Agents, Access, Refused} }

// Read is the verb of what changes nothing.
const Read = "read"

// Removal returns the verb of a removal; abandon gives up what is left.
func Removal(abandon bool) string {
	if abandon {
		return "abandon"
	}
	return "delete"
}

// once is how long a repetition of an agent's change, or of a read, has no entry of its
// own.
const once = time.Minute

// logOf returns the log of what the actor does.
func logOf(actor string, c Change) string {
	kind, _, _ := strings.Cut(actor, "/")
	switch {
	case actor == Stranger:
		return Refused
	case actor == SharedToken, kind == KindCluster, kind == KindRegion:
		return Agents
	case c.Kind == KindSession, c.Verb == Read:
		return Access
	}
	return Changes
}

// The outcomes of a change.
const (
	Created = "created"
	Changed = "changed"
	Deleted = "deleted"
)

// The kinds of objects. The name of an object that belongs to another begins with the name
// of that one and a slash.
const (
	KindCluster    = "cluster"
	KindProject    = "project"
	KindService    = "service"
	KindVarGroup   = "var-group"
	KindRegion     = "region"
	KindDeployment = "deployment"
	KindSentinel   = "sentinel"
	KindPolicy     = "policy"
	KindLog        = "log"
	KindSession    = "session"
	KindCredential = "credential"
)

// Kinds are all kinds of objects.
func Kinds() []string {
	return []string{
		KindCluster,
		KindProject,
		KindService,
		KindVarGroup,
		KindRegion,
		KindDeployment,
		KindSentinel,
		KindPolicy,
		KindLog,
		KindSession,
		KindCredential,
	}
}

// Change is a change of one object.
type Change struct {
	// Verb is the requested operation, such as put, delete or rotate-token.
	Verb string
	// Kind is one of [Kinds], and Name the object of that kind.
	Kind, Name string
	// Outcome is what became of the object. Empty: [Changed].
	Outcome string
	// Ended is the mark (tokens.Mark) of the token of an agent that ends with the change, at
	// once or after an overlap. Empty: none does.
	Ended string
}

// Entry is a change with its time and its actor.
type Entry struct {
	// ID is unique, and in the order of time.
	ID string `json:"id"`
	// Log is one of [Logs].
	Log string `json:"log"`
	// At is when it was changed, in UTC.
	At time.Time `json:"at"`
	// Actor is the client that changed it; see the package documentation.
	Actor string `json:"actor"`
	// From is the address that the request came from, see package origin. Empty: it was none.
	From string `json:"from,omitempty"`
	Verb string `json:"verb"`
	// Kind and Name are the object.
	Kind    string `json:"kind"`
	Name    string `json:"name"`
	Outcome string `json:"outcome"`
	// RequestID is the id of the request, see package requestid. Empty: not from a request.
	RequestID string `json:"request_id,omitempty"`
	// Ended is the Ended of the [Change]. An export has it, the database has not.
	Ended string `json:"ended,omitempty"`
}

type actorKey struct{}

// NewContext returns a context whose changes are recorded for the actor. If ctx belongs to a
// request, the credential of the request was valid, see [origin.Verified].
func NewContext(ctx context.Context, actor string) context.Context {
	origin.Verified(ctx, actor)
	return context.WithValue(ctx, actorKey{}, actor)
}

// Actor returns the actor of the context, [ControlPlane] if it has none.
func Actor(ctx context.Context) string {
	actor, _ := ctx.Value(actorKey{}).(string)
	return cmp.Or(actor, ControlPlane)
}

// Record writes the changes in tx, which makes them, in this order. What an agent has done,
// or was read, within the last minute has no other entry, unless a token ends with it.
func Record(ctx context.Context, tx *db.Tx, changes ...Change) error {
	now := time.Now()
	for n, c := range changes {
		e := entryOf(ctx, c, now.Add(time.Duration(n)))
		if (e.Log == Agents || c.Verb == Read) && c.Ended == "" {
			var same int
			if err := tx.QueryRowContext(ctx, `SELECT count(*) FROM audit WHERE log = ? AND id > ? AND actor = ? AND verb = ? AND kind = ? AND name = ?`,
				e.Log, timeID(now.Add(-once)), e.Actor, e.Verb, e.Kind, e.Name).
				Scan(&same); err != nil {
				return fmt.Errorf("audit of %s %s %s: %w", c.Verb, c.Kind, c.Name, err)
			}
			if same > 0 {
				continue
			}
		}
		if _, err := tx.ExecContext(
			ctx,
			`INSERT INTO audit (id, log, at, actor, source, verb, kind, name, outcome, request_id) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
			e.ID,
			e.Log,
			e.At.UnixMilli(),
			e.Actor,
			e.From,
			e.Verb,
			e.Kind,
			e.Name,
			e.Outcome,
			e.RequestID,
		); err != nil {
			return fmt.Errorf("audit of %s %s %s: %w", c.Verb, c.Kind, c.Name, err)
		}
		tx.Note(e)
	}
	return nil
}

func entryOf(ctx context.Context, c Change, at time.Time) Entry {
	actor := Actor(ctx)
	return Entry{
		ID: newID(at), Log: logOf(actor, c), At: at.UTC().Truncate(time.Millisecond), Actor: actor, From: origin.Address(ctx),
		Verb: c.Verb, Kind: c.Kind, Name: c.Name, Outcome: cmp.Or(c.Outcome, Changed), RequestID: requestid.Of(ctx), Ended: c.Ended,
	}
}

// noteTimeout bounds what a request waits for an entry that it does not need.
const noteTimeout = 5 * time.Second

// Note records an event that is no change of the database, in a transaction of its own. It
// returns no error: an entry that cannot be written is logged as an error.
func Note(ctx context.Context, database *db.Database, logger *slog.Logger, c Change) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), noteTimeout)
	defer cancel()
	if err := database.Write(ctx, func(tx *db.Tx) error { return Record(ctx, tx, c) }); err != nil {
		logger.ErrorContext(ctx, "audit entry not written", slog.Any("entry", entryOf(ctx, c, time.Now())), slog.Any("error", err))
	}
}

// Refuse records that a credential was refused at an endpoint.
func Refuse(ctx context.Context, database *db.Database, logger *slog.Logger, endpoint string) {
	// Not by NewContext: the credential was not valid.
	Note(
		context.WithValue(ctx, actorKey{}, Stranger),
		database,
		logger,
		Change{Verb: "authenticate", Kind: KindCredential, Name: endpoint, Outcome: "refused"},
	)
}

// CreatedOr returns [Created] for a new object, [Changed] else.
func CreatedOr(created bool) string {
	if created {
		return Created
	}
	return Changed
}

// newID returns an id in the order of time.
func newID(at time.Time) string {
	tail := make([]byte, 4)
	// Read never fails and fills the whole slice; see crypto/rand.
	_, _ = rand.Read(tail)
	return timeID(at) + hex.EncodeToString(tail)
}

// timeID returns what the ids of a time begin with.
func timeID(at time.Time) string { return fmt.Sprintf("%016x", at.UnixNano()) }
