package operator //nolint:testpackage // how the operator is assembled is not exported

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"

	"github.com/seed-9e1ffd66/trueup/reconcile"
)

// TestATransientErrorIsTriedAgainEverMoreSeldom is C16: after half a minute, then after
// twice as long each time, up to five minutes, a fifth more or less.
func TestATransientErrorIsTriedAgainEverMoreSeldom(t *testing.T) {
	t.Parallel()
	w, err := newOperator(&rest.Config{Host: "http://127.0.0.1:1"}, Operator{Logger: slog.New(slog.DiscardHandler)}, newMetrics())
	require.NoError(t, err)
	synctest.Test(t, func(t *testing.T) {
		var passes []time.Time
		queue := reconcile.Queue[string]{
			Name: "jobs", Backoff: w.jobs.Backoff, Workers: w.jobs.Workers,
			Reconcile: func(context.Context, string) (reconcile.Result, error) {
				passes = append(passes, time.Now())
				return reconcile.Result{}, errors.New("the server is away")
			},
		}
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Minute)
		defer cancel()
		queue.Add("job")
		require.NoError(t, queue.Start(ctx))
		require.Greater(t, len(passes), 20)
		delays := map[time.Duration]bool{}
		for n := 1; n < len(passes); n++ {
			want := min(30*time.Second<<min(n-1, 10), 5*time.Minute)
			delay := passes[n].Sub(passes[n-1])
			require.GreaterOrEqual(t, delay, want*8/10, "before attempt %d", n+1)
			require.LessOrEqual(t, delay, min(want*12/10, 5*time.Minute), "before attempt %d", n+1)
			delays[delay] = true
		}
		require.Greater(t, len(delays), 8, "many jobs do not come back at once")
	})
}
