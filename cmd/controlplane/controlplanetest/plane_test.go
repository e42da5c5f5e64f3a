package controlplanetest_test

import (
	"net/http"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/controlplanetest"
)

// ask returns the status of an answer of the admin API, 0 for none, on a connection of its own.
func ask(t *testing.T, address, token string) int {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+"/api/v1/admin/clusters", http.NoBody)
	require.NoError(t, err)
	request.Header.Set("Authorization", "Bearer "+token)
	request.Close = true
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0
	}
	require.NoError(t, response.Body.Close())
	return response.StatusCode
}

func TestAReplicaThatEndsIsNotAskedAnyMore(t *testing.T) {
	t.Parallel()
	var away atomic.Bool
	options := controlplanetest.Options{Source: filepath.Join(t.TempDir(), "trueup.db"), Wrap: func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if away.Load() {
				w.WriteHeader(http.StatusServiceUnavailable)
				return
			}
			next.ServeHTTP(w, r)
		})
	}}
	balancer := controlplanetest.StartBalancer(t)
	require.Zero(t, ask(t, balancer.Address(), controlplanetest.AdminToken), "there is no replica")
	first := controlplanetest.Start(t, options)
	options.Wrap = nil
	second := controlplanetest.Start(t, options)
	for _, p := range []*controlplanetest.Plane{first, second} {
		require.Equal(t, http.StatusOK, ask(t, p.Address, controlplanetest.AdminToken))
		require.Equal(t, http.StatusUnauthorized, ask(t, p.Address, "another-token-of-the-tests"))
		balancer.Add(p.Address)
	}
	answers := func() map[int]int {
		found := map[int]int{}
		for range 4 {
			found[ask(t, balancer.Address(), controlplanetest.AdminToken)]++
		}
		return found
	}
	require.Equal(t, map[int]int{http.StatusOK: 4}, answers())
	away.Store(true)
	require.Equal(t, map[int]int{http.StatusOK: 2, http.StatusServiceUnavailable: 2}, answers(), "connections take turns")
	balancer.Remove(first.Address)
	first.Stop()
	first.Stop()
	require.Equal(t, map[int]int{http.StatusOK: 4}, answers())
	require.Zero(t, ask(t, first.Address, controlplanetest.AdminToken))
	balancer.CloseIdle(time.Minute)
	require.Equal(t, map[int]int{http.StatusOK: 4}, answers())
	balancer.Remove(second.Address)
	require.Zero(t, ask(t, balancer.Address(), controlplanetest.AdminToken))
}
