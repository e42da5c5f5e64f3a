package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/seed-9e1ffd66/trueup/cmd/internal/program"
)

func execute(args ...string) (code int, stdout, stderr string) {
	var out, err bytes.Buffer
	code = program.Run(context.Background(), command(), append([]string{}, args...), &out, &err)
	return code, out.String(), err.String()
}

// TestWrongFlagsAreNamedAllAtOnce is B1's check at the start.
func TestWrongFlagsAreNamedAllAtOnce(t *testing.T) {
	t.Setenv("STRATOS_CLUSTER_CIDR", "10.0.0.0")
	code, _, stderr := execute("--cluster-endpoint", "http://a", "--cluster-ca", "s3cret?", "--cloud-provider", "gcp",
		"--aws-rate-limit-qps", "0.01", "--metrics-bind-address", "8080", "--graceful-shutdown-timeout", "0s",
		"--interruption-queue", "interruptions")
	require.Equal(t, program.ExitUsage, code)
	for _, want := range []string{
		`--cluster-name: is not set`, `--cluster-endpoint: is "http://a", must be a URL with https`, `--cluster-ca: is "(hidden)", must be a certificate as PEM`, `STRATOS_CLUSTER_CIDR: is "10.0.0.0"`,
		`--cloud-provider: is "gcp", must be aws, local or fake`, `--aws-rate-limit-qps: is "0.01", must be at least 0.1`, `--metrics-bind-address: is "8080"`, `--graceful-shutdown-timeout: is "0s"`,
		`--interruption-queue: is "interruptions", must be the URL of a queue of SQS`, `--interruption-queue: is "interruptions", must be empty with --cloud-provider=gcp`,
	} {
		require.Contains(t, stderr, want)
	}
	require.NotContains(t, stderr, "s3cret")
	for flag, value := range map[string]string{"--cluster-endpoint": "https://a:0", "--cluster-cidr": "10.0.0.1/16"} {
		_, _, stderr = execute(flag, value)
		require.Contains(t, stderr, flag+`: is "`+value+`", must be`)
	}
	for queue, right := range map[string]bool{
		"https://sqs.eu-central-1.amazonaws.com/123456789012/interruptions": true, "http://127.0.0.1:4566/123456789012/q.fifo": true,
		"https://example.com/x": false, "https://sqs.eu-central-1.amazonaws.com/123456789012/": false, "https://a:b@example.com/123456789012/q": false,
	} {
		_, _, stderr = execute("--interruption-queue", queue)
		require.Equal(t, !right, strings.Contains(stderr, "--interruption-queue: is"), queue)
	}
}

// TestAVariableIsAFlag is B1: a flag beats its variable.
func TestAVariableIsAFlag(t *testing.T) {
	t.Setenv("STRATOS_CLUSTER_NAME", "prod")
	t.Setenv("STRATOS_CLOUD_PROVIDER", "nowhere")
	t.Setenv("STRATOS_AWS_RATE_LIMIT_BURST", "many")
	code, _, stderr := execute()
	require.Equal(t, program.ExitUsage, code)
	require.Contains(t, stderr, `STRATOS_AWS_RATE_LIMIT_BURST: is "many"`)
	t.Setenv("STRATOS_AWS_RATE_LIMIT_BURST", "2")
	_, _, stderr = execute()
	require.Contains(t, stderr, `STRATOS_CLOUD_PROVIDER: is "nowhere"`)
	require.NotContains(t, stderr, "cluster-name")
	_, _, stderr = execute("--cloud-provider", "elsewhere")
	require.Contains(t, stderr, `--cloud-provider: is "elsewhere"`)
}

// TestTwoProcessesOfAHostHaveTwoNames in the Lease and in Events.
func TestTwoProcessesOfAHostHaveTwoNames(t *testing.T) {
	t.Setenv("POD_NAME", "stratos-0")
	require.Regexp(t, "^stratos-0_[a-z0-9]{10}$", instance())
	require.NotEqual(t, instance(), instance())
}

func TestAPriceIsATypeAndANumber(t *testing.T) {
	code, _, stderr := execute("plan", "--price", "m5.large=cheap")
	require.Equal(t, program.ExitUsage, code)
	require.Contains(t, stderr, "--price: is m5.large=cheap, must be a type and a number")
	code, _, stderr = execute("plan", "--price", "m5.large=NaN")
	require.Equal(t, program.ExitUsage, code)
	require.Contains(t, stderr, "--price: is m5.large=NaN")
	code, _, _ = execute("plan", "workers", "more")
	require.Equal(t, program.ExitUsage, code)
}

