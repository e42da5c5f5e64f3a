package simtest //nolint:testpackage // how time is held up is not exported

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// looks returns when a bound of ten seconds that is never kept is looked at, in a world of two hours.
func looks(t *testing.T, during func(*World)) (at []time.Duration, wrong []string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(&Scenario{}, plan{beats: new(atomic.Int64)})
		start := time.Now()
		during(w)
		w.Within(10*time.Second, "it is so", func(*World) bool {
			at = append(at, time.Since(start))
			return false
		})
		w.agenda.advance(t.Context(), 2*time.Hour)
		wrong = w.wrong
	})
	return at, wrong
}

// TestTheTimeOfABound is longer by what requests are held up, at once or one after the other, and
// begins again after the last disturbance. It ends with the program.
func TestTheTimeOfABound(t *testing.T) {
	t.Parallel()
	late := []string{"it is so: not within 10s"}
	for name, c := range map[string]struct {
		during func(*World)
		last   time.Duration
	}{
		"nothing happens": {func(*World) {}, 10 * time.Second},
		"held up at once": {func(w *World) {
			for _, each := range []time.Duration{3 * time.Second, 4 * time.Second, 2 * time.Second} {
				w.hold(time.Now().Add(each))
			}
		}, 14 * time.Second},
		"held up before": {func(w *World) {
			w.hold(time.Now().Add(3 * time.Second))
			w.agenda.advance(t.Context(), 5*time.Second)
		}, 15 * time.Second},
		"disturbed": {func(w *World) {
			w.Disturb(time.Now().Add(time.Hour))
			w.Disturb(time.Now())
		}, time.Hour + recovery + 10*time.Second},
	} {
		at, wrong := looks(t, c.during)
		require.Equal(t, c.last, at[len(at)-1], name)
		require.Equal(t, late, wrong, name)
	}
	_, wrong := looks(t, func(w *World) { w.timing.stop() })
	require.Empty(t, wrong)
}

// TestWhatIsLateIsSoWithoutAPause: a bound looks itself whether something is late still, and its time
// begins again when it was not in between.
func TestWhatIsLateIsSoWithoutAPause(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		late  []bool // each second
		looks bool   // whether something happens each second
		want  time.Duration
	}{
		"late":                    {[]bool{true}, true, 3 * time.Second},
		"no change shows the end": {[]bool{true, false}, false, 0},
		"in time":                 {[]bool{true, true, true, false}, true, 0},
		"a pause":                 {[]bool{true, false, true}, true, 5 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			w := newWorld(&Scenario{Bounds: []Bound{{What: "it is so", Within: 3 * time.Second, Late: func(*World) []string {
				if c.late[min(int(time.Since(start)/time.Second), len(c.late)-1)] {
					return []string{"a", "a"}
				}
				return nil
			}}}}, plan{beats: new(atomic.Int64)})
			for range 10 {
				if c.looks || time.Now().Equal(start) {
					w.lateness()
				}
				before := len(w.wrong)
				w.agenda.advance(t.Context(), time.Second)
				if before == 0 && len(w.wrong) > 0 {
					require.Equal(t, c.want, time.Since(start), name)
				}
			}
			require.Len(t, w.wrong, min(1, int(c.want)), name)
		})
	}
}
