package controlplanetest

import (
	"os"
	"strconv"
	"testing"
	"time"
)

// Soak returns how long a soak takes, from TRUEUP_SOAK, and what it is drawn from: TRUEUP_SEED, or a new seed, which it
// logs. Without TRUEUP_SOAK it skips the test.
func Soak(tb testing.TB) (length time.Duration, seed uint64) {
	tb.Helper()
	text := os.Getenv("TRUEUP_SOAK")
	if text == "" {
		tb.Skip("TRUEUP_SOAK is not set: make soak-shuttle")
	}
	length, err := time.ParseDuration(text)
	if err != nil {
		tb.Fatalf("TRUEUP_SOAK: is %q, must be a duration such as 15m", text)
	}
	seed = uint64(time.Now().UnixNano())
	if text := os.Getenv("TRUEUP_SEED"); text != "" {
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			tb.Fatalf("TRUEUP_SEED: is %q, must be a whole number", text)
		}
	}
	tb.Logf("seed %d", seed)
	return length, seed
}
