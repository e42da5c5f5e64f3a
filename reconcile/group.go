package reconcile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Member is a named [Starter] of a [Group].
type Member struct {
	// Name stands in the errors about this member. Required.
	Name string
	// Starter is the code that runs. Required.
	Starter Starter
}

// Group runs several Starters as one. When ctx ends or a member fails, the ctx of all
// ends. A Group is itself a [Starter], so groups nest.
type Group struct {
	// Members are started all at once. With none, Start returns nil at once.
	Members []Member

	// StopTimeout is how long Start waits for the members to return, counted
	// from the end of ctx or the first failure. Default 30s.
	StopTimeout time.Duration
}

// Start runs all members and returns when all have returned: nil if none
// failed. A member that returns nil early leaves the others running. The first
// member that fails or panics ends the ctx of all.
//
// Members that have not returned when StopTimeout is over are left behind, and
// the error includes a [StuckError] with their names. The errors of all members
// that failed are joined, each wrapped with the name of its member, the first
// failure first.
func (g *Group) Start(ctx context.Context) error {
	if err := g.validate(); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()

	type exit struct {
		member int
		err    error
	}
	// Buffered for all members, because a member that was left behind is never
	// received.
	exits := make(chan exit, len(g.Members))
	running := make(map[int]bool, len(g.Members))
	for i, member := range g.Members {
		running[i] = true
		go func() { exits <- exit{i, member.start(ctx)} }()
	}

	var (
		errs    []error
		stop    = ctx.Done()
		timeout = cmp.Or(g.StopTimeout, 30*time.Second)
		overdue <-chan time.Time
	)
	for len(running) > 0 {
		select {
		case e := <-exits:
			delete(running, e.member)
			if e.err != nil {
				errs = append(errs, e.err)
				cancel()
			}
		case <-stop:
			stop = nil
			timer := time.NewTimer(timeout)
			defer timer.Stop()
			overdue = timer.C
		case <-overdue:
			stuck := &StuckError{After: timeout}
			for i, member := range g.Members {
				if running[i] {
					stuck.Names = append(stuck.Names, member.Name)
				}
			}
			return errors.Join(append(errs, stuck)...)
		}
	}
	return errors.Join(errs...)
}

func (g *Group) validate() error {
	for i, member := range g.Members {
		if member.Name == "" {
			return fmt.Errorf("reconcile: Group.Members[%d].Name: is required", i)
		}
		if member.Starter == nil {
			return fmt.Errorf("reconcile: Group.Members[%d].Starter: is required (%s)", i, member.Name)
		}
	}
	return notNegative("Group.StopTimeout", g.StopTimeout, "30s default")
}

func (m Member) start(ctx context.Context) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("%s: %w", m.Name, err)
		}
	}()
	defer contain(&err)
	return m.Starter.Start(ctx)
}

// StuckError names the members of a [Group] that did not stop in time. Their
// goroutines may still be running.
type StuckError struct {
	// Names are the names of the members, in the order of Group.Members.
	Names []string
	// After is how long Start waited for them.
	After time.Duration
}

// Error lists the names.
func (e *StuckError) Error() string {
	return fmt.Sprintf("did not stop within %v: %s", e.After, strings.Join(e.Names, ", "))
}
