package clusters_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/api/starbase"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/edge/tokens"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/clusters"
)

func TestAClusterShowsItsTokenOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	require.Regexp(t, regexp.MustCompile(`^[A-Za-z0-9_-]{43}$`), w.tokens[clusterA])
	require.NotEqual(t, w.tokens[clusterA], w.tokens[clusterB])
	again := w.admin("PUT", clustersPath+"/"+clusterA, `{"region":"fra1"}`)
	require.Equal(t, 200, again.status)
	require.Nil(t, again.member("token"))
	require.EqualValues(t, 1, again.number("generation"))
	require.EqualValues(t, 1, w.pull(clusterA).Generation, "the first token still works")

	list := w.admin("GET", clustersPath, "")
	require.Equal(t, 200, list.status)
	require.Len(t, list.member("clusters"), 2)
	require.Contains(t, list.body, `"region":"fra1"`)
	for _, token := range w.tokens {
		require.NotContains(t, list.body, token)
	}
	require.NotContains(t, list.body, "hash")
}

func TestTheAdministrationNeedsItsToken(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, path := range [][2]string{
		{"GET", clustersPath},
		{"PUT", clustersPath + "/" + clusterC},
		{"GET", clustersPath + "/" + clusterA},
		{"PUT", clustersPath + "/" + clusterA + "/config"},
		{"POST", clustersPath + "/" + clusterA + "/allow-mass-delete"},
		{"POST", clustersPath + "/" + clusterA + "/rotate-token"},
		{"PUT", projectsPath + projectX},
		{"DELETE", projectsPath + projectX},
		{"PUT", servicePath},
		{"DELETE", servicePath},
	} {
		for _, token := range []string{"", "wrong", adminToken + "x", adminToken[1:], w.tokens[clusterA]} {
			got := w.do(path[0], path[1], token, "")
			require.Equal(t, 401, got.status, "%s with %q", path, token)
			require.Equal(t, "unauthorized", got.failure(t).Code)
		}
	}
	require.Equal(t, 404, w.admin("GET", clustersPath+"/"+clusterC, "").status, "nothing was registered")
}

func TestAServerWithoutAnAdminTokenIsNotBuilt(t *testing.T) {
	t.Parallel()
	store := openStore(t, t.TempDir()+"/x.db")
	for _, config := range []clusters.Config{{}, {Admins: tokens.Only(adminToken)}, {Store: store}, {Store: store, Admins: tokens.Only("short")}} {
		_, err := clusters.New(config)
		require.ErrorContains(t, err, "server.Config: ")
	}
}

func TestOnlyARealChangeRaisesTheGenerationAndByOne(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	staging := projectsPath + projectX + "/services/" + serviceX + "/staging"
	approve := w.holding("held-1")
	for i, step := range []struct {
		method, path, body string
		status             int
		generation         int64
	}{
		{"PUT", projectsPath + projectX, projectBody, 201, 2},
		{"PUT", projectsPath + projectX, projectBody, 200, 2},
		{"PUT", projectsPath + projectX, strings.Replace(projectBody, `"slug"`, `"quota":{},"limits":{"max":{}},"egress":[],"slug"`, 1), 200, 2},
		{"PUT", projectsPath + projectX, strings.Replace(projectBody, `"slug"`, `"quota":{"pods":"5"},"slug"`, 1), 200, 3},
		{"PUT", servicePath, serviceBody, 201, 4},
		{"PUT", servicePath, serviceBody, 200, 4},
		{"PUT", servicePath, strings.Replace(serviceBody, `"image"`, `"resources":{"limits":{}},"probes":{"liveness":{}},"autoscaling":{},"image"`, 1), 200, 4},
		{"PUT", servicePath, " " + strings.Replace(serviceBody, `{"container_port":8080}`, `{"protocol":"TCP", "container_port":8080}`, 1), 200, 4},
		{"PUT", staging, serviceBody, 201, 5},
		{"PUT", servicePath, strings.Replace(serviceBody, `"replicas":2`, `"replicas":3`, 1), 200, 6},
		{"DELETE", servicePath, "", 200, 7},
		{"DELETE", servicePath, "", 200, 7},
		{"PUT", servicePath, strings.Replace(serviceBody, `"replicas":2`, `"replicas":3`, 1), 200, 8},
		{"PUT", clustersPath + "/" + clusterA + "/config", `{"lb_size_units":5}`, 200, 9},
		{"PUT", clustersPath + "/" + clusterA + "/config", `{"lb_size_units":5}`, 200, 9},
		{"POST", clustersPath + "/" + clusterA + "/allow-mass-delete", approve, 200, 10},
		{"POST", clustersPath + "/" + clusterA + "/allow-mass-delete", approve, 200, 10},
		{"DELETE", projectsPath + projectX, "", 200, 11},
		{"DELETE", projectsPath + projectX, "", 200, 11},
		{"PUT", projectsPath + projectX, projectBody, 200, 12},
	} {
		before := w.pull(clusterA).Generation
		got := w.admin(step.method, step.path, step.body)
		require.Equal(t, step.status, got.status, "step %d: %s", i, got.body)
		require.Equal(t, step.generation, got.number("generation"), "step %d", i)
		require.Equal(t, step.generation != before, got.member("changed"), "step %d", i)
		require.Equal(t, step.generation, w.pull(clusterA).Generation, "step %d", i)
		require.EqualValues(t, 1, w.pull(clusterB).Generation, "the other cluster")
	}
}

func TestARefusedRequestChangesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.seed()
	before := w.pull(clusterA)
	edit := func(body, from, to string) string {
		t.Helper()
		require.Contains(t, body, from)
		return strings.Replace(body, from, to, 1)
	}
	otherProject := projectsPath + projectY
	service := func(more string) string { return edit(serviceBody, `"replicas":2`, more) }
	for _, test := range []struct {
		name, method, path, body string
		status                   int
		code, field              string
	}{
		{"cluster id", "PUT", clustersPath + "/x", `{"region":"a"}`, 400, "invalid", "cluster_id"},
		{"no region", "PUT", clustersPath + "/" + clusterC, `{}`, 400, "invalid", "region"},
		{"region", "PUT", clustersPath + "/" + clusterC, `{"region":"New York"}`, 400, "invalid", "region"},
		{"unknown field of a cluster", "PUT", clustersPath + "/" + clusterC, `{"region":"a","token":"b"}`, 400, "unknown_field", "token"},
		{"no body", "PUT", clustersPath + "/" + clusterC, ``, 415, "unsupported_media_type", ""},
		{"a list", "PUT", clustersPath + "/" + clusterC, `[]`, 400, "malformed", ""},
		{"cut off", "PUT", clustersPath + "/" + clusterC, `{"region":"a`, 400, "malformed", ""},
		{"trailing", "PUT", clustersPath + "/" + clusterC, `{"region":"a"}]`, 400, "malformed", ""},
		{"load balancer 0", "PUT", clustersPath + "/" + clusterA + "/config", `{"lb_size_units":0}`, 400, "invalid", "lb_size_units"},
		{"load balancer 201", "PUT", clustersPath + "/" + clusterA + "/config", `{"lb_size_units":201}`, 400, "invalid", "lb_size_units"},
		{"load balancer text", "PUT", clustersPath + "/" + clusterA + "/config", `{"lb_size_units":"3"}`, 400, "invalid", "lb_size_units"},
		{"config of nobody", "PUT", clustersPath + "/" + clusterC + "/config", `{"lb_size_units":3}`, 404, "unknown_cluster", ""},
		{"mass delete of nobody", "POST", clustersPath + "/" + clusterC + "/allow-mass-delete", `{"digest":"x"}`, 404, "unknown_cluster", ""},
		{"mass delete of all", "POST", clustersPath + "/" + clusterA + "/allow-mass-delete", ``, 400, "invalid", "digest"},
		{"mass delete of nothing", "POST", clustersPath + "/" + clusterA + "/allow-mass-delete", `{"digest":"x"}`, 409, "other_deletions", ""},
		{"a value that is not UTF-8", "PUT", servicePath, edit(serviceBody, "env-secret-value", "env-secret-\xff"), 400, "invalid", "env.MODE"},
		{"half a surrogate pair", "PUT", servicePath, edit(serviceBody, "shop:1", `shop\ud800`), 400, "invalid", "image"},
		{"project id", "PUT", projectsPath + "p", projectBody, 400, "invalid", "project_id"},
		{"project on nobody", "PUT", otherProject, edit(projectBody, clusterA, clusterC), 404, "unknown_cluster", ""},
		{"project moved", "PUT", projectsPath + projectX, edit(projectBody, clusterA, clusterB), 409, "project_moved", ""},
		{"project's cluster", "PUT", otherProject, edit(projectBody, clusterA, "a"), 400, "invalid", "cluster_id"},
		{"workspace", "PUT", otherProject, edit(projectBody, workspace, "w"), 400, "invalid", "workspace_id"},
		{"workspace slug", "PUT", otherProject, edit(projectBody, "acme", "A"), 400, "invalid", "workspace_slug"},
		{"slug", "PUT", otherProject, edit(projectBody, "shop", "-shop"), 400, "invalid", "slug"},
		{"quota", "PUT", otherProject, edit(projectBody, `"slug"`, `"quota":{"pods":"many"},"slug"`), 400, "invalid", "quota.pods"},
		{"egress", "PUT", otherProject, edit(projectBody, `"slug"`, `"egress":[{"cidr":"x","port":1}],"slug"`), 400, "invalid", "egress[0].cidr"},
		{"namespace chosen", "PUT", otherProject, edit(projectBody, `"slug"`, `"namespace":"proj-x","slug"`), 400, "unknown_field", "namespace"},
		{"unknown project deleted", "DELETE", otherProject, ``, 404, "unknown_project", ""},
		{"service of nobody", "PUT", otherProject + "/services/" + serviceX + "/production", serviceBody, 404, "unknown_project", ""},
		{"service id", "PUT", projectsPath + projectX + "/services/s/production", serviceBody, 400, "invalid", "service_id"},
		{"environment", "PUT", projectsPath + projectX + "/services/" + serviceX + "/Production", serviceBody, 400, "invalid", "environment"},
		{"replicas", "PUT", servicePath, service(`"replicas":-1`), 400, "invalid", "replicas"},
		{"replicas text", "PUT", servicePath, service(`"replicas":"2"`), 400, "invalid", "replicas"},
		{"port", "PUT", servicePath, edit(serviceBody, "8080", "70000"), 400, "invalid", "ports[0].container_port"},
		{"image", "PUT", servicePath, edit(serviceBody, "shop:1", "shop 1"), 400, "invalid", "image"},
		{"env name", "PUT", servicePath, edit(serviceBody, "MODE", "9MODE"), 400, "invalid", "env"},
		{"unknown field", "PUT", servicePath, service(`"replica":2`), 400, "unknown_field", "replica"},
		{"another project inside", "PUT", servicePath, service(`"project_id":"` + projectY + `"`), 400, "invalid", "project_id"},
		{"another environment inside", "PUT", servicePath, service(`"environment":"staging"`), 400, "invalid", "environment"},
		{"another workspace inside", "PUT", servicePath, service(`"workspace_id":"` + clusterA + `"`), 400, "invalid", "workspace_id"},
		{"a tombstone by PUT", "PUT", servicePath, service(`"deleted":true`), 400, "invalid", "deleted"},
		{"var groups", "PUT", servicePath, service(`"var_groups":[{"var_group_id":"` + workspace + `"}]`), 400, "invalid", "var_groups"},
		{"too large", "PUT", servicePath, service(`"tier":"` + strings.Repeat("x", 8<<20) + `"`), 413, "too_large", ""},
		{"unknown service deleted", "DELETE", projectsPath + projectX + "/services/" + serviceY + "/production", ``, 404, "unknown_service", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := w.admin(test.method, test.path, test.body)
			require.Equal(t, test.status, got.status, "%.300s", got.body)
			failure := got.failure(t)
			require.Equal(t, test.code, failure.Code)
			require.NotContains(t, got.body, "env-secret-value")
			if test.field != "" {
				require.NotEmpty(t, failure.Fields, got.body)
				require.Equal(t, test.field, failure.Fields[0].Field)
				require.NotEmpty(t, failure.Fields[0].Want)
			}
			require.Empty(t, cmp.Diff(before, w.pull(clusterA)))
			require.EqualValues(t, 1, w.pull(clusterB).Generation)
		})
	}
}

