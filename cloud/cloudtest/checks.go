package cloudtest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/seed-9e1ffd66/trueup/cloud"
)

var checks = []check{ //nolint:gochecknoglobals // a table
	{name: "a launched machine has the requested properties", check: launched},
	{name: "a token creates one machine", check: tokens},
	{name: "a token with another config is refused", check: tokenReused},
	{name: "two processes with one token create one machine", check: tokenShared},
	{name: "a token of a terminated machine creates none beside it", check: tokenSpent},
	{name: "a machine stops, starts and ends", check: lifecycle},
	{name: "a repeated operation is no error", check: repeated},
	{name: "a wrong state is refused", check: wrongState},
	{name: "an unknown machine is not found", check: unknown},
	{name: "a deleted machine leaves the lists", check: deleted},
	{name: "a list has the machines with all tags", check: lists},
	{name: "a list has all of its pages", check: pages},
	{name: "tags are merged", check: tagsMerged},
	{name: "tags keep their spelling", check: spelling},
	{name: "a context that ended calls nothing", check: ended},
	{name: "a batch of launches shares a token", check: batchLaunch},
	{name: "one bad machine holds back no other of a batch", check: batchBad},
}

func launched(ctx context.Context, s *session) error {
	c := s.config()
	i, err := s.launch(ctx, c)
	if err != nil {
		return err
	}
	if err := s.reaches(ctx, i.ID, cloud.InstanceRunning); err != nil {
		return err
	}
	got, err := s.Provider.GetInstance(ctx, i.ID)
	if err != nil {
		return err
	}
	switch {
	case got.ID != i.ID || got.State != cloud.InstanceRunning:
		return fmt.Errorf("got %s %s, want %s running", got.ID, got.State, i.ID)
	case got.InstanceType != c.InstanceType:
		return fmt.Errorf("InstanceType %q, want %q", got.InstanceType, c.InstanceType)
	case c.SubnetID != "" && got.SubnetID != c.SubnetID:
		return fmt.Errorf("SubnetID %q, want %q", got.SubnetID, c.SubnetID)
	case got.AvailabilityZone == "" && !s.NoZone:
		return errors.New("AvailabilityZone is empty; a Subject of a cloud without zones has NoZone")
	case got.PrivateIP == "" && !s.NoAddress:
		return errors.New("PrivateIP is empty; a Subject of a cloud without addresses has NoAddress")
	case got.LaunchTime.IsZero():
		return errors.New("LaunchTime is zero")
	}
	if err := carries(got, c.Tags); err != nil {
		return err
	}
	if !s.scope().Owns(got) {
		return fmt.Errorf("the scope does not own %v", got.Tags)
	}
	return nil
}

func tokens(ctx context.Context, s *session) error {
	c := s.config()
	first, err := s.launch(ctx, c)
	if err != nil {
		return err
	}
	again, err := s.launch(ctx, c)
	if err != nil {
		return err
	}
	other, err := s.launch(ctx, s.config())
	if err != nil {
		return err
	}
	if again.ID != first.ID || other.ID == first.ID {
		return fmt.Errorf("one token: %s and %s; another: %s", first.ID, again.ID, other.ID)
	}
	_, err = s.list(ctx, s.scope().Tags(), 2)
	return err
}

func tokenReused(ctx context.Context, s *session) error {
	c := s.config()
	if _, err := s.launch(ctx, c); err != nil {
		return err
	}
	other := s.Other
	other.Token, other.Tags = c.Token, c.Tags
	if _, err := s.launch(ctx, other); !errors.Is(err, cloud.ErrTokenReused) {
		return is("launch with another type", err, cloud.ErrTokenReused)
	}
	_, err := s.list(ctx, s.scope().Tags(), 1)
	return err
}

