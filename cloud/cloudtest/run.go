package cloudtest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
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
	// Second is a provider of the same account that shares nothing else with Provider, as
	// another process has. Nil means Provider, which cannot show that tokens and machines
	// outlive the process.
	Second cloud.Provider
	// NoZone and NoAddress say that the machines of this cloud have no zone and no private
	// address.
	NoZone, NoAddress bool
	// Many is how many machines are launched to see that a list has all of its pages. A
	// page must have fewer. Default 7.
	Many int
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
			s := newSession(open(t), c.name)
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
	batches  any      // the provider, for its batch interfaces
	name     string   // unique in the account: an earlier run may have left machines
	launched []string // to be terminated at the end, whatever the check returned
	mu       sync.Mutex
	tokens   int // handed out so far
}

func newSession(subject Subject, name string) *session {
	s := &session{Subject: subject, batches: subject.Provider, name: fmt.Sprintf("%d-%s", time.Now().UnixNano(), name)}
	s.Second = steps{cmp.Or(s.Second, s.Provider)}
	s.Provider = steps{s.Provider}
	s.Many = cmp.Or(s.Many, 7)
	if s.Limit <= 0 {
		s.Limit = 45 * time.Second
	}
	return s
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
	return s.launchBy(ctx, s.Provider, c)
}

func (s *session) launchBy(ctx context.Context, p cloud.Provider, c cloud.LaunchConfig) (cloud.Instance, error) {
	i, err := p.LaunchInstance(ctx, c)
	if i.ID != "" {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.launched = append(s.launched, i.ID)
	}
	return i, err
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
		return i, err
	}
	return i, s.reaches(ctx, i.ID, cloud.InstanceStopped)
}

// reaches waits until a machine is in a state, for Limit at most.
func (s *session) reaches(ctx context.Context, id string, state cloud.InstanceState) error {
	ctx, cancel := context.WithTimeout(ctx, s.Limit)
	defer cancel()
	if err := cloud.Wait(ctx, s.Provider, id, state); err != nil {
		return fmt.Errorf("until it is %s: %w", state, err)
	}
	return nil
}

// ends terminates a machine and waits until it is. It reports whether the cloud has
// forgotten it.
func (s *session) ends(ctx context.Context, id string) (forgotten bool, err error) {
	if err := s.Provider.TerminateInstance(ctx, id); err != nil {
		return false, err
	}
	if err := s.reaches(ctx, id, cloud.InstanceTerminated); err != nil {
		return false, err
	}
	_, err = s.Provider.GetInstanceState(ctx, id)
	if errors.Is(err, cloud.ErrNotFound) {
		return true, nil
	}
	return false, err
}

// list lists the machines of the session until it finds as many as wanted: a
// list may lag behind.
func (s *session) list(ctx context.Context, tags map[string]string, want int) ([]cloud.Instance, error) {
	var found []cloud.Instance
	err := s.until(ctx, func() (err error) {
		found, err = s.Provider.ListInstances(ctx, tags)
		if err == nil && len(found) != want {
			err = fmt.Errorf("ListInstances by %v: %d machines, want %d: %w", tags, len(found), want, errNotYet)
		}
		return err
	})
	return found, err
}

// errNotYet is in the error of a look that may succeed later.
var errNotYet = errors.New("not in time")

// until looks again and again, for Limit at most.
func (s *session) until(ctx context.Context, look func() error) error {
	for end := time.Now().Add(s.Limit); ; {
		err := look()
		if !errors.Is(err, errNotYet) || time.Now().After(end) {
			return err
		}
		if !pause.For(ctx, 200*time.Millisecond) {
			return errors.Join(err, ctx.Err())
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
	for _, id := range s.launched {
		if err := s.reaches(ctx, id, cloud.InstanceTerminated); err != nil {
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
