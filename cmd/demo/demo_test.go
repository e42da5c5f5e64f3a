package main

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/internal/test/programs"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube/kubetest"
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
		"figure demo_seconds_to_running ", "figure demo_drift_repair_ms_max ",
	} {
		require.Contains(t, stdout.String(), want)
	}
	require.NotContains(t, stdout.String(), "of 0 pods")
	require.NotContains(t, stdout.String(), "\033", "plain lines where there is no terminal")
	_, summary, _ := strings.Cut(stdout.String(), "all in")
	t.Log(summary)
}

func TestAnUnknownContextIsNamed(t *testing.T) {
	t.Parallel()
	d := &demo{display: &display{out: &bytes.Buffer{}}, kube: kube{context: "no-such-context"}}
	_, err := d.startKubernetes(t.Context(), kubetest.Options{})
	require.ErrorContains(t, err, `context "no-such-context"`)
}

func TestRestIsWhatIsSentAfterQuietHalfWindow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		d := &demo{display: &display{out: &out}}
		began, late := time.Now(), 0
		sent := func() (int, error) {
			switch since := time.Since(began); {
			case since < 7*time.Second:
				return int(since / time.Second), nil
			case since >= 20*time.Second:
				return 7 + late, nil
			}
			return 7, nil
		}
		text, err := d.rest(t.Context(), "a", "requests to it", 10*time.Second, sent)
		require.NoError(t, err)
		require.Equal(t, "0 requests to it in 10s", text)
		require.Equal(t, 25*time.Second, time.Since(began), "5 s and 10 s are not quiet")
		require.Contains(t, out.String(), ": 5 requests to it in the last 5s\n: 2 requests to it in the last 5s\n")
		began, late = time.Now(), 2
		_, err = d.rest(t.Context(), "a", "requests to it", 10*time.Second, sent)
		require.ErrorContains(t, err, "2 requests to it in 10s although nothing had changed")
	})
}

// TestARemovalCountsWhatIsLeft: "24 of 0 pods running" says nothing.
func TestARemovalCountsWhatIsLeft(t *testing.T) {
	t.Parallel()
	require.Equal(t, "3 of 24 pods running", podsSoFar(3, 20, 24))
	require.Equal(t, "5 pods left", podsSoFar(0, 5, 0), "one that is deleted does not run, and is there")
}

func TestTheQuantileOfAHistogram(t *testing.T) {
	t.Parallel()
	metrics := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for _, stage := range []string{"api", "decision"} {
			for i, le := range []string{"0.01", "0.03", "+Inf"} {
				_, _ = fmt.Fprintf(w, "%s_bucket{stage=%q,le=%q} %d\n", scaleUpStages, stage, le, []int{90, 100, 100}[i])
			}
		}
	}))
	defer metrics.Close()
	n := nodePools{metrics: strings.TrimPrefix(metrics.URL, "http://")}
	p95, err := n.decision(t.Context(), .95)
	require.NoError(t, err)
	require.InDelta(t, .02, p95, 1e-9)
}

func TestATerminalShowsOneLineForAStep(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	d := &display{out: &out, terminal: true}
	d.step("Pods")
	d.progress("%d of %d", 1, 2)
	d.done("2 of 2")
	require.Equal(t, 1, strings.Count(out.String(), "\n"))
	out.Reset()
	plain := &display{out: &out}
	plain.step("Pods")
	plain.progress("%d of %d", 1, 2)
	plain.progress("%d of %d", 1, 2)
	plain.done("2 of 2")
	require.Equal(t, "Pods: 1 of 2", strings.SplitN(out.String(), "\n", 2)[0])
	require.Equal(t, 2, strings.Count(out.String(), "\n"), "nothing is said twice")
}

// TestARegionOutlivesItsControlPlane runs the demo of a region, as "make demo-krane" does: a
// pulling and a streaming agent, a control plane that is killed, and the end.
func TestARegionOutlivesItsControlPlane(t *testing.T) {
	if testing.Short() {
		t.Skip("long: another demo is run")
	}
	program := programs.Path(t, "demo")
	out, err := exec.CommandContext(t.Context(), program, "regions").CombinedOutput()
	require.NoError(t, err, "%s", out)
	for _, want := range []string{
		"the control plane has their reports", "nothing was deleted, an edit by hand is undone, the next change came",
		"figure regions_requests_at_rest 0 requests", "their objects are gone",
	} {
		require.Contains(t, string(out), want)
	}
}

// TestNodePoolsShowWhatTheyPromise runs the demo of the node-pool operator, as "make
// demo-nodepool" does.
func TestNodePoolsShowWhatTheyPromise(t *testing.T) {
	if testing.Short() {
		t.Skip("long: another demo is run")
	}
	program := programs.Path(t, "demo")
	out, err := exec.CommandContext(t.Context(), program, "nodepools").CombinedOutput()
	require.NoError(t, err, "%s", out)
	for _, want := range []string{
		"32 machines were launched", "10 pods run on 2 machines that were on standby", "figure nodepool_writes_at_rest 0 writes",
		"1000 pods have machines", "no machine and no Node is left",
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
		"figure agentjob_runs_per_hash_max 1 runs", "figure agentjob_requests_at_rest 0 requests",
		"figure agentjob_cluster_objects_left 0 objects",
	} {
		require.Contains(t, string(out), want)
	}
}
