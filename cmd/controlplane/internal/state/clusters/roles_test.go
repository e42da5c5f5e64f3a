package clusters_test

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/edge/second"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/edge/tokens"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/front/openapi/openapitest"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/audit"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/clusters"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/db"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/regions"
)

// holders are administrators whose tokens are in a file, by name.
type holders struct {
	w       *world
	server  *clusters.Server
	handler http.Handler
	secret  map[string]string
	// twoPeople are the actions that need two.
	twoPeople []string
}

func newHolders(t *testing.T, lines map[string]string, twoPeople ...string) *holders {
	t.Helper()
	w := newWorld(t)
	h := &holders{w: w, secret: map[string]string{}, twoPeople: twoPeople}
	var content strings.Builder
	for name, settings := range lines {
		h.secret[name], _ = tokens.New()
		content.WriteString("name=" + name + " " + settings + " " + h.secret[name] + "\n")
	}
	path := filepath.Join(t.TempDir(), "tokens")
	require.NoError(t, os.WriteFile(path, []byte(content.String()), 0o600))
	file := &tokens.File{Path: path, Logger: slog.New(slog.DiscardHandler)}
	require.NoError(t, file.Read(t.Context()))
	uses := &tokens.Uses{Database: w.store.Database, Logger: slog.New(slog.DiscardHandler)}
	var err error
	h.server, err = clusters.New(clusters.Config{
		Store:           w.store,
		Admins:          file.Admins,
		Used:            uses,
		Second:          &second.Person{Database: w.store.Database, Admins: file.Admins, Actions: h.twoPeople},
		AdminConditions: regions.AdminConditions(),
		AdminRoutes: slices.Concat(
			regions.AdminRoutes(&regions.Store{Database: w.store.Database}),
			audit.Routes(&audit.Log{Database: w.store.Database}),
			tokens.Routes(file.Admins, uses),
		),
	})
	require.NoError(t, err)
	h.handler = openapitest.Handler(t, h.server)
	return h
}

func (h *holders) ask(name, method, path, body string) *httptest.ResponseRecorder {
	r := httptest.NewRequestWithContext(h.w.t.Context(), method, path, strings.NewReader(body))
	r.Header.Set("Authorization", "Bearer "+h.secret[name])
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	answer := httptest.NewRecorder()
	h.handler.ServeHTTP(answer, r)
	return answer
}

// TestEachRoleHasItsRoutes asks every route of the administration as each role. What a role
// may is said here once more, by paths.
func TestEachRoleHasItsRoutes(t *testing.T) {
	t.Parallel()
	h := newHolders(t, map[string]string{
		"chief": "",
		"wall":  "role=reader",
		"here":  "role=operator projects=" + projectX + " regions=eu",
		"there": "role=operator projects=" + projectY + " regions=us",
		"every": "role=operator projects=*",
	})
	values := strings.NewReplacer("{cluster_id}", clusterC, "{project_id}", projectX, "{service_id}", serviceX, "{environment}", "production",
		"{var_group_id}", serviceY, "{region_id}", "eu", "{id}", "d_1")
	ofProject, ofRegion := regexp.MustCompile(
		`^/api/v1/admin/projects/\{project_id\}`,
	), regexp.MustCompile(
		`^/api/v1/admin/regions/\{region_id\}/(deployments|sentinels|policies)/`,
	)
	refused := map[string]int{}
	for _, route := range h.server.Routes() {
		if !strings.HasPrefix(route.Path, "/api/v1/admin/") {
			continue
		}
		looks := route.Method == http.MethodGet && route.Path != "/api/v1/admin/tokens"
		// Who pays for a project, and its quota, limits and egress, bound its operators.
		inProject := ofProject.MatchString(route.Path) && route.Operation.Name != "putProject"
		may := map[string]bool{
			"chief": true, "wall": looks, "here": looks || inProject || ofRegion.MatchString(route.Path),
			"there": looks, "every": looks || inProject,
		}
		for _, name := range []string{"wall", "there", "every", "here", "chief"} {
			answer := h.ask(name, route.Method, values.Replace(route.Path), "")
			at := name + " " + route.Method + " " + route.Path + ": " + answer.Body.String()
			require.NotEqual(t, http.StatusUnauthorized, answer.Code, at)
			require.Equal(t, may[name], answer.Code != http.StatusForbidden, at)
			if !may[name] {
				refused[name]++
				require.Contains(t, answer.Body.String(), `"code":"forbidden","message":"admin/`+name+` has the role `, at)
				require.Contains(t, answer.Body.String(), route.Operation.Name+" needs the role ", at)
			}
		}
	}
	require.Greater(t, refused["here"], 10)
	require.Greater(t, refused["wall"], refused["here"])
	require.Zero(t, refused["chief"])
	entries := h.ask("chief", "GET", "/api/v1/admin/audit?actor=admin/wall&log=changes", "")
	require.JSONEq(t, `{"entries":[]}`, entries.Body.String(), "what was refused has changed nothing")
}

