package regions_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	ctrlv1 "github.com/seed-9e1ffd66/trueup/cmd/api/ctrl/v1"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/edge/tokens"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/db"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/regions"
	"github.com/seed-9e1ffd66/trueup/internal/test/await"
	"github.com/seed-9e1ffd66/trueup/statesync"
)

func (w *world) reconciler() *regions.Reconciler {
	return &regions.Reconciler{Store: w.store, Settle: time.Millisecond}
}

// sql runs statements as an administrator does by hand.
func (w *world) sql(statements ...string) {
	w.t.Helper()
	require.NoError(w.t, w.database.Write(w.t.Context(), func(tx *db.Tx) error {
		for _, statement := range statements {
			if _, err := tx.ExecContext(w.t.Context(), statement); err != nil {
				return err
			}
		}
		return nil
	}))
}

// items returns the items of the region's log that are not deleted, once what
// was appended is in it.
func (w *world) items() map[string]string {
	w.t.Helper()
	mark := strconv.FormatInt(time.Now().UnixNano(), 10)
	key := statesync.Key{Collection: "marks", ID: "newest"}
	require.NoError(w.t, w.database.Log.Commit(w.t.Context(), statesync.Change{Scope: "eu-1", Key: key, Value: json.RawMessage(mark)}))
	found := map[string]string{}
	var after uint64
	await.Eventually(w.t, `found["marks/newest"] == mark`, func() bool {
		// It goes on where it was: many rows read again and again would be what a test waits for.
		for more := true; more; {
			page, err := w.database.Log.Read(w.t.Context(), "eu-1", after, 1000)
			require.NoError(w.t, err)
			for _, i := range page.Items {
				after = i.Version
				found[i.Collection+"/"+i.ID] = string(i.Value)
				if i.Deleted {
					delete(found, i.Collection+"/"+i.ID)
				}
			}
			more = page.More
		}
		return found["marks/newest"] == mark
	})
	delete(found, "marks/newest")
	return found
}

func (w *world) head() uint64 {
	w.t.Helper()
	page, err := w.database.Log.Read(w.t.Context(), "eu-1", 0, 1)
	require.NoError(w.t, err)
	return page.Head
}

// beat sends a heartbeat of an agent that has dealt with the log up to version.
func (w *world) beat(sequence, version uint64) {
	w.t.Helper()
	page, err := w.database.Log.Read(w.t.Context(), "eu-1", 0, 1)
	require.NoError(w.t, err)
	_, err = w.agent().
		Heartbeat(w.t.Context(), connect.NewRequest(&ctrlv1.HeartbeatRequest{AgentEpoch: 7, Sequence: sequence, ObservedVersion: version, Epoch: page.Epoch}))
	require.NoError(w.t, err)
}

func TestRowsThatWereChangedByHandAreTold(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		ctx := w.t.Context()
		w.put("d_1", "running", deployment("one", "one:1"))
		w.put("d_2", "running", deployment("two", "two:1"))
		policy := json.RawMessage(
			`{"k8s_namespace":"ws","k8s_name":"p","policy":"eyJhcGlWZXJzaW9uIjoiY2lsaXVtLmlvL3YyIiwia2luZCI6IkNpbGl1bU5ldHdvcmtQb2xpY3kiLCJzcGVjIjp7fX0="}`,
		)
		for _, id := range []string{"p_1", "p_2"} {
			_, err := w.store.PutPolicy(ctx, eu, id, regions.Wanted{State: "running", Spec: policy})
			require.NoError(w.t, err)
		}
		before, head := w.items(), w.head()
		require.Len(w.t, before, 4)
		require.NoError(w.t, w.reconciler().Pass(ctx))
		require.Equal(w.t, head, w.head(), "nothing differs")

		w.sql(`UPDATE deployment_topology SET desired_state = 'stopped' WHERE deployment_id = 'd_1'`,
			`DELETE FROM cilium_network_policies WHERE id = 'p_1'`,
			`UPDATE cilium_network_policies SET deleted = 1 WHERE id = 'p_2'`,
			`INSERT INTO sentinels (id, region_id, k8s_namespace, k8s_name, desired_state, spec, updated_at)
				VALUES ('s_1', 'reg_eu', 'ws', 'gate', 'running', '{"k8s_name":"gate"}', 1)`)
		require.NoError(w.t, w.reconciler().Pass(ctx))
		after := w.items()
		require.Contains(w.t, after["deployments/d_1"], `"stopped"`)
		require.Equal(w.t, before["deployments/d_2"], after["deployments/d_2"])
		require.NotContains(w.t, after, "policies/p_1")
		require.Contains(w.t, after["policies/p_2"], `"archived"`)
		require.JSONEq(w.t, `{"state":"running","apply":{"k8s_name":"gate"}}`, after["sentinels/s_1"])

		// A full list has none of what vanished, and no order to delete it.
		stream, err := w.agent().WatchCiliumNetworkPolicies(ctx, connect.NewRequest(&ctrlv1.WatchCiliumNetworkPoliciesRequest{Markers: true}))
		require.NoError(w.t, err)
		var told int
		for stream.Receive() && stream.Msg().GetSynced() == nil {
			require.NotNil(w.t, stream.Msg().GetDelete(), "p_2")
			told++
		}
		require.Equal(w.t, 1, told)
		require.NoError(w.t, stream.Close())
		head = w.head()
		require.NoError(w.t, w.reconciler().Pass(ctx))
		require.Equal(w.t, head, w.head(), "once is enough")
	})
}

