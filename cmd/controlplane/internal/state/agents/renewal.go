package agents

import (
	"errors"
	"net/http"
	"time"

	"github.com/seed-9e1ffd66/trueup/cmd/api/agenttoken"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/edge/guard"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/edge/limits"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/edge/tokens"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/front/adminapi"
)

// Renewal is where agents renew their tokens, see package agenttoken. It is safe for concurrent
// use.
type Renewal struct {
	// Scopes are those whose agents may renew.
	Scopes []Scopes
	// Shared is a token that opens every scope, and has no successor. Empty: there is none.
	Shared string
	// Guard and Limits mean what they do in a [Gate].
	Guard  *guard.Guard
	Limits *limits.Limits
}

// Routes returns the route of the renewal. It checks the token by itself.
func (n Renewal) Routes() []adminapi.Route {
	route := adminapi.Route{
		Method: http.MethodPost, Path: agenttoken.Path, Handle: n.renew,
		Operation: adminapi.Operation{
			Name: "renewToken",
			Summary: "Return the next token of the agent. The one of before ends a minute after the first use of the next. " +
				"Answers have the header " + agenttoken.Header + ": " + agenttoken.Renew + " when it is time.",
			Answers: map[int]any{http.StatusOK: agenttoken.Renewed{}},
		},
	}
	return []adminapi.Route{
		route.Refuses(http.StatusConflict, "no_end", "superseded").Refuses(http.StatusTooManyRequests, "too_many_requests"),
	}
}

func (n Renewal) renew(w http.ResponseWriter, r *http.Request) error {
	gate, err := n.gate(r)
	if err != nil {
		return err
	}
	admitted, leave, err := gate.Enter(w.Header(), r, "", false)
	if err != nil {
		return err
	}
	defer leave()
	agent := Of(admitted.Context())
	if agent.ID == "" || gate.Scopes.Lifetime == 0 {
		return &adminapi.Error{
			Status: http.StatusConflict, Code: "no_end",
			Message: "this token has no end, and no successor: people rotate it",
		}
	}
	token, lifetime, err := gate.Scopes.Renew(admitted.Context(), agent)
	if errors.Is(err, tokens.ErrUnknown) {
		return &adminapi.Error{
			Status: http.StatusConflict, Code: "superseded",
			Message: "this token has a successor that was used; read that",
		}
	}
	if err != nil {
		return err
	}
	return adminapi.WriteJSON(w, http.StatusOK, agenttoken.Renewed{Token: token, ExpiresInSeconds: int64(lifetime / time.Second)})
}

// gate returns the gate of the scopes that have the token of the request, of the last scopes if none
// has it.
func (n Renewal) gate(r *http.Request) (gate *Gate, err error) {
	token, _ := tokens.Bearer(r.Header)
	for _, scopes := range n.Scopes {
		gate = &Gate{Scopes: scopes, Shared: n.Shared, Endpoint: "agent", Guard: n.Guard, Limits: n.Limits}
		if _, err := scopes.Authenticate(r.Context(), token); !errors.Is(err, tokens.ErrUnknown) {
			return gate, err
		}
	}
	return gate, nil
}
