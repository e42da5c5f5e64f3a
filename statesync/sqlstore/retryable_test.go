package sqlstore_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/statesync/sqlstore"
)

type sqlState string

func (s sqlState) Error() string    { return "SQLSTATE " + string(s) }
func (s sqlState) SQLState() string { return string(s) }

func TestWhatMayPassIsRetryable(t *testing.T) {
	t.Parallel()
	for _, code := range []sqlState{"40001", "40P01", "55P03", "25006", "57P01", "08006"} {
		require.True(t, sqlstore.Retryable(fmt.Errorf("write: %w", code)), code)
	}
	for _, code := range []sqlState{"42601", "23505", "25001", "28000"} {
		require.False(t, sqlstore.Retryable(code), code)
	}
	require.False(t, sqlstore.Retryable(errors.New("another")))
}
