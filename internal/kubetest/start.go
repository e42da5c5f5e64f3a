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
func Start(t testing.TB, options Options) *Cluster {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startLimit)
	defer cancel()
	c, err := Run(ctx, options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Stop)
	return c
}