// On a busy database the log numbers a change long after its commit. Until then a pass does not append the change again.
func TestWhatTheLogNumbersLateIsToldOnce(t *testing.T) {
	t.Parallel()
	for name, open := range databases() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			database := open(t)
			t.Cleanup(func() { require.NoError(t, database.Close()) })
			w := &world{t: t, database: database, store: &regions.Store{Database: database}}
			numbers := func(during func()) {
				ctx, stop := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				go func() { ended <- database.Log.Start(ctx) }()
				during()
				stop()
				require.NoError(t, <-ended)
			}
			_, _, err := w.store.PutRegion(t.Context(), regions.Region{ID: eu, Name: "eu-1", Platform: "aws"}, false)
			require.NoError(t, err)
			put := func(image string) {
				_, err := w.store.PutDeployment(t.Context(), eu, "d_1", regions.Wanted{State: "running", Spec: deployment("one", image)})
				require.NoError(t, err)
			}
			put("one:1")
			numbers(func() {
				await.Eventually(t, "the log has it", func() bool {
					page, err := database.Log.Read(t.Context(), "eu-1", 0, 1000)
					return err == nil && len(page.Items) > 0
				})
			})
			put("one:2")
			pass := func() int {
				require.NoError(t, w.reconciler().Pass(t.Context()))
				depth, _, err := database.Log.Queue(t.Context())
				require.NoError(t, err)
				return depth
			}
			require.Equal(t, 1, pass())
			require.Equal(t, 1, pass())
			numbers(func() { require.Contains(t, w.items()["deployments/d_1"], "one:2") })
			require.Zero(t, pass())
		})
	}
}

func TestOneRowThatCannotBeToldHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		w.put("d_1", "running", deployment("one", "one:1"))
		w.put("d_2", "running", deployment("two", "two:1"))
		w.sql(
			`UPDATE deployment_topology SET spec = 'oops' WHERE deployment_id = 'd_1'`,
			`UPDATE deployment_topology SET desired_state = 'stopped' WHERE deployment_id = 'd_2'`,
		)
		err := w.reconciler().Pass(w.t.Context())
		require.ErrorContains(w.t, err, "deployments/d_1: the row's spec is not JSON")
		require.Contains(w.t, w.items()["deployments/d_1"], `"running"`)
		require.Contains(w.t, w.items()["deployments/d_2"], `"stopped"`)
	})
}

func TestOfManyRowsThatVanishFewAreWithdrawnAtOnce(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		for n := range 12 {
			w.put(fmt.Sprintf("d_%02d", n), "running", deployment(fmt.Sprint("name-", n), "one:1"))
		}
		w.sql(`DELETE FROM deployment_topology WHERE deployment_id <> 'd_03'`)
		for _, left := range []int{12 - regions.MinWithdrawals, 12 - 2*regions.MinWithdrawals, 1, 1} {
			require.NoError(w.t, w.reconciler().Pass(w.t.Context()))
			require.Len(w.t, w.items(), left)
			w.sql(fmt.Sprintf(`UPDATE withdrawals SET withdrawn_at = withdrawn_at - %d`, regions.Window.Milliseconds()))
		}
		require.Contains(w.t, w.items(), "deployments/d_03")
	})
}

// TestLookingOftenWithdrawsNoMore looks again within the time that the limit is
// for, also as another process.
func TestLookingOftenWithdrawsNoMore(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		for n := range 12 {
			w.put(fmt.Sprintf("d_%02d", n), "running", deployment(fmt.Sprint("name-", n), "one:1"))
		}
		w.sql(`DELETE FROM deployment_topology`)
		reconciler := w.reconciler()
		for n := range 4 {
			if n == 2 {
				reconciler = w.reconciler()
			}
			require.NoError(w.t, reconciler.Pass(w.t.Context()))
			require.Len(w.t, w.items(), 12-regions.MinWithdrawals)
		}
	})
}

