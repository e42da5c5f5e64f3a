package agent_test

import (
	"net/http"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/apply/applytest"
	"github.com/seed-9e1ffd66/trueup/cmd/krane/internal/controltest"
	"github.com/seed-9e1ffd66/trueup/reconcile/simtest"
)

// podWatchLost is C22: the watch of pods ends while pods go, and cannot be opened
// again for a while, or has to begin with a new list.
func podWatchLost(b *bench) {
	b.want(all()...)
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
	b.eventually("it runs", func() bool { return b.running("web") })
	for _, refused := range []bool{true, false} {
		old := b.instances("web")[0].Name
		b.net.Freeze()
		b.person(func(c simtest.Client) error { return c.Delete("pods", namespace, old) })
		b.eventually("another pod runs", func() (runs bool) {
			b.do(func(w *simtest.World) {
				for _, o := range w.Objects("pods") {
					mine := o.Label("unkey.com/deployment.id") == "d_web" && o.Name() != old
					runs = runs || mine && o.Field("status", "phase") == "Running"
				}
			})
			return runs
		})
		require.Equal(b, old, b.instances("web")[0].Name, "no watch has shown it")
		// What was kept back is lost with the stream.
		if broken.Store(refused); refused {
			b.net.Cut()
			b.eventually("reopening fails", func() bool { return b.metric(`pod_watch_reconnects_total{reason="error"}`) != "" })
			broken.Store(false)
		} else {
			b.net.Expire()
		}
		b.net.Thaw()
		b.eventually("the one that runs is reported", func() bool { return b.running("web") && b.instances("web")[0].Name != old })
	}
	require.NotEmpty(b, b.metric(`pod_watch_reconnects_total{reason="resumed"}`))
	require.Empty(b, b.deletes())
}

// queriesBesideAClosedStream has point queries that show a change which the stream cannot
// bring yet. That is no fault of the stream: it is resumed, and nothing is listed again.
func queriesBesideAClosedStream(b *bench) {
	b.want(all()...)
	b.start()
	b.eventually("it runs", func() bool { return b.running("web") })
	b.synced(1)
	lists, asked := b.liar.Lists("WatchDeployments"), b.liar.Calls("GetDesiredDeploymentState")
	closed := wrong(controltest.Faults{Refuse: refuse{no("Watch", connect.CodeInternal)}})
	closed.begin(b)
	changed := deployment("web")
	changed.Image = "registry.example.com/web:2"
	b.want(changed)
	b.within(8*time.Minute, "it is queried four times", func() bool { return b.liar.Calls("GetDesiredDeploymentState") >= asked+4 })
	require.Equal(b, lists, b.liar.Lists("WatchDeployments"))
	closed.end(b)
	b.eventually("the image is another", func() bool { return b.image("web") == changed.GetImage() })
	b.eventually("the stream has it", func() bool { return b.lag() == "0 0 0" })
	require.LessOrEqual(b, b.liar.Lists("WatchDeployments"), lists+1, "the list of every ten minutes")
}
