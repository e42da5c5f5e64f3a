package openapi_test

import (
	"encoding/json"
	"io"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/seed-9e1ffd66/trueup/cmd/api/agenttoken"
	"github.com/seed-9e1ffd66/trueup/cmd/api/starbase"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/controlplanetest"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/edge/oidcauth"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/edge/tokens"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/front/adminapi"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/keyring"
)

func protoName(name string) protoreflect.Name { return protoreflect.Name(name) }

// exchange is an example: a request and its answer.
type exchange struct {
	body, answer any
	status       int
	// required are the members that an empty body lacks.
	required []string
}

// exchanges asks a control plane once for each route, and returns what it answered, by
// method and path of the route.
func exchanges(t *testing.T) map[string]exchange {
	t.Helper()
	keys, err := keyring.Parse("one " + strings.Repeat("A", 43) + "=\n")
	require.NoError(t, err)
	people, err := oidcauth.New(oidcauth.Config{
		Issuer: "https://login.example.com/realms/company", ClientID: "trueup", Groups: &tokens.GroupFile{},
	})
	require.NoError(t, err)
	plane := controlplanetest.Start(t, controlplanetest.Options{
		Source: filepath.Join(t.TempDir(), "db"), Keys: keys, People: people, TokenLifetime: 30 * 24 * time.Hour,
	})
	const (
		cluster = "0b8a3c52-9f0e-4c35-8a77-3d1f2f9c5a10"
		project = "5f0c7c1e-2a61-4f0e-9a43-6f7f0f3a1b22"
		service = "c1d2e3f4-0a1b-4c2d-8e3f-4a5b6c7d8e9f"
		group   = "7a6b5c4d-3e2f-4a1b-9c8d-7e6f5a4b3c2d"
		ids     = `"workspace_id":"ws_1","project_id":"prj_1","app_id":"app_1","environment_id":"env_1",`
		digest  = "sha256:5e884898da28047151d0e56f8dc62927"
	)
	values := map[string]string{
		"{cluster_id}": cluster, "{project_id}": project, "{service_id}": service, "{environment}": "production",
		"{var_group_id}": group, "{region_id}": "eu", "{id}": "d_1", "{scope}": "eu-1.aws",
	}
	credentials := map[string]string{"/api/v1/admin/": controlplanetest.AdminToken}
	var epoch string
	found := map[string]exchange{}
	do := func(method, path, body string) object {
		t.Helper()
		at := path
		if !strings.HasPrefix(path, "/") {
			at = adminapi.Prefix + path
		}
		to := parameter.ReplaceAllStringFunc(at, func(name string) string { return values[name] })
		r, err := http.NewRequestWithContext(t.Context(), method, "http://"+plane.Address+to, strings.NewReader(body))
		require.NoError(t, err)
		if body != "" {
			r.Header.Set("Content-Type", "application/json")
		}
		if strings.HasPrefix(at, "/ctrl.v1.") {
			r.Header.Set("X-Krane-Region", values["{scope}"])
		}
		for prefix, token := range credentials {
			if strings.HasPrefix(at, prefix) {
				r.Header.Set("Authorization", "Bearer "+token)
			}
		}
		answer, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		require.Less(t, answer.StatusCode, 300, "%s %s: %s", method, at, text)
		e := exchange{status: answer.StatusCode}
		var said object
		if kind, _, _ := strings.Cut(answer.Header.Get("Content-Type"), ";"); kind == "text/csv" {
			e.answer = string(text)
		} else if len(text) > 0 {
			require.NoError(t, json.Unmarshal(text, &said), "%s %s", method, at)
			var shown any
			require.NoError(t, json.Unmarshal(text, &shown))
			e.answer = fixed(shown)
		}
		if body != "" {
			require.NoError(t, json.Unmarshal([]byte(body), &e.body))
			e.body = fixed(e.body)
		}
		if body != "" && strings.HasPrefix(at, adminapi.Prefix) {
			e.required = lacking(t, r)
		}
		route := method + " " + regexp.MustCompile(`\?.*`).ReplaceAllString(at, "")
		if _, ok := found[route]; !ok {
			found[route] = e
		}
		return said
	}
	text := func(o object, name string) string {
		t.Helper()
		value, _ := o[name].(string)
		require.NotEmpty(t, value, "%v has no %s", o, name)
		return value
	}

	credentials["/api/v1/clusters/"] = text(do("PUT", "clusters/{cluster_id}", `{"region":"nyc3"}`), "token")
	credentials[agenttoken.Path] = credentials["/api/v1/clusters/"]
	do("POST", agenttoken.Path, "")
	do("PUT", "clusters/{cluster_id}/config", `{"lb_size_units":2}`)
	do("GET", "clusters/{cluster_id}/config", "")
	do("PUT", "projects/{project_id}", `{"cluster_id":"`+cluster+`","workspace_id":"22222222-2222-4222-8222-222222222222",`+
		`"workspace_slug":"acme","slug":"shop","quota":{"requests.cpu":"8"}}`)
	do("PUT", "projects/{project_id}/services/{service_id}/{environment}",
		`{"service_name":"web","image":"registry.example.com/shop:1","replicas":2,"env":{"MODE":"fast"},"ports":[{"container_port":8080}]}`)
	do("PUT", "projects/{project_id}/var-groups/{var_group_id}", `{"name":"mail","entries":[`+
		`{"key":"HOST","value":"smtp.example.com","secret":false},{"key":"PASSWORD","value":"example","secret":true}]}`)
	do("PUT", "projects/{project_id}/services/{service_id}/{environment}/var-groups", `{"var_groups":["`+group+`"]}`)
	epoch = text(do("GET", "/api/v1/clusters/{cluster_id}/desired-state", ""), "epoch")
	do("GET", "/api/v1/clusters/{cluster_id}/scopes/desired-state/items?limit=1", "")
	do("POST", "/api/v1/clusters/{cluster_id}/status", `{"epoch":"`+epoch+`","generation":2,"instance_id":"shuttle-0",`+
		`"services":[{"project_id":"`+project+`","environment":"production","service_id":"`+service+`","observed_generation":2,"phase":"Healthy","ready":2,"desired":2}],`+
		`"held_deletions":{"digest":"`+digest+`","count":1,"units":[{"unit":"project `+project+`","objects":6,"reason":"absent"}]}}`)
	now := time.Now().UTC().Truncate(time.Minute)
	do("POST", "/api/v1/clusters/{cluster_id}/capacity",
		`{"cluster_id":"`+cluster+`","current_pod_count":412,"soft_limit":800,"timestamp":"`+now.Format(time.RFC3339)+`"}`)
	then, pod := now.Truncate(24*time.Hour).Add(-12*time.Hour), starbase.Snapshot{
		WorkspaceID: "22222222-2222-4222-8222-222222222222", ProjectID: project, Environment: "production", ServiceID: service,
		PodID: "d6a6b3c1", Tier: "nova", Phase: "Running", ClusterID: cluster, CPUMillis: 250, MemoryBytes: 512 << 20,
	}
	for _, at := range []time.Time{then, then.Add(time.Minute), then.Add(10 * time.Minute)} {
		pod.SnapshotTimestamp = at.Format(time.RFC3339)
		pod.SnapshotID = pod.ID()
		record, err := json.Marshal(pod)
		require.NoError(t, err)
		do("POST", "/api/v1/clusters/{cluster_id}/snapshots", `{"snapshots":[`+string(record)+`]}`)
	}
	for _, at := range []time.Time{then, then.Add(2 * time.Minute), then.Add(10 * time.Minute)} {
		do("POST", "/api/v1/clusters/{cluster_id}/capacity",
			`{"cluster_id":"`+cluster+`","current_pod_count":1,"soft_limit":800,"timestamp":"`+at.Format(time.RFC3339)+`"}`)
	}
	period := "from=" + then.Format(time.DateOnly) + "&to=" + then.AddDate(0, 0, 1).Format(time.DateOnly)
	do("GET", "usage?by=day,workspace,phase&"+period, "")
	do("GET", "usage.csv?by=workspace&"+period, "")
	do("GET", "usage/gaps?"+period, "")
	for _, path := range []string{
		"clusters", "clusters/{cluster_id}", "projects", "projects/{project_id}", "projects/{project_id}/services",
		"projects/{project_id}/services/{service_id}/{environment}", "projects/{project_id}/services/{service_id}/{environment}/var-groups",
		"projects/{project_id}/var-groups", "projects/{project_id}/var-groups/{var_group_id}",
	} {
		do("GET", path, "")
	}
	do("POST", "clusters/{cluster_id}/allow-mass-delete", `{"digest":"`+digest+`"}`)
	do("POST", "clusters/{cluster_id}/rotate-token", `{"overlap_seconds":3600}`)
	do("POST", "clusters/{cluster_id}/new-epoch", ``)

	credentials["/api/v1/scopes/"] = text(do("PUT", "regions/{region_id}", `{"name":"eu-1.aws","platform":"aws"}`), "token")
	do("PUT", "regions/{region_id}/deployments/{id}", `{"desired_state":"running","spec":{"k8s_namespace":"customer","k8s_name":"web",`+
		ids+`"image":"registry.example.com/web:1","cpu_millicores":"250","memory_mib":"256","port":8080}}`)
	do("PUT", "regions/{region_id}/sentinels/{id}", `{"desired_state":"running","spec":{"k8s_namespace":"customer","k8s_name":"gate",`+
		ids+`"image":"registry.example.com/gate:1","cpu_millicores":"100","memory_mib":"128"}}`)
	do("PUT", "regions/{region_id}/policies/{id}", `{"desired_state":"running","spec":{"k8s_namespace":"customer","k8s_name":"isolate",`+
		`"policy":"eyJhcGlWZXJzaW9uIjoiY2lsaXVtLmlvL3YyIiwia2luZCI6IkNpbGl1bU5ldHdvcmtQb2xpY3kiLCJzcGVjIjp7fX0="}}`)
	for _, path := range []string{
		"regions", "regions/{region_id}", "regions/{region_id}/deployments", "regions/{region_id}/sentinels", "regions/{region_id}/policies",
		"regions/{region_id}/deployments/{id}", "regions/{region_id}/sentinels/{id}", "regions/{region_id}/policies/{id}",
		"log", "tokens", "me", oidcauth.SignInPath, "/api/v1/scopes/{scope}/items?limit=1&wait=10s",
	} {
		do("GET", path, "")
	}
	credentials["/ctrl.v1."] = credentials["/api/v1/scopes/"]
	do("POST", "/ctrl.v1.ClusterService/Heartbeat", `{"heldDeletions":{"digest":"`+digest+`","count":1,`+
		`"units":[{"unit":"deployment customer/web","objects":4,"reason":"absent"}]}}`)
	do("POST", "regions/{region_id}/allow-mass-delete", `{"digest":"`+digest+`"}`)
	do("POST", "regions/{region_id}/rotate-token", ``)
	do("POST", "new-log-epoch", ``)
	for _, kind := range []string{"deployments", "sentinels", "policies"} {
		do("DELETE", "regions/{region_id}/"+kind+"/{id}", "")
	}
	do("PUT", "projects/{project_id}/services/{service_id}/{environment}/var-groups", `{"var_groups":[]}`)
	for _, path := range []string{
		"projects/{project_id}/var-groups/{var_group_id}", "projects/{project_id}/services/{service_id}/{environment}",
		"projects/{project_id}", "audit",
	} {
		do(map[bool]string{true: "GET", false: "DELETE"}[path == "audit"], path, "")
	}
	// An agent that never asked holds nothing back.
	values["{cluster_id}"], values["{region_id}"] = "0b8a3c52-9f0e-4c35-8a77-3d1f2f9c5a11", "us"
	do("PUT", "clusters/{cluster_id}", `{"region":"nyc3"}`)
	do("DELETE", "clusters/{cluster_id}", "")
	do("PUT", "regions/{region_id}", `{"name":"us-1.aws","platform":"aws"}`)
	do("DELETE", "regions/{region_id}", "")
	return found
}

// lacking sends the request once more with an empty body, and returns which members it must
// have.
func lacking(t *testing.T, like *http.Request) (names []string) {
	t.Helper()
	r := like.Clone(t.Context())
	r.Body, r.ContentLength = io.NopCloser(strings.NewReader("{}")), int64(len("{}"))
	answer, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusBadRequest {
		return nil
	}
	var refused starbase.ErrorBody
	require.NoError(t, json.NewDecoder(answer.Body).Decode(&refused))
	for _, field := range refused.Error.Fields {
		if !strings.ContainsAny(field.Field, ".[") {
			names = append(names, field.Field)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
