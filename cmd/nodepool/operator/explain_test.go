package operator //nolint:testpackage // the demand is not exported

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cloud/demand"
)

// TestAReasonIsReportedOnceWhileThePodWaits: the reasons alternate when a pool comes and goes.
func TestAReasonIsReportedOnceWhileThePodWaits(t *testing.T) {
	t.Parallel()
	d := newDemand(&operator{})
	var notes []string
	d.report = func(_ *demand.Pod, _, note string) { notes = append(notes, note) }
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
	d.explain(waits, fits("a"))
	require.Equal(t, []string{"pool a: needs 100 cpu"}, reported())
	d.explain(waits, fits("a"))
	require.Empty(t, reported())
	d.explain(waits, fits("a", "b"))
	require.Equal(t, []string{"pool a: needs 100 cpu; pool b: needs 100 cpu"}, reported())
	d.explain(waits, fits("a"))
	d.explain(waits, demand.Result{})
	d.explain(waits, fits("a", "b"))
	require.Empty(t, reported(), "it waits all the time")

	d.explain(nil, demand.Result{})
	require.Empty(t, d.unplaced, "nothing is kept of a pod that waits no more")
	d.explain(waits, fits("a"))
	require.Equal(t, []string{"pool a: needs 100 cpu"}, reported(), "it waits again")

	for i := range 2 * maxReasons {
		d.explain(waits, fits(fmt.Sprint("p", i)))
	}
	require.Len(t, d.unplaced["u"], maxReasons)
	require.Len(t, reported(), 2*maxReasons)
	d.explain(waits, fits(fmt.Sprint("p", 2*maxReasons-1)))
	require.Empty(t, reported(), "the latest are kept")
}
