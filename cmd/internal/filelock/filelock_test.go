package filelock_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/internal/filelock"
)

func TestAFileIsTakenUntilItIsClosed(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lock")
	open := func() *os.File {
		file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
		require.NoError(t, err)
		return file
	}
	first, second := open(), open()
	for _, test := range []struct {
		file  *os.File
		taken bool
	}{{first, true}, {second, false}} {
		taken, err := filelock.Take(test.file)
		require.NoError(t, err)
		require.Equal(t, test.taken, taken)
	}
	require.NoError(t, first.Close())
	taken, err := filelock.Take(second)
	require.NoError(t, err)
	require.True(t, taken)
	require.NoError(t, second.Close())
	_, err = filelock.Take(second)
	require.Error(t, err)
}
