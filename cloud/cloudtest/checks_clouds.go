package cloudtest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"

	"github.com/seed-9e1ffd66/trueup/cloud"
)

// tokenShared launches with one token from two processes at once, and once more after
// that: the answer to the first call may have been lost.
func tokenShared(ctx context.Context, s *session) error {
	c := s.config()
	var failed [2]error
	var both sync.WaitGroup
	for n, p := range []cloud.Provider{s.Provider, s.Second} {
		both.Go(func() { _, failed[n] = s.launchBy(ctx, p, c) })
	}
	both.Wait()
	if failed[0] != nil && failed[1] != nil {
		return fmt.Errorf("both launches failed: %w; %w", failed[0], failed[1])
	}
	again, err := s.launchBy(ctx, s.Second, c)
	if err != nil {
		return fmt.Errorf("by the second provider: %w", err)
	}
	for _, id := range s.launched {
		if id != again.ID {
			return fmt.Errorf("one token created %s and %s", id, again.ID)
		}
	}
	found, err := s.list(ctx, s.scope().Tags(), 1)
	if err == nil && found[0].ID != again.ID {
		err = fmt.Errorf("ListInstances: %s, want %s", found[0].ID, again.ID)
	}
	return err
}

// deleted looks at a deleted machine with other eyes: a cloud that only says that it does
// not know the machine would leak it.
func deleted(ctx context.Context, s *session) error {
	i, err := s.running(ctx)
	if err != nil {
		return err
	}
	if _, err := s.list(ctx, s.scope().Tags(), 1); err != nil {
		return err
	}
	if _, err := s.ends(ctx, i.ID); err != nil {
		return err
	}
	for _, p := range []cloud.Provider{s.Provider, s.Second} {
		if err := s.until(ctx, func() error {
			found, err := p.ListInstances(ctx, s.scope().Tags())
			for _, i := range found {
				if i.State != cloud.InstanceTerminated {
					err = errors.Join(err, fmt.Errorf("ListInstances: %s, which is terminated, is %s: %w", i.ID, i.State, errNotYet))
				}
			}
			return err
		}); err != nil {
			return err
		}
	}
	return nil
}

// pages launches more machines than a page has.
func pages(ctx context.Context, s *session) error {
	launched := map[string]bool{}
	for range s.Many {
		i, err := s.launch(ctx, s.config())
		if err != nil {
			return err
		}
		launched[i.ID] = true
	}
	found, err := s.list(ctx, s.scope().Tags(), s.Many)
	for _, i := range found {
		if !launched[i.ID] {
			return fmt.Errorf("ListInstances: %s is not of the launched ones", i.ID)
		}
	}
	return err
}

// spelling sets tags that a cloud with narrow rules may confuse, cut or refuse.
func spelling(ctx context.Context, s *session) error {
	odd := map[string]string{
		"Example.com/Odd-Key": "Mixed:Case/with.dots and spaces",
		"example.com/odd-key": "another",
		"example.com.odd-key": "a third",
		"example.com/long":    strings.Repeat("n", 253),
		"example.com/empty":   "",
	}
	c := s.config()
	maps.Copy(c.Tags, odd)
	i, err := s.launch(ctx, c)
	if err != nil {
		return err
	}
	found, err := s.list(ctx, odd, 1)
	if err != nil {
		return err
	}
	if err := carries(found[0], c.Tags); err != nil {
		return fmt.Errorf("ListInstances: %w", err)
	}
	if err := s.Provider.UpdateInstanceTags(ctx, i.ID, map[string]string{"EXAMPLE.com/odd-key": "Upper"}); err != nil {
		return err
	}
	got, err := s.Provider.GetInstance(ctx, i.ID)
	if err != nil {
		return err
	}
	c.Tags["EXAMPLE.com/odd-key"] = "Upper"
	return carries(got, c.Tags)
}

// carries returns an error unless the machine has the tags.
func carries(i cloud.Instance, tags map[string]string) error {
	for k, v := range tags {
		if got, ok := i.Tags[k]; !ok || got != v {
			return fmt.Errorf("tag %s is %q, want %q", k, got, v)
		}
	}
	return nil
}
