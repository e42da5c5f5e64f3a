package clusters

import (
	"context"
	"time"

	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/edge/tokens"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/front/adminapi"
)

// me is the administrator who asks.
type me struct {
	// Actor is the administrator in the audit.
	Actor string `json:"actor"`
	// Fingerprint names the token, or the person who has signed in, in logs.
	Fingerprint string      `json:"fingerprint"`
	Role        tokens.Role `json:"role"`
	// Projects and Regions are the ids of what an operator may change, or * for all.
	Projects []string `json:"projects,omitempty"`
	Regions  []string `json:"regions,omitempty"`
	// Scope says in words what the administrator may change.
	Scope string `json:"scope"`
	// ExpiresAt is when the token ends. It is absent for never.
	ExpiresAt time.Time `json:"expires_at,omitzero"`
}

// meRoute returns the endpoint that shows who asks.
func meRoute() adminapi.Route {
	return adminapi.Get(adminapi.Prefix+"me", adminapi.Everything, func(ctx context.Context, _ struct{}) (me, error) {
		admin, _ := ctx.Value(adminKey{}).(tokens.Admin)
		return me{
			Actor: admin.Actor(), Fingerprint: admin.Fingerprint(), Role: admin.Role, Projects: admin.Projects, Regions: admin.Regions,
			Scope: admin.Scope(), ExpiresAt: admin.Expires.UTC(),
		}, nil
	}).Named("getMe", "Show who the credential of the request belongs to, and what it opens.")
}
