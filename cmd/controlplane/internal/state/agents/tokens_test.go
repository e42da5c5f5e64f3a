package agents_test

import (
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
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
		agent, err := store.Authenticate(ctx, token)
		if !valid {
			require.ErrorIs(t, err, tokens.ErrUnknown)
			return
		}
		require.NoError(t, err)
		require.Equal(t, agents.Agent{ID: "eu", Hash: tokens.Hash(token)}, agent)
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

// world is a region with a token that its agent renews.
type world struct {
	*testing.T
	database *db.Database
	scopes   agents.Scopes
}

func newWorld(t *testing.T, lifetime time.Duration) (w world, shown string) {
	t.Helper()
	database, err := db.SQLite{Path: filepath.Join(t.TempDir(), "db")}.Open(t.Context())
	require.NoError(t, err)
	return newWorldOn(t, database, lifetime)
}

func newWorldOn(t *testing.T, database *db.Database, lifetime time.Duration) (w world, shown string) {
	t.Helper()
	t.Cleanup(func() { require.NoError(t, database.Close()) })
	w = world{t, database, agents.Scopes{
		Database: database, Kind: audit.KindRegion, Unknown: errors.New("unknown region"), Lifetime: lifetime,
	}}
	shown, hash := tokens.New()
	w.exec(`INSERT INTO regions (id, name, platform, token_hash, token_until, terms_of, created_at) VALUES ('eu', 'eu-1', 'aws', ?, ?, ?, 0)`,
		hash, w.scopes.Shown(), hash)
	return w, shown
}

func (w world) exec(query string, args ...any) {
	w.Helper()
	require.NoError(w, w.database.Write(w.Context(), func(tx *db.Tx) error {
		_, err := tx.ExecContext(w.Context(), query, args...)
		return err
	}))
}

// valid requires that the token is valid, and returns whether it should be renewed.
func (w world) valid(token string) (renew bool) {
	w.Helper()
	agent, err := w.scopes.Authenticate(w.Context(), token)
	require.NoError(w, err)
	require.Equal(w, agents.Agent{ID: "eu", Hash: tokens.Hash(token), Renew: agent.Renew}, agent)
	valid, err := w.scopes.Valid(w.Context())
	require.NoError(w, err)
	require.True(w, valid[agent.Hash], "of a stream")
	return agent.Renew
}

func (w world) invalid(list ...string) {
	w.Helper()
	valid, err := w.scopes.Valid(w.Context())
	require.NoError(w, err)
	for n, token := range list {
		_, err := w.scopes.Authenticate(w.Context(), token)
		require.ErrorIs(w, err, tokens.ErrUnknown, n)
		require.False(w, valid[tokens.Hash(token)], "of a stream: %d", n)
		_, _, err = w.scopes.Renew(w.Context(), agents.Agent{ID: "eu", Hash: tokens.Hash(token)})
		require.ErrorIs(w, err, tokens.ErrUnknown, n)
	}
}

func (w world) renew(token string) (next string) {
	w.Helper()
	next, lifetime, err := w.scopes.Renew(w.Context(), agents.Agent{ID: "eu", Hash: tokens.Hash(token)})
	require.NoError(w, err)
	require.Equal(w, w.scopes.Lifetime, lifetime)
	return next
}

func TestAnAgentMayDieAnywhereInARenewal(t *testing.T) {
	t.Parallel()
	w, shown := newWorld(t, 30*24*time.Hour)
	require.True(t, w.valid(shown), "a person has seen it")
	lost := w.renew(shown)
	next := w.renew(shown)
	w.invalid(lost)
	require.True(t, w.valid(shown), "its successor was not used")

	require.False(t, w.valid(next))
	require.False(t, w.valid(next))
	require.False(t, w.valid(shown), "for a minute, and it has a successor already")
	_, _, err := w.scopes.Renew(t.Context(), agents.Agent{ID: "eu", Hash: tokens.Hash(shown)})
	require.ErrorIs(t, err, tokens.ErrUnknown, "one that has leaked makes no other")
	w.exec(`UPDATE regions SET previous_token_until = previous_token_until - 60000`)
	w.invalid(shown)
	require.False(t, w.valid(next))

	w.exec(`UPDATE regions SET token_until = token_until - ?`, 16*24*time.Hour.Milliseconds())
	require.True(t, w.valid(next), "less than half of its life is left")
	third := w.renew(next)
	w.exec(`UPDATE regions SET token_until = token_until - ?`, 14*24*time.Hour.Milliseconds())
	w.invalid(next)
	require.False(t, w.valid(third), "its successor was stored in time")
	w.invalid(next)

	entries, _, err := (&audit.Log{Database: w.database}).List(t.Context(), audit.Filter{}, 10)
	require.NoError(t, err)
	require.Len(t, entries, 2, "each ends a token, also within a minute")
	for _, e := range entries {
		require.Equal(t, "region/eu renew-token eu", e.Actor+" "+e.Verb+" "+e.Name)
	}
}

func TestARenewedTokenEndsUsedOrNot(t *testing.T) {
	t.Parallel()
	w, shown := newWorld(t, 30*24*time.Hour)
	used := w.renew(shown)
	require.False(t, w.valid(used))
	w.exec(`UPDATE regions SET token_until = token_until - ?`, 30*24*time.Hour.Milliseconds())
	w.invalid(used)

	w, shown = newWorld(t, 30*24*time.Hour)
	unused := w.renew(shown)
	w.exec(`UPDATE regions SET next_token_until = next_token_until - ?`, 30*24*time.Hour.Milliseconds())
	w.invalid(unused)
	require.True(t, w.valid(shown))
}

func TestATokenHasItsEndInTheMetric(t *testing.T) {
	t.Parallel()
	var values []float64
	set := func(_ *prometheus.Desc, value float64, _ ...string) { values = append(values, value) }
	hour := time.Now().Add(time.Hour)
	agents.Expires(time.Hour, time.Time{}, time.Time{}, set, nil)
	agents.Expires(0, hour, time.Time{}, set, nil)
	require.Empty(t, values, "they have none")
	agents.Expires(time.Hour, time.Now().Add(-time.Hour), time.Now(), set, nil)
	require.Empty(t, values, "the agent has another one")
	agents.Expires(time.Hour, hour, time.Now(), set, nil)
	agents.Expires(time.Hour, time.Now().Add(-time.Hour), time.Now().Add(-2*time.Hour), set, nil)
	require.Len(t, values, 2)
	require.InDelta(t, time.Hour.Seconds(), values[0], time.Minute.Seconds())
	require.Zero(t, values[1])
}

func TestATokenThatWasShownLivesForADay(t *testing.T) {
	t.Parallel()
	for lifetime, shownFor := range map[time.Duration]time.Duration{
		30 * 24 * time.Hour: 24 * time.Hour,
		time.Hour:           30 * time.Minute,
	} {
		w, shown := newWorld(t, lifetime)
		require.True(t, w.valid(shown), lifetime)
		w.exec(`UPDATE regions SET token_until = token_until - ?`, (shownFor - time.Minute).Milliseconds())
		require.True(t, w.valid(shown), lifetime)
		w.exec(`UPDATE regions SET token_until = token_until - ?`, time.Minute.Milliseconds())
		w.invalid(shown)

		rotated, err := w.scopes.Rotate(t.Context(), "eu", time.Hour)
		require.NoError(t, err)
		w.invalid(shown) // an overlap makes none live for longer
		require.True(t, w.valid(rotated))
		next := w.renew(rotated)
		again, err := w.scopes.Rotate(t.Context(), "eu", 0)
		require.NoError(t, err)
		w.invalid(rotated, next)
		require.True(t, w.valid(again))
	}
}

func TestTokensWithoutAnEndAreRenewedOnceTheyHaveOne(t *testing.T) {
	t.Parallel()
	w, shown := newWorld(t, 0)
	require.False(t, w.valid(shown))
	w.scopes.Lifetime = time.Hour
	require.True(t, w.valid(shown))
	next := w.renew(shown)
	require.False(t, w.valid(next))
	w.scopes.Lifetime = 0
	require.False(t, w.valid(next))
}

func TestTheLifetimeMayChange(t *testing.T) {
	t.Parallel()
	w, shown := newWorld(t, 720*time.Hour)
	next := w.renew(shown)
	require.False(t, w.valid(next))
	w.scopes.Lifetime = 24 * time.Hour
	require.True(t, w.valid(next), "it would live for longer than any other")
	third := w.renew(next)
	require.False(t, w.valid(third))

	// Without a lifetime none can be renewed, so none ends.
	w.exec(`UPDATE regions SET token_until = 1`)
	w.invalid(third)
	w.scopes.Lifetime = 0
	require.False(t, w.valid(third))
	rotated, err := w.scopes.Rotate(t.Context(), "eu", time.Hour)
	require.NoError(t, err)
	require.False(t, w.valid(rotated))
	require.False(t, w.valid(third), "for the overlap")
	w.scopes.Lifetime = 24 * time.Hour
	require.True(t, w.valid(rotated))
}

// TestARotationByAnOlderReplicaCounts has one that knows neither ends nor next tokens.
func TestARotationByAnOlderReplicaCounts(t *testing.T) {
	t.Parallel()
	w, shown := newWorld(t, 24*time.Hour)
	next := w.renew(shown)
	rotated, hash := tokens.New()
	w.exec(`UPDATE regions SET token_until = 1`) // while only older ones ran
	w.exec(`UPDATE regions SET token_hash = ?, previous_token_hash = '', previous_token_until = 0`, hash)
	w.invalid(shown, next)
	require.True(t, w.valid(rotated), "it has no end yet")
	again := w.renew(rotated)
	require.False(t, w.valid(again))
	w.exec(`UPDATE regions SET token_until = 1`)
	w.invalid(again)
}

func TestARestoredDatabaseKeepsTheTokenOfARenewalUnderWay(t *testing.T) {
	t.Parallel()
	for _, later := range []bool{false, true} {
		w, shown := newWorld(t, time.Hour)
		next := w.renew(shown)
		// After the backup the agent uses the next one, and later still another.
		ended := map[string]bool{tokens.Mark(tokens.Hash(shown)): true, tokens.Mark(tokens.Hash(next)): later}
		rows, err := w.scopes.AfterRestore(t.Context(), func(id, mark string) bool { return id == "eu" && ended[mark] })
		require.NoError(t, err)
		require.Len(t, rows, 1)
		require.True(t, rows[0].Revoked)
		if later {
			w.invalid(shown, next)
			continue
		}
		w.invalid(shown)
		require.False(t, w.valid(next))
	}
}
