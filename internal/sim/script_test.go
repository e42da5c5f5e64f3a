package sim_test

import (
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

// TestALifeEndsTheSameWhereverItIsCut cuts the life of a pool at each call that
// changes something, before it and after it, in each way.
func TestALifeEndsTheSameWhereverItIsCut(t *testing.T) {
	if testing.Short() {
		t.Skip("long: a cut at each step")
	}
	t.Parallel()
	undisturbed := life(t, Cut{})
	require.Empty(t, undisturbed.Wrong)
	t.Logf("%d calls: %v", undisturbed.Calls, undisturbed.States)
	cuts, same := 0, 0
	for call := 1; call <= undisturbed.Calls; call++ {
		for _, cut := range []Cut{
			{Call: call, Kill: true}, {Call: call, Kill: true, Done: true}, {Call: call}, {Call: call, Done: true}, {Call: call, Twice: true},
		} {
			cuts++
			s := life(t, cut)
			require.Empty(t, s.Wrong, "%s\n%s", cut, s.Trace.String())
			require.Equal(t, undisturbed.States, s.States, "%s\n%s", cut, s.Trace.String())
			same++
		}
	}
	t.Logf("%d of %d cuts end the same", same, cuts)
	fmt.Printf("figure pool_crash_boundaries_percent %d %%\n", 100*same/cuts)
}

func life(t *testing.T, cut Cut) *Script {
	t.Helper()
	s := NewScript(cut)
	synctest.Test(t, func(t *testing.T) { s.Run(t.Context()) })
	return s
}
