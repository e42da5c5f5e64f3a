package sim_test

import (
	"flag"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

var (
	oneSeed   = flag.Uint64("seed", 0, "the seed of the one history to simulate, with its trace; 0 simulates many")
	histories = flag.Int("histories", 0, "how many histories to simulate; 0 is 100")
)

// TestMain has garbage collected seldom: histories make much and keep little.
func TestMain(m *testing.M) {
	debug.SetGCPercent(400)
	os.Exit(m.Run())
}

// many returns how many histories to simulate.
func many() int {
	if *histories > 0 {
		return *histories
	}
	return 100
}

func TestNoMachineIsTooManyAndNoGoodOneIsLost(t *testing.T) {
	t.Parallel()
	if *oneSeed != 0 {
		wrong, trace := history(t, *oneSeed, nil)
		t.Log(trace)
		require.Empty(t, wrong)
		return
	}
	const workers = 4
	passed := t.Run("histories", func(t *testing.T) {
		for worker := range workers {
			t.Run("", func(t *testing.T) {
				t.Parallel()
				for seed := uint64(worker) + 1; seed <= uint64(many()); seed += workers {
					if wrong, _ := history(t, seed, nil); len(wrong) > 0 {
						t.Fatalf("%s\nreproduce: go test ./internal/sim -run NoMachineIsTooMany -v -seed %d", strings.Join(wrong, "\n"), seed)
					}
				}
			})
		}
	})
	if passed {
		fmt.Printf("figure pool_histories %d count\n", many())
		for _, name := range []string{"duplicates", "leaks", "good_machines_killed", "pods_lost"} {
			fmt.Printf("figure pool_%s 0\n", name)
		}
	}
}

func TestOneSeedIsOneHistory(t *testing.T) {
	t.Parallel()
	for seed := uint64(1); seed <= 20; seed++ {
		_, once := history(t, seed, nil)
		_, again := history(t, seed, nil)
		require.Equal(t, once, again, "seed %d", seed)
	}
}

// history runs one history, and returns what was wrong and the trace.
func history(t *testing.T, seed uint64, plant func(*Pool)) (wrong []string, trace string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p := NewPool(seed)
		if plant != nil {
			plant(p)
		}
		p.Run(t.Context())
		wrong, trace = p.Wrong, p.Trace.String()
	})
	return wrong, trace
}