func TestDeletedServicesStayAsTombstonesUntilTheyArePutAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.seed()
	w.must("DELETE", servicePath, "")
	state := w.pull(clusterA)
	require.Len(t, state.Services, 1)
	require.True(t, state.Services[0].Deleted)
	require.Equal(t, serviceX, state.Services[0].ServiceID)
	w.must("PUT", servicePath, serviceBody)
	require.False(t, w.pull(clusterA).Services[0].Deleted)

	w.must("DELETE", projectsPath+projectX, "")
	state = w.pull(clusterA)
	require.True(t, state.Projects[0].Deleted)
	require.True(t, state.Services[0].Deleted)
	refused := w.admin("PUT", servicePath, serviceBody)
	require.Equal(t, 409, refused.status)
	require.Equal(t, "project_deleted", refused.failure(t).Code)

	w.must("PUT", projectsPath+projectX, projectBody)
	state = w.pull(clusterA)
	require.False(t, state.Projects[0].Deleted)
	require.True(t, state.Services[0].Deleted, "services come back one by one")
	w.must("PUT", servicePath, serviceBody)
	require.False(t, w.pull(clusterA).Services[0].Deleted)
}

// TestAHostnameIsOfOneServiceOfACluster: of two routes of one name on a cluster the requests of one service
// would come to the other.
func TestAHostnameIsOfOneServiceOfACluster(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.seed()
	w.must("PUT", projectsPath+projectY, strings.Replace(projectBody, `"slug":"shop"`, `"slug":"rival"`, 1))
	named := func(host string) string { return strings.Replace(serviceBody, "{", `{"hostname":"`+host+`",`, 1) }
	rival := strings.Replace(servicePath, projectX, projectY, 1)
	staging := strings.Replace(servicePath, "/production", "/staging", 1)
	w.must("PUT", servicePath, named("shop.example.com"))
	w.must("PUT", servicePath, strings.Replace(named("shop.example.com"), `"image":"`, `"image":"other-`, 1))
	for _, path := range []string{rival, staging} {
		generation := w.pull(clusterA).Generation
		refused := w.admin("PUT", path, named("shop.example.com"))
		require.Equal(t, 409, refused.status)
		require.Equal(t, "hostname_taken", refused.failure(t).Code)
		require.Equal(t, generation, w.pull(clusterA).Generation, "nothing was changed")
		w.must("PUT", path, named("own-"+path[len(path)-4:]+".example.com"))
	}
	w.must("PUT", servicePath, named("new.example.com"))
	w.must("PUT", rival, named("shop.example.com"))
	require.Equal(t, 409, w.admin("PUT", servicePath, named("shop.example.com")).status, "it has gone to the other")
	w.must("DELETE", rival, "")
	w.must("PUT", servicePath, named("shop.example.com"))
	w.must("DELETE", projectsPath+projectX, "")
	w.must("PUT", rival, named("shop.example.com"))
	w.must("PUT", projectsPath+projectX, projectBody)
	require.Equal(t, 409, w.admin("PUT", servicePath, named("shop.example.com")).status, "a project that comes back has none")
}

