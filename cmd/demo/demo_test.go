package main

import (
	"bytes"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/internal/test/programs"
)

// TestTheDemoShowsWhatItPromises runs the whole demo, as "make demo" does.
func TestTheDemoShowsWhatItPromises(t *testing.T) {
	if testing.Short() {
		t.Skip("long: a demo is run")
	}
	t.Parallel()
	program := programs.Path(t, "demo")
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(t.Context(), program)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	// An exported KUBECONFIG alone never makes the demo touch a cluster.
	cmd.Env = append(cmd.Environ(), "KUBECONFIG=/no/such/kubeconfig")
	require.NoError(t, cmd.Run(), "%s\n%s", stdout.String(), stderr.String())
	require.Empty(t, stderr.String())
	for _, want := range []string{
		"24 of 24 running", "figure demo_pods_running 24 pods\n", "figure demo_requests_at_rest 0 requests\n",
		"figure demo_seconds_to_running ", "figure demo_drift_repair_ms_p99 ",
	} {
		require.Contains(t, stdout.String(), want)
	}
	require.NotContains(t, stdout.String(), "\033", "plain lines where there is no terminal")
	_, summary, _ := strings.Cut(stdout.String(), "Summary")
	t.Log(summary)
}

func TestAnUnknownContextIsNamed(t *testing.T) {
	t.Parallel()
	var d demo
	d.display = &display{out: &bytes.Buffer{}}
	d.context = "no-such-context"
	require.ErrorContains(t, d.startKubernetes(t.Context()), `context "no-such-context"`)
}

func TestMetricsAreAddedUp(t *testing.T) {
	t.Parallel()
	const text = "# HELP a_total x\na_total{verb=\"get\"} 2\na_total{verb=\"watch\"} 40\na_total_more 100\na_total 1e+00\n"
	all, err := readMetric(text, "a_total", func(string) bool { return true })
	require.NoError(t, err)
	require.InDelta(t, 43, all, 0)
	some, err := readMetric(text, "a_total", func(labels string) bool { return !strings.Contains(labels, "watch") })
	require.NoError(t, err)
	require.InDelta(t, 3, some, 0)
}

func TestATerminalShowsOneLineForAStep(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	d := &display{out: &out, terminal: true}
	d.step("Pods")
	d.progress("%d of %d", 1, 2)
	d.done("%d of %d", 2, 2)
	require.Equal(t, 1, strings.Count(out.String(), "\n"))
	out.Reset()
	plain := &display{out: &out}
	plain.step("Pods")
	plain.progress("%d of %d", 1, 2)
	plain.progress("%d of %d", 1, 2)
	plain.done("%d of %d", 2, 2)
	require.Equal(t, "Pods: 1 of 2", strings.SplitN(out.String(), "\n", 2)[0])
	require.Equal(t, 2, strings.Count(out.String(), "\n"), "nothing is said twice")
}

// TestTwoRegionsShareAControlPlane runs the demo of regions, as "make
// demo-krane" does: two pulling and two streaming agents, edits behind their
// backs, a control plane that is killed, removals.
func TestTwoRegionsShareAControlPlane(t *testing.T) {
	if testing.Short() {
		t.Skip("long: another demo is run")
	}
	program := programs.Path(t, "demo")
	out, err := exec.CommandContext(t.Context(), program, "regions").CombinedOutput()
	require.NoError(t, err, "%s", out)
	for _, want := range []string{
		"all run, and the control plane knows", "both are back after",
		"nothing deleted, the next change came", "its pods are gone, and the control plane knows",
	} {
		require.Contains(t, string(out), want)
	}
}

// TestAgentJobsShowWhatTheyPromise runs the demo of the agent-run operator, as "make
// demo-agentjob" does.
func TestAgentJobsShowWhatTheyPromise(t *testing.T) {
	if testing.Short() {
		t.Skip("long: another demo is run")
	}
	program := programs.Path(t, "demo")
	out, err := exec.CommandContext(t.Context(), program, "agentjobs").CombinedOutput()
	require.NoError(t, err, "%s", out)
	for _, want := range []string{
		"figure agentjob_runs_per_hash_max 1 runs", "figure agentjob_requests_at_rest 0 requests", "figure agentjob_cluster_objects_left 0 objects",
	} {
		require.Contains(t, string(out), want)
	}
}
