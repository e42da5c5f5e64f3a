package regions //nolint:testpackage // what a path names is read inside

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAWrongPathNamesWhatIsWrong(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ region, id, wrong string }{
		"right":          {region: "eu", id: "d_1"},
		"a wrong region": {region: "e u", id: "d_1", wrong: "region_id"},
		"a wrong id":     {region: "eu", id: "d 1", wrong: "id"},
		"both":           {region: "e u", id: "d 1", wrong: "region_id"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
			r.SetPathValue("region_id", c.region)
			r.SetPathValue("id", c.id)
			key, err := resourcePath(r)
			if c.wrong != "" {
				require.ErrorContains(t, err, c.wrong)
				return
			}
			require.NoError(t, err)
			require.Equal(t, resourceKey{"eu", "d_1"}, key)
		})
	}
}
