package regions_test

import (
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/internal/test/await"
)

// live returns how many items of the region's log are not withdrawn.
func (b *bench) live() (n int) {
	b.t.Helper()
	page, err := b.desired().Database.Log.Read(b.t.Context(), b.name, 0, 1000)
	require.NoError(b.t, err)
	for _, item := range page.Items {
		if !item.Deleted {
			n++
		}
	}
	return n
}

// last removes the row of the only deployment by hand: it goes after two empty lists.
// Two deployments whose rows vanish at once are held, and so is the one that a
// restarted agent finds in the cluster beside an empty list.
func last(b *bench, _ database) {
	t := b.t
	const empty = `deletions_held{reason="empty"}`
	w := b.worker()
	w.agent.Periods.Relist = 2 * time.Second // no list between two rows that vanish at once
	b.want("1", "web")
	w.start()
	b.running("1", "web")
	w.quiet()
	b.byHand("DELETE FROM instances", "DELETE FROM deployment_topology")
	await.Eventually(t, "the last one goes, and with a later list its policy", func() bool {
		return b.replicaSet("web") == nil && len(b.policies()) == 0 && w.metric(empty) == 0
	})
	deletes := len(w.deletes())

	// A row that vanishes a second time within five minutes is not withdrawn: other names.
	b.want("2", "api", "db")
	b.running("2", "api", "db")
	w.quiet()
	b.byHand("DELETE FROM instances", "DELETE FROM deployment_topology")
	await.Eventually(t, "two at once are held", func() bool { return w.metric(empty) == 2 })
	w.synced(3, func() {})
	require.Len(t, w.deletes(), deletes)

	b.want("3", "first", "second")
	b.running("3", "first", "second")
	b.byHand("DELETE FROM instances WHERE deployment_id = 'd_first'", "DELETE FROM deployment_topology WHERE deployment_id = 'd_first'")
	await.Eventually(t, "one goes, and those before, and then their policies", func() bool {
		return len(b.uids("first", "api", "db")) == 0 && len(b.policies()) == 1
	})
	w.stop()
	b.byHand("DELETE FROM instances", "DELETE FROM deployment_topology")
	await.Eventually(t, "the log withdraws it", func() bool { return b.live() == 0 })
	w.start()
	await.Eventually(t, "a restarted agent holds it", func() bool { return w.metric(empty) == 1 })
	w.synced(3, func() {})
	require.Empty(t, w.deletes())
	require.NotNil(t, b.replicaSet("second"))
}

// instancesLost deletes reported instances manually: they are reported again, though nothing
// has changed in the cluster.
func instancesLost(b *bench, _ database) {
	w := b.worker()
	w.agent.Periods.Inventory = 2 * time.Second
	b.want("1", "web", "api")
	w.start()
	b.running("1", "web", "api")
	w.quiet()
	b.byHand("DELETE FROM instances WHERE deployment_id = 'd_web'")
	b.running("1", "web", "api")
}