func tokenSpent(ctx context.Context, s *session) error {
	c := s.config()
	first, err := s.launch(ctx, c)
	if err != nil {
		return err
	}
	forgotten, err := s.ends(ctx, first.ID)
	if err != nil {
		return err
	}
	again, err := s.launch(ctx, c)
	switch {
	case errors.Is(err, cloud.ErrTokenSpent):
		return nil
	case err != nil:
		return err
	case !forgotten && (again.ID != first.ID || again.State.Powered()):
		return fmt.Errorf("the token of %s, which is terminated, created %s %s", first.ID, again.ID, again.State)
	case !forgotten:
		return nil
	}
	third, err := s.launch(ctx, c)
	if err == nil && third.ID != again.ID {
		err = fmt.Errorf("the token of %s, which is forgotten, created %s and %s", first.ID, again.ID, third.ID)
	}
	return err
}

func lifecycle(ctx context.Context, s *session) error {
	i, err := s.stopped(ctx)
	if err != nil {
		return err
	}
	if err := s.Provider.StartInstance(ctx, i.ID); err != nil {
		return fmt.Errorf("start: %w", err)
	}
	if err := s.reaches(ctx, i.ID, cloud.InstanceRunning); err != nil {
		return err
	}
	if err := s.Provider.StopInstance(ctx, i.ID, true); err != nil {
		return fmt.Errorf("stop by force: %w", err)
	}
	if err := s.reaches(ctx, i.ID, cloud.InstanceStopped); err != nil {
		return err
	}
	_, err = s.ends(ctx, i.ID)
	return err
}

func repeated(ctx context.Context, s *session) error {
	i, err := s.running(ctx)
	if err != nil {
		return err
	}
	if err := s.Provider.StartInstance(ctx, i.ID); err != nil {
		return fmt.Errorf("start a running machine: %w", err)
	}
	if err := s.Provider.StopInstance(ctx, i.ID, false); err != nil {
		return fmt.Errorf("stop: %w", err)
	}
	if err := s.Provider.StopInstance(ctx, i.ID, false); err != nil {
		return fmt.Errorf("stop a machine that stops: %w", err)
	}
	if err := s.reaches(ctx, i.ID, cloud.InstanceStopped); err != nil {
		return err
	}
	if err := s.Provider.TerminateInstance(ctx, i.ID); err != nil {
		return err
	}
	if err := s.Provider.TerminateInstance(ctx, i.ID); err != nil && !errors.Is(err, cloud.ErrNotFound) {
		return fmt.Errorf("terminate a machine that ends: %w", err)
	}
	return nil
}

func wrongState(ctx context.Context, s *session) error {
	i, err := s.running(ctx)
	if err != nil {
		return err
	}
	want := cloud.ErrInvalidState
	if forgotten, err := s.ends(ctx, i.ID); err != nil {
		return err
	} else if forgotten {
		want = cloud.ErrNotFound
	}
	return errors.Join(
		is("start a terminated machine", s.Provider.StartInstance(ctx, i.ID), want),
		is("stop a terminated machine", s.Provider.StopInstance(ctx, i.ID, false), want),
	)
}

func unknown(ctx context.Context, s *session) error {
	_, get := s.Provider.GetInstance(ctx, s.UnknownID)
	_, state := s.Provider.GetInstanceState(ctx, s.UnknownID)
	return errors.Join(
		is("get", get, cloud.ErrNotFound), is("state", state, cloud.ErrNotFound),
		is("start", s.Provider.StartInstance(ctx, s.UnknownID), cloud.ErrNotFound),
		is("stop", s.Provider.StopInstance(ctx, s.UnknownID, true), cloud.ErrNotFound),
		is("terminate", s.Provider.TerminateInstance(ctx, s.UnknownID), cloud.ErrNotFound),
		is("tag", s.Provider.UpdateInstanceTags(ctx, s.UnknownID, map[string]string{"a": "b"}), cloud.ErrNotFound),
	)
}