// TestAHostnameIsFreeAfterAnOlderVersionGaveItUp: one that runs beside this version, or ran after it, changes
// the services alone.
func TestAHostnameIsFreeAfterAnOlderVersionGaveItUp(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.seed()
	const host = "shop.example.com"
	named := func(host string) string { return strings.Replace(serviceBody, "{", `{"hostname":"`+host+`",`, 1) }
	staging := strings.Replace(servicePath, "/production", "/staging", 1)
	w.must("PUT", projectsPath+projectY, strings.Replace(projectBody, clusterA, clusterB, 1))
	w.must("PUT", servicePath, named(host))
	w.must("PUT", strings.Replace(servicePath, projectX, projectY, 1), named(host)) // on another cluster
	require.Equal(t, 409, w.admin("PUT", staging, named(host)).status)
	w.update(`UPDATE services SET spec = replace(spec, ?, ?) WHERE project_id = ?`, host, "other.example.com", projectX)
	w.must("PUT", staging, named(host))
	w.update(`UPDATE services SET deleted = 1, spec = '{}' WHERE project_id = ? AND environment = 'staging'`, projectX)
	w.must("PUT", servicePath, named(host))
	require.Equal(t, 409, w.admin("PUT", staging, named(host)).status)
}

// TestAChangeWithAConditionIsRefused: it would hold for any version.
func TestAChangeWithAConditionIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.seed()
	for _, header := range []string{"If-Match", "If-None-Match", "If-Unmodified-Since"} {
		refused := w.do("PUT", servicePath, adminToken, serviceBody, header, `"x"`)
		require.Equal(t, 400, refused.status)
		want := starbase.FieldError{Field: header, Value: `"\"x\""`, Want: "none: changes have no conditions"}
		require.Equal(t, []starbase.FieldError{want}, refused.failure(t).Fields)
	}
	require.Equal(t, 200, w.do("GET", servicePath, adminToken, "", "If-None-Match", "*").status)
}

