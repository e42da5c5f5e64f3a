// Package agenttoken is how an agent renews its token, whichever control plane of this
// repository it speaks to.
//
// The token that a person has given to an agent is there to begin with. A control plane whose
// tokens have an end says with [Header] that it is time for another, and answers a POST to
// [Path], with the token that is valid, with the next one. That becomes valid beside the old one,
// which ends a minute after the next one was used first: an agent that stores the next one before
// it uses it may die at any time. Asked again before that, the control plane answers with another
// one, and the one before was never valid.
package agenttoken

const (
	// Path is where a token is renewed, on the host of the control plane.
	Path = "/api/v1/agent/token"
	// Header is in answers to a token that should be renewed, with the value [Renew].
	Header = "X-Agent-Token"
	// Renew is the only value of Header.
	Renew = "renew"
	// TooManyAttempts is the code of a 429 that is in place of 401: the token is not valid, and too
	// many such came from the address of the agent.
	TooManyAttempts = "too_many_attempts"
)

// Renewed is the answer to a renewal.
type Renewed struct {
	// Token is the next token, shown this once.
	Token string `json:"token"`
	// ExpiresInSeconds is for how long it is valid, from now on.
	ExpiresInSeconds int64 `json:"expires_in_seconds"`
}