// TestARateIsAFiniteNumber is for values that a float takes.
func TestARateIsAFiniteNumber(t *testing.T) {
	for value, must := range map[string]string{"NaN": "a number such as 0.5", "Inf": "a number such as 0.5", "-1": "at least 0.1"} {
		code, _, stderr := execute("--cluster-name", "c", "--aws-rate-limit-qps", value)
		require.Equal(t, program.ExitUsage, code)
		require.Regexp(t, `--aws-rate-limit-qps: is "\+?`+value+`", must be `+must, stderr)
	}
}

// TestManifestsAreNarrow is B11: no right beyond what is listed there.
func TestManifestsAreNarrow(t *testing.T) {
	code, _, stderr := execute("manifests")
	require.Equal(t, program.ExitUsage, code)
	require.Contains(t, stderr, "--cluster-name: is not set")
	require.Contains(t, stderr, "--region: is not set")
	code, stdout, _ := execute("manifests", "--cluster-name", "prod", "--region", "eu-central-1", "--image", "example.com/nodepool:1")
	require.Zero(t, code)
	verbs := map[string][]string{}
	for text := range strings.SplitSeq(stdout, "---\n") {
		var o struct {
			Kind  string
			Rules []struct {
				APIGroups, Resources, ResourceNames, Verbs []string
			}
		}
		require.NoError(t, yaml.Unmarshal([]byte(text), &o))
		if o.Kind != "ClusterRole" {
			continue
		}
		for _, r := range o.Rules {
			for _, resource := range r.Resources {
				if resource == "customresourcedefinitions" {
					require.Equal(t, []string{"capacitybuffers.autoscaling.x-k8s.io"}, r.ResourceNames)
				}
				verbs[strings.TrimPrefix(strings.Join(r.APIGroups, ",")+"/"+resource, "/")] = r.Verbs
			}
		}
	}
	read := []string{"get", "list", "watch"}
	require.Equal(t, map[string][]string{
		"nodes": {"get", "list", "watch", "create", "patch", "delete"}, "pods": read, "namespaces": read, "pods/eviction": {"create"},
		"policy/poddisruptionbudgets": read, "apps/daemonsets": read, "events.k8s.io/events": {"create", "patch"},
		"stratos.sh/nodepools": {"get", "list", "watch", "patch"}, "stratos.sh/awsnodeclasses": {"get", "list", "watch", "patch"},
		"stratos.sh/nodepools/status": {"patch"}, "stratos.sh/awsnodeclasses/status": {"patch"},
		"apiextensions.k8s.io/customresourcedefinitions": {"list", "watch"}, "podtemplates": {"list", "watch"},
		"apps/deployments": {"list", "watch"}, "apps/statefulsets": {"list", "watch"},
		"persistentvolumeclaims": {"list", "watch"}, "persistentvolumes": {"list", "watch"},
		"storage.k8s.io/storageclasses": {"list", "watch"}, "storage.k8s.io/csinodes": {"list", "watch"},
		"autoscaling.x-k8s.io/capacitybuffers": {"get", "list", "watch"}, "autoscaling.x-k8s.io/capacitybuffers/status": {"patch"},
	}, verbs)
	require.Contains(t, stdout, "image: example.com/nodepool:1")
	require.Contains(t, stdout, "name: STRATOS_CLUSTER_NAME")
	require.Contains(t, stdout, "name: AWS_REGION")
	require.NotContains(t, stdout, "STRATOS_CLUSTER_CIDR", "it is not set")
	require.NotContains(t, stdout, "STRATOS_INTERRUPTION_QUEUE", "it is not set")
}

// TestTheConfigIsUpToDate keeps what is under config what the program prints; -update of
// "make generate" writes it.
func TestTheConfigIsUpToDate(t *testing.T) {
	for path, text := range files(t) {
		if *update {
			require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o750))
			require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		}
		committed, err := os.ReadFile(path)
		require.NoError(t, err)
		require.True(t, string(committed) == text, `%s is not what the program prints: run "make generate"`, path)
	}
}
