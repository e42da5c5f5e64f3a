package statuspage_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/api/starbase"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/edge/tokens"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/front/statuspage"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/clusters"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/db"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/regions"
	"github.com/seed-9e1ffd66/trueup/internal/test/logtest"
	"github.com/seed-9e1ffd66/trueup/internal/test/pgtest"
	"github.com/seed-9e1ffd66/trueup/statesync"
)

const (
	adminToken = "the-admin-token-of-the-tests"
	clusterA   = "aaaaaaaa-0000-4000-8000-000000000001"
	clusterB   = "bbbbbbbb-0000-4000-8000-000000000002"
	clusterC   = "cccccccc-0000-4000-8000-000000000003"
	clusterD   = "dddddddd-0000-4000-8000-000000000004"
	workspace  = "22222222-2222-4222-8222-222222222222"
	evil       = `<script>alert(1)</script>"'&` + "\r\ndata: {}\r\n\r\n\u202e"
)

// site is a control plane, reached over HTTP alone.
type site struct {
	t      *testing.T
	url    string
	tokens map[string]string
}

// call sends JSON and returns the answer, which must be a success.
func (s *site) call(method, path, token string, body any) map[string]any {
	s.t.Helper()
	encoded, err := json.Marshal(body)
	require.NoError(s.t, err)
	r, err := http.NewRequestWithContext(s.t.Context(), method, s.url+path, bytes.NewReader(encoded))
	require.NoError(s.t, err)
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("X-Krane-Region", "eu-1")
	r.Header.Set("X-Krane-Cell", "cell-a")
	response, err := http.DefaultClient.Do(r)
	require.NoError(s.t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	require.NoError(s.t, err)
	require.Less(s.t, response.StatusCode, 300, "%s %s: %s", method, path, text)
	var answer map[string]any
	if len(text) > 0 {
		require.NoError(s.t, json.Unmarshal(text, &answer))
	}
	return answer
}

func (s *site) admin(method, path string, body any) map[string]any {
	s.t.Helper()
	return s.call(method, "/api/v1/admin/"+path, adminToken, body)
}

// id returns the id of a project or service of the cluster.
func id(clusterID string, n int) string {
	return fmt.Sprintf("%s-0000-4000-8000-%012d", clusterID[:8], n)
}

func servicePath(clusterID string, n int) string {
	return "projects/" + id(clusterID, 100) + "/services/" + id(clusterID, n) + "/production"
}

// register makes a cluster with so many services.
func (s *site) register(clusterID, region string, services int) {
	s.t.Helper()
	s.tokens[clusterID], _ = s.admin("PUT", "clusters/"+clusterID, map[string]any{"region": region})["token"].(string)
	s.admin(
		"PUT",
		"projects/"+id(clusterID, 100),
		map[string]any{"cluster_id": clusterID, "workspace_id": workspace, "workspace_slug": "acme", "slug": "shop"},
	)
	for n := range services {
		s.admin("PUT", servicePath(clusterID, n), map[string]any{"image": "registry.example.com/shop:1", "replicas": 2})
	}
}

// report pulls the state and reports of each service its phase in phases, in order: a
// phase, an error class and a message.
func (s *site) report(clusterID string, phases ...[3]string) {
	s.t.Helper()
	state := s.call("GET", "/api/v1/clusters/"+clusterID+"/desired-state", s.tokens[clusterID], nil)
	services := []map[string]any{}
	for n, phase := range phases {
		if phase[0] != "" {
			services = append(services, map[string]any{
				"project_id": id(clusterID, 100), "environment": "production", "service_id": id(clusterID, n),
				"phase": phase[0], "error_class": phase[1], "message": phase[2],
			})
		}
	}
	s.call("POST", "/api/v1/clusters/"+clusterID+"/status", s.tokens[clusterID], map[string]any{
		"epoch": state["epoch"], "generation": state["generation"], "instance_id": "i", "complete": true, "services": services,
	})
}

// hold reports that the agent holds two deletions for an approval.
func (s *site) hold(clusterID string) {
	s.t.Helper()
	state := s.call("GET", "/api/v1/clusters/"+clusterID+"/desired-state", s.tokens[clusterID], nil)
	s.call("POST", "/api/v1/clusters/"+clusterID+"/status", s.tokens[clusterID], map[string]any{
		"epoch": state["epoch"], "generation": state["generation"], "instance_id": "i", "services": []any{},
		"held_deletions": map[string]any{"digest": "held-1", "count": 2, "units": []map[string]any{
			{"unit": "service shop", "objects": 6, "reason": evil}, {"unit": "service web", "objects": 6, "reason": "absent"},
		}},
	})
}

func (s *site) capacity(clusterID string, pods int, at time.Time) {
	s.t.Helper()
	s.call("POST", "/api/v1/clusters/"+clusterID+"/capacity", s.tokens[clusterID], map[string]any{
		"cluster_id": clusterID, "current_pod_count": pods, "soft_limit": 1000, "timestamp": at.UTC().Format(time.RFC3339),
	})
}

// bill sends billing records of so many pods of a cluster about a minute.
func (s *site) bill(clusterID string, pods int, at time.Time) {
	s.t.Helper()
	list := make([]starbase.Snapshot, pods)
	for n := range list {
		list[n] = starbase.Snapshot{
			WorkspaceID: id(
				clusterID,
				200,
			),
			ProjectID:         id(clusterID, 100),
			Environment:       "production",
			ServiceID:         id(clusterID, 1),
			PodID:             fmt.Sprintf("pod-%d", n),
			Tier:              "nova",
			Phase:             "Running",
			ClusterID:         clusterID,
			SnapshotTimestamp: at.UTC().Format(time.RFC3339),
			CPUMillis:         250,
			MemoryBytes:       512 << 20,
		}
		list[n].SnapshotID = list[n].ID()
	}
	s.call("POST", "/api/v1/clusters/"+clusterID+"/snapshots", s.tokens[clusterID], map[string]any{"snapshots": list})
}

// seed makes four clusters and two regions, each in another state.
func (s *site) seed() {
	s.t.Helper()
	healthy := [3]string{"Healthy"}
	s.register(clusterA, "nyc3", 4)
	s.report(clusterA, healthy, healthy, healthy, [3]string{"Progressing"})
	s.register(clusterB, "fra1", 3)
	s.report(
		clusterB,
		healthy,
		[3]string{"Rejected", "NameTaken", evil},
		[3]string{"Failed", "RolloutStuck", "2 of 3 pods wait for an image that cannot be pulled"},
	)
	s.register(clusterC, "sgp1", 3)
	s.report(clusterC, healthy, healthy, healthy)
	s.admin("DELETE", servicePath(clusterC, 2), nil)
	s.report(clusterC, healthy, healthy, [3]string{"Failed", "DeletionHeld", "7 objects are not deleted: more at once than the limit allows"})
	s.hold(clusterC)
	s.admin("PUT", "clusters/"+clusterC+"/config", map[string]any{"lb_size_units": 3})
	s.register(clusterD, "lon1", 1)

	s.tokens["eu"], _ = s.admin("PUT", "regions/reg_eu", map[string]any{"name": "eu-1", "platform": "aws"})["token"].(string)
	s.admin("PUT", "regions/reg_us", map[string]any{"name": "us-1", "platform": "gcp"})
	for n := range 3 {
		s.admin("PUT", fmt.Sprintf("regions/reg_eu/deployments/d_%d", n), map[string]any{"desired_state": "running", "spec": map[string]any{
			"k8s_namespace":  "ws",
			"k8s_name":       fmt.Sprintf("app-%d", n),
			"workspace_id":   "ws_1",
			"project_id":     "prj_1",
			"app_id":         "app_1",
			"environment_id": "env_1",
			"image":          "app:1",
			"cpu_millicores": "250",
			"memory_mib":     "256",
			"port":           8080,
		}})
	}
	s.call("POST", "/ctrl.v1.ClusterService/Heartbeat", s.tokens["eu"], map[string]any{})
	s.call(
		"POST",
		"/ctrl.v1.ClusterService/ReportDeploymentStatus",
		s.tokens["eu"],
		map[string]any{"update": map[string]any{"k8s_name": "app-0", "instances": []map[string]any{
			{
				"k8s_name": "app-0-a",
				"status":   "STATUS_RUNNING",
			},
			{"k8s_name": "app-0-b", "status": "STATUS_RUNNING"},
			{"k8s_name": "app-0-c", "status": "STATUS_PENDING"},
			{
				"k8s_name": "app-0-d",
				"status":   "STATUS_FAILED",
				"reason":   "container web was restarted 7 times: " + evil[:25] + "\u202e",
				"restarts": 7,
			},
		}}},
	)
}

// fill reports a day of capacity of clusters A and B, and bills an hour of them.
func (s *site) fill() {
	s.t.Helper()
	const step = 20
	now := time.Now()
	for minutes := 24 * 60; minutes >= 0; minutes -= step {
		at := now.Add(-time.Duration(minutes) * time.Minute)
		wave := math.Sin(float64(minutes) / 24 / 60 * 2 * math.Pi)
		s.capacity(clusterA, 312-int(120*wave), at)
		if minutes < 9*60 || minutes > 12*60 {
			s.capacity(clusterB, 860-minutes/4, at)
		}
	}
	for minutes := 50; minutes >= 1; minutes-- {
		at := now.Truncate(time.Minute).Add(-time.Duration(minutes) * time.Minute)
		s.bill(clusterA, 300+minutes%7, at)
		if minutes < 20 || minutes > 23 {
			s.bill(clusterB, 80+2*(minutes/10), at)
		}
	}
}

// world is a site in this process.
type world struct {
	*site
	database *db.Database
	page     *statuspage.Page
	log      *logtest.Log
	registry *prometheus.Registry
	stop     func()
}

// each runs test on both databases.
func each(t *testing.T, config statuspage.Config, test func(w *world)) {
	t.Helper()
	t.Run("SQLite", func(t *testing.T) {
		database, err := db.SQLite{Path: filepath.Join(t.TempDir(), "trueup.db")}.Open(t.Context())
		require.NoError(t, err)
		test(newWorld(t, database, config))
	})
	t.Run("PostgreSQL", func(t *testing.T) {
		database, err := db.PostgreSQL{URL: pgtest.NewDatabase(t)}.Open(t.Context())
		require.NoError(t, err)
		test(newWorld(t, database, config))
	})
}

// small opens a world on a file, for what does not depend on the database.
func small(t *testing.T, config statuspage.Config) *world {
	t.Helper()
	database, err := db.SQLite{Path: filepath.Join(t.TempDir(), "trueup.db")}.Open(t.Context())
	require.NoError(t, err)
	return newWorld(t, database, config)
}

func newWorld(t *testing.T, database *db.Database, config statuspage.Config) *world {
	t.Helper()
	w := &world{site: &site{t: t, tokens: map[string]string{}}, database: database, log: &logtest.Log{}, registry: prometheus.NewRegistry()}
	logger := slog.New(slog.NewJSONHandler(w.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	feed := &statesync.Server{Log: database.Log}
	agents, err := regions.New(regions.Config{Database: database, Feed: feed, Logger: logger})
	require.NoError(t, err)
	api, err := clusters.New(clusters.Config{
		Store: &clusters.Store{Database: database}, Admins: tokens.Only(adminToken), Logger: logger,
		AdminRoutes: regions.AdminRoutes(&regions.Store{Database: database}), AdminConditions: regions.AdminConditions(),
	})
	require.NoError(t, err)
	config.Database, config.Admins, config.Logger = database, tokens.Only(adminToken), logger
	config.Registerer, config.Streams = w.registry, agents.Streams
	if config.StateBytes == nil {
		config.StateBytes = api.StateBytes
	}
	page, err := statuspage.New(config)
	require.NoError(t, err)
	w.page = page
	mux := http.NewServeMux()
	agents.Mount(mux)
	mux.Handle(statuspage.Root, page)
	mux.Handle(statuspage.Path, page)
	mux.Handle(statuspage.Path+"/", page)
	mux.Handle("/", api)
	web := httptest.NewServer(mux)
	w.url = web.URL
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var group sync.WaitGroup
	for _, start := range []func(context.Context) error{database.Log.Start, feed.Start, page.Start} {
		group.Go(func() {
			if err := start(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	w.stop = sync.OnceFunc(func() {
		cancel()
		group.Wait()
	})
	t.Cleanup(func() {
		w.stop()
		web.Close()
		require.NoError(t, database.Close())
	})
	return w
}
