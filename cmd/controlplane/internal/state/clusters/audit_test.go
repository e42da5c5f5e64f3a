package clusters_test

import (
	"encoding/json"
	"fmt"
	"net/url"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/edge/tokens"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/audit"
)

const auditPath = "/api/v1/admin/audit"

// audited returns the entries that a query chooses, the newest first.
func (w *world) audited(query string) (entries []audit.Entry, next string) {
	w.t.Helper()
	got := w.admin("GET", auditPath+query, "")
	require.Equal(w.t, 200, got.status, got.body)
	var body struct {
		Entries []audit.Entry
		Next    string
	}
	require.NoError(w.t, json.Unmarshal([]byte(got.body), &body))
	return body.Entries, body.Next
}

// newest returns the newest entries as one line each, the oldest of them first.
func (w *world) newest(n int) (lines []string) {
	w.t.Helper()
	entries, _ := w.audited(fmt.Sprintf("?limit=%d", n))
	for _, e := range entries {
		lines = append([]string{e.Verb + " " + e.Kind + " " + e.Name + " " + e.Outcome}, lines...)
	}
	return lines
}

func TestEachChangeHasOneEntryAndNothingElseHas(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.number()
	service := "service " + projectX + "/production/" + serviceX
	group := "var-group " + projectX + "/" + groupX
	seen, _ := w.audited("")
	require.Len(t, seen, 2, "the clusters")
	approve := w.holding("held-1")
	for i, step := range []struct{ method, path, body, want string }{
		{"PUT", clustersPath + "/" + clusterA, `{"region":"nyc3"}`, ""},
		{"PUT", clustersPath + "/" + clusterA, `{"region":"fra1"}`, "put cluster " + clusterA + " changed"},
		{"PUT", clustersPath + "/" + clusterC, `{"region":"nyc3"}`, "put cluster " + clusterC + " created"},
		{"PUT", clustersPath + "/" + clusterC, `{"region":"New York"}`, ""},
		{"PUT", clustersPath + "/" + clusterA + "/config", `{"lb_size_units":3}`, "configure cluster " + clusterA + " changed"},
		{"PUT", clustersPath + "/" + clusterA + "/config", `{"lb_size_units":3}`, ""},
		{"POST", clustersPath + "/" + clusterA + "/allow-mass-delete", approve, "allow-mass-delete cluster " + clusterA + " changed"},
		{"POST", clustersPath + "/" + clusterA + "/allow-mass-delete", approve, ""},
		{"POST", clustersPath + "/" + clusterB + "/rotate-token", ``, "rotate-token cluster " + clusterB + " changed"},
		{"POST", clustersPath + "/" + clusterA + "/new-epoch", ``, "new-epoch cluster " + clusterA + " changed"},
		{"PUT", projectsPath + projectX, projectBody, "put project " + projectX + " created"},
		{"PUT", projectsPath + projectX, projectBody, ""},
		{"PUT", servicePath, serviceBody, "put " + service + " created"},
		{"PUT", servicePath, serviceBody, ""},
		{"PUT", groupPath, groupBody, "put " + group + " created"},
		{"PUT", groupPath, groupBody, ""},
		{"PUT", attachPath, `{"var_groups":["` + groupX + `"]}`, "attach-var-groups " + service + " changed"},
		{"PUT", attachPath, `{"var_groups":["` + groupX + `"]}`, ""},
		{"DELETE", groupPath, "", ""}, // attached
		{"PUT", attachPath, `{"var_groups":[]}`, "attach-var-groups " + service + " changed"},
		{"DELETE", groupPath, "", "delete " + group + " deleted"},
		{"DELETE", servicePath, "", "delete " + service + " deleted"},
		{"DELETE", servicePath, "", ""},
		{"PUT", servicePath, serviceBody, "put " + service + " created"},
		{"DELETE", projectsPath + projectX, "", "delete project " + projectX + " deleted"},
		{"DELETE", projectsPath + projectX, "", ""},
		{"PUT", regionPath, regionBody, "put region reg_eu created"},
		{"PUT", regionPath, regionBody, ""},
		{"PUT", regionPath, `{"name":"eu-1","platform":"gcp"}`, "put region reg_eu changed"},
		{"POST", regionPath + "/rotate-token", ``, "rotate-token region reg_eu changed"},
		{"PUT", deploymentPath, deploymentBody, "put deployment reg_eu/d_1 created"},
		{"PUT", deploymentPath, deploymentBody, ""},
		{"PUT", deploymentPath, `{"desired_state":"stopped"}`, "put deployment reg_eu/d_1 changed"},
		{"DELETE", deploymentPath, "", "delete deployment reg_eu/d_1 deleted"},
		{"DELETE", deploymentPath, "", ""},
		{"PUT", regionPath + "/sentinels/s_1", sentinelBody, "put sentinel reg_eu/s_1 created"},
		{"PUT", regionPath + "/policies/p_1", policyBody, "put policy reg_eu/p_1 created"},
		{"POST", "/api/v1/admin/new-log-epoch", "", "new-epoch log regions changed"},
		{"DELETE", clustersPath + "/" + clusterC, "", "delete cluster " + clusterC + " deleted"},
		{"DELETE", regionPath, "", ""}, // not empty
	} {
		before, _ := w.audited("?limit=1000")
		id := fmt.Sprintf("step-%d", i)
		got := w.do(step.method, step.path, adminToken, step.body, "X-Request-Id", id)
		require.Equal(t, id, got.header.Get("X-Request-Id"))
		after, _ := w.audited("?limit=1000")
		if step.want == "" {
			require.Equal(t, before, after, "step %d: %s", i, got.body)
			continue
		}
		require.Len(t, after, len(before)+1, "step %d: %d %s", i, got.status, got.body)
		e := after[0]
		require.Equal(t, step.want, e.Verb+" "+e.Kind+" "+e.Name+" "+e.Outcome, "step %d", i)
		require.Equal(t, id, e.RequestID)
		require.Equal(t, "admin/"+tokens.Fingerprint(adminToken), e.Actor)
		require.WithinDuration(t, time.Now(), e.At, time.Minute)
		require.Contains(t, w.log.String(), `"request_id":"`+id+`"`)
	}
	all := w.admin("GET", auditPath, "").body
	for _, secret := range []string{adminToken, w.tokens[clusterA], "env-secret-value", "hunter2-canary"} {
		require.NotContains(t, all, secret)
	}
}

