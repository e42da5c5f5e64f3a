package agent_test

import (
	"net/http"
	"sync/atomic"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/apply/applytest"
	"github.com/seed-9e1ffd66/trueup/cmd/krane/internal/controltest"
	"github.com/seed-9e1ffd66/trueup/internal/test/await"
)

// podWatchLost is C22: the watch of pods ends while pods go, and cannot be opened
// again for a while, or has to begin with a new list.
func podWatchLost(b *bench) {
	b.want(b.deployment("web"), b.sentinel("guard"))
	var broken atomic.Bool
	var tried atomic.Int64
	b.startWith(func(r applytest.Request) applytest.Fault {
		if r.Resource != "pods" || !broken.Load() {
			return applytest.Fault{}
		}
		// In turns no answer, an error, and an answer that is none.
		switch tried.Add(1) % 3 {
		case 0:
			return applytest.Fault{Lose: true}
		case 1:
			return applytest.Fault{Status: http.StatusInternalServerError}
		default:
			return applytest.Fault{LoseAnswer: true}
		}
	})
	await.Eventually(b.t, "it runs", func() bool { return b.running("web") })
	for _, refused := range []bool{true, false} {
		instances := b.server.Instances()["web"]
		require.Len(b.t, instances, 1)
		old := instances[0].GetK8SName()
		b.net.Freeze()
		b.kubectl("delete", "pod", old, "-n", b.name)
		await.Eventually(b.t, "another pod runs", func() bool {
			return b.kubectl(
				"get",
				"pods",
				"-n",
				b.name,
				"-l",
				"unkey.com/deployment.id=d_web",
				"--field-selector",
				"status.phase=Running",
				"-o",
				"name",
			) != ""
		})
		require.Equal(b.t, old, b.server.Instances()["web"][0].GetK8SName(), "no watch has shown it")
		// What was kept back is lost with the stream.
		if broken.Store(refused); refused {
			b.net.Cut()
			await.Eventually(b.t, "reopening fails", func() bool { return b.metric(`pod_watch_reconnects_total{reason="error"}`) != "" })
			broken.Store(false)
		} else {
			b.net.Expire()
		}
		b.net.Thaw()
		await.Eventually(
			b.t,
			"the one that runs is reported",
			func() bool { return b.running("web") && b.server.Instances()["web"][0].GetK8SName() != old },
		)
	}
	require.NotEqual(b.t, "", b.metric(`pod_watch_reconnects_total{reason="opened"}`))
	require.Empty(b.t, b.deletes())
}

// queriesBesideAClosedStream has point queries that show a change which the stream cannot
// bring yet. That is no fault of the stream: it is resumed, and nothing is listed again.
func queriesBesideAClosedStream(b *bench) {
	b.want(b.deployment("web"))
	b.start()
	await.Eventually(b.t, "it runs", func() bool { return b.running("web") })
	b.synced(1)
	lists := b.server.Counts().Lists
	b.server.Set(controltest.Faults{Internal: true})
	changed := b.deployment("web")
	changed.Image = "registry.example.com/web:2"
	b.want(changed)
	asked := b.server.Counts().Queries
	await.Eventually(b.t, "it is queried four times", func() bool { return b.server.Counts().Queries >= asked+4 })
	b.server.Set(controltest.Faults{})
	await.Eventually(b.t, "the image is another", func() bool {
		return b.kubectl(
			"get",
			"replicaset",
			"web",
			"-n",
			b.name,
			"-o",
			"jsonpath={.spec.template.spec.containers[0].image}",
		) == changed.GetImage()
	})
	require.Equal(b.t, lists, b.server.Counts().Lists)
}
