package agents_test

import (
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/edge/tokens"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/agents"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/audit"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/db"
	"github.com/seed-9e1ffd66/trueup/internal/test/await"
)

func TestARotatedTokenIsValidForTheOverlapAlone(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	database, err := db.SQLite{Path: filepath.Join(t.TempDir(), "db")}.Open(ctx)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, database.Close()) })
	first, hash := tokens.New()
	require.NoError(t, database.Write(ctx, func(tx *db.Tx) error {
		_, err := tx.ExecContext(ctx, `INSERT INTO regions (id, name, platform, token_hash, created_at) VALUES ('eu', 'eu-1', 'aws', ?, 0)`, hash)
		return err
	}))
	store := agents.Scopes{Database: database, Kind: audit.KindRegion, Unknown: errors.New("unknown region")}
	check := func(token string, valid bool) {
		t.Helper()
		id, err := store.Authenticate(ctx, token)
		if !valid {
			require.ErrorIs(t, err, tokens.ErrUnknown)
			return
		}
		require.NoError(t, err)
		require.Equal(t, "eu", id)
	}
	check(first, true)
	check("", false)

	second, err := store.Rotate(ctx, "eu", time.Hour)
	require.NoError(t, err)
	check(first, true)
	check(second, true)
	third, err := store.Rotate(ctx, "eu", time.Hour)
	require.NoError(t, err)
	check(first, false)
	check(second, true)
	fourth, err := store.Rotate(ctx, "eu", 0)
	require.NoError(t, err)
	for _, old := range []string{first, second, third} {
		check(old, false)
	}
	check(fourth, true)

	fifth, err := store.Rotate(ctx, "eu", time.Millisecond)
	require.NoError(t, err)
	await.Eventually(t, "err != nil", func() bool { _, err := store.Authenticate(ctx, fourth); return err != nil })
	check(fifth, true)
	_, err = store.Rotate(ctx, "us", 0)
	require.ErrorIs(t, err, store.Unknown)
}
