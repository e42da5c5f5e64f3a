package main_test

import (
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/examples/internal/programtest"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube/kubetest"
)

func TestTheSecondRunChangesNothing(t *testing.T) {
	t.Parallel()
	cluster := kubetest.Start(t, kubetest.Options{})
	program := programtest.Build(t)
	run := func() string {
		t.Helper()
		out, err := exec.CommandContext(t.Context(), program, "--kubeconfig", cluster.Kubeconfig).CombinedOutput()
		require.NoError(t, err, string(out))
		return string(out)
	}
	require.Equal(t, "Created ConfigMap/default/hello\nCreated ConfigMap/default/welcome\nUnchanged: 0\n", run())
	require.Equal(t, "Unchanged: 2\n", run())

	_, err := cluster.Kubectl(t.Context(), "patch", "configmap", "hello", "-p", `{"data":{"greeting":"bye"}}`)
	require.NoError(t, err)
	require.Equal(t, "Updated ConfigMap/default/hello\nUnchanged: 1\n", run())
}
