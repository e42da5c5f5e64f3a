package clusters_test

import (
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/api/starbase"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/edge/requestid"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/edge/tokens"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/front/openapi/openapitest"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/audit"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/clusters"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/db"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/regions"
	"github.com/seed-9e1ffd66/trueup/internal/test/logtest"
)

const (
	adminToken = "the-admin-token-of-the-tests"
	clusterA   = "aaaaaaaa-0000-4000-8000-000000000001"
	clusterB   = "bbbbbbbb-0000-4000-8000-000000000002"
	clusterC   = "cccccccc-0000-4000-8000-000000000003"
	workspace  = "22222222-2222-4222-8222-222222222222"
	projectX   = "33333333-3333-4333-8333-333333333331"
	projectY   = "33333333-3333-4333-8333-333333333332"
	projectZ   = "33333333-3333-4333-8333-333333333333"
	serviceX   = "44444444-4444-4444-8444-444444444444"
	serviceY   = "44444444-4444-4444-8444-444444444445"

	clustersPath = "/api/v1/admin/clusters"
	projectsPath = "/api/v1/admin/projects/"
	servicePath  = projectsPath + projectX + "/services/" + serviceX + "/production"

	projectBody = `{"cluster_id":"` + clusterA + `","workspace_id":"` + workspace + `","workspace_slug":"acme","slug":"shop"}`
	serviceBody = `{"image":"registry.example.com/shop:1","replicas":2,"env":{"MODE":"env-secret-value"},"ports":[{"container_port":8080}]}`
)

// world is a server on a real database, with two registered clusters.
type world struct {
	t        *testing.T
	path     string
	store    *clusters.Store
	url      string
	log      *logtest.Log
	registry *prometheus.Registry
	tokens   map[string]string
}

type answer struct {
	status int
	header http.Header
	body   string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{
		t:        t,
		path:     filepath.Join(t.TempDir(), "trueup.db"),
		log:      &logtest.Log{},
		registry: prometheus.NewRegistry(),
		tokens:   map[string]string{},
	}
	w.store = openEither(t, w.path)
	w.store.Keys = keys(t, "one")
	server, err := clusters.New(clusters.Config{
		Store:      w.store,
		Admins:     tokens.Only(adminToken),
		Registerer: w.registry,
		AdminRoutes: slices.Concat(
			regions.AdminRoutes(&regions.Store{Database: w.store.Database}),
			audit.Routes(&audit.Log{Database: w.store.Database}),
		),
		AdminConditions: regions.AdminConditions(),
		Logger:          slog.New(requestid.Logger(slog.NewJSONHandler(w.log, &slog.HandlerOptions{Level: slog.LevelDebug}))),
	})
	require.NoError(t, err)
	listener := httptest.NewServer(openapitest.Handler(t, server))
	t.Cleanup(listener.Close)
	w.url = listener.URL
	for _, id := range []string{clusterA, clusterB} {
		created := w.admin("PUT", clustersPath+"/"+id, `{"region":"nyc3"}`)
		require.Equal(t, 201, created.status, created.body)
		w.tokens[id] = created.text("token")
	}
	return w
}

func openStore(t *testing.T, path string) *clusters.Store {
	t.Helper()
	database, err := db.SQLite{Path: path}.Open(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, database.Close()) })
	return &clusters.Store{Database: database}
}

func (w *world) do(method, path, token, body string, header ...string) answer {
	w.t.Helper()
	request, err := http.NewRequestWithContext(w.t.Context(), method, w.url+path, strings.NewReader(body))
	require.NoError(w.t, err)
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	if body != "" {
		request.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(header); i += 2 {
		request.Header.Set(header[i], header[i+1])
	}
	response, err := http.DefaultClient.Do(request)
	require.NoError(w.t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	require.NoError(w.t, err)
	return answer{response.StatusCode, response.Header, string(text)}
}

func (w *world) admin(method, path, body string) answer {
	w.t.Helper()
	return w.do(method, path, adminToken, body)
}

// must is an admin request that has to succeed; it returns the generation.
func (w *world) must(method, path, body string) int64 {
	w.t.Helper()
	got := w.admin(method, path, body)
	require.Contains(w.t, []int{200, 201}, got.status, got.body)
	return got.number("generation")
}

// seed puts project X with service X on cluster A, which is then at
// generation 3.
func (w *world) seed() {
	w.t.Helper()
	w.must("PUT", projectsPath+projectX, projectBody)
	require.EqualValues(w.t, 3, w.must("PUT", servicePath, serviceBody))
}

// pull returns what the agent of the cluster is served; it verifies the body
// as an agent does.
func (w *world) pull(cluster string) *starbase.DesiredState {
	w.t.Helper()
	got := w.do("GET", "/api/v1/clusters/"+cluster+"/desired-state", w.tokens[cluster], "")
	require.Equal(w.t, 200, got.status, got.body)
	state, err := starbase.Decode(strings.NewReader(got.body), cluster)
	require.NoError(w.t, err)
	require.Equal(w.t, `"`+state.Version+`"`, got.header.Get("ETag"))
	return state
}

func (a answer) member(name string) any {
	var members map[string]any
	if json.Unmarshal([]byte(a.body), &members) != nil {
		return nil
	}
	return members[name]
}

func (a answer) text(name string) string {
	text, _ := a.member(name).(string)
	return text
}

func (a answer) number(name string) int64 {
	number, _ := a.member(name).(float64)
	return int64(number)
}

// failure returns the error of the answer.
func (a answer) failure(t *testing.T) starbase.ErrorDetail {
	t.Helper()
	var body starbase.ErrorBody
	decoder := json.NewDecoder(strings.NewReader(a.body))
	decoder.DisallowUnknownFields()
	require.NoError(t, decoder.Decode(&body), a.body)
	require.NotEmpty(t, body.Error.Code)
	require.NotEmpty(t, body.Error.Message)
	require.Equal(t, "application/json", a.header.Get("Content-Type"))
	return body.Error
}
