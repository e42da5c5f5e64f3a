package client_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/client"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/controlplanetest"
)

func token(text string) func() (string, error) { return func() (string, error) { return text, nil } }

// TestAClientAsksAControlPlane has the answers of a real one.
func TestAClientAsksAControlPlane(t *testing.T) {
	t.Parallel()
	plane := controlplanetest.Start(t, controlplanetest.Options{Source: filepath.Join(t.TempDir(), "db")})
	c := &client.Client{Server: "http://" + plane.Address, Token: token(controlplanetest.AdminToken)}
	ctx := t.Context()
	id := func(n int) string { return fmt.Sprintf("%08d-0000-4000-8000-000000000000", n) }
	for n := range 5 {
		var created struct{ Token string }
		require.NoError(t, c.Do(ctx, "PUT", "clusters/"+id(n), client.Request{Body: map[string]string{"region": "nyc3"}}, &created))
		require.NotEmpty(t, created.Token)
	}
	var all []string
	for item, err := range c.List(ctx, "clusters", "clusters", map[string][]string{"limit": {"2"}}) {
		require.NoError(t, err)
		var cluster struct {
			ID string `json:"cluster_id"`
		}
		require.NoError(t, json.Unmarshal(item, &cluster))
		all = append(all, cluster.ID)
	}
	require.Equal(t, []string{id(0), id(1), id(2), id(3), id(4)}, all)
	entries := 0
	for _, err := range c.List(ctx, "audit", "entries", map[string][]string{"limit": {"2"}}) {
		require.NoError(t, err)
		entries++
	}
	require.Equal(t, 5, entries, "older entries come by another parameter")
	for range c.List(ctx, "clusters", "clusters", nil) {
		break
	}
	require.NoError(t, c.Do(ctx, "DELETE", "clusters/"+id(0), client.Request{}, &struct{}{}), "there is no body")

	for what, test := range map[string]struct {
		token, method, path string
		body                any
		want                string
		status              int
	}{
		"a wrong field": {
			controlplanetest.AdminToken, "PUT", "clusters/" + id(7),
			map[string]string{"region": "New York"},
			`region is "New York": want 1 to 63 characters of a-z, 0-9 and -, like nyc3 (400 invalid, request `, 400,
		},
		"an unknown one": {controlplanetest.AdminToken, "GET", "clusters/" + id(7), nil, "this cluster is not registered (404 unknown_cluster, request ", 404},
		"a wrong token":  {"none", "GET", "clusters", nil, "the bearer token is missing or not valid (401 unauthorized, request ", 401},
	} {
		failed := (&client.Client{Server: c.Server, Token: token(test.token)}).Do(
			ctx,
			test.method,
			test.path,
			client.Request{Body: test.body},
			nil,
		)
		var refused *client.Error
		require.ErrorAs(t, failed, &refused, what)
		require.Equal(t, test.status, refused.Status)
		require.Contains(t, failed.Error(), test.want, what)
	}
}

// TestWhatIsNoControlPlaneIsSaid has answers of proxies and of servers that are broken.
func TestWhatIsNoControlPlaneIsSaid(t *testing.T) {
	t.Parallel()
	asked := make(chan string, 100)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- r.URL.Path + " " + r.Header.Get("Authorization")
		w.Header().Set("X-Request-Id", "1")
		switch r.URL.Path[len("/api/v1/admin/"):] {
		case "proxy":
			w.WriteHeader(http.StatusBadGateway)
			_, _ = io.WriteString(w, "<html>")
		case "moved":
			http.Redirect(w, r, "/api/v1/admin/elsewhere", http.StatusTemporaryRedirect)
		case "busy":
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Retry-After", "5")
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = io.WriteString(w, `{"error":{"code":"busy","message":"the database is busy"}}`)
		case "text":
			_, _ = io.WriteString(w, "welcome")
		case "empty":
			w.Header().Set("Content-Type", "application/json")
		case "json":
			w.Header().Del("X-Request-Id")
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"hello":"world"}`)
		case "escape":
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusConflict)
			_, _ = io.WriteString(w, `{"error":{"code":"x","message":"\u001b[2Jgone"}}`)
		case "cut":
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(w, "{")
		case "loop":
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"items":[1],"next":"a"}`)
		}
	}))
	defer server.Close()
	ctx := t.Context()
	c := &client.Client{Server: server.URL, Token: token("secret-of-the-test")}
	var answer map[string]any
	require.EqualError(
		t,
		c.Do(ctx, "GET", "proxy", client.Request{}, &answer),
		"the server answered 502 Bad Gateway, and not as a control plane does",
	)
	require.ErrorContains(t, c.Do(ctx, "GET", "moved", client.Request{}, &answer), "307")
	busy := c.Do(ctx, "GET", "busy", client.Request{}, &answer)
	var refused *client.Error
	require.ErrorAs(t, busy, &refused)
	require.Equal(t, 5*time.Second, refused.RetryAfter)
	require.EqualError(t, busy, "the database is busy (503 busy)")
	for _, path := range []string{"text", "json"} {
		require.EqualError(
			t,
			c.Do(ctx, "GET", path, client.Request{}, &answer),
			"the server answered 200 OK, and not as a control plane does",
			path,
		)
	}
	require.ErrorContains(t, c.Do(ctx, "GET", "empty", client.Request{}, &answer), "answer to GET empty: unexpected end of JSON input")
	require.EqualError(t, c.Do(ctx, "GET", "escape", client.Request{}, &answer), "\uFFFD[2Jgone (409 x)")
	require.ErrorContains(t, c.Do(ctx, "GET", "cut", client.Request{}, &answer), "unexpected EOF")
	seen := 0
	var failed error
	for _, err := range c.List(ctx, "loop", "items", nil) {
		seen++
		failed = err
	}
	require.Equal(t, 3, seen, "two parts, and the error")
	require.ErrorContains(t, failed, "its next is the part that was asked for")
	close(asked)
	for line := range asked {
		require.NotContains(t, line, "elsewhere", "the token went on")
		require.True(t, strings.HasSuffix(line, "Bearer secret-of-the-test"))
	}
}

func TestAClientThatIsWrongSaysSo(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	for _, server := range []string{"", "control.example.com", "ftp://control.example.com", "http://", "%"} {
		require.ErrorContains(
			t,
			(&client.Client{Server: server, Token: token("a")}).Do(ctx, "GET", "log", client.Request{}, nil),
			"Server is "+fmt.Sprintf("%q", server),
		)
	}
	require.ErrorContains(t, (&client.Client{Server: "http://127.0.0.1:1"}).Do(ctx, "GET", "log", client.Request{}, nil), "Token is required")
	gone := errors.New("gone")
	c := &client.Client{Server: "http://127.0.0.1:1", Token: func() (string, error) { return "", gone }}
	require.ErrorIs(t, c.Do(ctx, "GET", "log", client.Request{}, nil), gone)
	c.Token = token("a")
	require.ErrorContains(t, c.Do(ctx, "PUT", "log", client.Request{Body: func() {}}, nil), "body of PUT log")
}
