package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/seed-9e1ffd66/trueup/examples/internal/programtest"
	"github.com/seed-9e1ffd66/trueup/reconcile/simtest"
	"github.com/seed-9e1ffd66/trueup/reconcile/simtest/upstream"
)

func TestMain(m *testing.M) {
	// What client-go keeps for the whole process does not fit into virtual time.
	utilruntime.ErrorHandlers = nil
	ctrl.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

// simulated is the program, which alone runs: its Manager takes no Lease.
func simulated() simtest.Scenario {
	var kinds []simtest.Kind
	s := programtest.Scenario(upstream.Program(func(ctx context.Context, config *rest.Config) error {
		return start(ctx, config, ctrl.Options{
			MapperProvider: func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return upstream.Mapper(kinds), nil },
		})
	}))
	kinds = s.Kinds
	return s
}

func TestTheManagerInASimulatedWorld(t *testing.T) {
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

// TestTheManagerMayBeKilledAnywhere kills it before and after each request.
func TestTheManagerMayBeKilledAnywhere(t *testing.T) {
	if testing.Short() {
		t.Skip("long: a history for each request")
	}
	t.Parallel()
	c := simtest.Sweep(t, func() simtest.Scenario {
		s := simulated()
		s.Edits, s.Settle = 2, time.Minute
		return s
	}, 1)
	c.Check(t, 70)
	fmt.Printf("figure sim_embed_boundaries %d count\n", c.Boundaries)
}
