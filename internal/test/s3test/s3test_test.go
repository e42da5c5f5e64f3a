package s3test_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/internal/test/s3test"
)

func TestAServerAnswersAgainAfterItsEnd(t *testing.T) {
	if testing.Short() {
		t.Skip("long: it builds the S3 server")
	}
	t.Parallel()
	s := s3test.Start(t)
	status := func() int {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL, http.NoBody)
		require.NoError(t, err)
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return 0
		}
		require.NoError(t, response.Body.Close())
		return response.StatusCode
	}
	require.Equal(t, http.StatusForbidden, status(), "it asks for a signature")
	s.Kill()
	require.Zero(t, status())
	require.NoError(t, s.Start(t.Context()))
	require.Equal(t, http.StatusForbidden, status())
}