func TestEverythingThatIsPutIsServed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.must("PUT", projectsPath+projectX, `{"cluster_id":"`+clusterA+`","workspace_id":"`+workspace+`","workspace_slug":"acme","slug":"shop",
		"quota":{"pods":"10"},"limits":{"default":{"cpu":"1"}},"egress":[{"cidr":"203.0.113.0/24","port":5432}]}`)
	w.must("PUT", servicePath, `{"service_name":"web","tier":"nova","image":"i:1","replicas":2,"env":{"A":"b"},"ports":[{"container_port":80}],
		"hostname":"shop.example.com","resources":{"requests":{"cpu":"1"}},"probes":{"readiness":{"path":"/","port":80}},
		"autoscaling":{"min":1,"max":2},"restart_nonce":"`+workspace+`","deployment":{"id":"d","deployed_at":"2026-01-31T12:00:00Z"}}`)
	state := w.pull(clusterA)
	require.Empty(t, cmp.Diff([]starbase.Project{{
		ProjectID: projectX, WorkspaceID: workspace, Slug: "shop", Namespace: "proj-shop",
		Quota: map[string]string{"pods": "10"}, Limits: starbase.Limits{Default: map[string]string{"cpu": "1"}},
		Egress: []starbase.Egress{{CIDR: "203.0.113.0/24", Port: 5432, Protocol: "TCP"}},
	}}, state.Projects))
	require.Empty(t, cmp.Diff([]starbase.Service{{
		WorkspaceID: workspace, ProjectID: projectX, ServiceID: serviceX, Environment: "production", ServiceName: "web", Tier: "nova",
		Image: "i:1", Replicas: 2, Env: map[string]string{"A": "b"}, Ports: []starbase.Port{{ContainerPort: 80, Protocol: "TCP"}},
		Hostname: "shop.example.com", Resources: starbase.Resources{Requests: map[string]string{"cpu": "1"}},
		Probes:      starbase.Probes{Readiness: starbase.Probe{Path: "/", Port: 80}},
		Autoscaling: starbase.Autoscaling{Min: 1, Max: 2}, RestartNonce: workspace,
		Deployment: starbase.Deployment{ID: "d", DeployedAt: "2026-01-31T12:00:00Z"},
	}}, state.Services))
}

// holding reports that the agent holds deletions with the digest, and returns the body that
// approves them.
func (w *world) holding(digest string) string {
	state := w.pull(clusterA)
	got := w.do("POST", statusPath(clusterA), w.tokens[clusterA], fmt.Sprintf(
		`{"epoch":%q,"generation":%d,"instance_id":"i","services":[],
		"held_deletions":{"digest":%q,"count":1,"units":[{"unit":"project x","objects":6,"reason":"absent"}]}}`,
		state.Epoch, state.Generation, digest))
	require.Equal(w.t, 204, got.status, got.body)
	return fmt.Sprintf(`{"digest":%q}`, digest)
}

