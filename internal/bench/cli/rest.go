package main

import (
	"context"
	"fmt"
	"time"

	"github.com/seed-9e1ffd66/trueup/reconcile/kube/kubetest"
)

// rest counts what a second apply of an unchanged folder sends.
func (b *bench) rest(ctx context.Context) error {
	for _, t := range b.tools {
		s, err := b.side(ctx, "rest", t)
		if err != nil {
			return err
		}
		f, err := b.folder(s, 100)
		if err != nil {
			return err
		}
		if err := s.must(ctx, t.apply(f)); err != nil {
			return err
		}
		before, err := s.Requests(s.user)
		if err != nil {
			return err
		}
		if err := s.must(ctx, t.apply(f)); err != nil {
			return err
		}
		all, err := s.Requests(s.user)
		if err != nil {
			return err
		}
		if created, _ := sentOf(before); created < 100 {
			return fmt.Errorf(
				"%s: %d requests of %s were seen for 100 new objects: what it sends at rest is not seen, either",
				t.name,
				created,
				s.user,
			)
		}
		sent, lists := sentOf(all[len(before):])
		b.add("cli_requests_at_rest", t, float64(sent), "requests")
		b.add("cli_lists_and_watches_at_rest", t, float64(lists), "requests")
	}
	return nil
}

// sentOf counts requests, and beside them lists and watches. Discovery is none.
func sentOf(requests []kubetest.Request) (sent, lists int) {
	for _, r := range requests {
		switch {
		case r.Resource == "": // discovery
		case r.Verb == "list" || r.Verb == "watch":
			lists++
		default:
			sent++
		}
	}
	return sent, lists
}

// speed takes the time of a large folder from nothing and again.
func (b *bench) speed(ctx context.Context) error {
	seconds := map[string][2]float64{}
	for _, t := range b.tools {
		s, err := b.side(ctx, "speed", t)
		if err != nil {
			return err
		}
		f, err := b.folder(s, b.objects)
		if err != nil {
			return err
		}
		var took [2]float64
		for i, name := range []string{"cli_seconds", "cli_seconds_again"} {
			begun := time.Now()
			if err := s.must(ctx, t.apply(f)); err != nil {
				return err
			}
			took[i] = time.Since(begun).Seconds()
			b.add(fmt.Sprintf("%s_%d", name, b.objects), t, took[i], "s")
		}
		if found, err := s.uids(ctx); err != nil || len(found) != b.objects {
			return fmt.Errorf("%s: %d objects of %d: %w", t.name, len(found), b.objects, err)
		}
		seconds[t.name] = took
	}
	ours, theirs := seconds[trueup], seconds["kubectl_server_side"]
	if ours[0] > 0 && theirs[0] > 0 { // both were chosen
		b.book.Add("cli_seconds_ratio", ours[0]/theirs[0], "x")
		b.book.Add("cli_seconds_again_ratio", ours[1]/theirs[1], "x")
	}
	return nil
}
