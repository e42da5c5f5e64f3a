package main_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/api/agenttoken"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/edge/tokens"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/front/adminapi"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/front/openapi"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/front/statuspage"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/agents"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/audit"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/clusters"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/db"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/regions"
)

// route is one method of one path of the program.
type route struct{ method, path string }

// allRoutes returns every route of the program, with names and ids that are registered.
func allRoutes(t *testing.T) (list []route) {
	t.Helper()
	regionStore := &regions.Store{}
	api, err := clusters.New(
		clusters.Config{
			Store:       &clusters.Store{},
			Admins:      tokens.Only(adminToken),
			AdminRoutes: slices.Concat(regions.AdminRoutes(regionStore), audit.Routes(&audit.Log{})),
			OpenRoutes:  agents.Renewal{}.Routes(),
		},
	)
	require.NoError(t, err)
	page, err := statuspage.New(statuspage.Config{Database: &db.Database{}, Admins: tokens.Only(adminToken)})
	require.NoError(t, err)
	for _, r := range slices.Concat(api.Routes(), regions.Routes(), []adminapi.Route{{Method: "GET", Path: "/healthz"}, {Method: "GET", Path: "/readyz"}, {Method: "GET", Path: openapi.Path}}) {
		list = append(list, route{r.Method, r.Path})
	}
	for _, pattern := range page.Routes() {
		method, path, _ := strings.Cut(pattern, " ")
		list = append(list, route{method, path})
	}
	values := strings.NewReplacer(
		"{cluster_id}",
		clusterID,
		"{project_id}",
		otherID,
		"{service_id}",
		otherID,
		"{var_group_id}",
		otherID,
		"{environment}",
		"production",
		"{region_id}",
		"eu",
		"{id}",
		"d_1",
		"{scope}",
		"eu-1",
		"{$}",
		"",
	)
	for n := range list {
		list[n].path = values.Replace(list[n].path)
	}
	require.Greater(t, len(list), 50)
	return list
}

