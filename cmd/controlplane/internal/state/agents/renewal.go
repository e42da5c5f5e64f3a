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
	gate, agent, err := n.authenticate(r)
	admitted, leave, err := gate.admit(w.Header(), r, agent, err, "", false)
	if err != nil {
		return err
	}
	defer leave()
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

// authenticate returns the sender of a request, and the gate of the scopes that have its token; of the
// last scopes, and [tokens.ErrUnknown], if none has it.
func (n Renewal) authenticate(r *http.Request) (gate *Gate, agent Agent, err error) {
	for _, scopes := range n.Scopes {
		gate = &Gate{Scopes: scopes, Shared: n.Shared, Endpoint: "agent", Guard: n.Guard, Limits: n.Limits}
		if agent, err = gate.authenticate(r); !errors.Is(err, tokens.ErrUnknown) {
			break
		}
	}
	return gate, agent, err
}
