package clusters_test

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/internal/test/await"
)

const (
	regionsPath    = "/api/v1/admin/regions"
	regionPath     = regionsPath + "/reg_eu"
	regionBody     = `{"name":"eu-1","platform":"aws"}`
	deploymentPath = regionPath + "/deployments/d_1"
	deploymentBody = `{"desired_state":"running","spec":{"k8s_namespace":"ws","k8s_name":"web","workspace_id":"ws_1","project_id":"prj_1","app_id":"app_1","environment_id":"env_1","image":"web:1","cpu_millicores":"250","memory_mib":"256","port":8080}}`
	sentinelBody   = `{"desired_state":"running","spec":{"k8s_namespace":"ws","k8s_name":"s","workspace_id":"ws_1","project_id":"prj_1","app_id":"app_1","environment_id":"env_1","image":"s:1","replicas":2,"cpu_millicores":"250","memory_mib":"256"}}`
	policyBody     = `{"desired_state":"running","spec":{"k8s_namespace":"ws","k8s_name":"p","policy":"eyJhcGlWZXJzaW9uIjoiY2lsaXVtLmlvL3YyIiwia2luZCI6IkNpbGl1bU5ldHdvcmtQb2xpY3kiLCJzcGVjIjp7fX0="}}`
)

// number numbers committed changes until the end of the test.
func (w *world) number() {
	w.t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(w.t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- w.store.Database.Log.Start(ctx) }()
	w.t.Cleanup(func() {
		cancel()
		require.NoError(w.t, <-ended)
	})
}

func TestARegionIsAdministered(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.number()
	registered := w.admin("PUT", regionPath, regionBody)
	require.Equal(t, 201, registered.status, registered.body)
	require.NotEmpty(t, registered.text("token"))
	again := w.admin("PUT", regionPath, `{"name":"eu-1","platform":"gcp"}`)
	require.Equal(t, 200, again.status, again.body)
	require.Empty(t, again.text("token"), "the token is shown once")

	for path, body := range map[string]string{
		deploymentPath: deploymentBody, regionPath + "/sentinels/s_1": sentinelBody, regionPath + "/policies/p_1": policyBody,
	} {
		first := w.admin("PUT", path, body)
		require.Equal(t, 200, first.status, first.body)
		require.Equal(t, true, first.member("changed"), path)
		require.Equal(t, false, w.admin("PUT", path, body).member("changed"), path)
		require.Equal(t, true, w.admin("DELETE", path, "").member("changed"), path)
		require.Equal(t, false, w.admin("DELETE", path, "").member("changed"), path)
		require.Equal(t, true, w.admin("PUT", path, `{"desired_state":"running"}`).member("changed"), path)
	}
	shown := w.admin("GET", regionPath, "")
	require.Equal(t, "gcp", shown.text("platform"))
	resources, _ := shown.member("resources").([]any)
	require.Len(t, resources, 3, shown.body)
	require.Contains(t, w.admin("GET", regionsPath, "").body, `"eu-1"`)

	rotated := w.admin("POST", regionPath+"/rotate-token", `{"overlap_seconds":60}`)
	require.Equal(t, 200, rotated.status, rotated.body)
	require.NotEqual(t, registered.text("token"), rotated.text("token"))
	require.Equal(t, 200, w.admin("POST", "/api/v1/admin/new-log-epoch", "").status)
	require.NotContains(t, w.log.String(), registered.text("token"))
}

