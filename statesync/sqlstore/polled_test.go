package sqlstore_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/internal/test/await"
	"github.com/seed-9e1ffd66/trueup/internal/test/pgtest"
	"github.com/seed-9e1ffd66/trueup/statesync/sqlstore"
)

func TestAPollOfManyRoundsAsksForEachScopeOnce(t *testing.T) {
	t.Parallel()
	all := make([]string, 100)
	for n := range all {
		all[n] = fmt.Sprint("s", n)
	}
	for _, rounds := range []int{1, 8} {
		var asked []string
		for _, scopes := range sqlstore.Polled(all, rounds) {
			require.InDelta(t, len(all)/rounds, len(scopes), 1)
			asked = append(asked, scopes...)
		}
		require.ElementsMatch(t, all, asked, "%d rounds", rounds)
	}
}

func TestAProcessThatLearnsOfChangesPollsInRounds(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		dialect       sqlstore.Dialect
		poll          time.Duration
		acts, listens bool
		rounds        int
	}{
		{sqlstore.PostgreSQL, 0, false, false, 1},
		{sqlstore.PostgreSQL, 0, true, false, 8},
		{sqlstore.PostgreSQL, 0, false, true, 8},
		{sqlstore.PostgreSQL, time.Second, false, true, 2}, // Wait fails after 5 s
		{sqlstore.PostgreSQL, time.Minute, true, true, 1},
		{sqlstore.SQLite, 0, true, true, 1}, // another process may sequence, too
	} {
		s := &sqlstore.Store{DB: &sql.DB{}, Dialect: test.dialect, Poll: test.poll}
		require.Equal(t, test.rounds, sqlstore.Rounds(s, test.acts, test.listens), "%+v", test)
	}
}

// TestAProcessPollsInRoundsWhileItsListenerListens has a connection that is made late, and is lost.
func TestAProcessPollsInRoundsWhileItsListenerListens(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		connected, lost := make(chan struct{}), make(chan error)
		s := &sqlstore.Store{DB: &sql.DB{}, Dialect: sqlstore.PostgreSQL}
		s.Listen = func(ctx context.Context, _ []string, listening func(), _ func(channel, payload string)) error {
			for {
				select {
				case <-connected:
					listening()
				case err := <-lost:
					return err
				case <-ctx.Done():
					return ctx.Err()
				}
			}
		}
		rounds, wait := sqlstore.Listening(ctx, s)
		for range 2 {
			require.Equal(t, 1, rounds(), "it does not listen yet")
			connected <- struct{}{}
			synctest.Wait()
			require.Equal(t, 8, rounds())
			lost <- errors.New("the connection is lost")
			synctest.Wait()
		}
		require.Equal(t, 1, rounds())
		cancel()
		require.NoError(t, wait())
	})
}

// TestALostNotificationIsMadeUpForByPolling has a process whose listener hears nothing, as behind a
// proxy that is silent: it sees every change of another process within eight polls of 250 ms.
func TestALostNotificationIsMadeUpForByPolling(t *testing.T) {
	t.Parallel()
	url := pgtest.NewDatabase(t)
	writer := start(t, openPostgreSQL(t, url, &sqlstore.Store{}))
	for n := range 20 {
		require.NoError(t, writer.Commit(t.Context(), change(fmt.Sprint("s", n), "a", `1`)))
	}
	deaf := openPostgreSQL(t, url, &sqlstore.Store{})
	listening := make(chan struct{})
	deaf.Listen = func(ctx context.Context, _ []string, ready func(), _ func(channel, payload string)) error {
		ready()
		close(listening)
		<-ctx.Done()
		return ctx.Err()
	}
	start(t, deaf)
	<-listening
	ctx := ctxWithin(t)
	var waits sync.WaitGroup
	names := []string{"s0", "s1", "s2"}
	for _, name := range names {
		at := head(t, writer, name, 1)
		waits.Go(func() {
			if err := deaf.Wait(ctx, name, at); err != nil {
				t.Error(err)
			}
		})
		await.Until(t, within, "it is waited for", func() bool { return sqlstore.Waiting(deaf, name) == 1 })
	}
	began := time.Now()
	for _, name := range names {
		require.NoError(t, writer.Commit(t.Context(), change(name, "a", `2`)))
	}
	waits.Wait()
	await.Within(t, 3*time.Second, "a change whose notification is lost", time.Since(began))
}
