package operator_test

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/apply/applytest"
)

// life counts what the operator writes, to the API server and to EC2, and ends it at one of
// these boundaries.
type life struct {
	mu      sync.Mutex
	count   int
	at      int // the boundary; 0 is none
	after   bool
	crashed chan struct{}
	log     []string
}

// reach counts one write. It reports whether it is sent, and whether its answer arrives.
func (l *life) reach(what string, writes bool) (sent, answered bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.crashed:
		return false, false
	default:
	}
	if !writes {
		return true, true
	}
	l.count++
	l.log = append(l.log, what)
	if l.count != l.at {
		return true, true
	}
	close(l.crashed)
	return l.after, false
}

func (l *life) api(r applytest.Request) applytest.Fault {
	sent, answered := l.reach(r.String(), r.Writes() && r.Resource != "events" && r.Resource != "leases")
	return applytest.Fault{Crash: !answered, LoseAnswer: sent && !answered}
}

func (l *life) cloud(action string) (sent, answered bool) {
	return l.reach(action, !strings.HasPrefix(action, "Describe"))
}

// TestCrashes is D13: a pool is filled, used, emptied and deleted, and the operator is
// killed before and after each of its writes. The end is always the same.
func TestCrashes(t *testing.T) {
	if testing.Short() {
		t.Skip("long: a crash after each call")
	}
	c := newCell(t)
	whole := c.live(t, "whole", &life{crashed: make(chan struct{})})
	t.Logf("%d writes:\n%s", whole.count, strings.Join(whole.log, "\n"))
	require.Greater(t, whole.count, 15)
	step, from, passed, cut := 11, 1, 0, 0
	switch sweep := os.Getenv("TRUEUP_SWEEP"); {
	case sweep == "all":
		step = 1
	case sweep != "":
		_, err := fmt.Sscanf(sweep, "from %d", &from)
		require.NoError(t, err, `TRUEUP_SWEEP must be "all" or "from 34", to go on at the 34th write`)
		step = 1
	}
	for at := from; at <= whole.count; at++ {
		for _, after := range []bool{false, true} {
			if n := 2*at + map[bool]int{true: 1}[after]; n%step != 0 {
				continue
			}
			l := c.live(t, fmt.Sprintf("cut-%d-%v", at, after), &life{at: at, after: after, crashed: make(chan struct{})})
			select {
			case <-l.crashed:
				cut++
			default: // it needed fewer writes this time
			}
			passed++
		}
	}
	fmt.Printf("figure nodepool_crash_boundaries %d boundaries\n", passed)
	require.Positive(t, cut)
}

// live runs the whole life of a pool.
func (c *cell) live(t *testing.T, name string, l *life) *life {
	t.Helper()
	b := c.bench(t, name)
	stop := c.begin(t, l).stop
	again := false
	check := func(holds func() bool) func() bool {
		return func() bool {
			select {
			case <-l.crashed:
				if !again {
					again = true
					stop()
					stop = c.start(t, nil).stop
				}
			default:
			}
			require.LessOrEqual(t, len(b.instances()), 2, "the size of the pool")
			return holds()
		}
	}
	b.class()
	b.pool("poolSize: 2, minStandby: 1, scaleDown: {emptyNodeTTL: 1s}")
	b.eventually("one is on standby", check(func() bool { return len(b.in("standby")) == 1 && b.condition("Ready").Status == "True" }))
	b.pods(names("pod", 1), "cpu: 1", "")
	b.eventually("it runs", check(func() bool { return b.bound() == 1 }))
	b.removePods("pod-00")
	b.eventually("it is back, beside another", check(func() bool { return len(b.in("standby")) == 2 }))
	b.delete()
	b.eventually("all is gone", check(func() bool { return b.read() == nil && len(b.instances()) == 0 && len(b.nodes()) == 0 }))
	stop()
	return l
}
