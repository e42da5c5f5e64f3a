package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"

	"github.com/seed-9e1ffd66/trueup/apply/applytest"
	"github.com/seed-9e1ffd66/trueup/examples/internal/programtest"
	"github.com/seed-9e1ffd66/trueup/reconcile/simtest"
	"github.com/seed-9e1ffd66/trueup/reconcile/simtest/upstream"
)

// Each world has the rights that the program ships with.
var shippedRights = sync.OnceValue(func() func(applytest.Request) error {
	text, err := os.ReadFile("rbac.yaml")
	if err != nil {
		panic(err)
	}
	rights, err := upstream.Rights(string(text), "system")
	if err != nil {
		panic(err)
	}
	return rights
})

// simulated is the whole program, with its Lease.
func simulated() simtest.Scenario {
	s := programtest.Scenario(func(ctx context.Context, net http.RoundTripper) error {
		return run(ctx, &rest.Config{Host: "http://simtest", Transport: net}, "system", "0", slog.New(slog.DiscardHandler))
	})
	s.Rights = shippedRights()
	s.Rest = time.Hour // a Lease is written every two seconds: an hour is many
	return s
}

func TestTheOperatorInASimulatedWorld(t *testing.T) {
	t.Parallel()
	histories := uint64(20)
	if testing.Short() {
		histories = 4
	}
	for seed := range histories {
		r := simtest.Simulate(t, simulated, seed+1)
		require.Empty(t, r.Wrong, "seed %d", seed+1)
	}
}

// TestTheOperatorMayBeKilledAnywhere kills it before and after each request.
func TestTheOperatorMayBeKilledAnywhere(t *testing.T) {
	if testing.Short() {
		t.Skip("long: a history for each request")
	}
	t.Parallel()
	c := simtest.Sweep(t, func() simtest.Scenario {
		s := simulated()
		s.Edits, s.Settle = 2, time.Minute
		return s
	}, 1)
	c.Check(t, 97)
	fmt.Printf("figure sim_operator_boundaries %d count\n", c.Boundaries)
}
