package cloudtest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/seed-9e1ffd66/trueup/cloud"
	"github.com/seed-9e1ffd66/trueup/internal/pause"
)

// A Subject is a provider under Run.
type Subject struct {
	// Provider is the provider under test. Required.
	Provider cloud.Provider
	// Config is a launch that works. Run sets its Token and Tags. Required.
	Config cloud.LaunchConfig
	// Other is one more launch that works, with another InstanceType. Required.
	Other cloud.LaunchConfig
	// UnknownID is an id of the provider's form that belongs to no machine.
	// Required.
	UnknownID string
	// Limit is how long a machine may take from one state to the next. Default
	// 45s.
	Limit time.Duration
}

// Run tests that a provider fulfils the contract of [cloud.Provider], and of the batch
// interfaces that it implements. Open is called once for each subtest; subtests may see
// each other's machines. Run terminates the machines that it launches.
func Run(t *testing.T, open func(t *testing.T) Subject) {
	t.Helper()
	for _, c := range checks {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := &session{Subject: open(t), name: fmt.Sprintf("%d-%s", time.Now().UnixNano(), c.name)}
			if s.Limit <= 0 {
				s.Limit = 45 * time.Second
			}
			ctx, cancel := context.WithTimeout(t.Context(), 4*s.Limit)
			defer cancel()
			defer s.cleanUp(context.WithoutCancel(ctx), t)
			if err := c.check(ctx, s); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// check is one sentence of the contract. It returns what the provider did wrong.
type check struct {
	name  string
	check func(ctx context.Context, s *session) error
}

// session is one subtest with its machines.
type session struct {
	Subject
	name     string   // unique in the account: an earlier run may have left machines
	launched []string // to be terminated at the end, whatever the check returned
	tokens   int      // handed out so far
}

// scope keeps the machines of this session apart from all others of the account.
func (s *session) scope() cloud.Scope {
	return cloud.Scope{Domain: "cloudtest.example", Cluster: "conformance", Pool: "pool", PoolUID: s.name}
}

// config returns a config with a token of its own and the tags of the session.
func (s *session) config() cloud.LaunchConfig {
	s.tokens++
	c := s.Config
	c.Token = cloud.Token(s.name, int64(s.tokens), 0)
	c.Tags = s.scope().LaunchTags(c.Token, map[string]string{"purpose": "conformance"})
	return c
}

// launch launches a machine and notes it for the clean-up.
func (s *session) launch(ctx context.Context, c cloud.LaunchConfig) (cloud.Instance, error) {
	i, err := s.Provider.LaunchInstance(ctx, c)
	if i.ID != "" {
		s.launched = append(s.launched, i.ID)
	}
	if err != nil {
		return i, fmt.Errorf("launch: %w", err)
	}
	return i, nil
}

// running launches a machine and waits until it runs.
func (s *session) running(ctx context.Context) (cloud.Instance, error) {
	i, err := s.launch(ctx, s.config())
	if err != nil {
		return i, err
	}
	return i, s.reaches(ctx, i.ID, cloud.InstanceRunning)
}

// stopped launches a machine and stops it.
func (s *session) stopped(ctx context.Context) (cloud.Instance, error) {
	i, err := s.running(ctx)
	if err != nil {
		return i, err
	}
	if err := s.Provider.StopInstance(ctx, i.ID, false); err != nil {
		return i, fmt.Errorf("stop: %w", err)
	}
	return i, s.reaches(ctx, i.ID, cloud.InstanceStopped)
}

// reaches waits until a machine is in a state, for Limit at most.
func (s *session) reaches(ctx context.Context, id string, state cloud.InstanceState) error {
	ctx, cancel := context.WithTimeout(ctx, s.Limit)
	defer cancel()
	return cloud.Wait(ctx, s.Provider, id, state)
}

// list lists the machines of the session until it finds as many as wanted: a
// list may lag behind.
func (s *session) list(ctx context.Context, tags map[string]string, want int) ([]cloud.Instance, error) {
	for end := time.Now().Add(s.Limit); ; {
		found, err := s.Provider.ListInstances(ctx, tags)
		if err != nil {
			return nil, fmt.Errorf("list: %w", err)
		}
		if len(found) == want {
			return found, nil
		}
		if time.Now().After(end) {
			return nil, fmt.Errorf("list by %v: %d machines, want %d", tags, len(found), want)
		}
		if !pause.For(ctx, 200*time.Millisecond) {
			return nil, ctx.Err()
		}
	}
}

// cleanUp terminates what the session has launched. ctx outlives that of the check.
func (s *session) cleanUp(ctx context.Context, t *testing.T) {
	t.Helper()
	for _, id := range s.launched {
		if err := s.Provider.TerminateInstance(ctx, id); err != nil && !errors.Is(err, cloud.ErrNotFound) {
			t.Errorf("machine %s is left behind: %v", id, err)
		}
	}
}

// is returns an error unless err is the wanted one.
func is(what string, err, want error) error {
	if !errors.Is(err, want) {
		return fmt.Errorf("%s: %w, want %w", what, cmp.Or(err, errors.New("no error")), want)
	}
	return nil
}
