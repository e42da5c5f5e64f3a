package main_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/examples/internal/programtest"
	"github.com/seed-9e1ffd66/trueup/internal/kubetest"
)

const one = `
apiVersion: v1
kind: ConfigMap
metadata: {name: one, namespace: default}
data: {greeting: hello}
`

const two = `
apiVersion: v1
kind: ConfigMap
metadata: {name: two, namespace: default}
data: {greeting: goodbye}
`

func TestAManagerKeepsTheConfigMapsOfAFile(t *testing.T) {
	t.Parallel()
	path := programtest.Build(t)
	help, err := exec.CommandContext(t.Context(), path, "--help").CombinedOutput()
	require.NoError(t, err)
	require.Contains(t, string(help), "-kubeconfig")
	require.Contains(t, string(help), "-file")

	cluster := kubetest.Start(t, kubetest.Options{})
	file := filepath.Join(t.TempDir(), "configmaps.yaml")
	write := func(content string) {
		t.Helper()
		require.NoError(t, os.WriteFile(file+".next", []byte(content), 0o600))
		require.NoError(t, os.Rename(file+".next", file))
	}
	read := func(name string) string {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		out, err := cluster.Kubectl(ctx, "get", "configmap", name, "--ignore-not-found", "-o", "jsonpath={.data.greeting}")
		if err != nil {
			return err.Error()
		}
		return out
	}
	becomes := func(name, want string) {
		t.Helper()
		require.Eventually(t, func() bool { return read(name) == want }, 3*time.Minute, 50*time.Millisecond, "%s: %q", name, want)
	}
	kubectl := func(args ...string) {
		t.Helper()
		_, err := cluster.Kubectl(t.Context(), args...)
		require.NoError(t, err)
	}

	write(one + "---" + two)
	kubectl("create", "configmap", "mine", "--from-literal=greeting=foreign")
	p, stop := programtest.Start(t, path, "--kubeconfig", cluster.Kubeconfig, "--file", file, "--interval", "1h")
	becomes("one", "hello")
	becomes("two", "goodbye")

	// The interval is an hour, so this is the watch.
	kubectl("patch", "configmap", "one", "-p", `{"data":{"greeting":"changed"}}`)
	becomes("one", "hello")
	kubectl("delete", "configmap", "two")
	becomes("two", "goodbye")
	require.NoError(t, stop(), p.Tail())

	_, stop = programtest.Start(t, path, "--kubeconfig", cluster.Kubeconfig, "--file", file, "--interval", "100ms")
	write(one + "---\nkind: [")
	time.Sleep(time.Second)
	require.Equal(t, "goodbye", read("two"), "half a file deletes nothing")
	write(strings.ReplaceAll(one, "hello", "good morning"))
	becomes("one", "good morning")
	becomes("two", "")
	write("")
	time.Sleep(time.Second)
	require.Equal(t, "good morning", read("one"), "an empty file deletes nothing")
	require.Equal(t, "foreign", read("mine"))
	require.NoError(t, stop())
}
