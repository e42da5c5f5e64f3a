package agent_test

import (
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/krane/agent"
	"github.com/seed-9e1ffd66/trueup/cmd/krane/internal/controltest"
	"github.com/seed-9e1ffd66/trueup/internal/test/await"
	"github.com/seed-9e1ffd66/trueup/statesync"
)

func TestATokenThatIsRefusedAfterAnOutageHasAHeartbeatSent(t *testing.T) {
	t.Parallel()
	require.Equal(t, 1, agent.RefusedTokens(statesync.ErrUnauthenticated, statesync.ErrUnauthenticated))
	require.Equal(t, 1, agent.RefusedTokens(io.ErrUnexpectedEOF, statesync.ErrUnauthenticated, statesync.ErrUnauthenticated))
	require.Zero(t, agent.RefusedTokens(io.ErrUnexpectedEOF))
}

// lines is a log that may be read while it is written.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// all returns the lines so far.
func (l *lines) all() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Split(strings.TrimSuffix(l.text.String(), "\n"), "\n")
}

// failures returns how many attempts of a stream or call have failed.
func (b *bench) failures(call string) int {
	b.t.Helper()
	n, _ := strconv.Atoi(b.metric(fmt.Sprintf("control_failures_total{call=%q}", call)))
	return n
}

// oneLine returns a scenario in which the control plane does not serve the agent for a
// while: however many streams and calls fail how often, one line is logged when it
// begins and one when it ends.
func oneLine(faults controltest.Faults) func(*bench) {
	return func(b *bench) {
		var log lines
		b.agent.Logger = slog.New(slog.NewTextHandler(&log, nil))
		b.agent.Periods.Heartbeat = 100 * time.Millisecond
		b.want(b.deployment("web"), b.sentinel("guard"), b.policy("egress"))
		b.start()
		await.Eventually(b.t, "it runs", func() bool {
			return b.running("web") && b.exists("deployment", "guard") && b.exists("ciliumnetworkpolicy", "egress")
		})
		b.synced(1)
		for n := range 2 {
			before := len(log.all())
			failed := map[string]int{}
			calls := []string{"stream of deployments", "stream of sentinels", "stream of policies"}
			for _, call := range calls {
				failed[call] = b.failures(call)
			}
			b.server.Set(faults)
			b.kubectl("delete", "pod", "-n", b.name, "-l", "app.kubernetes.io/component=deployment") // for a report
			for _, call := range calls {
				await.Eventually(b.t, call+" fails", func() bool { return b.failures(call) > failed[call] })
			}
			await.Eventually(b.t, "one of them fails again and again", func() bool {
				return b.failures("stream of policies") > failed["stream of policies"]+3 || b.failures("Heartbeat") > (n+1)*10
			})
			found := log.all()[before:]
			require.Len(b.t, found, 1)
			require.Contains(b.t, found[0], "no contact with the control plane")
			require.Contains(b.t, found[0], b.server.URL)
			require.Contains(b.t, found[0], "since=")

			b.server.Set(controltest.Faults{})
			await.Eventually(b.t, "the end is logged", func() bool { return len(log.all()) >= before+2 })
			await.Eventually(b.t, "everything is reported", func() bool { return b.running("web") })
			b.beats()
			found = log.all()[before:]
			require.Len(b.t, found, 2)
			require.Contains(b.t, found[1], "contact with the control plane again")
			require.Contains(b.t, found[1], "after=")
		}
	}
}
