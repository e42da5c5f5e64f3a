package regions_test

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/regions"
	"github.com/seed-9e1ffd66/trueup/internal/test/await"
	"github.com/seed-9e1ffd66/trueup/statesync/sqlstore"
)

func TestTheLogIsObserved(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		var text bytes.Buffer
		m := regions.NewLogMetrics(w.database.Log, slog.New(slog.NewTextHandler(&text, nil)))
		registry := prometheus.NewRegistry()
		require.NoError(t, registry.Register(m))
		w.put("d_1", "running", deployment("one", "one:1"))
		require.NoError(t, m.Ready(t.Context()))
		value := func(name string) float64 {
			families, err := registry.Gather()
			require.NoError(t, err)
			for _, f := range families {
				if f.GetName() == "trueup_controlplane_log_"+name {
					return f.GetMetric()[0].GetGauge().GetValue()
				}
			}
			t.Fatalf("no metric %s in %v", name, families)
			return 0
		}
		await.Eventually(t, `value("queue_depth") == 0`, func() bool { return value("queue_depth") == 0 })
		require.Zero(t, value("queue_oldest_seconds"))
		require.Zero(t, value("stalled_seconds"))
	})
}

func TestEachEventOfTheLogIsCounted(t *testing.T) {
	t.Parallel()
	log := &sqlstore.Store{}
	m := regions.NewLogMetrics(log, slog.New(slog.DiscardHandler))
	m.Observe()
	for _, kind := range []sqlstore.EventKind{sqlstore.EventFull, sqlstore.EventStuck, sqlstore.EventLost, sqlstore.EventEpoch, sqlstore.EventEpoch} {
		log.OnEvent(sqlstore.Event{Kind: kind})
	}
	log.OnBatch(sqlstore.Batch{Changes: 7, Took: time.Millisecond})
	log.OnBatch(sqlstore.Batch{Err: errors.New("gone")})
	require.NoError(t, testutil.CollectAndCompare(only{m}, strings.NewReader(`
# HELP trueup_controlplane_log_changes_total Changes that this process has numbered.
# TYPE trueup_controlplane_log_changes_total counter
trueup_controlplane_log_changes_total 7
# HELP trueup_controlplane_log_events_total What happened to the log, by kind: epoch, elected, election-lost, stuck, moving or disk-full.
# TYPE trueup_controlplane_log_events_total counter
trueup_controlplane_log_events_total{event="disk-full"} 1
trueup_controlplane_log_events_total{event="elected"} 0
trueup_controlplane_log_events_total{event="election-lost"} 1
trueup_controlplane_log_events_total{event="epoch"} 2
trueup_controlplane_log_events_total{event="moving"} 0
trueup_controlplane_log_events_total{event="stuck"} 1
`), "trueup_controlplane_log_changes_total", "trueup_controlplane_log_events_total"))
}

// only is the collector alone.
type only struct{ prometheus.Collector }

func TestTheProgramIsNotReadyWhileNothingIsNumbered(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		if w.database.Log.Dialect != sqlstore.PostgreSQL {
			return // its writers would wait too
		}
		ctx := w.t.Context()
		m := regions.NewLogMetrics(w.database.Log, slog.New(slog.DiscardHandler))
		require.NoError(w.t, m.Ready(ctx))
		stuck, err := w.database.Log.DB.BeginTx(ctx, nil)
		require.NoError(w.t, err)
		defer stuck.Rollback() //nolint:errcheck // it has only read
		_, err = stuck.ExecContext(ctx, `SELECT 1 FROM trueup_meta WHERE one = 1 FOR UPDATE`)
		require.NoError(w.t, err)
		_, err = w.store.PutDeployment(ctx, eu, "d_1", regions.Wanted{State: "running", Spec: deployment("one", "one:1")})
		require.NoError(w.t, err)
		await.Eventually(w.t, "m.Ready(ctx) != nil", func() bool { return m.Ready(ctx) != nil })
		state, err := m.State(ctx)
		require.NoError(w.t, err)
		require.Contains(w.t, state.NotReady, "committed changes get no version for ")
		require.Equal(w.t, 1, state.Depth)
		require.Positive(w.t, state.Oldest)
		require.NoError(w.t, stuck.Rollback())
		await.Eventually(w.t, "m.Ready(ctx) == nil", func() bool { return m.Ready(ctx) == nil })
		// Of another store of the same log: the one above has begun, and its hooks are read.
		other := &sqlstore.Store{DB: w.database.Log.DB, Dialect: w.database.Log.Dialect}
		m = regions.NewLogMetrics(other, slog.New(slog.DiscardHandler))
		m.Observe()
		before := time.Now()
		other.OnEvent(sqlstore.Event{Kind: sqlstore.EventEpoch})
		require.EventuallyWithT(w.t, func(c *assert.CollectT) {
			state, err := m.State(ctx)
			require.NoError(c, err)
			require.Equal(c, regions.LogState{Epochs: 1, EpochAt: state.EpochAt}, state)
			require.False(c, state.EpochAt.Before(before))
		}, 50*time.Second, 10*time.Millisecond)
	})
}
