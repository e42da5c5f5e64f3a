package starbase_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/api/starbase"
)

func TestARequestAboveItsLimitIsRefused(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		request, limit string
		ok             bool
	}{
		{"500m", "250m", false},
		{"2", "1500m", false},
		{"2", "2000m", true},
		{"1Gi", "1G", false},
		{"1G", "1Gi", true},
		{"1e3", "1k", true},
		{"1E3", "999", false},
		{"1E", "1e18", true},
		{"2E", "1Ei", false},
		{".5", "0.5", true},
		{"5.", "5", true},
		{"1u", "999n", false},
		{"1e-3", "1m", true},
		{"1", "", true},     // no limit
		{"1", "much", true}, // that is wrong itself
	} {
		s := fullService()
		s.Resources = starbase.Resources{Requests: map[string]string{"cpu": test.request}, Limits: map[string]string{"cpu": test.limit}}
		if test.limit == "" {
			s.Resources.Limits = nil
		}
		var found []starbase.FieldError
		for _, f := range s.Validate() {
			if f.Field == "resources.requests.cpu" {
				found = append(found, f)
			}
		}
		if test.ok {
			require.Empty(t, found, test)
			continue
		}
		require.Equal(t, []starbase.FieldError{
			{Field: "resources.requests.cpu", Value: `"` + test.request + `"`, Want: "at most resources.limits.cpu, " + test.limit},
		}, found, test)
	}
}
