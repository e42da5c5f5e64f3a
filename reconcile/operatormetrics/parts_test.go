package operatormetrics_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/reconcile"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube"
	"github.com/seed-9e1ffd66/trueup/reconcile/operatormetrics"
	"github.com/seed-9e1ffd66/trueup/snapshot"
	"github.com/seed-9e1ffd66/trueup/statesync"
)

// shown returns the metrics of a registry, without buckets and times.
func shown(t *testing.T, r *prometheus.Registry) []string {
	t.Helper()
	families, err := r.Gather()
	require.NoError(t, err)
	var lines []string
	for _, f := range families {
		for _, m := range f.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			var values []string
			for _, name := range slices.Sorted(maps.Keys(labels)) {
				values = append(values, labels[name])
			}
			n := m.GetGauge().GetValue() + m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
			lines = append(lines, fmt.Sprint(f.GetName(), " ", strings.Join(values, " "), " ", n))
		}
	}
	return lines
}

func TestPartsTellWhatTheyHaveDone(t *testing.T) {
	t.Parallel()
	r, before := prometheus.NewRegistry(), 0
	failed := errors.New("refused")
	loop := &reconcile.Loop{Name: "mirror", OnPass: func(reconcile.Pass) { before++ }}
	queue := &reconcile.Queue[string]{
		OnPass: func(reconcile.KeyPass[string]) { before++ },
		Reconcile: func(context.Context, string) (reconcile.Result, error) {
			return reconcile.Result{}, reconcile.Terminal(failed)
		},
	}
	lease := &kube.Lease{Namespace: "shop", Name: "web", OnChange: func(kube.LeaseState) { before++ }}
	replica := &statesync.Replica{
		Scope: "eu", OnHandled: func(reconcile.KeyPass[statesync.Key]) { before++ }, OnStream: func(statesync.Stream) { before++ },
	}
	server := &statesync.Server{OnRead: func(string, statesync.Page) { before++ }}
	recorder := &snapshot.Recorder[int]{OnPass: func(snapshot.Pass) { before++ }}
	register := func() error {
		return errors.Join(
			operatormetrics.Loop(r, loop), operatormetrics.Queue(r, queue), operatormetrics.Lease(r, lease),
			operatormetrics.Replica(r, replica), operatormetrics.Server(r, server), operatormetrics.Recorder(r, "billing", recorder),
		)
	}
	require.NoError(t, register())
	for _, err := range []error{nil, nil, failed} {
		loop.OnPass(reconcile.Pass{Duration: time.Second, Err: err})
		queue.OnPass(reconcile.KeyPass[string]{Err: err})
		replica.OnHandled(reconcile.KeyPass[statesync.Key]{Err: err})
	}
	lease.OnChange(kube.LeaseState{Held: true})
	replica.OnStream(statesync.Stream{})
	server.OnRead("eu", statesync.Page{Items: make([]statesync.Item, 3)})
	recorder.OnPass(snapshot.Pass{Accepted: 1, Duplicates: 2, Rejected: 3, Lost: 4, Spooled: 5})
	recorder.OnPass(snapshot.Pass{Accepted: 10, Spooled: 6})
	require.Equal(t, 14, before)
	require.Equal(t, []string{
		"trueup_lease_held shop/web 1",
		"trueup_log_changes_total  3",
		"trueup_loop_pass_duration_seconds mirror error 1", "trueup_loop_pass_duration_seconds mirror success 2",
		"trueup_queue_parked queue 0",
		"trueup_queue_pass_duration_seconds queue error 1", "trueup_queue_pass_duration_seconds queue success 2",
		"trueup_queue_waiting queue 0",
		"trueup_replica_behind eu 0", "trueup_replica_complete eu 0",
		"trueup_replica_handle_duration_seconds error eu 1", "trueup_replica_handle_duration_seconds success eu 2",
		"trueup_replica_parked eu 0", "trueup_replica_pending eu 0", "trueup_replica_streams_total eu 1",
		"trueup_snapshot_records_total billing accepted 11", "trueup_snapshot_records_total billing duplicate 2",
		"trueup_snapshot_records_total billing lost 4", "trueup_snapshot_records_total billing rejected 3",
		"trueup_snapshot_spooled billing 6",
	}, shown(t, r))
	lease.OnChange(kube.LeaseState{Holder: "another"})
	require.Contains(t, shown(t, r), "trueup_lease_held shop/web 0")
	require.Error(t, register(), "two of one name")
	problems, err := testutil.GatherAndLint(r)
	require.NoError(t, err)
	require.Empty(t, problems)
}

