package main_test

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestAVariableThatWouldHaveATokenIsRefused has names that people guess, beside right ones, too.
func TestAVariableThatWouldHaveATokenIsRefused(t *testing.T) {
	t.Parallel()
	const prefix, value = "TRUEUP_CONTROLPLANE_", "0123456789abcdef0123456789abcdef"
	program, file := binary(t), writeFile(t, adminToken)
	for _, guess := range []string{"TOKEN", "TOKENS", "ADMIN_TOKEN", "ADMIN_TOKENS"} {
		for right, args := range map[string][]string{
			"TOKEN_FILE":       {"get", "log"},
			"ADMIN_TOKEN_FILE": {},
		} {
			got := execute(t, program, []string{prefix + guess + "=" + value, prefix + right + "=" + file}, args...)
			require.Equal(t, 2, got.code, got.stderr)
			require.Equal(t, "controlplane: "+prefix+guess+": is set, but tokens are in files: unset it, and set "+
				prefix+right+" to the name of a file\n", got.stderr)
		}
	}
	require.Zero(t, execute(t, program, []string{prefix + "TOKEN=" + value}, "version").code)
}
