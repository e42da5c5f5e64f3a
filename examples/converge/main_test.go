package main_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/examples/internal/programtest"
	"github.com/seed-9e1ffd66/trueup/internal/test/await"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube/kubetest"
)

const shop = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: web, resources: {requests: {cpu: "0.1"}}}]}
---
apiVersion: v1
kind: Namespace
metadata: {name: shop}
`

func settings(names ...string) (yaml string) {
	for _, name := range names {
		yaml += fmt.Sprintf("---\n{apiVersion: v1, kind: ConfigMap, metadata: {name: %s, namespace: shop}}\n", name)
	}
	return yaml
}

func TestAFolderIsMadeTrueAndKeptSo(t *testing.T) {
	t.Parallel()
	cluster := kubetest.Start(t, kubetest.Options{})
	folder := t.TempDir()
	write := func(name, content string) {
		t.Helper()
		next := filepath.Join(folder, name+".next")
		require.NoError(t, os.WriteFile(next, []byte(content), 0o600))
		require.NoError(t, os.Rename(next, filepath.Join(folder, name)))
	}
	becomes := func(want string, args ...string) {
		t.Helper()
		var have string
		await.Eventually(t, fmt.Sprintf("want %q", want), func() bool {
			have, _ = cluster.Kubectl(t.Context(), args...)
			return have == want
		})
	}
	replicas := []string{"get", "deployment", "web", "-n", "shop", "-o", "jsonpath={.spec.replicas}"}
	live := []string{"get", "configmap", "-n", "shop", "-l", "converge.example.com/set", "-o", "jsonpath={.items[*].metadata.name}"}

	write("shop.yaml", shop)
	write("few.yaml", settings("c0", "c1"))
	write("more.yaml", settings("c2", "c3"))
	program := programtest.Build(t)
	arguments := []string{"--kubeconfig", cluster.Kubeconfig, "--folder", folder, "--interval", "200ms", "--max-deletions", "3"}
	p, stop := programtest.Start(t, program, arguments...)
	becomes("2", replicas...)
	becomes("c0 c1 c2 c3", live...)
	_, err := cluster.Kubectl(t.Context(), "scale", "deployment", "web", "-n", "shop", "--replicas=7")
	require.NoError(t, err)
	becomes("2", replicas...)

	require.NoError(t, os.Remove(filepath.Join(folder, "few.yaml")))
	becomes("c2 c3", live...)
	require.NoError(t, os.Remove(filepath.Join(folder, "more.yaml")))
	holds := func() {
		t.Helper()
		await.Eventually(t, "it holds", func() bool {
			log, err := os.ReadFile(p.Log)
			return err == nil && strings.Contains(string(log), "2 were deleted within 1h0m0s; the limit is 3")
		})
		becomes("c2 c3", live...)
		require.NoError(t, stop(), p.Tail())
	}
	holds()
	p, stop = programtest.Start(t, program, arguments...) // a restart releases nothing
	holds()

	log, err := os.ReadFile(p.Log)
	require.NoError(t, err)
	held := regexp.MustCompile(`digest=(\S+)`).FindSubmatch(log)
	require.NotNil(t, held)
	p, stop = programtest.Start(t, program, append(arguments, "--approve", string(held[1]))...)
	becomes("", live...)
	require.NoError(t, stop(), p.Tail())
}
