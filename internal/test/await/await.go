// Package await lets tests wait for what real parts do, with a bound that can fail.
//
// A bound is what a contract states, or [Moment] where it states none. A machine with much
// to do is slower, so a wait lasts the bound times [Factor], which grows with the load; on a
// quiet machine it is two. Time that can be virtual is asserted in virtual time instead.
package await

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Moment is the bound of what no contract states: a program on a quiet machine does it in
// less, whatever it is.
const Moment = 30 * time.Second

// Hang bounds what takes as long as the machine takes, such as an installation: a test that
// waits longer hangs.
const Hang = 5 * time.Minute

const pause = 20 * time.Millisecond

// Until asks holds every 20 ms until it is true. A test that has waited for the bound times
// [Factor] fails at once, with what it waited for, what each detail returns, and the load.
func Until(tb testing.TB, bound time.Duration, what string, holds func() bool, details ...func() string) {
	tb.Helper()
	began := time.Now()
	for !holds() {
		factor, load := Factor()
		if waited := time.Since(began); waited > time.Duration(float64(bound)*factor) {
			// Once more: the last look may be older than the bound.
			if holds() {
				return
			}
			var far strings.Builder
			for _, detail := range details {
				fmt.Fprintf(&far, "\n%s", detail())
			}
			tb.Fatalf(
				"waited %s for: %s (bound %s, times %.1f for a load of %s)%s",
				waited.Round(time.Millisecond),
				what,
				bound,
				factor,
				load,
				far.String(),
			)
		}
		time.Sleep(pause)
	}
}

// Eventually is Until with the bound [Moment].
func Eventually(tb testing.TB, what string, holds func() bool, details ...func() string) {
	tb.Helper()
	Until(tb, Moment, what, holds, details...)
}

// Within fails the test if the measured time is above the bound of its contract. A
// bound holds as it is on a machine with up to five processes per core that want to run;
// with more it is stretched in proportion.
func Within(tb testing.TB, bound time.Duration, what string, took time.Duration) {
	tb.Helper()
	factor, load := Factor()
	if factor = max(1, (factor-2)/5); took > time.Duration(float64(bound)*factor) {
		tb.Fatalf("%s took %s (bound %s, times %.1f for a load of %s)", what, took.Round(time.Millisecond), bound, factor, load)
	}
}

// Factor returns by how much a bound is stretched now: two, and one more for each process
// or thread per core that wants to run, averaged over the last minute. load is that average
// as text. Where the system does not tell it, the factor is ten.
func Factor() (factor float64, load string) {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 10, "unknown"
	}
	load, _, _ = strings.Cut(string(text), " ")
	n, err := strconv.ParseFloat(load, 64)
	if err != nil {
		return 10, "unknown"
	}
	return 2 + n/float64(runtime.NumCPU()), fmt.Sprintf("%s on %d cores", load, runtime.NumCPU())
}
