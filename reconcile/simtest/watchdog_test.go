package simtest_test

import (
	"context"
	"net/http"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/reconcile/simtest"
)

// spin is a program that never pauses, beside a goroutine that does.
func spin(ctx context.Context, _ http.RoundTripper) error { //nolint:unparam // a Scenario.Program returns an error
	go func() { <-ctx.Done() }()
	for ctx.Err() == nil {
	}
	return nil
}

// lock is a program that holds a mutex during a request, while another goroutine waits for it.
func lock(ctx context.Context, net http.RoundTripper) error {
	var held sync.Mutex
	held.Lock()
	go wait(&held)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://simtest/api", nil)
	if err != nil {
		return err
	}
	answer, err := net.RoundTrip(r)
	if err != nil {
		return err
	}
	return answer.Body.Close()
}

func wait(held *sync.Mutex) { held.Lock() }

// TestAProgramThatSpinsIsNamed: the test ends with the stack of the goroutine that stops the
// time, and with no stack of one that waits as it should.
func TestAProgramThatSpinsIsNamed(t *testing.T) {
	t.Parallel()
	for subject, at := range map[string]string{"spins": "spin(", "locks": "wait("} {
		t.Run(subject, func(t *testing.T) {
			t.Parallel()
			program := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestSubject$", "-test.timeout=20s")
			program.Env = append(os.Environ(), "SIMTEST_SUBJECT="+subject, "SIMTEST_SEED=1")
			out, err := program.CombinedOutput()
			require.Error(t, err, "%s", out)
			require.Contains(t, string(out), "panic: simtest: TestSubject, seed 1: the program works without a pause, "+
				"and virtual time stands still for 1s:\n")
			require.Contains(t, string(out), "/simtest_test."+at)
			require.NotContains(t, string(out), "/simtest_test.spin.func1(", "it waits")
		})
	}
}

// TestAProgramThatPausesIsLeftAlone lets the agenda make a step just within the limit each time.
func TestAProgramThatPausesIsLeftAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var beats atomic.Int64
		stop := simtest.Watch(t.Name(), &beats, time.Minute)
		for range 100 {
			simtest.Advance(t.Context(), &beats, time.Minute-time.Second)
		}
		stop()
		time.Sleep(time.Hour)
	})
}
