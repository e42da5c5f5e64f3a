package kubeaccess_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/internal/kubeaccess"
)

func TestAccessComesFromTheFileAndElseFromThePod(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	_, err := kubeaccess.Config("", slog.New(slog.DiscardHandler))
	require.ErrorContains(t, err, "access to Kubernetes: unable to load in-cluster configuration")
	require.ErrorContains(t, err, "--kubeconfig names a file")
	_, err = kubeaccess.Config("/no/such/file", slog.New(slog.DiscardHandler))
	require.ErrorContains(t, err, `--kubeconfig: is "/no/such/file", must be a file that can be read: no such file or directory`)

	file := filepath.Join(t.TempDir(), "config")
	require.NoError(t, os.WriteFile(file, []byte(`{"clusters":[{"name":"a","cluster":{"server":"https://a.example.com"}}],`+
		`"contexts":[{"name":"a","context":{"cluster":"a"}}],"current-context":"a"}`), 0o600))
	config, err := kubeaccess.Config(file, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	require.Equal(t, "https://a.example.com", config.Host)
}
