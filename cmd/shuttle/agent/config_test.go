package agent_test

import (
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/seed-9e1ffd66/trueup/cmd/internal/isolation"
	shuttle "github.com/seed-9e1ffd66/trueup/cmd/shuttle/agent"
)

const clusterID = "3f0c9d6e-8a51-4c77-9b1e-2d4f6a8b0c12"

// environment returns the four required variables, with a token file.
func environment(t *testing.T) map[string]string {
	t.Helper()
	token := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(token, []byte("secret-token\n"), 0o600))
	return map[string]string{
		"STARFORM_STARBASE_URL": "https://starbase.example.com", "STARFORM_CLUSTER_ID": clusterID,
		"STARFORM_REGION": "nyc3", "STARFORM_AUTH_TOKEN_FILE": token,
	}
}

func TestTheRequiredVariablesAreEnough(t *testing.T) {
	t.Parallel()
	env := environment(t)
	c, err := shuttle.ReadConfig(func(name string) string { return env[name] })
	require.NoError(t, err)
	require.Equal(t, 30*time.Second, c.ReconcileInterval)
	require.Equal(t, time.Minute, c.SnapshotInterval)
	require.Equal(t, time.Minute, c.CapacityInterval)
	require.Equal(t, ":8080", c.HealthAddress)
	require.Empty(t, c.MetricsAddress, "that of /healthz")
	require.Equal(t, 1000, c.SoftLimit)
	require.Equal(t, 10, c.MaxDeletePercent)
	require.Equal(t, shuttle.DNSSelector{Namespace: "kube-system", Labels: map[string]string{"k8s-app": "kube-dns"}}, c.DNS)
	require.True(t, c.WakeOnDrift)
	require.False(t, c.Stream)
	require.False(t, c.LeaderElection)
	require.Zero(t, c.GatewayService)
	require.Equal(t, types.NamespacedName{Namespace: "starform-gateway", Name: "starform-gateway"}, c.Gateway)
}

func TestTheSettingsOfTheClusterDecideAboutItsObjects(t *testing.T) {
	t.Parallel()
	env := environment(t)
	env["STARFORM_POD_SECURITY"], env["STARFORM_DNS_SELECTOR"] = "baseline", "dns/app=dns"
	env["STARFORM_RECONCILE_INTERVAL"], env["STARFORM_SNAPSHOT_INTERVAL"] = "1s", "1h" // the shortest, and the longest
	env["STARFORM_GATEWAY"], env["STARFORM_IMAGE_PULL_SECRETS"] = "edge/public", "one,two"
	env["STARFORM_CLUSTER_RANGES"] = "203.0.113.0/24,2001:db8::/32"
	c, err := shuttle.ReadConfig(func(name string) string { return env[name] })
	require.NoError(t, err)
	agent := shuttle.Agent{Config: c, Kubernetes: &rest.Config{Host: "http://127.0.0.1:1"}, Logger: slog.New(slog.DiscardHandler)}
	got, err := agent.Rules()
	require.NoError(t, err)
	require.Equal(
		t,
		shuttle.Rules{
			PodSecurity: isolation.Baseline, DNS: shuttle.DNSSelector{Namespace: "dns", Labels: map[string]string{"app": "dns"}},
			Gateway: types.NamespacedName{Namespace: "edge", Name: "public"}, ImagePullSecrets: []string{"one", "two"},
			ClusterRanges: []netip.Prefix{netip.MustParsePrefix("203.0.113.0/24"), netip.MustParsePrefix("2001:db8::/32")},
		},
		got,
	)
}

