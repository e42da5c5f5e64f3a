package pgtest_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/internal/test/pgtest"
)

func TestAServerOutlivesItsCrashAndEndsWithTheTest(t *testing.T) {
	t.Parallel()
	var dir string
	t.Run("server", func(t *testing.T) {
		s := pgtest.Start(t, pgtest.Options{Settings: []string{"max_connections=20"}})
		dir = s.Dir()
		url := s.Database(t)
		require.NotEqual(t, url, s.Database(t))
		require.NoError(t, s.SQL(t.Context(), "db1", "CREATE TABLE kept (n int); INSERT INTO kept VALUES (1)"))
		s.Kill()
		require.Error(t, s.SQL(t.Context(), "db1", "SELECT 1"))
		require.NoError(t, s.Start(t.Context()))
		require.NoError(t, s.SQL(t.Context(), "db1", "SELECT 1 / count(*) FROM kept"))
		require.ErrorContains(t, s.SQL(t.Context(), "db1", "SELECT nonsense"), "nonsense")
	})
	if dir != "" {
		_, err := os.Stat(dir)
		require.ErrorIs(t, err, os.ErrNotExist)
	}
}
