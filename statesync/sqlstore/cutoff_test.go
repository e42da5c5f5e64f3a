package sqlstore_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/statesync/sqlstore"
)

// cutOff is a connection of a driver that says of a statement whose time is over only that the connection is gone.
type cutOff struct{ driver.Conn }

func (c cutOff) Connect(context.Context) (driver.Conn, error)               { return c, nil }
func (cutOff) Driver() driver.Driver                                        { return nil }
func (cutOff) Close() error                                                 { return nil }
func (cutOff) BeginTx(context.Context, driver.TxOptions) (driver.Tx, error) { return cutOff{}, nil }
func (cutOff) Commit() error                                                { return nil }
func (cutOff) Rollback() error                                              { return nil }
func (cutOff) ExecContext(ctx context.Context, _ string, _ []driver.NamedValue) (driver.Result, error) {
	<-ctx.Done()
	return nil, driver.ErrBadConn
}

func TestACommitWhoseTimeIsOverSaysSo(t *testing.T) {
	t.Parallel()
	mine := errors.New("enough")
	for name, test := range map[string]struct {
		limit  time.Duration
		cause  error
		isLate bool // by the limit of a statement
		want   error
	}{
		"that of the caller":  {time.Minute, nil, false, context.DeadlineExceeded},
		"for a reason":        {time.Minute, mine, false, mine},
		"that of a statement": {time.Millisecond, nil, true, context.DeadlineExceeded},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := &sqlstore.Store{DB: sql.OpenDB(cutOff{}), Dialect: sqlstore.SQLite}
			defer s.DB.Close()
			sqlstore.SetLimit(s, test.limit)
			ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, test.cause)
			defer cancel()
			err := s.Commit(ctx, change("s", "1", `1`))
			require.ErrorIs(t, err, test.want, name)
			require.ErrorIs(t, err, driver.ErrBadConn, name)
			if test.isLate {
				require.ErrorContains(t, err, "a statement took more than 1ms", name)
			} else {
				require.NotContains(t, err.Error(), "a statement took", name)
			}
		})
	}
}
