package main

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// rest counts what the operator sends once it has nothing to do, over two looks at all that
// is outside.
func (a *applications) rest(ctx context.Context) error {
	a.demo.display.step("Rest")
	if err := a.silent(ctx); err != nil {
		return err
	}
	before, err := a.counts(ctx)
	if err != nil {
		return err
	}
	const rest = 2*look + look/2
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(rest):
	}
	after, err := a.counts(ctx)
	if err != nil {
		return err
	}
	writes := 0
	var lines []string
	for _, name := range []string{"Kubernetes", "PostgreSQL", "S3", "Keycloak"} {
		w, r := after[name].writes-before[name].writes, after[name].reads-before[name].reads
		writes += w
		lines = append(lines, fmt.Sprintf("  %-10s %3d writes, %4d reads", name, w, r))
	}
	a.demo.display.done("%d writes in %s with %d apps, at least two looks at each", writes, rest, manyApps+1)
	a.demo.display.print(lines...)
	a.demo.note(
		"application_writes_at_rest",
		float64(writes),
		"writes",
		"writes to Kubernetes, PostgreSQL, S3 and Keycloak in %s at rest",
		rest,
	)
	return nil
}

// silent waits until nothing was written for two looks.
func (a *applications) silent(ctx context.Context) error {
	last, since := -1, time.Now()
	return until(ctx, func() (bool, error) {
		now, err := a.counts(ctx)
		sum := 0
		for _, c := range now {
			sum += c.writes
		}
		if sum != last {
			last, since = sum, time.Now()
		}
		return time.Since(since) > 2*look, err
	})
}

// counts returns the reads and writes of each service.
func (a *applications) counts(ctx context.Context) (map[string]count, error) {
	all, err := a.outside.counts(ctx)
	if err != nil {
		return nil, err
	}
	sent, err := a.demo.kube.cluster.Requests(a.user())
	if err != nil {
		return nil, err
	}
	var c count
	for _, r := range sent {
		switch {
		case r.Resource == "leases" || r.Verb == "watch":
		case slices.Contains([]string{"get", "list"}, r.Verb):
			c.reads++
		default:
			c.writes++
		}
	}
	all["Kubernetes"] = c
	return all, nil
}