func TestAnApprovedDigestReachesTheAgentAndOutlivesOtherChanges(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.seed()
	path := clustersPath + "/" + clusterA + "/allow-mass-delete"
	before := w.do("GET", statePath(clusterA), w.tokens[clusterA], "").header.Get("ETag")
	older, approve := w.holding("held-1"), w.holding("held-2")
	require.Equal(t, map[string]any{"digest": "held-2", "count": 1.0, "units": []any{
		map[string]any{"unit": "project x", "objects": 6.0, "reason": "absent"},
	}}, w.admin("GET", clustersPath+"/"+clusterA, "").member("held_deletions"))
	require.Equal(t, 409, w.admin("POST", path, older).status, "the held set has changed")
	late := w.do("POST", statusPath(clusterA), w.tokens[clusterA], fmt.Sprintf(
		`{"epoch":%q,"generation":%d,"instance_id":"i","services":[]}`, w.pull(clusterA).Epoch, w.pull(clusterA).Generation-1))
	require.Equal(t, 204, late.status, "a late report, of when nothing was held, ends nothing")
	got := w.admin("POST", path, approve)
	require.Equal(t, 200, got.status, got.body)
	require.Equal(t, "held-2", got.text("approved_deletions"))
	require.Equal(
		t,
		200,
		w.do("GET", statePath(clusterA), w.tokens[clusterA], "", "If-None-Match", before).status,
		"the agent must fetch the body again",
	)
	state := w.pull(clusterA)
	require.Equal(t, "held-2", state.ApprovedDeletions)
	w.must("PUT", servicePath, strings.Replace(serviceBody, "shop:1", "shop:2", 1))
	state = w.pull(clusterA)
	require.EqualValues(t, 5, state.Generation)
	require.Equal(t, "held-2", state.ApprovedDeletions, "another change does not spoil it")
	w.must("POST", path, w.holding("held-3"))
	require.Equal(t, "held-3", w.pull(clusterA).ApprovedDeletions)
}

func TestANewEpochAfterARestoreIsServedAndReplacesOldReports(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.seed()
	report := func(epoch string, generation int64, phase string) int {
		return w.do("POST", statusPath(clusterA), w.tokens[clusterA], fmt.Sprintf(`{"epoch":%q,"generation":%d,"instance_id":"i",
			"services":[{"project_id":%q,"environment":"production","service_id":%q,"phase":%q}]}`, epoch, generation, projectX, serviceX, phase)).status
	}
	old := w.pull(clusterA)
	require.Equal(t, 204, report(old.Epoch, 3, "Failed"))
	w.must("POST", clustersPath+"/"+clusterA+"/allow-mass-delete", w.holding("held-1"))
	got := w.admin("POST", clustersPath+"/"+clusterA+"/new-epoch", "")
	require.Equal(t, 200, got.status, got.body)
	state := w.pull(clusterA)
	require.NotEqual(t, old.Epoch, state.Epoch)
	require.Equal(t, got.text("epoch"), state.Epoch)
	require.EqualValues(t, 5, state.Generation)
	require.Empty(t, state.ApprovedDeletions)

	// The kept report is of the old epoch, so a lower generation replaces it.
	require.Equal(t, 204, report(state.Epoch, 2, "Healthy"))
	require.Equal(t, 204, report(old.Epoch, 3, "Failed"))
	shown := w.admin("GET", clustersPath+"/"+clusterA, "")
	require.Contains(t, shown.body, `"phase":"Healthy"`)
	require.Equal(t, map[string]any{"Pending": 1.0}, shown.member("standings"), "the report is older than what is wanted")
	require.Equal(t, 204, report(state.Epoch, 5, "Healthy"))
	require.Equal(t, map[string]any{"Healthy": 1.0}, w.admin("GET", clustersPath+"/"+clusterA, "").member("standings"))
	require.Equal(t, 404, w.admin("POST", clustersPath+"/"+clusterC+"/new-epoch", "").status)
}

func TestNamespacesAreDecidedOnceAndNeverShared(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	put := func(id, cluster, workspaceSlug, slug string) string {
		t.Helper()
		got := w.admin(
			"PUT",
			projectsPath+id,
			fmt.Sprintf(`{"cluster_id":%q,"workspace_id":%q,"workspace_slug":%q,"slug":%q}`, cluster, workspace, workspaceSlug, slug),
		)
		require.Contains(t, []int{200, 201}, got.status, got.body)
		return got.text("namespace")
	}
	long := strings.Repeat("a", 52) + "-" + strings.Repeat("b", 10)
	require.Equal(t, "proj-shop", put(projectX, clusterA, "acme", "shop"))
	require.Equal(t, "proj-acme-shop", put(projectY, clusterA, "acme", "shop"))
	require.Regexp(t, `^proj-shop-[0-9a-f]{8}$`, put(projectZ, clusterA, "acme", "shop"))
	require.Equal(t, "proj-shop", put(projectX, clusterA, "acme", "store"), "a namespace cannot be renamed")
	require.Equal(t, "proj-shop", put("33333333-3333-4333-8333-333333333334", clusterB, "acme", "shop"), "another cluster")
	cut := put("33333333-3333-4333-8333-333333333335", clusterA, "acme", long)
	require.Regexp(t, `^proj-a{49}-[0-9a-f]{8}$`, cut)
	require.LessOrEqual(t, len(cut), 63)
	cut = put("33333333-3333-4333-8333-333333333336", clusterA, "acme", strings.Repeat("a", 48)+"-"+strings.Repeat("b", 14))
	require.Regexp(t, `^proj-a{48}-[0-9a-f]{8}$`, cut, "no two dashes where it was cut")

	w.must("DELETE", projectsPath+projectX, "")
	require.NotEqual(
		t,
		"proj-shop",
		put("33333333-3333-4333-8333-333333333337", clusterA, "other", "shop"),
		"the namespace of a tombstone may still be there",
	)
	for _, project := range w.pull(clusterA).Projects {
		require.Empty(t, project.Validate())
	}
}