func TestARefusedRequestChangesNothingInARegion(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.number()
	require.Equal(t, 201, w.admin("PUT", regionPath, regionBody).status)
	require.Equal(t, 200, w.admin("PUT", deploymentPath, deploymentBody).status)
	await.Eventually(
		t,
		`w.admin("GET", regionPath, "").number("log_head") == 1`,
		func() bool { return w.admin("GET", regionPath, "").number("log_head") == 1 },
	)
	before := w.admin("GET", regionPath, "").body
	edit := func(from, to string) string { return strings.Replace(deploymentBody, from, to, 1) }
	for _, test := range []struct {
		name, method, path, body string
		status                   int
		code, says               string
	}{
		{"region id", "PUT", regionsPath + "/-x", regionBody, 400, "invalid", "region_id"},
		{"no name", "PUT", regionsPath + "/r2", `{"platform":"aws"}`, 400, "invalid", "name"},
		{"name", "PUT", regionsPath + "/r2", `{"name":"EU 1","platform":"aws"}`, 400, "invalid", "name"},
		{"platform", "PUT", regionsPath + "/r2", `{"name":"eu-2"}`, 400, "invalid", "platform"},
		{"unknown field", "PUT", regionsPath + "/r2", `{"name":"eu-2","platform":"aws","zone":"a"}`, 400, "unknown_field", "zone"},
		{"name of another", "PUT", regionsPath + "/r2", regionBody, 409, "name_taken", "replace"},
		{"another name", "PUT", regionPath, `{"name":"eu-2","platform":"aws"}`, 409, "name_taken", ""},
		{"unknown region", "GET", regionsPath + "/r2", "", 404, "unknown_region", ""},
		{"token of nobody", "POST", regionsPath + "/r2/rotate-token", "", 404, "unknown_region", ""},
		{"overlap", "POST", regionPath + "/rotate-token", `{"overlap_seconds":-1}`, 400, "invalid", "overlap_seconds"},
		{"long overlap", "POST", regionPath + "/rotate-token", `{"overlap_seconds":9223372036854775807}`, 400, "invalid", "overlap_seconds"},
		{"deployment of nobody", "PUT", regionsPath + "/r2/deployments/d_1", deploymentBody, 404, "unknown_region", ""},
		{"deployment id", "PUT", regionPath + "/deployments/d%20x", deploymentBody, 400, "invalid", "id"},
		{"no body", "PUT", deploymentPath, "", 415, "unsupported_media_type", ""},
		{"cut off", "PUT", deploymentPath, `{"desired_state":"runn`, 400, "malformed", ""},
		{"no state", "PUT", deploymentPath, `{}`, 400, "invalid", "desired_state"},
		{"state", "PUT", deploymentPath, `{"desired_state":"weird"}`, 400, "invalid", "one of running, started"},
		{"state of a sentinel", "PUT", regionPath + "/sentinels/s_1", strings.Replace(sentinelBody, "running", "stopped", 1), 400, "invalid", "one of running, archived, standby"},
		{"new without spec", "PUT", regionPath + "/deployments/d_2", `{"desired_state":"running"}`, 400, "invalid", `"field":"spec"`},
		{"field of a spec", "PUT", deploymentPath, edit(`"port"`, `"porte"`), 400, "invalid", `"field":"spec.porte","value":"","want":"no such field"`},
		{"a name that is not UTF-8", "PUT", deploymentPath, edit(`"web"`, "\"w\xffb\""), 400, "invalid", `"field":"spec.k8s_name"`},
		{"type of a field", "PUT", deploymentPath, edit(`8080`, `"http"`), 400, "invalid", `"field":"spec.port"`},
		{"image", "PUT", deploymentPath, edit(`"image":"web:1",`, ``), 400, "invalid", "want the reference of an image"},
		{"cpu", "PUT", deploymentPath, edit(`"250"`, `"0"`), 400, "invalid", `"field":"spec.cpu_millicores","value":"0","want":"1 to 2147483647, in thousandths of a core"`},
		{"negative port", "PUT", deploymentPath, edit(`8080`, `-1`), 400, "invalid", `"field":"spec.port","value":"-1"`},
		{"autoscaling", "PUT", deploymentPath, edit(`"port"`, `"autoscaling":{"min_replicas":3,"max_replicas":2},"port"`), 400, "invalid", "spec.autoscaling"},
		{"a name taken", "PUT", regionPath + "/deployments/d_2", deploymentBody, 409, "name_taken", "d_1"},
		{"another name for life", "PUT", deploymentPath, edit(`"web"`, `"other"`), 409, "name_taken", "cannot change"},
		{"policy", "PUT", regionPath + "/policies/p_1", `{"desired_state":"running","spec":{"k8s_namespace":"ws","k8s_name":"p","policy":"eA=="}}`, 400, "invalid", "spec.policy"},
		{"delete of nothing", "DELETE", regionPath + "/deployments/d_2", "", 404, "unknown_resource", ""},
		{"method", "POST", deploymentPath, deploymentBody, 405, "method_not_allowed", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := w.admin(test.method, test.path, test.body)
			require.Equal(t, test.status, got.status, got.body)
			failure := got.failure(t)
			require.Equal(t, test.code, failure.Code, got.body)
			require.Contains(t, got.body, test.says)
			require.Equal(t, before, w.admin("GET", regionPath, "").body)
			require.Equal(t, 404, w.admin("GET", regionsPath+"/r2", "").status)
		})
	}
	require.Equal(t, 401, w.do("GET", regionPath, "another-token", "").status)
}