// TestAnOperatorChangesItsProject changes things, and a project of others.
func TestAnOperatorChangesItsProject(t *testing.T) {
	t.Parallel()
	h := newHolders(t, map[string]string{"here": "role=operator projects=" + projectX, "chief": ""})
	require.Equal(t, 403, h.ask("here", "PUT", projectsPath+projectX, projectBody).Code, "who pays is not his to say")
	require.Equal(t, 201, h.ask("chief", "PUT", projectsPath+projectX, projectBody).Code)
	require.Equal(t, 201, h.ask("here", "PUT", servicePath, serviceBody).Code)
	require.Equal(t, 403, h.ask("here", "PUT", projectsPath+projectY, projectBody).Code)
	answer := h.ask("here", "POST", clustersPath+"/"+clusterA+"/rotate-token", "")
	require.Equal(t, 403, answer.Code)
	require.Contains(t, answer.Body.String(), "admin/here has the role operator and may change the projects "+projectX+
		"; rotateClusterToken needs the role administrator")
	require.Contains(t, h.ask("here", "GET", "/api/v1/admin/audit?object=service", "").Body.String(), `"actor":"admin/here"`)
}

// TestTheTokensOfAdministratorsAreListed lists the holders and the last use of each token.
func TestTheTokensOfAdministratorsAreListed(t *testing.T) {
	t.Parallel()
	const path = "/api/v1/admin/tokens"
	h := newHolders(t, map[string]string{
		"chief": "expires=2999-01-31", "gone": "expires=2001-01-31", "wall": "role=reader",
	})
	type token struct {
		Actor, Role string
		Expired     bool
		ExpiresAt   time.Time `json:"expires_at"`
		LastUsedAt  time.Time `json:"last_used_at"`
	}
	list := func() map[string]token {
		answer := h.ask("chief", "GET", path, "")
		require.Equal(t, 200, answer.Code, answer.Body)
		for _, secret := range h.secret {
			require.NotContains(t, answer.Body.String(), secret)
		}
		var body struct{ Tokens []token }
		require.NoError(t, json.Unmarshal(answer.Body.Bytes(), &body))
		found := map[string]token{}
		for _, one := range body.Tokens {
			found[one.Actor] = one
		}
		return found
	}
	before := time.Now().Add(-time.Second)
	require.Zero(t, list()["admin/wall"].LastUsedAt)
	require.Equal(t, 200, h.ask("wall", "GET", clustersPath, "").Code)
	now := list()
	require.True(t, now["admin/wall"].LastUsedAt.After(before))
	require.True(t, now["admin/chief"].LastUsedAt.After(before))
	require.Equal(t, "reader", now["admin/wall"].Role)
	require.Equal(t, "2999-02-01", now["admin/chief"].ExpiresAt.Format(time.DateOnly))

	expired := h.ask("gone", "GET", clustersPath, "")
	require.Equal(t, 401, expired.Code)
	require.Contains(t, expired.Body.String(), `"code":"token_expired","message":"the token has expired, at 2001-02-01T00:00:00Z"`)
	require.Equal(t, "Bearer", expired.Header().Get("WWW-Authenticate"))
	require.True(t, list()["admin/gone"].Expired)
	require.Zero(t, list()["admin/gone"].LastUsedAt, "it opens nothing")
}

