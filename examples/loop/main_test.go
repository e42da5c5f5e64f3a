package main_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/examples/internal/programtest"
	"github.com/seed-9e1ffd66/trueup/internal/test/await"
)

func TestTheFileFollowsTheOtherAndIsRepaired(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	from, to := filepath.Join(dir, "from"), filepath.Join(dir, "to")
	p, stop := programtest.Start(t, programtest.Build(t), "--from", from, "--to", to, "--interval", "20ms")
	holds := func(want string) {
		t.Helper()
		await.Eventually(t, "err == nil && string(have) == want", func() bool {
			have, err := os.ReadFile(to)
			return err == nil && string(have) == want
		})
	}
	require.NoError(t, os.WriteFile(from, []byte("one"), 0o600))
	holds("one")
	require.NoError(t, os.WriteFile(from, []byte("two"), 0o600))
	holds("two")
	require.NoError(t, os.WriteFile(to, []byte("something else"), 0o600))
	holds("two")
	require.NoError(t, os.Remove(to))
	holds("two")
	require.NoError(t, stop())
	log, err := os.ReadFile(p.Log)
	require.NoError(t, err)
	require.Contains(t, string(log), "mirror 1 (start): ")
	require.Contains(t, string(log), "(ticker): <nil>")
}