// TestEveryRefusalHasALineThatSaysWhy asks every route of the program for each thing that
// it refuses.
func TestEveryRefusalHasALineThatSaysWhy(t *testing.T) {
	p := serveProcess(t, binary(t), "--listen", "127.0.0.1:0", "--metrics-bind-address", "127.0.0.1:0",
		"--database", filepath.Join(t.TempDir(), "db"), "--admin-token-file", writeFile(t, adminToken))
	base := "http://" + p.address
	create := func(path, body string) string {
		status, answer := request(t, http.DefaultClient, http.MethodPut, base+"/api/v1/admin/"+path, adminToken, body)
		require.Equal(t, http.StatusCreated, status, answer)
		var created struct{ Token string }
		require.NoError(t, json.Unmarshal([]byte(answer), &created))
		return created.Token
	}
	clusterToken, regionToken := create("clusters/"+clusterID, `{"region":"nyc3"}`), create("regions/eu", `{"name":"eu-1","platform":"aws"}`)

	refused := func(what, method, path, token, body string, statuses ...int) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, base+path, strings.NewReader(body))
		require.NoError(t, err)
		if token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		if !strings.HasPrefix(path, "/api/v1/scopes/") {
			r.Header.Set("X-Krane-Region", "eu-1")
		}
		r.Header.Set("Content-Type", "application/json")
		response, err := (&http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}).Do(r)
		require.NoError(t, err)
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		at := fmt.Sprintf("%s: %s %s: %d %s", what, method, path, response.StatusCode, text)
		require.Contains(t, statuses, response.StatusCode, at)
		line := strings.TrimSuffix(string(text), "\n")
		require.NotEmpty(t, line, at)
		require.NotContains(t, line, "\n", at)
		switch kind := response.Header.Get("Content-Type"); kind {
		case "application/json":
			var said struct {
				Message string
				Error   struct{ Code, Message string }
			}
			require.NoError(t, json.Unmarshal(text, &said), at)
			require.NotEmpty(t, said.Message+said.Error.Message, at)
		case "text/plain; charset=utf-8":
			require.NotEqual(t, '{', rune(line[0]), at)
		default:
			t.Errorf("%s: its type is %q", at, kind)
		}
		if response.StatusCode == http.StatusMethodNotAllowed {
			require.NotEmpty(t, response.Header.Get("Allow"), at)
		}
		if response.StatusCode == http.StatusUnauthorized && !strings.HasPrefix(path, "/ctrl.v1.") && !strings.HasPrefix(path, "/grpc.") {
			require.Equal(t, "Bearer", response.Header.Get("WWW-Authenticate"), at)
		}
	}
	large := strings.Repeat(" ", 8<<20) + "{}"
	for _, r := range allRoutes(t) {
		token, api := "", strings.HasPrefix(r.path, "/api/v1/")
		rpc := strings.HasPrefix(r.path, "/ctrl.v1.") || strings.HasPrefix(r.path, "/grpc.")
		switch {
		case strings.HasPrefix(r.path, "/api/v1/admin/"):
			token = adminToken
		case strings.HasPrefix(r.path, "/api/v1/clusters/"), r.path == agenttoken.Path:
			token = clusterToken
		case rpc, strings.HasPrefix(r.path, "/api/v1/scopes/"):
			token = regionToken
		}
		if token != "" {
			refused("no token", r.method, r.path, "", "", 401)
			refused("another token", r.method, r.path, "no-one-has-this-token", "", 401)
			refused("unknown path", r.method, r.path+"/none/none/none/none", token, "", 404, 505) // 505: reflection, which is a stream
		}
		refused("wrong method", "PATCH", r.path, token, "", 405, 505)
		if r.path == agenttoken.Path { // it reads no body
			refused("no end", r.method, r.path, token, "{", 409)
		} else if api && (r.method == http.MethodPut || r.method == http.MethodPost) {
			refused("bad JSON", r.method, r.path, token, "{", 400)
			refused("too large", r.method, r.path, token, large, 413)
		}
		if rpc {
			refused("bad JSON", r.method, r.path, token, "{", 400, 415, 505)
			refused("too large", r.method, r.path, token, large, 415, 429, 505)
		}
	}
	status, page := request(t, http.DefaultClient, http.MethodGet, base+"/status", adminToken, "")
	require.Equal(t, http.StatusOK, status)
	require.Contains(t, page, `id="change-log"`)
	refused("unknown path", "GET", "/none", "", "", 404)
	refused("unknown path", "GET", "/api/v1/none", "", "", 404)
	refused("unknown path", "GET", "/status/none", adminToken, "", 404)
	refused("unknown RPC", "POST", "/ctrl.v1.ClusterService/None", regionToken, "{}", 404)
	refused("an id that is none", "GET", "/api/v1/admin/clusters/none", adminToken, "", 400)
	refused("what there is not", "GET", "/api/v1/admin/clusters/"+otherID, adminToken, "", 404)
	refused("the token of another", "GET", "/api/v1/clusters/"+otherID+"/desired-state", clusterToken, "", 403)
	refused("the page with another token", "GET", "/status", "no-one-has-this-token", "", 401)
	refused("login with another token", "POST", "/status/login", "", "token=none", 401)
	refused("a header that is too large", "GET", "/healthz", strings.Repeat("x", 100<<10), "", 431)
	require.NoError(t, p.command.Process.Kill())
	<-p.ended
}

// TestWhatCanBeChangedCanBeRead finds for each route of the administration that changes
// something one that shows the object, and one that lists its kind.
func TestWhatCanBeChangedCanBeRead(t *testing.T) {
	t.Parallel()
	regionStore := &regions.Store{}
	api, err := clusters.New(clusters.Config{
		Store:       &clusters.Store{},
		Admins:      tokens.Only(adminToken),
		AdminRoutes: slices.Concat(regions.AdminRoutes(regionStore), audit.Routes(&audit.Log{})),
	})
	require.NoError(t, err)
	read := map[string]bool{}
	for _, r := range api.Routes() {
		if r.Method == http.MethodGet {
			read[r.Path] = true
		}
	}
	// Where what an action has changed is shown: it has no object of its own.
	shown := map[string]string{"/api/v1/admin/new-log-epoch": "/api/v1/admin/log"}
	changes := 0
	for _, r := range api.Routes() {
		if r.Method == http.MethodGet || !strings.HasPrefix(r.Path, adminapi.Prefix) {
			continue
		}
		changes++
		object := r.Path
		if r.Method == http.MethodPost {
			object = path.Dir(r.Path)
			if other, ok := shown[r.Path]; ok {
				object = other
			}
		}
		require.True(t, read[object], "%s %s: GET %s shows nothing", r.Method, r.Path, object)
		list := object
		for strings.HasSuffix(list, "}") {
			list = path.Dir(list)
		}
		require.True(t, read[list], "%s %s: GET %s lists nothing", r.Method, r.Path, list)
	}
	require.Greater(t, changes, 20)
}
