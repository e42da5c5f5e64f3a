package regions_test

import (
	"fmt"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/internal/test/await"
)

// links breaks the link, slows it down, and lets nothing through; it heals each time.
func links(b *bench, _ database) {
	t := b.t
	w := b.worker()
	b.want("1", "web", "old-0")
	w.start()
	b.running("1", "web", "old-0")
	w.quiet()
	changes := 0
	// change changes one deployment, adds one and archives one.
	change := func() {
		changes++
		b.want(fmt.Sprint(changes+1), "web")
		b.want("1", fmt.Sprint("old-", changes))
		b.archive(fmt.Sprint("old-", changes-1))
	}
	converged := func() {
		t.Helper()
		b.running(fmt.Sprint(changes+1), "web")
		b.running("1", fmt.Sprint("old-", changes))
		await.Eventually(t, "the archived one goes", func() bool { return b.gone(fmt.Sprint("old-", changes-1)) })
	}
	for _, c := range []struct{ kind, attributes string }{
		{"latency", `{"latency":100,"jitter":50}`},
		{"bandwidth", `{"rate":8}`},
		{"slicer", `{"average_size":64,"size_variation":32,"delay":5000}`},
	} {
		b.toxic(c.kind, c.attributes, func() {
			change()
			converged()
		})
	}
	b.toxic("reset_peer", `{"timeout":0}`, func() {
		w.refused("failed", change)
		await.Eventually(t, "the streams end", func() bool { return b.streams() == 0 })
	})
	converged()
	// Half open: neither side gets a word, nor the end of the connection.
	b.toxic("timeout", `{"timeout":0}`, func() {
		w.refused("failed", change)
		await.Eventually(t, "the control plane finds the link dead", func() bool { return b.streams() == 0 })
	})
	converged()
	await.Eventually(t, "the streams are back", func() bool { return b.streams() == len(collections()) })
}

// killed kills the only control plane and starts it again.
func killed(b *bench, _ database) {
	t := b.t
	w := b.worker()
	w.agent.Periods.Resync = time.Hour // a point query that is ahead of the stream causes a list
	b.want("1", "web", "api")
	w.start()
	b.running("1", "web", "api")
	w.quiet()
	writes, lists := len(w.net.Writes()), w.metric(`watcher_full_syncs_total{resource_type="deployments"}`)
	for n := range 2 {
		w.refused("failed", b.kill)
		require.Len(t, w.net.Writes(), writes, "while there is no control plane")
		b.replica()
		tag := fmt.Sprint(n + 2)
		b.want(tag, "web")
		b.running(tag, "web")
		w.quiet()
		writes = len(w.net.Writes())
	}
	b.archive("api")
	await.Eventually(t, "api goes", func() bool { return b.gone("api") })
	require.InDelta(t, lists, w.metric(`watcher_full_syncs_total{resource_type="deployments"}`), 0, "the streams are resumed")
}

// oneOfTwoKilled kills one replica of two after another, the one that the agent is
// connected to among them.
func oneOfTwoKilled(b *bench, _ database) {
	t := b.t
	w := b.worker()
	w.agent.Periods.Resync = time.Hour // as above
	b.replica()
	b.want("1", "web", "old-0")
	w.start()
	b.running("1", "web", "old-0")
	lists := w.metric(`watcher_full_syncs_total{resource_type="deployments"}`)
	for n := range 4 {
		tag, fresh, old := fmt.Sprint(n+2), fmt.Sprint("old-", n+1), fmt.Sprint("old-", n)
		b.want(tag, "web")
		b.kill()
		b.want("1", fresh)
		b.archive(old)
		b.running(tag, "web")
		b.running("1", fresh)
		await.Eventually(t, "the archived one goes", func() bool { return b.gone(old) })
		b.replica()
	}
	require.InDelta(t, lists, w.metric(`watcher_full_syncs_total{resource_type="deployments"}`), 0, "the streams are resumed")
}
