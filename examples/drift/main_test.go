package main_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/examples/internal/programtest"
	"github.com/seed-9e1ffd66/trueup/internal/test/await"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube/kubetest"
)

const desired = `
apiVersion: v1
kind: Service
metadata: {name: dns, namespace: default}
spec:
  selector: {app: dns}
  ports: [{name: udp, port: 53, protocol: UDP}, {name: tcp, port: 53}]
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, namespace: default}
data: {greeting: hello, color: green}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: other, namespace: default}
data: {greeting: hello}
`

func TestObjectsThatOthersTouchedAreNamed(t *testing.T) {
	t.Parallel()
	cluster := kubetest.Start(t, kubetest.Options{})
	require.NoError(t, cluster.Apply(t.Context(), desired))
	file := filepath.Join(t.TempDir(), "desired.yaml")
	require.NoError(t, os.WriteFile(file, []byte(desired), 0o600))
	p, stop := programtest.Start(t, programtest.Build(t), "--kubeconfig", cluster.Kubeconfig, "--file", file, "--interval", "100ms")
	says := func(text string) {
		t.Helper()
		await.Eventually(t, text, func() bool {
			log, err := os.ReadFile(p.Log)
			return err == nil && strings.Contains(string(log), text)
		})
	}
	says("Service/dns is as applied")
	says("ConfigMap/settings is as applied")
	says("ConfigMap/other is as applied")

	kubectl := func(args ...string) {
		t.Helper()
		_, err := cluster.Kubectl(t.Context(), args...)
		require.NoError(t, err)
	}
	kubectl("patch", "configmap", "settings", "-p", `{"data":{"greeting":"good morning"}}`, "--field-manager=somebody")
	says("ConfigMap/settings was touched; others: somebody (")
	kubectl("annotate", "configmap", "other", "note=nothing of ours")
	kubectl("delete", "service", "dns")
	says("Service/dns was deleted")
	require.NoError(t, cluster.Apply(t.Context(), desired))
	await.Eventually(t, `err == nil && strings.Count(string(log), "ConfigMap/settings is as applied") == 2`, func() bool {
		log, err := os.ReadFile(p.Log)
		return err == nil && strings.Count(string(log), "ConfigMap/settings is as applied") == 2
	})
	require.NoError(t, stop(), p.Tail())
	log, err := os.ReadFile(p.Log)
	require.NoError(t, err)
	require.Equal(t, 1, strings.Count(string(log), "ConfigMap/other"), "what others add is no drift, and said once")
}