func TestAnAgentIsTheActorOfWhatItEnds(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.seed()
	w.must("DELETE", servicePath, "")
	w.pull(clusterA)
	w.report(true)
	require.Equal(t, []string{"delete service " + projectX + "/production/" + serviceX + " deleted"}, w.newest(1), "a report is no change")
	w.update(`UPDATE services SET updated_at = 0`)
	w.report(true)
	require.Equal(
		t,
		[]string{"delete service " + projectX + "/production/" + serviceX + " deleted"},
		w.newest(1),
		"what agents do is in a log of its own",
	)
	for _, query := range []string{"?actor=cluster", "?log=agents", "?log=all&limit=1"} {
		entries, _ := w.audited(query)
		require.Len(t, entries, 1)
		require.Equal(
			t,
			"cluster/"+clusterA+" drop-tombstones cluster "+clusterA,
			entries[0].Actor+" "+entries[0].Verb+" "+entries[0].Kind+" "+entries[0].Name,
		)
		require.Equal(t, audit.Agents, entries[0].Log)
	}
	require.Equal(t, 400, w.admin("GET", auditPath+"?log=none", "").status)
}

func TestAChangeAndItsEntryAreOneTransaction(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.seed()
	before := w.pull(clusterA)
	w.update(`ALTER TABLE audit RENAME TO elsewhere`)
	for _, step := range [][3]string{
		{"PUT", servicePath, `{"image":"registry.example.com/shop:2","replicas":2}`},
		{"DELETE", projectsPath + projectX, ""},
		{"POST", clustersPath + "/" + clusterA + "/rotate-token", ""},
		{"PUT", clustersPath + "/" + clusterA + "/config", `{"lb_size_units":7}`},
	} {
		got := w.admin(step[0], step[1], step[2])
		require.Equal(t, 500, got.status, got.body)
		require.Equal(t, got.header.Get("X-Request-Id"), got.failure(t).RequestID)
	}
	require.Equal(t, before.Version, w.pull(clusterA).Version, "no change without its entry; the token is the old one")
	w.update(`ALTER TABLE elsewhere RENAME TO audit`)
	require.Equal(t, 200, w.admin("PUT", servicePath, `{"image":"registry.example.com/shop:2","replicas":2}`).status)
}

func TestWhoReadsVarGroupsHasAnEntry(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.seed()
	require.Equal(t, 201, w.admin("PUT", groupPath, groupBody).status)
	for range 2 {
		require.Equal(t, 200, w.admin("GET", groupPath, "").status)
		require.Equal(t, 200, w.admin("GET", groupsPath, "").status)
	}
	require.Equal(t, 404, w.admin("GET", groupsPath+"/"+groupY, "").status)
	entries, _ := w.audited("?log=access")
	var names []string
	for _, e := range entries {
		require.Equal(t, [...]string{audit.Read, audit.KindVarGroup, "answered"}, [...]string{e.Verb, e.Kind, e.Outcome})
		names = append(names, e.Name)
	}
	require.Equal(
		t,
		[]string{projectX, projectX + "/" + groupX},
		names,
		"the newest first, a repetition has none, and so has what is not there",
	)
}

