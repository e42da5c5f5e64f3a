package agent_test

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic/fake"

	"github.com/seed-9e1ffd66/trueup/cmd/api/agenttoken"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/owntoken"
	shuttle "github.com/seed-9e1ffd66/trueup/cmd/shuttle/agent"
	"github.com/seed-9e1ffd66/trueup/internal/test/httpfunc"
	"github.com/seed-9e1ffd66/trueup/reconcile"
)

func TestRequestsHaveTheTokenRenewedAndTryTheOtherOnce(t *testing.T) {
	t.Parallel()
	var sent []string // token and body
	valid := map[string]bool{"given": true}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
		if r.URL.Path == agenttoken.Path {
			_, _ = io.WriteString(w, `{"token":"own","expires_in_seconds":3600}`)
			return
		}
		body, _ := io.ReadAll(r.Body)
		sent = append(sent, token+" "+string(body))
		if !valid[token] {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		w.Header().Set(agenttoken.Header, agenttoken.Renew)
	}))
	t.Cleanup(server.Close)
	base, err := url.Parse(server.URL)
	require.NoError(t, err)
	tokens := owntoken.New(owntoken.Config{
		Given:      func() (string, error) { return "given", nil },
		Kubernetes: fake.NewSimpleDynamicClient(runtime.NewScheme()), Secret: types.NamespacedName{Namespace: "system", Name: "renewed"},
		ControlPlane: base, Logger: slog.New(slog.DiscardHandler),
	})
	do := shuttle.NewDo(&shuttle.Config{StarbaseURL: base, ClusterID: clusterID}, tokens, nil)
	status := http.StatusOK
	answered := func(tried ...string) {
		t.Helper()
		sent = nil
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+"/status", strings.NewReader("{}"))
		require.NoError(t, err)
		response, err := do(request)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		require.Equal(t, status, response.StatusCode)
		require.Equal(t, tried, sent)
	}
	answered("given {}")
	renewal, ok := tokens.Loop().(*reconcile.Loop)
	require.True(t, ok)
	_, err = renewal.Reconciler.Reconcile(t.Context())
	require.NoError(t, err)
	answered("own {}", "given {}")
	answered("given {}")
	valid = map[string]bool{"own": true}
	answered("given {}", "own {}")
	valid, status = nil, http.StatusUnauthorized
	answered("own {}", "given {}")
	answered("own {}", "given {}")
}

// TestAnAttemptEndsAfterItsTime has a Starbase that never answers.
func TestAnAttemptEndsAfterItsTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		env := environment(t)
		for text, want := range map[string]time.Duration{"": 30 * time.Second, "7s": 7 * time.Second} {
			env["STARFORM_REQUEST_TIMEOUT"] = text
			config, err := shuttle.ReadConfig(func(name string) string { return env[name] })
			require.NoError(t, err)
			var took []time.Duration
			do := shuttle.NewDo(&config, owntoken.New(owntoken.Config{Given: func() (string, error) { return "given", nil }}),
				httpfunc.Transport(func(r *http.Request) (*http.Response, error) {
					began := time.Now()
					<-r.Context().Done()
					took = append(took, time.Since(began))
					return nil, r.Context().Err()
				}))
			request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, config.StarbaseURL.String(), http.NoBody)
			require.NoError(t, err)
			_, err = do(request) //nolint:bodyclose // there is no answer
			require.Error(t, err)
			require.Equal(t, []time.Duration{want, want, want}, took)
		}
	})
}
