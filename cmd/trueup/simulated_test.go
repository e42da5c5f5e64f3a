package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/seed-9e1ffd66/trueup/apply/applytest"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/program"
	"github.com/seed-9e1ffd66/trueup/internal/test/foldersim"
	"github.com/seed-9e1ffd66/trueup/reconcile/simtest"
	"github.com/seed-9e1ffd66/trueup/reconcile/simtest/upstream"
)

const kubeconfig = `{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c, namespace: default}}],
clusters: [{name: c, cluster: {server: "http://simtest"}}]}
`

// TestMain removes handlers of client-go that sleep by a clock that all tests share.
func TestMain(m *testing.M) {
	utilruntime.ErrorHandlers = nil
	os.Exit(m.Run())
}

// simulated is a command that makes a folder true, and a user who edits the files.
func simulated(t *testing.T, args ...string) simtest.Scenario {
	t.Helper()
	set := foldersim.Set{
		Folder: t.TempDir(), Label: labelPart, Value: "shop", Memory: "trueup-default", Forgets: "trueup-default-deletions", Whole: true,
	}
	config := filepath.Join(t.TempDir(), "config")
	require.NoError(t, os.WriteFile(config, []byte(kubeconfig), 0o600))
	s := set.Scenario(t)
	s.Machinery = &upstream.Machinery{Scheme: scheme.Scheme}
	s.Program = func(ctx context.Context, net http.RoundTripper) error {
		c := command(net) //nolint:contextcheck // Run gives it the context
		c.SetIn(strings.NewReader(""))
		all := slices.Concat(args, []string{"--kubeconfig", config, "--filename", set.Folder, "--part", "shop", "--limit", "1000"})
		status := program.Run(ctx, c, all, io.Discard, io.Discard)
		if status == program.ExitUsage {
			return fmt.Errorf("%v ends with status %d", args, status)
		}
		return nil
	}
	return s
}

func TestWatchInASimulatedWorld(t *testing.T) {
	t.Parallel()
	simtest.Histories(t, func() simtest.Scenario {
		s := simulated(t, "watch", "--prune")
		if testing.Short() {
			s.Histories = 3
		}
		return s
	})
}

// TestApplyInASimulatedWorld runs a command that ends, again and again.
func TestApplyInASimulatedWorld(t *testing.T) {
	t.Parallel()
	simtest.Histories(t, func() simtest.Scenario {
		s := simulated(t, "apply", "--prune")
		// A backup that is restored between the write of the set's ConfigMap and that of an object
		// of a new kind takes the kind out of the ConfigMap, and the process that knows it ends.
		s.Without = []applytest.Disturbance{simtest.RestoreStore}
		// It runs every ten seconds or so.
		s.Settle, s.Rest, s.Histories = 5*time.Minute, 10*time.Minute, 8
		if testing.Short() {
			s.Histories = 2
		}
		return s
	})
}

// TestTheCommandMayBeKilledAnywhere kills it before and after each request.
func TestTheCommandMayBeKilledAnywhere(t *testing.T) {
	if testing.Short() {
		t.Skip("long: a history for each request")
	}
	t.Parallel()
	c := simtest.Sweep(t, func() simtest.Scenario {
		s := simulated(t, "watch", "--prune")
		s.Edits, s.Settle = 6, 5*time.Minute
		return s
	}, 1)
	c.Check(t, 97)
	fmt.Printf("figure sim_command_boundaries %d count\n", c.Boundaries)
}