func TestTheAuditIsReadByObjectActorAndTime(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.seed()
	for n := range 7 {
		w.must("PUT", clustersPath+"/"+clusterA+"/config", fmt.Sprintf(`{"lb_size_units":%d}`, n+2))
	}
	all, next := w.audited("")
	require.Len(t, all, 11)
	require.Empty(t, next)
	var parts []audit.Entry
	for query := "?limit=3"; ; {
		part, next := w.audited(query)
		require.LessOrEqual(t, len(part), 3)
		parts = append(parts, part...)
		if next == "" {
			break
		}
		query = "?limit=3&before=" + next
	}
	require.Equal(t, all, parts, "the parts are the whole")
	for query, want := range map[string]int{
		"?object=cluster":                                9,
		"?object=cluster/" + clusterA:                    8,
		"?object=cluster/" + clusterB:                    1,
		"?object=cluster/" + clusterA[:8]:                0,
		"?object=service/" + projectX:                    1,
		"?object=service/" + projectX + "/production":    1,
		"?object=service/" + projectX + "/staging":       0,
		"?actor=admin":                                   11,
		"?actor=admin/" + tokens.Fingerprint(adminToken): 11,
		"?actor=admin/00000000":                          0,
		"?actor=controlplane":                            0,
		"?since=" + url.QueryEscape(all[0].At.Add(time.Hour).Format(time.RFC3339)):  0,
		"?since=" + url.QueryEscape(all[0].At.Add(-time.Hour).Format(time.RFC3339)): 11,
		"?object=project&actor=admin&since=2020-01-01T00:00:00Z&limit=1000":         1,
	} {
		found, _ := w.audited(query)
		require.Len(t, found, want, query)
	}
	for query, field := range map[string]string{
		"?object=galaxy": "object", "?object=cluster/": "object", "?object=": "object", "?object=Cluster": "object",
		"?actor=root": "actor", "?actor=admin/": "actor", "?actor=admin/a%20b": "actor",
		"?since=yesterday": "since", "?since=": "since", "?limit=0": "limit", "?limit=1001": "limit", "?limit=x": "limit",
		"?before=7": "before", "?before=" + all[0].ID + "0": "before", "?limit=1&limit=2": "limit", "?until=2020-01-01T00:00:00Z": "until", "?%zz": "query",
	} {
		got := w.admin("GET", auditPath+query, "")
		require.Equal(t, 400, got.status, "%s: %s", query, got.body)
		failure := got.failure(t)
		require.Equal(t, "invalid", failure.Code, query)
		require.Equal(t, field, failure.Fields[0].Field, query)
		require.NotEmpty(t, failure.Fields[0].Want, query)
	}
}

// renamed returns a resource with another k8s_name.
func renamed(body, name string) string {
	return regexp.MustCompile(`"k8s_name":"[a-z]+"`).ReplaceAllString(body, `"k8s_name":"`+name+`"`)
}

