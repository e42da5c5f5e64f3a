package proxytest_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/internal/test/proxytest"
)

type server struct{ asked int }

func (s *server) RoundTrip(r *http.Request) (*http.Response, error) {
	s.asked++
	return &http.Response{StatusCode: http.StatusNoContent, Body: http.NoBody, Request: r}, nil
}

func TestAProxyAnswersWhatItIsAskedToAndAsHTTPDoes(t *testing.T) {
	t.Parallel()
	for _, answer := range proxytest.Answers() {
		var s server
		p := proxytest.Proxy{Home: "home"}
		client := http.Client{Transport: p.Before(&s)}
		p.Put(&answer, func(r *http.Request) bool { return r.URL.Path != "/open" })
		get := func(url string) (status int, read error) {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, strings.NewReader("asks"))
			require.NoError(t, err)
			response, err := client.Do(r)
			require.NoError(t, err, "%s: %s", answer.Name, url)
			_, read = io.ReadAll(response.Body)
			_ = response.Body.Close() // it fails with a body that is cut
			return response.StatusCode, read
		}
		status, err := get("http://home/open")
		require.NoError(t, err)
		require.Equal(t, http.StatusNoContent, status)
		require.Empty(t, p.Strangers())
		if strings.HasPrefix(answer.Name, "30") {
			client.CheckRedirect = func(r *http.Request, _ []*http.Request) error {
				require.Equal(t, proxytest.Elsewhere, r.URL.Host)
				return http.ErrUseLastResponse
			}
		}
		_, err = get("http://home/shut")
		require.Equal(t, strings.Contains(answer.Says, "EOF"), err != nil, "%s: %v", answer.Name, err)
		require.Equal(t, map[string]int{"shut": 1}, p.Answered())
		require.Equal(t, 1, s.asked)
		_, _ = get("http://other/open")
		require.Equal(t, []string{"other"}, p.Strangers())
		p.Put(nil, nil)
		_, err = get("http://home/shut")
		require.NoError(t, err)
		require.Equal(t, 3, s.asked)
	}
}