// TestTwoPeopleAbandonACluster asks for it alone, twice, and then with another.
func TestTwoPeopleAbandonACluster(t *testing.T) {
	t.Parallel()
	h := newHolders(t, map[string]string{"alice": "", "bob": "", "wall": "role=reader"}, second.Actions()...)
	require.Equal(t, 201, h.ask("alice", "PUT", clustersPath+"/"+clusterC, `{"region":"nyc3"}`).Code)
	abandon := func(name string) *httptest.ResponseRecorder {
		return h.ask(name, "DELETE", clustersPath+"/"+clusterC+"?abandon=true", "")
	}
	first := abandon("alice")
	require.Equal(t, 202, first.Code)
	require.Contains(t, first.Body.String(), `"first":"admin/alice"`)
	again := abandon("alice")
	require.Equal(t, 409, again.Code)
	require.Contains(t, again.Body.String(), "same_person")
	require.Equal(t, 403, abandon("wall").Code)
	require.Equal(t, 200, h.ask("wall", "GET", clustersPath+"/"+clusterC, "").Code, "it is there")
	require.Equal(t, 204, abandon("bob").Code)
	require.Equal(t, 404, h.ask("wall", "GET", clustersPath+"/"+clusterC, "").Code)
	entries := h.ask("bob", "GET", "/api/v1/admin/audit?object=cluster/"+clusterC, "").Body.String()
	require.Contains(t, entries, `"actor":"admin/alice","from":"192.0.2.1","verb":"ask-abandon"`)
	require.Contains(t, entries, `"actor":"admin/bob","from":"192.0.2.1","verb":"abandon"`)

	require.Equal(t, 201, h.ask("alice", "PUT", clustersPath+"/"+clusterC, `{"region":"nyc3"}`).Code)
	// What is wrong is no first request.
	for path, want := range map[string]string{
		clustersPath + "/" + clusterC + "/allow-mass-delete": "other_deletions",
		clustersPath + "/" + projectX + "/allow-mass-delete": "unknown_cluster",
		clustersPath + "/" + projectX + "/new-epoch":         "unknown_cluster",
		clustersPath + "/none/new-epoch":                     "invalid",
		"/api/v1/admin/regions/none/allow-mass-delete":       "unknown_region",
		"/api/v1/admin/new-log-epoch?now=true":               "invalid",
	} {
		body := `{"digest":"none"}`
		if strings.HasSuffix(path, "epoch") {
			body = ""
		}
		answer := h.ask("alice", "POST", path, body)
		require.Contains(t, answer.Body.String(), want, path)
		require.Greater(t, answer.Code, 399, path)
	}
	require.Equal(t, 404, h.ask("alice", "DELETE", clustersPath+"/"+projectX+"?abandon=true", "").Code)
	require.Equal(t, 400, h.ask("alice", "DELETE", clustersPath+"/"+clusterC+"?abandon=true&x=1", "").Code)
	require.Equal(t, 201, h.ask("alice", "PUT", "/api/v1/admin/regions/eu", `{"name":"eu-1","platform":"aws"}`).Code)
	nothing := h.ask("alice", "POST", "/api/v1/admin/regions/eu/allow-mass-delete", `{"digest":"none"}`)
	require.Equal(t, 409, nothing.Code)
	require.Contains(t, nothing.Body.String(), "other_deletions")
	require.Equal(t, 202, h.ask("alice", "DELETE", "/api/v1/admin/regions/eu?abandon=true", "").Code)
	require.Equal(t, 204, h.ask("bob", "DELETE", "/api/v1/admin/regions/eu?abandon=true", "").Code)
	require.Contains(
		t,
		h.ask("bob", "GET", "/api/v1/admin/audit?object=region/eu", "").Body.String(),
		`"verb":"ask-abandon","kind":"region","name":"eu"`,
	)
	require.Equal(t, 202, h.ask("alice", "POST", clustersPath+"/"+clusterC+"/new-epoch", "").Code)
	require.Equal(t, 200, h.ask("bob", "POST", clustersPath+"/"+clusterC+"/new-epoch", " { } ").Code, "no body is an empty one")
	require.Equal(t, 202, h.ask("alice", "POST", "/api/v1/admin/new-log-epoch", "").Code)
	require.Equal(t, 204, h.ask("alice", "DELETE", clustersPath+"/"+clusterC, "").Code, "an empty one needs no second")
}

// TestTheLastUseIsStoredEveryTenMinutes counts the writes.
func TestTheLastUseIsStoredEveryTenMinutes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	stored := func() (at int64) {
		require.NoError(t, w.store.Database.Read(t.Context(), func(tx *db.Tx) error {
			return tx.QueryRowContext(t.Context(), `SELECT coalesce(max(used_at), 0) FROM admin_token_uses`).Scan(&at)
		}))
		return at
	}
	uses := &tokens.Uses{Database: w.store.Database, Logger: slog.New(slog.DiscardHandler)}
	admin := tokens.Only(adminToken)()[0]
	uses.Note(t.Context(), admin)
	first := stored()
	require.NotZero(t, first)
	time.Sleep(2 * time.Millisecond)
	uses.Note(t.Context(), admin)
	require.Equal(t, first, stored(), "it is too early")
	again := &tokens.Uses{Database: w.store.Database, Logger: slog.New(slog.DiscardHandler)}
	again.Note(t.Context(), admin)
	require.Greater(t, stored(), first, "another process does not know")
}
