package operator //nolint:testpackage // the checks are not exported

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestAPasswordIsAnotherOnlyIfTheRoleWasGivenOne has a process that has just started, and an object
// that was deleted and made again.
func TestAPasswordIsAnotherOnlyIfTheRoleWasGivenOne(t *testing.T) {
	t.Parallel()
	var c checks
	require.False(t, c.another("u", "one"), "it is not known: the next check decides")
	c.gave("u", "one")
	require.False(t, c.another("u", "one"))
	require.True(t, c.another("u", "two"))
	require.False(t, c.another("v", "two"), "of another object")
	c.gave("u", "two")
	require.False(t, c.another("u", "two"))
	c.forget("u")
	require.False(t, c.another("u", "one"))
	require.Empty(t, c.roles)
}
