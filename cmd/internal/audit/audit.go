package audit

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/seed-9e1ffd66/trueup/cmd/internal/db"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/requestid"
)

// Actors that have no name after a slash.
const (
	// ControlPlane is what the program does by itself.
	ControlPlane = "controlplane"
	// SharedToken is the agent of any region that has the shared token.
	SharedToken = "shared-agent-token"
)

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
)

// Kinds are all kinds of objects.
func Kinds() []string {
	return []string{KindCluster, KindProject, KindService, KindVarGroup, KindRegion, KindDeployment, KindSentinel, KindPolicy, KindLog}
}

// Change is a change of one object.
type Change struct {
	// Verb is what was asked for, such as put, delete or rotate-token.
	Verb string
	// Kind is one of [Kinds], and Name the object of that kind.
	Kind, Name string
	// Outcome is what became of the object. Empty: [Changed].
	Outcome string
}

// Entry is a change with its time and its actor.
type Entry struct {
	// ID is unique, and in the order of time.
	ID string `json:"id"`
	// At is when it was changed, in UTC.
	At time.Time `json:"at"`
	// Actor is the client that changed it; see the package documentation.
	Actor string `json:"actor"`
	Verb  string `json:"verb"`
	// Kind and Name are the object.
	Kind    string `json:"kind"`
	Name    string `json:"name"`
	Outcome string `json:"outcome"`
	// RequestID is that of the request, see package requestid. Empty: it was none.
	RequestID string `json:"request_id,omitempty"`
}

type actorKey struct{}

// NewContext returns a context whose changes are those of the actor.
func NewContext(ctx context.Context, actor string) context.Context {
	return context.WithValue(ctx, actorKey{}, actor)
}

// Actor returns the actor of the context, [ControlPlane] if it has none.
func Actor(ctx context.Context) string {
	actor, _ := ctx.Value(actorKey{}).(string)
	return cmp.Or(actor, ControlPlane)
}

// Record writes the changes in tx, which makes them, in this order.
func Record(ctx context.Context, tx *db.Tx, changes ...Change) error {
	now := time.Now()
	for n, c := range changes {
		id := newID(now.Add(time.Duration(n)))
		if _, err := tx.ExecContext(ctx, `INSERT INTO audit (id, at, actor, verb, kind, name, outcome, request_id) VALUES (?, ?, ?, ?, ?, ?, ?, ?)`,
			id, now.UnixMilli(), Actor(ctx), c.Verb, c.Kind, c.Name, cmp.Or(c.Outcome, Changed), requestid.Of(ctx)); err != nil {
			return fmt.Errorf("audit of %s %s %s: %w", c.Verb, c.Kind, c.Name, err)
		}
	}
	return nil
}

// CreatedOr returns [Created] for what is new, [Changed] else.
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
	return fmt.Sprintf("%016x", at.UnixNano()) + hex.EncodeToString(tail)
}
