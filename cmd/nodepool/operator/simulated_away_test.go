package operator_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/apply/applytest"
	"github.com/seed-9e1ffd66/trueup/cloud"
	"github.com/seed-9e1ffd66/trueup/cloud/cloudtest"
	"github.com/seed-9e1ffd66/trueup/reconcile/simtest"
)

// longestPause is how long a pool whose cloud failed waits: a minute, spread by up to a fifth.
const longestPause = time.Minute + time.Minute/5

// TestWhileTheCloudIsAwayInASimulatedWorld is D14, and D15 after it: the cloud refuses every call
// from a random moment on, in a warm-up or at rest. Each pool says so, no machine is touched and no
// count changes. Then the cloud throttles: each pool says that within its pause, and asks at most
// every five seconds. Then it answers again, and each pool recovers within its pause.
func TestWhileTheCloudIsAwayInASimulatedWorld(t *testing.T) {
	t.Parallel()
	const pools = 3
	histories := uint64(30)
	if testing.Short() {
		histories = 6
	}
	ended := 0
	for seed := uint64(1); seed <= histories; seed++ {
		scenario := func() simtest.Scenario {
			p, s := newPooled()
			s.Disturbances, s.Without = []applytest.Disturbance{}, nil
			outage := &outage{cloud: p, calls: map[string]int{}, then: func() { ended++ }}
			s.Start = func(w *simtest.World) {
				objects := []simtest.Object{{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": "team"}}, class("c0")}
				for n := range pools {
					objects = append(objects, own("NodePool", fmt.Sprint("p", n), map[string]any{
						"poolSize": 2, "minStandby": 1,
						"template": map[string]any{"nodeClassRef": map[string]any{"kind": "AWSNodeClass", "name": "c0"}},
					}))
				}
				for _, o := range objects {
					if err := w.Create(o); err != nil {
						panic(err)
					}
				}
				w.After(time.Minute+time.Duration(w.Dice("outage").Int64N(int64(4*time.Minute))), func() { outage.begin(w, pools) })
			}
			s.Edits, s.Edit, s.Settle, s.Rest = 1, func(*simtest.World) {}, 20*time.Minute, 5*time.Minute
			s.Converged = p.converged
			p.OnCall = func(w *simtest.World, c cloudtest.Call) {
				p.judge(w, c)
				outage.called(c)
			}
			return s
		}
		require.Empty(t, simtest.Simulate(t, scenario, seed).Wrong, "seed %d", seed)
	}
	require.Equal(t, int(histories), ended, "outages that went their way") //nolint:gosec // a few
}

// TestACallThatNeverEndsKeepsNoPoolForGood has the cloud take lists, and later a launch, without an
// answer: pools say so within minutes, and go on once it answers.
func TestACallThatNeverEndsKeepsNoPoolForGood(t *testing.T) {
	t.Parallel()
	ended := 0
	scenario := func() simtest.Scenario {
		p, s := newPooled()
		s.Disturbances, s.Without = []applytest.Disturbance{}, nil
		outage := &outage{cloud: p, calls: map[string]int{}}
		names := []string{"p0", "p1"}
		s.Start = func(w *simtest.World) {
			objects := []simtest.Object{{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": "team"}}, class("c0")}
			for _, name := range names {
				objects = append(objects, own("NodePool", name, map[string]any{
					"poolSize": 2, "minStandby": 1,
					"template": map[string]any{"nodeClassRef": map[string]any{"kind": "AWSNodeClass", "name": "c0"}},
				}))
			}
			for _, o := range objects {
				if err := w.Create(o); err != nil {
					panic(err)
				}
			}
			w.After(5*time.Minute, func() {
				p.Hangs = "ListInstances"
				says := func(name string) bool { return strings.Contains(outage.degraded(w, name), "deadline exceeded") }
				outage.each(w, names, 8*time.Minute, "degraded for a list without an end", says, func() {
					p.Hangs = ""
					well := func(name string) bool { return outage.degraded(w, name) == "" }
					outage.each(w, names, 8*time.Minute, "well again", well, func() {
						p.Hangs = "LaunchInstance"
						_ = w.Update(poolsKind, "", "p0", func(o simtest.Object) { o.Set(2, "spec", "minStandby") }) // it exists
						w.After(time.Minute, func() { p.Hangs = "" })                                                // the call under way still has no end
						full := func(string) bool { return strings.HasPrefix(fmt.Sprint(outage.count(w, "p0")), "2 ") }
						outage.each(w, names[:1], 8*time.Minute, "full", full, func() { ended++ })
					})
				})
			})
		}
		s.Edits, s.Edit, s.Settle, s.Rest = 1, func(*simtest.World) {}, 40*time.Minute, 5*time.Minute
		s.Converged = p.converged
		return s
	}
	require.Empty(t, simtest.Simulate(t, scenario, 1).Wrong)
	require.Equal(t, 1, ended)
}

// outage is a time in which a cloud does not answer.
type outage struct {
	cloud  *pooled
	calls  map[string]int // by operation, since the cloud is away
	counts []any          // of the pools, when that began
	then   func()         // called when all has gone its way
}

// begin has the cloud refuse every call from now on.
func (o *outage) begin(w *simtest.World, pools int) {
	names := make([]string, pools)
	for n := range names {
		names[n] = fmt.Sprint("p", n)
		o.counts = append(o.counts, o.count(w, names[n]))
	}
	w.Log("the cloud is away")
	o.cloud.Away = errors.New("Unavailable")
	says := func(text string) func(string) bool {
		return func(name string) bool { return strings.Contains(o.degraded(w, name), text) }
	}
	o.each(w, names, longestPause, "degraded for Unavailable", says("Unavailable"), func() {
		w.Log("the cloud throttles")
		o.cloud.Away = &cloud.RateLimitError{RetryAfter: 5 * time.Second}
		o.each(w, names, longestPause, "degraded for throttling", says("throttled"), func() {
			w.After(time.Minute, func() { o.end(w, names) })
		})
	})
}

// end judges what was seen while the cloud was away, and has it answer again.
func (o *outage) end(w *simtest.World, names []string) {
	// Each list is one call for all pools that wait for it, at most every five seconds for each pool.
	if n, most := o.calls["ListInstances"], len(names)*(int((2*longestPause+time.Minute)/(5*time.Second))+2); n > most {
		w.Blame("%d lists of the cloud while it was away, want at most %d", n, most)
	}
	for n, name := range names {
		if now := o.count(w, name); now != o.counts[n] {
			w.Blame("%s: counts %v became %v while the cloud was away", name, o.counts[n], now)
		}
	}
	w.Log("the cloud answers again")
	o.cloud.Away = nil
	o.each(w, names, longestPause, "well again", func(name string) bool { return o.degraded(w, name) == "" }, o.then)
}

// each waits until something holds for every pool, and blames those for which it takes longer than
// the bound.
func (o *outage) each(w *simtest.World, names []string, bound time.Duration, what string, holds func(name string) bool, then func()) {
	began := time.Now()
	var look func()
	look = func() {
		for _, name := range names {
			switch {
			case holds(name):
			case time.Since(began) > bound+5*time.Second:
				w.Blame("%s is not %s after %v: %q", name, what, bound, o.degraded(w, name))
				return
			default:
				w.After(time.Second, look)
				return
			}
		}
		then()
	}
	look()
}

// called counts a call that the cloud refuses.
func (o *outage) called(c cloudtest.Call) {
	if o.cloud.Away != nil {
		o.calls[c.Operation]++
	}
}

// count is what the status of a pool says of its machines.
func (o *outage) count(w *simtest.World, name string) any {
	of := w.Object(poolsKind, "", name)
	return fmt.Sprintln(of.Field("status", "standby"), of.Field("status", "running"), of.Field("status", "total"))
}

// degraded is the message of a pool that is degraded, empty if it is not.
func (o *outage) degraded(w *simtest.World, name string) string {
	conditions, _ := w.Object(poolsKind, "", name).Field("status", "conditions").([]any)
	for _, c := range conditions {
		if c, _ := c.(map[string]any); c["type"] == "Degraded" && c["status"] == "True" {
			message, _ := c["message"].(string)
			return message
		}
	}
	return ""
}