func TestConcurrentChangesGetGaplessGenerationsAndConsistentBodies(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.must("PUT", projectsPath+projectX, projectBody)
	const writers, each = 20, 5
	generations := make(chan int64, writers*each)
	var group sync.WaitGroup
	for writer := range writers {
		group.Go(func() {
			for i := range each {
				path := fmt.Sprintf("%s%s/services/44444444-4444-4444-8444-%012d/production", projectsPath, projectX, writer)
				got := w.admin("PUT", path, strings.Replace(serviceBody, "shop:1", fmt.Sprintf("shop:%d", i), 1))
				assert.Contains(t, []int{200, 201}, got.status, got.body)
				generations <- got.number("generation")
			}
		})
	}
	stop := make(chan struct{})
	var readers sync.WaitGroup
	for range 3 {
		readers.Go(func() {
			last := int64(0)
			for {
				select {
				case <-stop:
					return
				default:
				}
				got := w.do("GET", statePath(clusterA), w.tokens[clusterA], "")
				state, err := starbase.Decode(strings.NewReader(got.body), clusterA)
				if err != nil || state.Generation < last {
					t.Errorf("generation %d after %d: %v", state.Generation, last, err)
					return
				}
				last = state.Generation
			}
		})
	}
	group.Wait()
	close(stop)
	readers.Wait()
	close(generations)
	seen := slices.Sorted(func(yield func(int64) bool) {
		for generation := range generations {
			if !yield(generation) {
				return
			}
		}
	})
	require.Len(t, seen, writers*each)
	for i, generation := range seen {
		require.EqualValues(t, i+3, generation, "gapless from 3 on")
	}
	state := w.pull(clusterA)
	require.EqualValues(t, 2+writers*each, state.Generation)
	require.Len(t, state.Services, writers)
	for _, service := range state.Services {
		require.Equal(t, "registry.example.com/shop:4", service.Image)
	}
}

func TestNoSecretIsEverLogged(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.seed()
	rotated := w.admin("POST", clustersPath+"/"+clusterA+"/rotate-token", "").text("token")
	w.do("GET", statePath(clusterA), rotated, "")
	w.do("GET", statePath(clusterA), "a-wrong-secret-token", "")
	w.do("GET", statePath(clusterB), rotated, "")
	w.admin("PUT", servicePath, strings.Replace(serviceBody, `"replicas":2`, `"replicas":"env-secret-value"`, 1))
	w.admin("PUT", servicePath, strings.Replace(serviceBody, `"env-secret-value"`, `["env-secret-value"]`, 1))
	w.admin("PUT", servicePath, strings.Replace(serviceBody, `}`, `env-secret-value`, 1))
	log := w.log.String()
	require.Contains(t, log, `"path":"`+servicePath+`"`, "requests are logged")
	for _, secret := range []string{adminToken, w.tokens[clusterA], w.tokens[clusterB], rotated, "a-wrong-secret-token", "env-secret-value", "Bearer"} {
		require.NotContains(t, log, secret)
	}
}

func TestMetricsCountRequestsByRoute(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.do("BREW", "/api/v1/admin/coffee/"+projectX, adminToken, "")
	families, err := w.registry.Gather()
	require.NoError(t, err)
	text := fmt.Sprint(families)
	require.Contains(t, text, "trueup_controlplane_requests_total")
	require.Contains(t, text, "/api/v1/admin/clusters/{cluster_id}")
	require.NotContains(t, text, projectX, "paths of clients are no labels")
	require.NotContains(t, text, "BREW")
}
