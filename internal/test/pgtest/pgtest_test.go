package pgtest_test

import (
	"os"
	"strconv"
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

func TestAServerWithPasswordsAsksForThem(t *testing.T) {
	t.Parallel()
	s := pgtest.Start(t, pgtest.Options{Passwords: true})
	require.NotEqual(t, 5432, s.Port)
	require.NoError(t, s.SQL(t.Context(), "postgres", "ALTER ROLE trueup PASSWORD 'sesame'"))
	login := func(as string) error {
		return s.SQL(t.Context(), "host=127.0.0.1 port="+strconv.Itoa(s.Port)+" "+as+" dbname=postgres", "SELECT")
	}
	require.NoError(t, login("user=trueup password=sesame"))
	require.ErrorContains(t, login("user=trueup password=wrong"), "password authentication failed")
	require.ErrorContains(t, login("user=postgres"), "rejects connection")
	s.Kill()
	require.NoError(t, s.Start(t.Context()))
	require.NoError(t, login("user=trueup password=sesame"))
}
