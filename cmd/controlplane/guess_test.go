package main_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// clientFrom connects from an address of the loopback network.
func clientFrom(t *testing.T, address string) *http.Client {
	t.Helper()
	transport := &http.Transport{DialContext: (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}).DialContext}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// TestHostileGuessesLockOutNoValidToken sends invalid tokens to each endpoint that takes one,
// to each endpoint from another address, and valid ones from the same.
func TestHostileGuessesLockOutNoValidToken(t *testing.T) {
	p := serveProcess(t, binary(t), "--listen", "127.0.0.1:0", "--metrics-bind-address", "127.0.0.1:0",
		"--database", filepath.Join(t.TempDir(), "db"), "--admin-token-file", writeFile(t, adminToken))
	base := "http://" + p.address
	form := func(token string) *http.Request {
		r, err := http.NewRequestWithContext(
			t.Context(),
			http.MethodPost,
			base+"/status/login",
			strings.NewReader(url.Values{"token": {token}}.Encode()),
		)
		require.NoError(t, err)
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		return r
	}
	with := func(method, path, body string) func(string) *http.Request {
		return func(token string) *http.Request {
			r, err := http.NewRequestWithContext(t.Context(), method, base+path, strings.NewReader(body))
			require.NoError(t, err)
			r.Header.Set("Authorization", "Bearer "+token)
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set("X-Krane-Region", "eu-1")
			return r
		}
	}
	valid := map[string]string{"admin": adminToken, "page": adminToken, "login": adminToken}
	for endpoint, put := range map[string][2]string{"cluster": {"clusters/" + clusterID, `{"region":"nyc3"}`}, "region": {"regions/eu", `{"name":"eu-1","platform":"aws"}`}} {
		status, answer := request(t, http.DefaultClient, http.MethodPut, base+"/api/v1/admin/"+put[0], adminToken, put[1])
		require.Equal(t, http.StatusCreated, status, answer)
		_, token, _ := strings.Cut(answer, `"token":"`)
		valid[endpoint], _, _ = strings.Cut(token, `"`)
	}
	last := 1
	for endpoint, attempt := range map[string]func(token string) *http.Request{
		"admin":   with(http.MethodGet, "/api/v1/admin/clusters", ""),
		"cluster": with(http.MethodGet, "/api/v1/clusters/"+clusterID+"/desired-state", ""),
		"region":  with(http.MethodPost, "/ctrl.v1.ClusterService/Heartbeat", "{}"),
		"page":    with(http.MethodGet, "/status", ""),
		"login":   form,
	} {
		last++
		t.Run(endpoint, func(t *testing.T) {
			client := clientFrom(t, fmt.Sprintf("127.0.0.%d", last))
			send := func(r *http.Request) (status int, retryAfter string) {
				response, err := client.Do(r)
				require.NoError(t, err)
				_, err = io.Copy(io.Discard, response.Body)
				require.NoError(t, err)
				require.NoError(t, response.Body.Close())
				return response.StatusCode, response.Header.Get("Retry-After")
			}
			for range 100 {
				status, _ := send(attempt("revoked"))
				require.Equal(t, http.StatusUnauthorized, status, "%s: one token again and again", endpoint)
			}
			for n := range 4 {
				status, _ := send(attempt(fmt.Sprint("guess-", n)))
				require.Equal(t, http.StatusUnauthorized, status, endpoint)
			}
			status, retryAfter := send(attempt("guess"))
			require.Equal(t, http.StatusTooManyRequests, status, endpoint)
			require.Equal(t, "1", retryAfter, endpoint)
			for range 20 {
				status, _ := send(attempt("another-guess"))
				require.Equal(t, http.StatusTooManyRequests, status, endpoint)
				status, _ = send(attempt(valid[endpoint]))
				require.Less(t, status, http.StatusBadRequest, "%s: a valid token is not refused", endpoint)
			}
			_, metrics := request(t, http.DefaultClient, http.MethodGet, "http://"+p.metrics+"/metrics", "", "")
			require.Contains(
				t,
				metrics,
				fmt.Sprintf("trueup_controlplane_credentials_refused_total{endpoint=%q,reason=\"invalid\"} 125\n", endpoint),
			)
			require.Contains(t, metrics, fmt.Sprintf("trueup_controlplane_attempts_delayed_total{endpoint=%q} 21\n", endpoint))
		})
	}
	status, _ := request(t, http.DefaultClient, http.MethodGet, base+"/api/v1/admin/clusters", adminToken, "")
	require.Equal(t, http.StatusOK, status, "another address")
	require.NoError(t, p.command.Process.Kill())
	log := (<-p.ended).stderr
	for n := 2; n <= last; n++ {
		require.Contains(t, log, fmt.Sprintf("127.0.0.%d/32", n))
	}
	require.NotContains(t, log, "guess-")
	require.NotContains(t, log, adminToken)
}

func TestAnAdministratorsTokenIsThatOfNoAgent(t *testing.T) {
	program, token := binary(t), writeFile(t, adminToken)
	database := filepath.Join(t.TempDir(), "db")
	got := execute(t, program, nil, "--database", database, "--admin-token-file", token, "--agent-token-file", writeFile(t, adminToken))
	require.Equal(t, 2, got.code)
	require.Contains(t, got.stderr, "is the token in --agent-token-file; administrators need another")

	p := serveProcess(
		t,
		program,
		"--listen",
		"127.0.0.1:0",
		"--metrics-bind-address",
		"127.0.0.1:0",
		"--database",
		database,
		"--admin-token-file",
		token,
	)
	for path, body := range map[string]string{"clusters/" + clusterID: `{"region":"nyc3"}`, "regions/eu": `{"name":"eu-1","platform":"aws"}`} {
		status, answer := request(t, http.DefaultClient, http.MethodPut, "http://"+p.address+"/api/v1/admin/"+path, adminToken, body)
		require.Equal(t, http.StatusCreated, status, answer)
		_, agents, _ := strings.Cut(answer, `"token":"`)
		agents, _, _ = strings.Cut(agents, `"`)
		got := execute(t, program, nil, "--listen", "127.0.0.1:0", "--database", database, "--admin-token-file", writeFile(t, agents))
		require.Equal(t, 2, got.code, got.stderr)
		require.Contains(t, got.stderr, "--admin-token-file: has the token of the agent of")
		require.NotContains(t, got.stderr, agents)
	}
	require.NoError(t, p.command.Process.Kill())
	<-p.ended
}
