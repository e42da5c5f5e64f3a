package sqlstore_test

import (
	"database/sql"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/statesync"
	"github.com/seed-9e1ffd66/trueup/statesync/sqlstore"
)

func TestTheProgressOfAllScopesIsThatOfEach(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, open func(*sqlstore.Store) *sqlstore.Store) {
		s := start(t, open(&sqlstore.Store{}))
		ctx := t.Context()
		none, err := s.Progress(ctx)
		require.NoError(t, err)
		require.Empty(t, none)
		for n, scope := range []string{"b", "a", "c"} {
			for range n + 1 {
				require.NoError(t, s.Commit(ctx, change(scope, "1", `1`)))
			}
		}
		head(t, s, "b", 1)
		head(t, s, "a", 2)
		head(t, s, "c", 3)
		for _, reader := range []string{"two", "one"} {
			page, err := s.Read(ctx, "a", 0, 1)
			require.NoError(t, err)
			_, err = s.Report(
				ctx,
				"a",
				statesync.Report{Reader: reader, Session: 1, Sequence: 1, Applied: statesync.Cursor{Epoch: page.Epoch, Version: 1}},
			)
			require.NoError(t, err)
		}
		all, err := s.Progress(ctx)
		require.NoError(t, err)
		require.Len(t, all, 3)
		for n, scope := range []string{"a", "b", "c"} {
			page, err := s.Read(ctx, scope, 0, 1)
			require.NoError(t, err)
			require.Equal(t, scope, all[n].Scope)
			require.Equal(t, page.Position, all[n].Position)
			readers, err := s.Readers(ctx, scope)
			require.NoError(t, err)
			require.Len(t, all[n].Readers, len(readers))
			for i := range readers {
				require.Equal(t, readers[i].Reader, all[n].Readers[i].Reader)
				require.Equal(t, readers[i].Applied.Version, all[n].Readers[i].Applied.Version)
				require.Equal(t, readers[i].Applied.Epoch, all[n].Readers[i].Applied.Epoch)
				require.Equal(t, readers[i].At, all[n].Readers[i].At)
			}
		}
	})
}

func TestANewEpochIsPartOfTheTransactionOfTheCaller(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, open func(*sqlstore.Store) *sqlstore.Store) {
		s := start(t, open(&sqlstore.Store{}))
		ctx := t.Context()
		require.NoError(t, s.Commit(ctx, change("a", "1", `1`)))
		before := head(t, s, "a", 1).Epoch
		epoch := func() string { return head(t, s, "a", 1).Epoch }
		renew := func(end error) error {
			tx, err := s.DB.BeginTx(ctx, nil)
			require.NoError(t, err)
			if err := errors.Join(s.NewEpochIn(ctx, tx), end); err != nil {
				return errors.Join(err, tx.Rollback())
			}
			return tx.Commit()
		}
		require.ErrorIs(t, renew(sql.ErrTxDone), sql.ErrTxDone)
		require.Equal(t, before, epoch(), "undone with the transaction")
		require.NoError(t, renew(nil))
		require.NotEqual(t, before, epoch())
	})
}