func lists(ctx context.Context, s *session) error {
	one := s.config()
	one.Tags["colour"] = "red"
	two := s.config()
	two.Tags["colour"] = "blue"
	first, err := s.launch(ctx, one)
	if err != nil {
		return err
	}
	if _, err := s.launch(ctx, two); err != nil {
		return err
	}
	if _, err := s.list(ctx, s.scope().Tags(), 2); err != nil {
		return err
	}
	red := s.scope().Tags()
	red["colour"] = "red"
	found, err := s.list(ctx, red, 1)
	if err != nil {
		return err
	}
	if found[0].ID != first.ID || found[0].Tags["purpose"] != "conformance" || found[0].InstanceType != one.InstanceType {
		return fmt.Errorf("listed %+v", found[0])
	}
	red["colour"] = "green"
	_, err = s.list(ctx, red, 0)
	return err
}

func tagsMerged(ctx context.Context, s *session) error {
	c := s.config()
	i, err := s.launch(ctx, c)
	if err != nil {
		return err
	}
	change := map[string]string{"purpose": "changed", "more": "yes"}
	if err := s.Provider.UpdateInstanceTags(ctx, i.ID, change); err != nil {
		return err
	}
	want := maps.Clone(c.Tags)
	maps.Copy(want, change)
	got, err := s.Provider.GetInstance(ctx, i.ID)
	if err != nil {
		return err
	}
	return carries(got, want)
}

func ended(ctx context.Context, s *session) error {
	ctx, cancel := context.WithCancel(ctx)
	cancel()
	c := s.config()
	if _, err := s.launch(ctx, c); !errors.Is(err, context.Canceled) {
		return is("launch", err, context.Canceled)
	}
	_, err := s.list(context.WithoutCancel(ctx), s.scope().Tags(), 0)
	return err
}

func batchLaunch(ctx context.Context, s *session) error {
	batch, ok := s.batches.(cloud.BatchMachines)
	if !ok {
		return nil
	}
	c := s.config()
	var all [2][]string
	for n := range all {
		got, err := batch.LaunchInstances(ctx, c, 3)
		for _, i := range got {
			all[n] = append(all[n], i.ID)
		}
		s.launched = append(s.launched, all[n]...)
		if err != nil {
			return fmt.Errorf("LaunchInstances: %w", err)
		}
		slices.Sort(all[n])
	}
	if len(all[0]) != 3 || !slices.Equal(all[0], all[1]) {
		return fmt.Errorf("one token: %v and %v", all[0], all[1])
	}
	if _, err := s.list(ctx, s.scope().Tags(), 3); err != nil {
		return err
	}
	for id, err := range batch.TerminateInstances(ctx, all[0]) {
		return fmt.Errorf("TerminateInstances %s: %w", id, err)
	}
	return nil
}

func batchBad(ctx context.Context, s *session) error {
	power, hasPower := s.batches.(cloud.BatchPowerControl)
	inventory, hasInventory := s.batches.(cloud.BatchInventory)
	if !hasPower || !hasInventory {
		return nil
	}
	i, err := s.running(ctx)
	if err != nil {
		return err
	}
	ids := []string{s.UnknownID, i.ID}
	only := func(what string, failed map[string]error) error {
		if err := failed[i.ID]; err != nil {
			return fmt.Errorf("%s: the good machine failed: %w", what, err)
		}
		return is(what, failed[s.UnknownID], cloud.ErrNotFound)
	}
	if err := only("UpdateInstancesTags", inventory.UpdateInstancesTags(ctx, ids, map[string]string{"batch": "yes"})); err != nil {
		return err
	}
	found, err := inventory.GetInstances(ctx, ids)
	if err != nil {
		return fmt.Errorf("GetInstances: %w", err)
	}
	if len(found) != 1 || found[i.ID].Tags["batch"] != "yes" {
		return fmt.Errorf("GetInstances: %v, want %s with the tag batch", found, i.ID)
	}
	if err := only("StopInstances", power.StopInstances(ctx, ids, false)); err != nil {
		return err
	}
	if err := s.reaches(ctx, i.ID, cloud.InstanceStopped); err != nil {
		return err
	}
	if err := only("StartInstances", power.StartInstances(ctx, ids)); err != nil {
		return err
	}
	return s.reaches(ctx, i.ID, cloud.InstanceRunning)
}
