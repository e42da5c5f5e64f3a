package kubetest_test

import (
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/reconcile/kube/kubetest"
)

// standIns returns a folder with programs that run a shell script each.
func standIns(t *testing.T, etcd, apiServer string) string {
	t.Helper()
	dir := t.TempDir()
	for name, script := range map[string]string{"etcd": etcd, "kube-apiserver": apiServer, "kubectl": "exit 0"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+script+"\n"), 0o700)) //nolint:gosec // it is run
	}
	return dir
}

func TestAProcessThatEndsIsReportedWithItsLogAndLeavesNothing(t *testing.T) {
	for name, test := range map[string]struct{ etcd, apiServer, want string }{
		"failing":     {"echo no such disk; exit 3", "exec sleep 1000", "kubetest: etcd ended: exit status 3\nno such disk"},
		"with code 0": {"exec sleep 1000", "echo goodbye", "kubetest: kube-apiserver ended: exit status 0\ngoodbye"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("KUBEBUILDER_ASSETS", standIns(t, test.etcd, test.apiServer))
			t.Setenv("TMPDIR", t.TempDir())
			_, err := kubetest.Run(t.Context(), kubetest.Options{})
			require.EqualError(t, err, test.want)
			left, err := filepath.Glob(filepath.Join(os.TempDir(), "*", "*"))
			require.NoError(t, err)
			require.Empty(t, left)
		})
	}
}

func TestATakenPortIsExchangedForAnother(t *testing.T) {
	if testing.Short() {
		t.Skip("long: a Kubernetes of its own")
	}
	t.Setenv("TMPDIR", t.TempDir())
	t.Setenv("KUBEBUILDER_ASSETS", standIns(t,
		`if mkdir "$TMPDIR/once" 2>/dev/null; then echo "bind: address already in use"; else echo "second try"; fi; exit 1`, "exec sleep 1000"))
	_, err := kubetest.Run(t.Context(), kubetest.Options{})
	require.ErrorContains(t, err, "second try")
}

func TestARelativeFolderIsRefused(t *testing.T) {
	t.Setenv("KUBEBUILDER_ASSETS", "bin/k8s")
	_, err := kubetest.Run(t.Context(), kubetest.Options{})
	require.EqualError(t, err, `kubetest: KUBEBUILDER_ASSETS must be an absolute path, not "bin/k8s"`)
	t.Setenv("KUBEBUILDER_ASSETS", "")
	t.Setenv("TRUEUP_KUBE_CACHE", "cache")
	_, err = kubetest.BuildAssets(t.Context(), io.Discard)
	require.EqualError(t, err, `kubetest: TRUEUP_KUBE_CACHE must be an absolute path, not "cache"`)
}
