package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/seed-9e1ffd66/trueup/cmd/internal/program"
	"github.com/seed-9e1ffd66/trueup/internal/test/await"
)

func TestANewOperatorIsWrittenAndTheNextStepsArePrinted(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(t.TempDir(), "sites")
	args := []string{"new", folder, "--module", "example.com/sites", "--kind", "Site"}
	var out, errs bytes.Buffer
	require.Zero(t, program.Run(t.Context(), command(nil), args, &out, &errs), errs.String())
	require.FileExists(t, filepath.Join(folder, "deploy", "crd.yaml"))
	require.Contains(t, out.String(), "cd "+folder+"\n")
	require.Contains(t, out.String(), "go mod edit -replace github.com/seed-9e1ffd66/trueup=../trueup\n", "this is no release")
	require.Contains(t, out.String(), "=../trueup/reconcile/simtest/upstream\n")

	kept := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(kept, []byte("mine"), 0o600))
	for want, args := range map[string][]string{
		"a file kubeconfig that is none of an e": {"cluster", filepath.Dir(kept)},
		"must be empty or not be there":          args,
		"new: has 0 arguments, must have one":    {"new", "--kind", "Site"},
		"FOLDER: is empty, must be the folder t": {"new", "", "--module", "example.com/sites", "--kind", "Site"},
		"must be a module of yours":              {"new", folder, "--module", "github.com/seed-9e1ffd66/trueup", "--kind", "Site"},
		`--kind: is "site", must be a capital`:   {"new", folder, "--module", "example.com/sites", "--kind", "site"},
		"--module: is missing, must be the":      {"new", folder, "--kind", "Site"},
		"--nodes: is 0, must be 1 to 100":        {"cluster", folder, "--nodes", "0"},
		"cluster: has 0 arguments, must have on": {"cluster"},
	} {
		errs.Reset()
		require.Equal(t, program.ExitUsage, program.Run(t.Context(), command(nil), args, &out, &errs))
		require.Contains(t, errs.String(), want)
	}
	require.FileExists(t, kept)
}

// TestAClusterIsThereUntilItIsInterrupted: its access comes with it and goes with it.
func TestAClusterIsThereUntilItIsInterrupted(t *testing.T) {
	if testing.Short() {
		t.Skip("long: a Kubernetes of its own")
	}
	t.Parallel()
	folder := t.TempDir()
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	var out, errs bytes.Buffer
	status := make(chan int, 1)
	go func() { status <- program.Run(ctx, command(nil), []string{"cluster", folder}, &out, &errs) }() //nolint:contextcheck // it has one
	access := filepath.Join(folder, "kubeconfig")
	await.Eventually(t, "a kubeconfig", func() bool {
		_, err := os.Stat(access)
		return err == nil
	})
	config, err := clientcmd.BuildConfigFromFlags("", access)
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(config.Host, "https://127.0.0.1:"), config.Host)
	require.FileExists(t, filepath.Join(folder, "kubectl"))
	interrupt()
	require.Zero(t, <-status, errs.String())
	require.Contains(t, out.String(), "export KUBECONFIG="+access)
	left, err := os.ReadDir(folder)
	require.NoError(t, err)
	require.Empty(t, left)
}
