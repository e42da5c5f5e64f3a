package kubetest

import (
	"context"
	"testing"
	"time"
)

// startLimit bounds a start, the first build included.
const startLimit = 30 * time.Minute

// Start starts a cluster that ends with the test. A failure to start fails the
// test at once.
func Start(tb testing.TB, options Options) *Cluster {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), startLimit)
	defer cancel()
	c, err := Run(ctx, options)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(c.Stop)
	return c
}
