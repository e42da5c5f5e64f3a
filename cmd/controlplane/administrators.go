package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/edge/second"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/edge/tokens"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/agents"
)

// twoPeople returns the actions that need a second person.
func (o *options) twoPeople(admins []tokens.Admin) ([]string, error) {
	if o.secondPerson == "" {
		return nil, nil
	}
	actions := strings.Split(o.secondPerson, ",")
	if err := second.Check(actions); err != nil {
		return nil, wrong("second-person", "%w", err)
	}
	names := map[string]bool{}
	for _, admin := range admins {
		if admin.Name != "" && admin.Role == tokens.RoleAdministrator && !admin.Expired(time.Now()) {
			names[admin.Name] = true
		}
	}
	if len(names) < 2 && o.oidc.issuer == "" { //nolint:mnd // two people
		return nil, wrong(
			"second-person", "is %q, which needs two administrators with names in --admin-token-file, which has %d, or --oidc-issuer",
			o.secondPerson, len(names))
	}
	return actions, nil
}

// errAgents is a token that cannot be one of administrators.
var errAgents = errors.New("administrators need another")

// noAgents returns an error if the token belongs to an agent.
func noAgents(ctx context.Context, token string, owners ...func(ctx context.Context, token string) (agents.Agent, error)) error {
	for _, owner := range owners {
		agent, err := owner(ctx, token)
		switch {
		case err == nil:
			return fmt.Errorf("has the token of the agent of %s; %w", agent.ID, errAgents)
		case !errors.Is(err, tokens.ErrUnknown):
			return err
		}
	}
	return nil
}