func TestAWrongVariableIsNamedInOneLine(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ variable, value string }{
		{"STARFORM_STARBASE_URL", ""},
		{"STARFORM_STARBASE_URL", "starbase.example.com"},
		{"STARFORM_STARBASE_URL", "ftp://starbase.example.com"},
		{"STARFORM_STARBASE_URL", "https://starbase.example.com:65536"},
		{"STARFORM_STARBASE_URL", "https://user:password@starbase.example.com"},
		{"STARFORM_STARBASE_URL", "https://starbase.example.com?x=y"},
		{"STARFORM_STARBASE_URL", "https://starbase.example.com#x"},
		{"STARFORM_STARBASE_URL", "http://starbase.example.com"},
		{"STARFORM_STARBASE_URL", "http://10.0.0.1"},
		{"STARFORM_ALLOW_HTTP", "yes"},
		{"STARFORM_REQUEST_TIMEOUT", "0s"},
		{"STARFORM_REQUEST_TIMEOUT", "999ms"},
		{"STARFORM_REQUEST_TIMEOUT", "1h0m1s"},
		{"STARFORM_CLUSTER_ID", ""},
		{"STARFORM_CLUSTER_ID", "cluster-1"},
		{"STARFORM_CLUSTER_ID", "3F0C9D6E-8A51-4C77-9B1E-2D4F6A8B0C12"},
		{"STARFORM_REGION", ""},
		{"STARFORM_REGION", "New York"},
		{"STARFORM_AUTH_TOKEN_FILE", ""},
		{"STARFORM_AUTH_TOKEN_FILE", "/no/such/file"},
		{"STARFORM_RECONCILE_INTERVAL", "30"},
		{"STARFORM_RECONCILE_INTERVAL", "10ms"},
		{"STARFORM_TRANSPORT", "push"},
		{"STARFORM_SNAPSHOT_INTERVAL", "-1s"},
		{"STARFORM_CAPACITY_INTERVAL", "2h"},
		{"STARFORM_METRICS_ADDR", "8080"},
		{"STARFORM_METRICS_ADDR", ":99999"},
		{"STARFORM_SOFT_LIMIT", "0"},
		{"STARFORM_SOFT_LIMIT", "many"},
		{"STARFORM_SOFT_LIMIT", "1000001"},
		{"STARFORM_GATEWAY_SERVICE", "gateway"},
		{"STARFORM_GATEWAY", "gateway"},
		{"STARFORM_GATEWAY", "Edge/public"},
		{"STARFORM_GATEWAY", "edge/Public"},
		{"STARFORM_IMAGE_PULL_SECRETS", "Registry"},
		{"STARFORM_IMAGE_PULL_SECRETS", "one,"},
		{"STARFORM_IMAGE_PULL_SECRETS", "one,two,one"},
		{"STARFORM_CLUSTER_RANGES", "203.0.113.0"},
		{"STARFORM_CLUSTER_RANGES", "203.0.113.1/24"},
		{"STARFORM_CLUSTER_RANGES", "0.0.0.0/0"},
		{"STARFORM_CLUSTER_RANGES", "203.0.113.0/24,203.0.113.0/24"},
		{"STARFORM_CLUSTER_RANGES", "203.0.113.0/24, 198.51.100.0/24"},
		{"STARFORM_CLUSTER_RANGES", "::ffff:203.0.113.0/120"},
		{"STARFORM_AUTH_TOKEN_SECRET", "renewed"},
		{"STARFORM_MAX_DELETE_PERCENT", "101"},
		{"STARFORM_MAX_DELETE_PERCENT", "-1"},
		{"STARFORM_DNS_SELECTOR", "k8s-app=kube-dns"},
		{"STARFORM_DNS_SELECTOR", "kube-system/"},
		{"STARFORM_DNS_SELECTOR", "Kube/k8s-app=kube-dns"},
		{"STARFORM_LEADER_ELECTION", "yes"},
		{"STARFORM_WAKE_ON_DRIFT", "on"},
		{"STARFORM_SNAPSHOT_WAL_DIR", "config_test.go"},
		{"STARFORM_SNAPSHOT_WAL_DIR", "config_test.go/below"},
		{"STARFORM_METRICS_BIND_ADDRESS", "0.0.0.0:8080"},
	} {
		env := environment(t)
		env[test.variable] = test.value
		_, err := shuttle.ReadConfig(func(name string) string { return env[name] })
		wrong, ok := errors.AsType[*shuttle.VariableError](err)
		require.True(t, ok, "%s=%q: %v", test.variable, test.value, err)
		require.Equal(t, test.variable, wrong.Variable)
		require.NotContains(t, err.Error(), "\n")
		require.Contains(t, err.Error(), "must be ")
	}
}

func TestAllVariablesThatAreWrongAreNamedAtOnce(t *testing.T) {
	t.Parallel()
	env := map[string]string{"STARFORM_SOFT_LIMIT": "many", "STARFORM_AUTH_TOKEN_FILE": "/no/such/file"}
	_, err := shuttle.ReadConfig(func(name string) string { return env[name] })
	for _, want := range []string{
		"STARFORM_STARBASE_URL: is not set, must be", "STARFORM_CLUSTER_ID: is not set, must be", "STARFORM_REGION: is not set, must be",
		`STARFORM_SOFT_LIMIT: is "many", must be`,
		`STARFORM_AUTH_TOKEN_FILE: is "/no/such/file", must be a file that can be read and holds the token, one word: no such file or directory`,
	} {
		require.ErrorContains(t, err, want)
	}
}
