package foldersim_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/internal/test/foldersim"
	"github.com/seed-9e1ffd66/trueup/reconcile/simtest"
)

// TestAFolderThatIsNotMadeTrueIsAWrongHistory has a program that does not look at the folder.
func TestAFolderThatIsNotMadeTrueIsAWrongHistory(t *testing.T) {
	t.Parallel()
	for _, whole := range []bool{false, true} {
		r := simtest.Simulate(t, func() simtest.Scenario {
			s := foldersim.Set{Folder: t.TempDir(), Label: "set", Value: "one", Memory: "memory", Forgets: "memory-1", Whole: whole}.Scenario(t)
			s.Program = func(ctx context.Context, _ http.RoundTripper) error {
				<-ctx.Done()
				return nil
			}
			return s
		}, 1)
		require.Contains(t, strings.Join(r.Wrong, "\n"), "not converged: a is stated, and is map[]")
	}
}
