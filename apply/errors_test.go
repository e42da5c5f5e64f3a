package apply_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/apply"
)

// TestTheErrorOfManyObjectsIsShort has it joined with another, as a pass does: each is found in it, and few are shown.
func TestTheErrorOfManyObjectsIsShort(t *testing.T) {
	t.Parallel()
	require.NoError(t, apply.Report{Results: []apply.Result{{Action: apply.Created}}}.Err())
	last := errors.New("the last")
	report := func(n int) apply.Report {
		var r apply.Report
		for i := range n {
			r.Results = append(r.Results, apply.Result{ID: apply.ID{Kind: "ConfigMap", Name: fmt.Sprint("c", i)}, Err: errors.New("refused")})
		}
		r.Results[n-1].Err = last
		return r
	}
	err := report(10).Err()
	require.ErrorIs(t, err, last)
	require.Equal(t, 9, strings.Count(err.Error(), "\n"))
	require.NotContains(t, err.Error(), "more")
	err = errors.Join(report(1000).Err(), errors.New("another"))
	require.ErrorIs(t, err, last)
	require.Equal(t, 11, strings.Count(err.Error(), "\n"))
	require.Regexp(t, `(?s)^ConfigMap/c0: refused\n.*ConfigMap/c9: refused\nand 990 more\nanother$`, err.Error())
}
