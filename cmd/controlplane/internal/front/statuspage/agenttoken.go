package statuspage

import (
	"time"

	"github.com/seed-9e1ffd66/trueup/cmd/internal/program"
)

// agentToken is the token of an agent, of a control plane whose tokens end.
type agentToken struct {
	// Until is when it ends, unless the agent renews it; zero: it has no end.
	Until time.Time
	Ended bool
	// Command makes another one.
	Command string
}

// newAgentToken returns nil if tokens have no end.
func newAgentToken(kind, id string, until, now time.Time, lifetime time.Duration) *agentToken {
	if lifetime == 0 {
		return nil
	}
	return &agentToken{
		Until: until, Ended: !until.IsZero() && !now.Before(until), Command: program.CommandLine("controlplane rotate", kind, id),
	}
}

// problem returns what is wrong with the token of an agent that was heard last at contact, zero for
// never; ok is false for nothing. An agent that was heard after the end of its own token has another
// one, such as the token of all regions.
func (t *agentToken) problem(contact, now time.Time, lifetime time.Duration) (p problem, ok bool) {
	const warned = 4 // the part of the lifetime in the alert TrueupControlPlaneAgentTokenNotRenewed
	switch {
	case t == nil, t.Until.IsZero(), contact.After(t.Until):
		return problem{}, false
	case t.Ended:
		return problem{
			state: tokenEnded, Since: t.Until, Why: "The token of the agent has ended. What runs stays as it is, and the agent learns of no change.",
			Next: "Make another token and give it to the agent, which renews that:", Command: t.Command,
		}, true
	case !contact.IsZero() && t.Until.Sub(now) < lifetime/warned:
		return problem{
			state: tokenEnding, Why: "The agent has not renewed its token, which ends " + when{now, t.Until}.Exact() + ".",
			Next: "Nothing, if the agent is new or its token was just rotated: it renews that at its next request. Else look at what its " +
				"log says of the loop token renewal; see the runbook An agent does not renew its token.",
		}, true
	}
	return problem{}, false
}