func TestListsAreReadInParts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.number()
	w.seed()
	w.must("PUT", clustersPath+"/"+clusterC, `{"region":"fra1"}`)
	for n := range 3 {
		w.must(
			"PUT",
			fmt.Sprintf("%s%08d-3333-4333-8333-333333333333", projectsPath, n),
			`{"cluster_id":"`+clusterB+`","workspace_id":"`+workspace+`","workspace_slug":"acme","slug":"shop`+fmt.Sprint(n)+`"}`,
		)
		w.must("PUT", fmt.Sprintf("%s%s/services/%08d-4444-4444-8444-444444444444/staging", projectsPath, projectX, n), serviceBody)
		w.must(
			"PUT",
			fmt.Sprintf("%s/%08d-5555-4555-8555-555555555555", groupsPath, n),
			`{"name":"group `+fmt.Sprint(n)+`","entries":[{"key":"A","value":"hunter2-canary"}]}`,
		)
		require.Equal(t, 201, w.admin("PUT", fmt.Sprintf("%s/reg_%d", regionsPath, n), fmt.Sprintf(`{"name":"r-%d","platform":"aws"}`, n)).status)
		for kind, body := range map[string]string{"deployments": deploymentBody, "sentinels": sentinelBody, "policies": policyBody} {
			got := w.admin("PUT", fmt.Sprintf("%s/reg_0/%s/x_%d", regionsPath, kind, n), renamed(body, fmt.Sprintf("%s-%d", kind, n)))
			require.Equal(t, 200, got.status, got.body)
		}
	}
	for path, list := range map[string]struct {
		name, key string
		n         int
	}{
		clustersPath:                          {"clusters", "cluster_id", 3},
		"/api/v1/admin/projects":              {"projects", "project_id", 4},
		projectsPath + projectX + "/services": {"services", "service_id", 4},
		groupsPath:                            {"var_groups", "var_group_id", 3},
		regionsPath:                           {"regions", "region_id", 3},
		regionsPath + "/reg_0/deployments":    {"deployments", "id", 3},
		regionsPath + "/reg_0/sentinels":      {"sentinels", "id", 3},
		regionsPath + "/reg_0/policies":       {"policies", "id", 3},
		regionsPath + "/reg_1/policies":       {"policies", "id", 0},
	} {
		whole := w.admin("GET", path, "")
		require.Equal(t, 200, whole.status, "%s: %s", path, whole.body)
		items, _ := whole.member(list.name).([]any)
		require.Len(t, items, list.n, path)
		require.Nil(t, whole.member("next"), path)
		require.NotContains(t, whole.body, "hunter2-canary", path)
		require.NotContains(t, whole.body, `"token`, path)
		parts := []any{}
		for query := "?limit=1"; ; {
			part := w.admin("GET", path+query, "")
			require.Equal(t, 200, part.status, part.body)
			more, _ := part.member(list.name).([]any)
			parts = append(parts, more...)
			if part.text("next") == "" {
				break
			}
			require.Len(t, more, 1)
			query = "?limit=1&after=" + url.QueryEscape(part.text("next"))
		}
		require.Equal(t, items, parts, path)
		for _, query := range []string{"?limit=0", "?limit=1001", "?after=%00", "?page=2"} {
			got := w.admin("GET", path+query, "")
			require.Equal(t, 400, got.status, "%s%s: %s", path, query, got.body)
			require.NotEmpty(t, got.failure(t).Fields, query)
		}
	}
	mine := w.admin("GET", "/api/v1/admin/projects?cluster_id="+clusterB, "")
	require.Len(t, mine.member("projects"), 3)
	require.Equal(t, 404, w.admin("GET", "/api/v1/admin/projects?cluster_id="+projectX, "").status)
	require.Equal(t, 400, w.admin("GET", "/api/v1/admin/projects?cluster_id=x", "").status)
	require.Equal(t, 404, w.admin("GET", projectsPath+projectZ+"/services", "").status)
	require.Equal(t, 404, w.admin("GET", regionsPath+"/none/policies", "").status)

	region := w.admin("GET", regionsPath+"/reg_0", "")
	require.Positive(t, region.number("log_head"), region.body)
	epoch := region.text("log_epoch")
	w.admin("POST", "/api/v1/admin/new-log-epoch", "")
	require.NotEqual(t, epoch, w.admin("GET", regionsPath+"/reg_0", "").text("log_epoch"))
	log := w.admin("GET", "/api/v1/admin/log", "")
	require.Equal(t, 200, log.status, log.body)
	require.Contains(t, log.body, `"queue_depth":`)
	w.admin("POST", regionsPath+"/reg_0/rotate-token", `{"overlap_seconds":60}`)
	w.admin("POST", clustersPath+"/"+clusterA+"/rotate-token", `{"overlap_seconds":60}`)
	for _, path := range []string{regionsPath + "/reg_0", clustersPath + "/" + clusterA} {
		until, err := time.Parse(time.RFC3339, w.admin("GET", path, "").text("previous_token_until"))
		require.NoError(t, err, path)
		require.WithinDuration(t, time.Now().Add(time.Minute), until, 30*time.Second)
	}
}

func TestWhatIsGivenUpIsRemovedWithItsProjects(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.seed()
	w.number()
	w.pull(clusterA)
	require.Equal(t, 201, w.admin("PUT", regionPath, regionBody).status)
	require.Equal(t, 200, w.admin("PUT", deploymentPath, deploymentBody).status)
	cluster := clustersPath + "/" + clusterA
	require.Equal(t, 400, w.admin("DELETE", cluster+"?abandon=yes", "").status)
	require.Equal(t, 400, w.admin("DELETE", cluster+"?force=true", "").status)
	require.Equal(t, "alive", w.admin("DELETE", cluster+"?abandon=true", "").failure(t).Code, "an agent that is alive is not given up")
	w.silence()
	require.Equal(t, "not_empty", w.admin("DELETE", cluster+"?abandon=false", "").failure(t).Code)
	require.Equal(t, "not_empty", w.admin("DELETE", regionPath, "").failure(t).Code)
	require.Equal(t, 204, w.admin("DELETE", cluster+"?abandon=true", "").status)
	require.Equal(t, 204, w.admin("DELETE", regionPath+"?abandon=true", "").status)
	require.Equal(t, []string{"abandon cluster " + clusterA + " deleted", "abandon region reg_eu deleted"}, w.newest(2))
	require.Equal(t, 404, w.admin("GET", projectsPath+projectX, "").status)
	require.Equal(t, 404, w.admin("GET", deploymentPath, "").status)
}
