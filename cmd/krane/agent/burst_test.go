package agent_test

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/seed-9e1ffd66/trueup/apply/applytest"
	"github.com/seed-9e1ffd66/trueup/cmd/krane/internal/controltest"
	"github.com/seed-9e1ffd66/trueup/internal/test/await"
)

// rows returns n policies in that edition.
func (b *bench) rows(n, edition int) []proto.Message {
	all := make([]proto.Message, n)
	for i := range all {
		p := b.policy(fmt.Sprintf("egress-%d", i))
		p.Policy = fmt.Appendf(
			nil,
			`{"apiVersion":"cilium.io/v2","kind":"CiliumNetworkPolicy","spec":{"endpointSelector":{},"description":"%d"}}`,
			edition,
		)
		all[i] = p
	}
	return all
}

// burst is D26 with 300 rows; BenchmarkBurst has the 10,000. The first are applied
// while the others are still to come, and each row is sent once.
func burst(b *bench) {
	const n = 300
	written := make(chan struct{})
	var once sync.Once
	b.server.Set(controltest.Faults{Item: func(_ string, version uint64) {
		if version == n/2 {
			<-written
		}
	}})
	b.startWith(func(r applytest.Request) applytest.Fault {
		if r.Resource == "ciliumnetworkpolicies" && r.Writes() && !strings.HasPrefix(r.Name, "krane-egress-") {
			once.Do(func() { close(written) })
		}
		return applytest.Fault{}
	})
	b.synced(1)
	b.want(b.rows(n, 1)...)
	await.Eventually(b.t, "all of it is applied", func() bool {
		return b.count("ciliumnetworkpolicies", "-l", "app.kubernetes.io/component!=namespace") == n
	})
	await.Eventually(b.t, "all of it is acknowledged", func() bool { return b.lag() == "0 0 0" })
	require.Equal(b.t, n, b.server.Counts().Sent["policies"])
	require.Equal(b.t, 1, b.server.Counts().Lists["policies"])
	require.Equal(b.t, "0", b.metric(`parked_objects{resource_type="policies"}`))
	// The namespace, its account and policy, and one write for each.
	require.LessOrEqual(b.t, len(b.net.Writes()), n+6)
}

// BenchmarkBurst is D26: 10,000 rows that change in one transaction. It reports
// when the first write went out, and the greatest heap of agent and control plane
// together.
func BenchmarkBurst(b *testing.B) {
	const n = 10_000
	cluster, access := start(b)
	world := newBench(b, cluster, access)
	world.start()
	world.synced(1)
	edition := 0
	for b.Loop() {
		edition++
		world.net.Reset()
		ended := make(chan struct{})
		var peak uint64
		var first time.Duration
		var watching sync.WaitGroup
		began := time.Now()
		watching.Go(func() {
			tick := time.NewTicker(5 * time.Millisecond)
			defer tick.Stop()
			var memory runtime.MemStats
			for looks := 0; ; looks++ {
				select {
				case <-ended:
					return
				case <-tick.C:
				}
				if first == 0 && len(world.net.Writes()) > 0 {
					first = time.Since(began)
				}
				if looks%20 == 0 {
					runtime.ReadMemStats(&memory)
					peak = max(peak, memory.HeapAlloc)
				}
			}
		})
		world.want(world.rows(n, edition)...)
		await.Eventually(b, "the agent lags behind the log", func() bool { return world.lag() != "0 0 0" })
		deadline := time.Now().Add(10 * time.Minute)
		for world.lag() != "0 0 0" {
			require.True(b, time.Now().Before(deadline), "not in ten minutes")
			time.Sleep(50 * time.Millisecond)
		}
		close(ended)
		watching.Wait()
		b.ReportMetric(float64(first.Milliseconds()), "first-ms")
		b.ReportMetric(float64(peak>>20), "peak-MB")
		b.ReportMetric(n/time.Since(began).Seconds(), "rows/s")
	}
	require.Equal(b, n, world.count("ciliumnetworkpolicies", "-l", "app.kubernetes.io/component=policy"))
}
