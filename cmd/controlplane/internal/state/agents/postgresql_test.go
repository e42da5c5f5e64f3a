package agents_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/api/agenttoken"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/edge/tokens"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/front/adminapi"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/agents"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/audit"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/db"
	"github.com/seed-9e1ffd66/trueup/internal/test/await"
	"github.com/seed-9e1ffd66/trueup/internal/test/pgtest"
)

// postgresql is a world where transactions run at the same time. On SQLite one waits for the other.
func postgresql(t *testing.T, lifetime time.Duration) (w world, shown string) {
	t.Helper()
	database, err := db.PostgreSQL{URL: pgtest.NewDatabase(t)}.Open(t.Context())
	require.NoError(t, err)
	return newWorldOn(t, database, lifetime)
}

// count returns the number that a query selects.
func (w world) count(query string) (n int) {
	w.Helper()
	require.NoError(w, w.database.Read(w.Context(), func(tx *db.Tx) error { return tx.QueryRowContext(w.Context(), query).Scan(&n) }))
	return n
}

// atOnce runs all, lets each read what it reads before any has written, and returns their errors.
func (w world) atOnce(all ...func() error) []error {
	w.Helper()
	list := make([]error, len(all))
	var group sync.WaitGroup
	require.NoError(w, w.database.Write(w.Context(), func(tx *db.Tx) error {
		if err := w.scopes.Lock(w.Context(), tx, "eu"); err != nil {
			return err
		}
		for n, do := range all {
			group.Go(func() { list[n] = do() })
		}
		await.Eventually(w, "each waits for the row", func() bool {
			return w.count(`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`) == len(all)
		})
		return nil
	}))
	group.Wait()
	return list
}

func TestOneOfTwoFirstUsesEndsTheTokenOfBefore(t *testing.T) {
	t.Parallel()
	w, shown := postgresql(t, 720*time.Hour)
	next := w.renew(shown)
	use := func() error {
		_, err := w.scopes.Authenticate(t.Context(), next)
		return err
	}
	for _, err := range w.atOnce(use, use, use) {
		require.NoError(t, err)
	}
	require.False(t, w.valid(next))
	require.False(t, w.valid(shown), "for a minute")
	entries, _, err := (&audit.Log{Database: w.database}).List(t.Context(), audit.Filter{}, 10)
	require.NoError(t, err)
	require.Len(t, entries, 1, "one has ended it")
}

func TestARenewalAndAFirstUseExcludeEachOther(t *testing.T) {
	t.Parallel()
	for range 2 { // either may be first
		w, shown := postgresql(t, 720*time.Hour)
		next := w.renew(shown)
		var other string
		failed := w.atOnce(func() error {
			_, err := w.scopes.Authenticate(t.Context(), next)
			return err
		}, func() (err error) {
			other, _, err = w.scopes.Renew(t.Context(), agents.Agent{ID: "eu", Hash: tokens.Hash(shown)})
			return err
		})
		if failed[0] == nil {
			require.ErrorIs(t, failed[1], tokens.ErrUnknown, "the token of the renewal was no longer the current one")
			require.False(t, w.valid(next))
			continue
		}
		require.ErrorIs(t, failed[0], tokens.ErrUnknown, "the renewal has replaced it")
		require.NoError(t, failed[1])
		require.False(t, w.valid(other))
		w.invalid(next)
	}
}

func TestOneOfTwoRenewalsAtOnceIsValid(t *testing.T) {
	t.Parallel()
	w, shown := postgresql(t, 720*time.Hour)
	var next [2]string
	renew := func(n int) func() error {
		return func() (err error) {
			next[n], _, err = w.scopes.Renew(t.Context(), agents.Agent{ID: "eu", Hash: tokens.Hash(shown)})
			return err
		}
	}
	for _, err := range w.atOnce(renew(0), renew(1)) {
		require.NoError(t, err)
	}
	_, err := w.scopes.Authenticate(t.Context(), next[0])
	if err == nil {
		w.invalid(next[1])
		return
	}
	require.ErrorIs(t, err, tokens.ErrUnknown)
	require.False(t, w.valid(next[1]))
}

// TestARenewalAuthenticatesOnce has a view in place of the table, which takes a lock with another key
// each time that it is read. A renewal that is refused writes nothing.
func TestARenewalAuthenticatesOnce(t *testing.T) {
	t.Parallel()
	w, shown := postgresql(t, 0)
	w.exec(`CREATE FUNCTION seen() RETURNS void LANGUAGE sql VOLATILE AS
		$$ SELECT pg_advisory_lock_shared(57, (random() * 2000000000)::integer) $$`)
	w.exec(`ALTER TABLE regions RENAME TO regions_read`)
	w.exec(`CREATE VIEW regions AS SELECT r.* FROM seen(), regions_read r`)
	clusters := w.scopes
	clusters.Kind = audit.KindCluster
	route := agents.Renewal{Scopes: []agents.Scopes{clusters, w.scopes}}.Routes()[0]
	for n, test := range []struct {
		token  string
		status int
	}{{shown, http.StatusConflict}, {"another", http.StatusUnauthorized}} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, agenttoken.Path, http.NoBody)
		r.Header.Set("Authorization", "Bearer "+test.token)
		err := route.Handle(httptest.NewRecorder(), r)
		refused, ok := errors.AsType[*adminapi.Error](err)
		require.True(t, ok, err)
		require.Equal(t, test.status, refused.Status)
		require.Equal(t, n+1, w.count(`SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND classid = 57
			AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`))
	}
}
