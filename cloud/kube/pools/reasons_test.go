package pools //nolint:testpackage // the reasons are not exported

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cloud/demand"
)

// TestAReasonIsReportedOnceWhileThePodWaits: the reasons alternate when a pool comes and goes.
func TestAReasonIsReportedOnceWhileThePodWaits(t *testing.T) {
	t.Parallel()
	var d reasons
	var notes []string
	note := func(_ *demand.Pod, why string) { notes = append(notes, why) }
	pod := &demand.Pod{UID: "u", Name: "huge", Namespace: "team"}
	fits := func(pools ...string) (r demand.Result) {
		u := demand.Unplaced{Pod: pod}
		for _, pool := range pools {
			u.Reasons = append(u.Reasons, demand.Reason{Pool: pool, Message: "needs 100 cpu"})
		}
		r.Unplaced = append(r.Unplaced, u)
		return r
	}
	reported := func() (since []string) {
		since, notes = notes, nil
		return since
	}
	waits := []*demand.Pod{pod}
	d.report(waits, fits("a"), note)
	require.Equal(t, []string{"pool a: needs 100 cpu"}, reported())
	d.report(waits, fits("a"), note)
	require.Empty(t, reported())
	d.report(waits, fits("a", "b"), note)
	require.Equal(t, []string{"pool a: needs 100 cpu; pool b: needs 100 cpu"}, reported())
	d.report(waits, fits("a"), note)
	d.report(waits, demand.Result{}, note)
	d.report(waits, fits("a", "b"), note)
	require.Empty(t, reported(), "it waits all the time")

	d.report(nil, demand.Result{}, note)
	require.Empty(t, d.of, "nothing is kept of a pod that waits no more")
	d.report(waits, fits("a"), note)
	require.Equal(t, []string{"pool a: needs 100 cpu"}, reported(), "it waits again")

	for i := range 2 * maxReasons {
		d.report(waits, fits(fmt.Sprint("p", i)), note)
	}
	require.Len(t, d.of["u"], maxReasons)
	require.Len(t, reported(), 2*maxReasons)
	d.report(waits, fits(fmt.Sprint("p", 2*maxReasons-1)), note)
	require.Empty(t, reported(), "the latest are kept")
}
