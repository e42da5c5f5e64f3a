package agent_test

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/krane/agent"
	"github.com/seed-9e1ffd66/trueup/reconcile/simtest"
	"github.com/seed-9e1ffd66/trueup/statesync"
)

func TestATokenThatIsRefusedAfterAnOutageHasAHeartbeatSent(t *testing.T) {
	t.Parallel()
	require.Equal(t, 1, agent.RefusedTokens(statesync.ErrUnauthenticated, statesync.ErrUnauthenticated))
	require.Equal(t, 1, agent.RefusedTokens(io.ErrUnexpectedEOF, statesync.ErrUnauthenticated, statesync.ErrUnauthenticated))
	require.Zero(t, agent.RefusedTokens(io.ErrUnexpectedEOF))
}

// failures returns how many attempts of a stream or call have failed.
func (b *bench) failures(call string) int {
	return b.number(fmt.Sprintf("control_failures_total{call=%q}", call))
}

// oneLine returns a scenario in which the control plane does not serve the agent for a
// while: however many streams and calls fail how often, one line is logged when it
// begins and one when it ends.
func oneLine(d disturbance, begins string) func(*bench) {
	return func(b *bench) {
		b.want(all()...)
		b.start()
		b.eventually("it runs", func() bool {
			return b.running("web") && b.exists(workloads, "guard") && b.exists(ciliums, "egress")
		})
		b.synced(1)
		calls := []string{"stream of deployments", "stream of sentinels", "stream of policies"}
		for range 2 {
			b.log.Reset()
			failed := map[string]int{}
			for _, call := range calls {
				failed[call] = b.failures(call)
			}
			d.begin(b)
			b.do(func(w *simtest.World) { // for a report
				for _, o := range w.Objects("pods") {
					_ = w.As("person").Delete("pods", o.Namespace(), o.Name()) // it exists
				}
			})
			for _, call := range calls {
				b.within(10*time.Minute, call+" fails", func() bool { return b.failures(call) > failed[call] })
			}
			b.within(20*time.Minute, "one of them fails again and again", func() bool {
				return b.failures("stream of policies") > failed["stream of policies"]+3
			})
			b.pause(10 * time.Minute)
			found := strings.Split(strings.TrimSpace(b.log.String()), "\n")
			require.Len(b, found, 1)
			require.Contains(b, found[0], begins)
			require.Contains(b, found[0], "https://control.example.com")
			require.Contains(b, found[0], "since=")

			d.end(b)
			b.eventually("the end is logged", func() bool { return strings.Count(b.log.String(), "\n") >= 2 })
			b.eventually("everything is reported", func() bool { return b.running("web") })
			b.pause(5 * time.Minute)
			found = strings.Split(strings.TrimSpace(b.log.String()), "\n")
			require.Len(b, found, 2)
			require.Contains(b, found[1], "contact with the control plane again")
			require.Contains(b, found[1], "after=")
		}
	}
}
