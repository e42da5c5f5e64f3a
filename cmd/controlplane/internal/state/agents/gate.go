package agents

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/seed-9e1ffd66/trueup/cmd/api/agenttoken"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/edge/guard"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/edge/limits"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/edge/tokens"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/front/adminapi"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/audit"
)

// Gate admits the agents of scopes by their tokens. It is safe for concurrent use.
type Gate struct {
	// Scopes have the tokens. Required.
	Scopes Scopes
	// Shared is a token that opens every scope. Empty: there is none.
	Shared string
	// Endpoint is what the Guard calls this. Empty: the kind of the scopes.
	Endpoint string
	// Guard slows down those that guess tokens. Nil: nothing does.
	Guard *guard.Guard
	// Door is where streams wait until they may open. Its zero value lets all through.
	Door Door
	// Limits keep one scope from taking what others need. Nil: there are none.
	Limits *limits.Limits
}

// Agent is the sender of a request that a [Gate] has admitted.
type Agent struct {
	// ID is the scope whose token it has, and Hash the hash of that token. Both are empty for
	// the shared token.
	ID, Hash string
	// Renew is true if it is time to renew the token.
	Renew bool
}

// agentKey is the context key of an Agent.
type agentKey struct{}

// Of returns the agent of a request, from its context.
func Of(ctx context.Context) Agent {
	agent, _ := ctx.Value(agentKey{}).(Agent)
	return agent
}

// Enter admits a request until leave is called, and returns it with a context that has its sender
// for [Of], and as the actor of the audit. The header of the answer says whether it is time to renew
// the token. Those that have the shared token are limited by what
// they say they are. A request that is refused has the answer as its error, an [adminapi.Error] of 401 or
// 429; any other error comes from the database.
func (g *Gate) Enter(header http.Header, r *http.Request, saysItIs string, stream bool) (admitted *http.Request, leave func(), err error) {
	if !stream {
		agent, err := g.authenticate(r)
		return g.admit(header, r, agent, err, saysItIs, stream)
	}
	// Many that come at once are not looked up at once; what lasts has no limit of its own.
	ctx, cancel := context.WithTimeout(r.Context(), openingLimit)
	defer cancel()
	through, err := g.Door.Enter(ctx)
	if err != nil {
		return nil, nil, err
	}
	agent, err := g.authenticate(r.WithContext(ctx))
	through()
	return g.admit(header, r, agent, err, saysItIs, stream)
}

// authenticate returns the sender of a request, or [tokens.ErrUnknown].
func (g *Gate) authenticate(r *http.Request) (Agent, error) {
	token, ok := tokens.Bearer(r.Header)
	switch {
	case !ok:
		return Agent{}, tokens.ErrUnknown
	case g.Shared != "" && tokens.Same(token, g.Shared):
		return Agent{}, nil
	}
	return g.Scopes.Authenticate(r.Context(), token)
}

// admit is the rest of Enter, once authenticate has returned agent and err.
func (g *Gate) admit(
	header http.Header, r *http.Request, agent Agent, err error, saysItIs string, stream bool,
) (admitted *http.Request, leave func(), _ error) {
	if errors.Is(err, tokens.ErrUnknown) {
		token, _ := tokens.Bearer(r.Header)
		return nil, nil, g.Guard.Refused(r, cmp.Or(g.Endpoint, g.Scopes.Kind), token)
	}
	if err != nil {
		return nil, nil, err
	}
	key, actor := "shared/"+saysItIs, audit.SharedToken
	if agent.ID != "" {
		key = g.Scopes.Kind + "/" + agent.ID
		actor = key
	}
	var wait time.Duration
	if stream {
		leave, wait = g.Limits.Stream(key)
	} else {
		leave, wait = g.Limits.Request(key, r)
	}
	if wait > 0 {
		return nil, nil, &adminapi.Error{
			Status: http.StatusTooManyRequests, Code: "too_many_requests", Wait: wait,
			Message: "too many requests or streams with this token at once, or too many bytes; wait",
		}
	}
	if agent.Renew {
		header.Set(agenttoken.Header, agenttoken.Renew)
	}
	return r.WithContext(audit.NewContext(context.WithValue(r.Context(), agentKey{}, agent), actor)), leave, nil
}
