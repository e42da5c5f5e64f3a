package operator_test

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// of reports whether a launch is one of the pool.
func of(form url.Values, pool string) bool {
	for _, values := range form {
		if slices.Contains(values, pool) {
			return true
		}
	}
	return false
}

// TestALostAnswerIsNoSecondLaunch is D12. The lists lack the machines of the lost answers
// until each launch was answered, so that only the repeated token leads to them.
func TestALostAnswerIsNoSecondLaunch(t *testing.T) {
	if testing.Short() {
		t.Skip("long: an outage of the cloud")
	}
	c := newCell(t)
	r := c.start(t, nil)
	b := c.bench(t, "lost")
	var launches atomic.Int64
	r.wire.set(func(action string, form url.Values) wireFault {
		switch {
		case action == "RunInstances" && of(form, "lost"):
			return wireFault{Lost: launches.Add(1) <= 3}
		case action == "DescribeInstances":
			return wireFault{Nothing: launches.Load() < 5}
		}
		return wireFault{}
	})
	b.class()
	b.pool("poolSize: 3, minStandby: 2")
	b.standby(2)
	require.Len(t, b.instances(), 2)
	tokens := map[string]bool{}
	r.wire.mu.Lock()
	for _, form := range r.wire.seen {
		if form.Get("Action") == "RunInstances" {
			tokens[form.Get("ClientToken")] = true
		}
	}
	r.wire.mu.Unlock()
	require.Equal(t, 5, r.wire.count("RunInstances"), "three whose answers are lost, and one for each subnet")
	require.Len(t, tokens, 2, "one for each subnet")
	require.Empty(t, b.read().Status.Launches)
}

// TestWhileTheCloudIsAwayNothingChanges is D15, and D14 after it, with the errors of EC2: the calls of
// all pools stay within one bucket while EC2 throttles. How long a pool pauses is asserted in virtual
// time.
func TestWhileTheCloudIsAwayNothingChanges(t *testing.T) {
	if testing.Short() {
		t.Skip("long: an outage of the cloud")
	}
	c := newCell(t)
	r := c.start(t, nil)
	var benches []*bench
	for _, name := range []string{"away-a", "away-b", "away-c"} {
		b := c.bench(t, name)
		benches = append(benches, b)
		b.class()
		b.pool("poolSize: 2, minStandby: 1, scaleDown: {emptyNodeTTL: 1s}")
	}
	for _, b := range benches {
		b.standby(1)
	}
	before := r.wire.count("RunInstances", "TerminateInstances", "StopInstances")

	throttled := r.wire.count("DescribeInstances")
	r.wire.set(func(string, url.Values) wireFault {
		return wireFault{Code: "RequestLimitExceeded", Status: http.StatusServiceUnavailable}
	})
	for _, b := range benches {
		b.eventually("it is throttled", func() bool { return strings.Contains(b.condition("Degraded").Message, "throttled") })
	}
	require.LessOrEqual(t, r.wire.count("DescribeInstances")-throttled, 100, "the bucket of EC2")

	r.wire.set(func(string, url.Values) wireFault {
		return wireFault{Code: "Unavailable", Status: http.StatusServiceUnavailable}
	})
	for _, b := range benches {
		b.eventually("it is degraded", func() bool { return strings.Contains(b.condition("Degraded").Message, "Unavailable") })
		require.Equal(t, "CloudProviderError", b.condition("Degraded").Reason)
		require.Equal(t, [3]int32{1, 0, 1}, b.counts(), "counts do not change")
	}
	require.Equal(t, before, r.wire.count("RunInstances", "TerminateInstances", "StopInstances"))

	r.wire.set(nil)
	for _, b := range benches {
		// A person who changes the pool does not wait for its pause of a minute.
		b.pool("poolSize: 3, minStandby: 1, scaleDown: {emptyNodeTTL: 1s}")
		b.eventually("it has recovered", func() bool { return b.condition("Degraded").Status == metav1.ConditionFalse })
		require.Len(t, b.instances(), 1)
		require.Equal(t, [3]int32{1, 0, 1}, b.counts())
	}
	b := benches[0]
	b.pods(names("pod", 1), "cpu: 1", "")
	b.eventually("it runs", func() bool { return b.bound() == 1 })
}
