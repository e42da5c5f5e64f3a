package httpfunc_test

import (
	"errors"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/internal/test/httpfunc"
)

func TestAClientGetsWhatTheFunctionReturns(t *testing.T) {
	t.Parallel()
	away := errors.New("it is away")
	client := http.Client{Transport: httpfunc.Transport(func(r *http.Request) (*http.Response, error) {
		require.Equal(t, "/path", r.URL.Path)
		return nil, away
	})}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://server/path", nil)
	require.NoError(t, err)
	_, err = client.Do(r) //nolint:bodyclose // there is none
	require.ErrorIs(t, err, away)
}
