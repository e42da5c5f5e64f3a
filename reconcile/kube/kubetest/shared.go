package kubetest

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
)

// Shared is one cluster for all tests of a package. It is a package variable of the tests, and TestMain
// calls [Shared.Main]. It may be used concurrently.
type Shared struct {
	// Options say what runs. They must not be changed after the first call of Cluster.
	Options Options

	once    sync.Once
	cluster *Cluster
	err     error
}

// Cluster returns the cluster, which the first call starts: a run without tests that need one starts
// none. A failure to start fails each test that asks, with the same error.
func (s *Shared) Cluster(tb testing.TB) *Cluster {
	tb.Helper()
	s.once.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), startLimit) //nolint:forbidigo // not of the first test alone
		defer cancel()
		s.cluster, s.err = Run(ctx, s.Options)
	})
	if s.err != nil {
		tb.Fatal(s.err)
	}
	return s.cluster
}

// Stop stops the cluster, if one was started. No test may use it after that.
func (s *Shared) Stop() {
	if s.cluster != nil {
		s.cluster.Stop()
	}
}

// Main runs the tests, stops the cluster and ends the process with their status: it is the last call of
// TestMain.
func (s *Shared) Main(m *testing.M) {
	code := m.Run()
	s.Stop()
	os.Exit(code) //nolint:forbidigo // the end of TestMain
}

// Namespace creates a namespace for the test and returns its name, which no other test has. It stays
// until the cluster stops. A failure fails the test at once.
func (c *Cluster) Namespace(tb testing.TB) string {
	tb.Helper()
	name := "test-" + strings.ToLower(rand.Text()[:10])
	if _, err := c.Kubectl(tb.Context(), "create", "namespace", name); err != nil {
		tb.Fatal(fmt.Errorf("kubetest: %w", err))
	}
	return name
}
