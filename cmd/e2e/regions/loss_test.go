package regions_test

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/controlplanetest"
	"github.com/seed-9e1ffd66/trueup/internal/test/await"
)

// often is the time between full lists where a scenario needs many.
const often = 500 * time.Millisecond

// restored is D11: an older copy of the database is put back, and a new epoch is
// started. The agent ends with the restored state.
func restored(b *bench, kind database) {
	t := b.t
	w := b.worker()
	w.agent.Periods.Relist = often
	b.want("1", "web", "keep", "archived")
	w.start()
	b.running("1", "web", "keep", "archived")
	source := b.source
	b.kill()
	require.NoError(t, b.desired().Database.Close())
	older := kind.Copied(t, source)
	b.open(source)
	b.replica()
	b.want("2", "web")
	b.want("1", "new")
	b.archive("archived")
	b.running("2", "web")
	b.running("1", "keep", "new")
	await.Eventually(t, "one is gone", func() bool { return b.gone("archived") })
	w.quiet()
	uids := b.uids("web", "keep")

	b.kill()
	require.NoError(t, b.desired().Database.Close())
	b.open(older)
	b.replica()
	require.True(t, b.admin(http.MethodPost, "new-log-epoch", map[string]any{}).Changed)
	b.running("1", "web", "keep", "archived")
	await.Eventually(t, "what the older copy does not have goes", func() bool { return b.replicaSet("new") == nil })
	w.quiet()
	require.True(t, b.runs("1", "web", "keep", "archived"))
	require.Equal(t, uids, b.uids("web", "keep"), "they were never deleted")
}

// uids returns the UIDs of the deployments' ReplicaSets.
func (b *bench) uids(names ...string) map[string]types.UID {
	b.t.Helper()
	found := map[string]types.UID{}
	for _, name := range names {
		if set := b.replicaSet(name); set != nil {
			found[name] = set.UID
		}
	}
	return found
}

// byHand changes the database behind the control plane's back.
func (b *bench) byHand(statements ...string) {
	b.t.Helper()
	require.NoError(b.t, b.desired().Database.Write(b.t.Context(), func(tx *controlplanetest.Tx) error {
		for _, statement := range statements {
			if _, err := tx.ExecContext(b.t.Context(), statement); err != nil {
				return fmt.Errorf("%s: %w", statement, err)
			}
		}
		return nil
	}))
}

func deployments(n int) (names []string) {
	for i := range n {
		names = append(names, fmt.Sprint("web-", i))
	}
	return names
}

// unknownRegion is D10: the row of the region has another name, and another row has
// its name. The agent holds, and goes on when the row is back.
func unknownRegion(b *bench, _ database) {
	t := b.t
	w := b.worker()
	w.agent.Periods.Relist = often
	b.useToken(bearer)
	names := deployments(7)
	b.want("1", names...)
	w.start()
	b.running("1", names...)
	w.quiet()
	writes := len(w.net.Writes())
	b.byHand(
		fmt.Sprintf("UPDATE regions SET name = '%s-lost' WHERE id = '%s'", b.name, b.id),
		fmt.Sprintf("INSERT INTO regions (id, name, platform, token_hash, created_at) VALUES ('reg_other', '%s', 'test', 'none', 0)", b.name),
	)
	for range 3 {
		w.refused("unknown_region", func() {})
	}
	require.InDelta(t, 1, w.metric(`deletions_held{reason="unknown_region"}`), 0)
	require.Len(t, w.net.Writes(), writes)
	b.byHand(
		"DELETE FROM regions WHERE id = 'reg_other'",
		fmt.Sprintf("UPDATE regions SET name = '%s' WHERE id = '%s'", b.name, b.id),
	)
	await.Eventually(t, "the alarm is over", func() bool { return w.metric(`deletions_held{reason="unknown_region"}`) == 0 })
	w.quiet()
	require.Empty(t, w.deletes())
	b.archive(names[0])
	await.Eventually(t, "what is archived goes", func() bool { return b.gone(names[0]) })
	require.True(t, b.runs("1", names[1:]...))
}

// regionAgain deletes the region with all its rows, and registers another with its
// name. The new one inherits no state, and what the old one ran stays until the new one
// has got its state.
func regionAgain(b *bench, _ database) {
	t := b.t
	w := b.worker()
	w.agent.Periods.Relist = often
	w.agent.Periods.Absence = time.Minute // the state comes one by one
	names := deployments(7)
	b.want("1", names...)
	w.start()
	b.running("1", names...)
	w.quiet()
	uids := b.uids(names...)
	b.byHand("DELETE FROM instances", "DELETE FROM deployment_topology", "DELETE FROM deployments", "DELETE FROM regions")
	w.refused("unauthenticated", func() {})
	b.id, b.region = b.id+"_anew", b.region+"_anew"
	b.useToken(b.admin(http.MethodPut, b.region, map[string]any{"name": b.name, "platform": "test", "replace": true}).Token)
	await.Eventually(
		t,
		"the empty list is held to be a mistake",
		func() bool { return w.metric(`deletions_held{reason="empty"}`) == float64(len(names)) },
	)
	w.synced(4, func() {})
	w.quiet()
	require.Empty(t, w.deletes())
	b.want("1", names...)
	b.running("1", names...)
	w.synced(4, func() {})
	w.quiet()
	require.Empty(t, w.deletes())
	require.Equal(t, uids, b.uids(names...), "they are the same")
}

// emptied removes all rows of wanted state by hand: at most the limit of deployments
// goes, and all run again once the state is back.
func emptied(b *bench, _ database) {
	t := b.t
	const limit = 5
	w := b.worker()
	w.agent.Periods.Relist = often
	names := deployments(9)
	b.want("1", names...)
	w.start()
	b.running("1", names...)
	w.quiet()
	b.byHand("DELETE FROM instances", "DELETE FROM deployment_topology")
	await.Eventually(t, "the log withdraws what it may", func() bool {
		page, err := b.desired().Database.Log.Read(t.Context(), b.name, 0, 1000)
		require.NoError(t, err)
		live := 0
		for _, item := range page.Items {
			if !item.Deleted {
				live++
			}
		}
		return live == len(names)-limit
	})
	w.synced(6, func() {})
	w.quiet()
	left := slices.Sorted(maps.Keys(b.uids(names...)))
	require.GreaterOrEqual(t, len(left), len(names)-limit)
	uids := b.uids(left...)
	// What is reported while the rows are away must be reported again.
	refused := `report_status_duration_seconds_count{resource_type="deployments",result="error"}`
	w.start()
	await.Eventually(t, "reports are refused", func() bool { return w.metric(refused) >= float64(len(left)) })
	b.want("1", names...)
	b.running("1", names...)
	require.Equal(t, uids, b.uids(left...), "they are the same")
}
