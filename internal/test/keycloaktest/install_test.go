package keycloaktest_test

import (
	"archive/zip"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/internal/test/keycloaktest"
)

func archive(t *testing.T, names ...string) string {
	t.Helper()
	file, err := os.Create(filepath.Join(t.TempDir(), "archive.zip"))
	require.NoError(t, err)
	w := zip.NewWriter(file)
	for _, name := range names {
		header := &zip.FileHeader{Name: name}
		header.SetMode(0o755)
		out, err := w.CreateHeader(header)
		require.NoError(t, err)
		_, err = out.Write([]byte(name))
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	require.NoError(t, file.Close())
	return file.Name()
}

func TestAnArchiveIsUnpackedWithItsModes(t *testing.T) {
	t.Parallel()
	to := t.TempDir()
	require.NoError(t, keycloaktest.Unpack(archive(t, "kc/bin/run", "kc/lib/a.jar"), to))
	text, err := os.ReadFile(filepath.Join(to, "kc", "bin", "run"))
	require.NoError(t, err)
	require.Equal(t, "kc/bin/run", string(text))
	info, err := os.Stat(filepath.Join(to, "kc", "bin", "run"))
	require.NoError(t, err)
	require.NotZero(t, info.Mode()&0o100, "it can be run")
}

func TestAnArchiveWritesOnlyBelowItsFolder(t *testing.T) {
	t.Parallel()
	to := filepath.Join(t.TempDir(), "inner")
	require.NoError(t, os.Mkdir(to, 0o700))
	err := keycloaktest.Unpack(archive(t, "good", "../evil"), to)
	require.ErrorContains(t, err, "../evil")
	require.NoFileExists(t, filepath.Join(to, "..", "evil"))
}