func TestARegionThatIsNotTheOneOfItsLogIsLeftAlone(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		w.put("d_1", "running", deployment("one", "one:1"))
		w.sql(`DELETE FROM deployment_topology`, `UPDATE regions SET id = 'reg_eu_2' WHERE id = 'reg_eu'`)
		require.NoError(w.t, w.reconciler().Pass(w.t.Context()))
		require.Len(w.t, w.items(), 1)
	})
}

func TestAnArchivedResourceIsPurgedOnceNobodyNeedsIt(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		ctx := w.t.Context()
		w.put("d_1", "running", deployment("one", "one:1"))
		w.put("d_2", "running", deployment("two", "two:1"))
		for _, id := range []string{"s_1", "s_2"} {
			_, err := w.store.PutSentinel(
				ctx,
				eu,
				id,
				regions.Wanted{
					State: "running",
					Spec: json.RawMessage(
						`{"k8s_namespace":"ws","k8s_name":"gate` + id[2:] + `","workspace_id":"ws_1","project_id":"prj_1","app_id":"app_1","environment_id":"env_1","image":"g:1","cpu_millicores":"1","memory_mib":"1"}`,
					),
				},
			)
			require.NoError(w.t, err)
		}
		age := func(table string) string {
			return fmt.Sprintf(`UPDATE %s SET %s = %d`, table, since(table), time.Now().Add(-7*24*time.Hour-time.Minute).UnixMilli())
		}
		w.sql(age("deployment_topology"), age("sentinels")) // when they were made does not count
		_, err := w.store.PutSentinel(ctx, eu, "s_1", regions.Wanted{State: "archived"})
		require.NoError(w.t, err)
		_, err = w.store.PutPolicy(
			ctx,
			eu,
			"p_1",
			regions.Wanted{
				State: "archived",
				Spec: json.RawMessage(
					`{"k8s_namespace":"ws","k8s_name":"p","policy":"eyJhcGlWZXJzaW9uIjoiY2lsaXVtLmlvL3YyIiwia2luZCI6IkNpbGl1bU5ldHdvcmtQb2xpY3kiLCJzcGVjIjp7fX0="}`,
				),
			},
		)
		require.NoError(w.t, err)
		w.items()
		w.beat(1, w.head())
		_, err = w.agent().ReportDeploymentStatus(ctx, connect.NewRequest(&ctrlv1.ReportDeploymentStatusRequest{
			Change: &ctrlv1.ReportDeploymentStatusRequest_Update_{Update: &ctrlv1.ReportDeploymentStatusRequest_Update{
				K8SName: "one", Instances: []*ctrlv1.ReportDeploymentStatusRequest_Update_Instance{{K8SName: "one-a"}},
			}},
		}))
		require.NoError(w.t, err)
		w.put("d_1", "archived", nil)
		all := []string{"deployments/d_1", "deployments/d_2", "policies/p_1", "sentinels/s_1", "sentinels/s_2"}
		look := func(why string, want ...string) {
			w.t.Helper()
			require.NoError(w.t, w.reconciler().Pass(ctx))
			items := w.items() //nolint:contextcheck // it is the test's
			require.ElementsMatch(w.t, want, slices.Collect(maps.Keys(items)), why)
		}
		look("too young", all...)
		w.sql(age("deployment_topology"), age("sentinels"), age("cilium_network_policies"))
		look("an instance runs, and the agent has not dealt with it", all[0], all[1], all[4])
		w.beat(2, w.head())
		look("an instance runs", all[0], all[1], all[4])
		w.sql(`DELETE FROM instances`)
		look("", all[1], all[4])
		var known int
		require.NoError(w.t, w.database.Read(ctx, func(tx *db.Tx) error {
			return tx.QueryRowContext(ctx, `SELECT count(*) FROM deployments`).Scan(&known)
		}))
		require.Equal(w.t, 1, known)
		w.put("d_9", "running", deployment("one", "one:9"))
		look("the name is free", all[1], all[4], "deployments/d_9")
		w.sql(`UPDATE sentinels SET desired_state = 'archived'`)
		look("it was told only now", all[1], all[4], "deployments/d_9")
		w.beat(3, w.head())
		look("it was found archived only now", all[1], all[4], "deployments/d_9")
		w.sql(age("sentinels"))
		_, err = w.agent().
			ReportSentinelStatus(ctx, connect.NewRequest(&ctrlv1.ReportSentinelStatusRequest{K8SName: "gate2", AvailableReplicas: 1}))
		require.NoError(w.t, err, "an agent that goes on reporting keeps nothing")
		w.beat(4, 1)
		look("the agent has not dealt with it", all[1], all[4], "deployments/d_9")
		w.beat(5, w.head())
		look("", all[1], "deployments/d_9")
	})
}

