package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/seed-9e1ffd66/trueup/apply"
	"github.com/seed-9e1ffd66/trueup/internal/test/foldersim"
	"github.com/seed-9e1ffd66/trueup/reconcile/simtest"
	"github.com/seed-9e1ffd66/trueup/reconcile/simtest/upstream"
)

// simulated is the whole program, and a user who edits the files of its folder.
func simulated(t *testing.T) simtest.Scenario {
	t.Helper()
	set := foldersim.Set{
		Folder: t.TempDir(), Label: "converge.example.com/set", Value: "one", Memory: "converge-one", Forgets: "converge-one-deletions",
	}
	s := set.Scenario(t)
	s.Machinery = &upstream.Machinery{Scheme: scheme.Scheme}
	s.Program = func(ctx context.Context, net http.RoundTripper) error {
		c := converge{folder: set.Folder, name: "one", namespace: "default", interval: 30 * time.Second, logger: slog.New(slog.DiscardHandler)}
		c.guard.Absent = apply.Limit{Count: 1000}
		group, err := c.group(&rest.Config{Host: "http://simtest", Transport: net})
		if err != nil {
			return err
		}
		return group.Start(ctx)
	}
	return s
}

func TestConvergeInASimulatedWorld(t *testing.T) {
	t.Parallel()
	simtest.Histories(t, func() simtest.Scenario {
		s := simulated(t)
		if testing.Short() {
			s.Histories = 4
		}
		return s
	})
}

// TestConvergeMayBeKilledAnywhere kills it before and after each request.
func TestConvergeMayBeKilledAnywhere(t *testing.T) {
	if testing.Short() {
		t.Skip("long: a history for each request")
	}
	t.Parallel()
	c := simtest.Sweep(t, func() simtest.Scenario {
		s := simulated(t)
		s.Edits, s.Settle = 6, 5*time.Minute
		return s
	}, 1)
	c.Check(t, 97)
	fmt.Printf("figure sim_converge_boundaries %d count\n", c.Boundaries)
}