// TestThePartsThatWorkShowWhatWaits has a queue and a copy of which each number is another one.
func TestThePartsThatWorkShowWhatWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		hang := func(ctx context.Context, key string) error {
			if key == "bad" {
				return reconcile.Terminal(errors.New("refused"))
			}
			<-ctx.Done()
			return nil
		}
		queue := &reconcile.Queue[string]{Workers: 1, Reconcile: func(ctx context.Context, key string) (reconcile.Result, error) {
			return reconcile.Result{}, hang(ctx, key)
		}}
		log := &statesync.Memory{}
		require.NoError(t, log.AddScope("eu"))
		for _, id := range []string{"bad", "good", "slow", "slower"} {
			require.NoError(t, log.Commit(statesync.Change{Scope: "eu", Key: statesync.Key{Collection: "all", ID: id}, Value: []byte(`1`)}))
		}
		server := &statesync.Server{Log: log}
		replica := &statesync.Replica{Source: server, Scope: "eu", Handle: func(ctx context.Context, item statesync.Item) error {
			if item.Key.ID == "good" {
				return nil
			}
			return hang(ctx, item.Key.ID)
		}}
		r := prometheus.NewRegistry()
		require.NoError(t, errors.Join(operatormetrics.Queue(r, queue), operatormetrics.Replica(r, replica)))
		ctx, stop := context.WithCancel(t.Context())
		var ended sync.WaitGroup
		for _, start := range []func(context.Context) error{queue.Start, server.Start, replica.Start} {
			ended.Go(func() {
				if err := start(ctx); err != nil {
					t.Error(err)
				}
			})
		}
		queue.Add("bad", "slow", "a", "b", "c")
		synctest.Wait()
		have := shown(t, r)
		for _, want := range []string{
			"trueup_queue_parked queue 1", "trueup_queue_waiting queue 3",
			"trueup_replica_complete eu 1", "trueup_replica_parked eu 1", "trueup_replica_pending eu 3", "trueup_replica_behind eu 4",
		} {
			require.Contains(t, have, want)
		}
		stop()
		ended.Wait()
	})
}

// TestWhatCannotBeRegisteredLeavesNothing: the caller can try again, with another name.
func TestWhatCannotBeRegisteredLeavesNothing(t *testing.T) {
	t.Parallel()
	r := prometheus.NewRegistry()
	require.NoError(t, r.Register(prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "trueup_queue_parked", Help: "Keys that are not repeated before an event, as a repetition cannot cure them.",
		ConstLabels: prometheus.Labels{"queue": "jobs"},
	})))
	queue := &reconcile.Queue[string]{Name: "jobs"}
	require.Error(t, operatormetrics.Queue(r, queue))
	require.Equal(t, []string{"trueup_queue_parked jobs 0"}, shown(t, r))
	queue.Name = "others"
	require.NoError(t, operatormetrics.Queue(r, queue))
}

// Example has the metrics of a service that keeps a copy of a log, and works through it.
func Example() {
	loop := &reconcile.Loop{Name: "report", Interval: time.Minute, Reconciler: reconcile.Func(
		func(context.Context) (reconcile.Result, error) { return reconcile.Result{}, nil },
	)}
	replica := &statesync.Replica{Scope: "eu", Handle: func(context.Context, statesync.Item) error { return nil }}
	registry := prometheus.NewRegistry()
	if err := errors.Join(operatormetrics.Loop(registry, loop), operatormetrics.Replica(registry, replica)); err != nil {
		fmt.Println(err)
	}
	fmt.Println(testutil.GatherAndCount(registry, "trueup_replica_complete", "trueup_replica_pending"))
	// Output: 2 <nil>
}