func TestNothingIsPurgedWhileAnAgentDoesNotSayHowFarItIs(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		ctx := w.t.Context()
		w.put("d_1", "archived", deployment("one", "one:1"))
		w.sql(`UPDATE deployment_topology SET updated_at = 1`)
		_, err := w.agent().Heartbeat(ctx, connect.NewRequest(&ctrlv1.HeartbeatRequest{}))
		require.NoError(w.t, err)
		require.NoError(w.t, w.reconciler().Pass(ctx))
		require.Len(w.t, w.items(), 1)
		w.sql(fmt.Sprintf(`UPDATE regions SET heartbeat_at = %d`, time.Now().Add(-25*time.Hour).UnixMilli()))
		require.NoError(w.t, w.reconciler().Pass(ctx))
		require.Empty(w.t, w.items())
	})
}

func TestTheReconcilerLooksNowAndThenAndCounts(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		w.put("d_1", "running", deployment("one", "one:1"))
		w.sql(`UPDATE deployment_topology SET desired_state = 'stopped'`)
		ctx, cancel := context.WithCancel(w.t.Context())
		registry := prometheus.NewRegistry()
		reconciler := &regions.Reconciler{Store: w.store, Every: 5 * time.Millisecond, Settle: time.Millisecond, Registerer: registry}
		ended := make(chan error, 1)
		go func() { ended <- reconciler.Start(ctx) }()
		await.Eventually(w.t, "err == nil && n == 1", func() bool {
			n, err := testutil.GatherAndCount(registry, "trueup_controlplane_rows_kept_total")
			return err == nil && n == 1
		})
		cancel()
		require.NoError(w.t, <-ended)
	})
}

// newRegion registers new-1, whose log is not there yet, and returns its token.
func (w *world) newRegion() string {
	w.t.Helper()
	token, hash := tokens.New()
	w.sql(
		fmt.Sprintf(`INSERT INTO regions (id, name, platform, scope, token_hash, token_until, terms_of, created_at, agent_epoch)
			VALUES ('reg_new', 'new-1', 'aws', 'new-1', '%s', 0, '', 1, 0)`, hash),
		`INSERT INTO region_log (scope, region_id) VALUES ('new-1', 'reg_new')`,
	)
	return token
}

func TestAnAgentSaysHowFarItIs(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		ctx := w.t.Context()
		applied := func() (bool, uint64) {
			list, err := w.store.Overview(ctx)
			require.NoError(w.t, err)
			require.Equal(w.t, "eu-1", list[0].Name)
			return list[0].Reported, list[0].Applied
		}
		w.put("d_1", "running", deployment("one", "one:1"))
		w.put("d_2", "running", deployment("two", "two:1"))
		reported, _ := applied()
		require.False(w.t, reported)
		w.beat(2, 2)
		w.beat(1, 1)
		reported, version := applied()
		require.True(w.t, reported)
		require.Equal(w.t, uint64(2), version, "the late one changes nothing")
		_, err := w.agent().Heartbeat(ctx, connect.NewRequest(&ctrlv1.HeartbeatRequest{Epoch: "x", ObservedVersion: 1}))
		require.NoError(w.t, err, "one without the extension reports no position")
		_, err = w.client("Bearer "+w.newRegion(), "new-1").
			Heartbeat(ctx, connect.NewRequest(&ctrlv1.HeartbeatRequest{AgentEpoch: 1, Sequence: 1, Epoch: "x", ObservedVersion: 1}))
		require.NoError(w.t, err, "the log of a new region comes soon")
		w.sql(`UPDATE trueup_readers SET at = 1`)
		reported, _ = applied()
		require.False(w.t, reported, "long ago")
		page, err := w.database.Log.Read(ctx, "eu-1", 0, 1)
		require.NoError(w.t, err)
		w.beat(3, 99)
		after, err := w.database.Log.Read(ctx, "eu-1", 0, 1)
		require.NoError(w.t, err)
		require.Equal(w.t, page.Epoch, after.Epoch, "one agent from the future may be faulty")
		_, err = w.agent().Heartbeat(ctx, connect.NewRequest(&ctrlv1.HeartbeatRequest{AgentEpoch: 1 << 63, Epoch: "x"}))
		require.Equal(w.t, connect.CodeInvalidArgument, connect.CodeOf(err))
	})
}
