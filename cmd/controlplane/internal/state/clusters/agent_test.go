package clusters_test

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/api/starbase"
	"github.com/seed-9e1ffd66/trueup/internal/test/await"
)

func statePath(cluster string) string  { return "/api/v1/clusters/" + cluster + "/desired-state" }
func statusPath(cluster string) string { return "/api/v1/clusters/" + cluster + "/status" }

func TestANewClusterIsServedAnEmptyCompleteState(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	state := w.pull(clusterA)
	require.True(t, state.Complete)
	require.EqualValues(t, 1, state.Generation)
	require.Empty(t, state.Services)
	require.Equal(t, 1, state.ClusterConfig.LBSizeUnits)
	require.NotEqual(t, state.Epoch, w.pull(clusterB).Epoch)
}

func TestAServedBodyCutAtAnyByteIsRefusedByTheAgent(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.seed()
	got := w.do("GET", statePath(clusterA), w.tokens[clusterA], "")
	require.Equal(t, strconv.Itoa(len(got.body)), got.header.Get("Content-Length"))
	require.Equal(t, "no-store", got.header.Get("Cache-Control"))
	for cut := range got.body {
		_, err := starbase.Decode(strings.NewReader(got.body[:cut]), clusterA)
		require.Error(t, err, "%d of %d bytes", cut, len(got.body))
	}
}

func TestAnUnchangedStateIsAnsweredWithoutABody(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.seed()
	token := w.tokens[clusterA]
	etag := w.do("GET", statePath(clusterA), token, "").header.Get("ETag")
	require.Regexp(t, `^"`+w.pull(clusterA).Epoch+`-3\.[0-9a-f]{16}"$`, etag)
	for _, header := range []string{etag, `"other", ` + etag, "W/" + etag} {
		got := w.do("GET", statePath(clusterA), token, "", "If-None-Match", header)
		require.Equal(t, 304, got.status, header)
		require.Empty(t, got.body)
		require.Equal(t, etag, got.header.Get("ETag"))
	}
	for _, header := range []string{"", `"other"`, strings.Trim(etag, `"`)} {
		require.Equal(t, 200, w.do("GET", statePath(clusterA), token, "", "If-None-Match", header).status, header)
	}
	w.must("PUT", servicePath, strings.Replace(serviceBody, "shop:1", "shop:2", 1))
	require.Equal(t, 200, w.do("GET", statePath(clusterA), token, "", "If-None-Match", etag).status)
}

// TestHostileATokenOpensItsOwnClusterOnly also has a foreign cluster and an unknown one answered alike.
func TestHostileATokenOpensItsOwnClusterOnly(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.seed()
	report := `{"epoch":"e","generation":1,"instance_id":"i","services":[]}`
	for _, endpoint := range []struct{ method, path, body string }{
		{"GET", "/desired-state", ""},
		{"POST", "/status", report},
	} {
		for _, test := range []struct {
			name, cluster, token, code string
			status                     int
		}{
			{"none", clusterA, "", "unauthorized", 401},
			{"wrong", clusterA, "wrong", "unauthorized", 401},
			{"almost", clusterA, w.tokens[clusterA][:42], "unauthorized", 401},
			{"the administrator's", clusterA, adminToken, "unauthorized", 401},
			{"of another cluster", clusterB, w.tokens[clusterA], "forbidden", 403},
			{"of another cluster, the other way", clusterA, w.tokens[clusterB], "forbidden", 403},
			{"for an unknown cluster", clusterC, w.tokens[clusterA], "forbidden", 403},
			{"none, for an unknown cluster", clusterC, "", "unauthorized", 401},
		} {
			t.Run(endpoint.path+" with token "+test.name, func(t *testing.T) {
				got := w.do(endpoint.method, "/api/v1/clusters/"+test.cluster+endpoint.path, test.token, endpoint.body)
				require.Equal(t, test.status, got.status)
				require.Equal(t, test.code, got.failure(t).Code)
				require.Empty(t, got.header.Get("ETag"))
				_, err := starbase.Decode(strings.NewReader(got.body), test.cluster)
				require.Error(t, err, "an error must never read as a desired state")
			})
		}
	}
	basic := w.do("GET", statePath(clusterA), "", "", "Authorization", "Basic "+w.tokens[clusterA])
	require.Equal(t, 401, basic.status)
	require.Equal(t, "Bearer", basic.header.Get("WWW-Authenticate"))
}

func TestATokenOfAnAgentNeverReachesTheAdministration(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, path := range []string{clustersPath, "/api/v1/clusters/../admin/clusters", "//api/v1/admin/clusters", "/api/v1/clusters/%2e%2e/admin/clusters"} {
		got := w.do("GET", path, w.tokens[clusterA], "")
		require.Contains(t, []int{401, 404}, got.status, path)
		require.NotContains(t, got.body, "region")
	}
}

func TestAuthenticationComesBeforeEverythingElse(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, request := range [][2]string{
		{"DELETE", statePath(clusterA)},
		{"GET", statusPath(clusterA)},
		{"POST", statusPath("no-uuid")},
		{"PATCH", clustersPath},
		{"GET", "/api/v1/admin/nothing"},
		{"PUT", clustersPath + "/no-uuid"},
		{"GET", "/api/v1/clusters/" + clusterA + "/nothing"},
	} {
		got := w.do(request[0], request[1], "wrong", "{", "Content-Type", "text/plain")
		require.Equal(t, 401, got.status, request)
	}
}

func TestStatusIsKeptAndShown(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.seed()
	epoch := w.pull(clusterA).Epoch
	report := func(generation int64, phase, more string) answer {
		return w.do(
			"POST",
			statusPath(clusterA),
			w.tokens[clusterA],
			fmt.Sprintf(`{"epoch":%q,"generation":%d,"instance_id":"agent-1","later":true,
			"services":[{"project_id":%q,"environment":"production","service_id":%q,"observed_generation":%d,"phase":%q,"ready":1,"desired":2%s}]}`,
				epoch, generation, projectX, serviceX, generation, phase, more),
		)
	}
	require.Equal(t, 204, report(3, "Failed", `,"error_class":"NameTaken","message":"held by hand"`).status)
	shown := w.admin("GET", clustersPath+"/"+clusterA, "")
	require.Equal(t, 200, shown.status)
	require.EqualValues(t, 3, shown.number("generation"))
	require.Equal(t, map[string]any{"Failed": 1.0}, shown.member("standings"))
	// A pull is answered first, and then recorded, if that takes at most a second.
	await.Eventually(t, "a pull is recorded", func() bool {
		version := w.pull(clusterA).Version
		shown = w.admin("GET", clustersPath+"/"+clusterA, "")
		return shown.text("last_pull_version") == version
	})
	require.NotEmpty(t, shown.text("last_pull_at"))
	for _, part := range []string{`"phase":"Failed"`, `"ready":1`, `"desired":2`, `"observed_generation":3`, `"error_class":"NameTaken"`, `"message":"held by hand"`, `"wanted_generation":3`, `"instance_id":"agent-1"`} {
		require.Contains(t, shown.body, part)
	}

	// An older report never replaces a newer one; one of the same generation does.
	require.Equal(t, 204, report(2, "Applying", "").status)
	require.Contains(t, w.admin("GET", clustersPath+"/"+clusterA, "").body, `"phase":"Failed"`)
	require.Equal(t, 204, report(3, "Healthy", "").status)
	require.Contains(t, w.admin("GET", clustersPath+"/"+clusterA, "").body, `"phase":"Healthy"`)

	// A report about a generation that was never made is refused, one about
	// an epoch that is over is dropped.
	require.Equal(t, "generation_ahead", report(4, "Failed", "").failure(t).Code)
	epoch = "gone"
	require.Equal(t, 204, report(3, "Failed", "").status)
	shown = w.admin("GET", clustersPath+"/"+clusterA, "")
	require.Equal(t, map[string]any{"Healthy": 1.0}, shown.member("standings"))
}

func TestADeletedServiceStandsAsPendingUntilTheAgentHasWorkedItOff(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.seed()
	const other = "dddddddd-0000-4000-8000-00000000000f"
	w.must("PUT", strings.Replace(servicePath, serviceX, other, 1), `{"image":"other:1","replicas":1}`)
	report := func(services ...string) {
		state := w.pull(clusterA)
		entries := make([]string, len(services))
		for i, id := range services {
			entries[i] = fmt.Sprintf(`{"project_id":%q,"environment":"production","service_id":%q,"phase":"Healthy"}`, projectX, id)
		}
		require.Equal(t, 204, w.do(
			"POST",
			statusPath(clusterA),
			w.tokens[clusterA],
			fmt.Sprintf(
				`{"epoch":%q,"generation":%d,"instance_id":"i","services":[%s]}`,
				state.Epoch,
				state.Generation,
				strings.Join(entries, ","),
			),
		).status)
	}
	standings := func() any { return w.admin("GET", clustersPath+"/"+clusterA, "").member("standings") }
	report(serviceX, other)
	require.Equal(t, map[string]any{"Healthy": 2.0}, standings())
	w.must("DELETE", servicePath, "")
	require.Equal(t, map[string]any{"Healthy": 1.0, "Pending": 1.0}, standings())
	report(other)
	require.Equal(t, map[string]any{"Healthy": 1.0, "Deleted": 1.0}, standings())
}

func TestAServiceThatWasNeverReportedIsShownAsUnknown(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.seed()
	shown := w.admin("GET", clustersPath+"/"+clusterA, "")
	require.Equal(t, map[string]any{"Unknown": 1.0}, shown.member("standings"))
	require.Nil(t, shown.member("last_pull_at"))
}

func TestAServiceTheDatabaseDoesNotKnowCanBeReported(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	got := w.do("POST", statusPath(clusterA), w.tokens[clusterA], `{"epoch":"`+w.pull(clusterA).Epoch+`","generation":1,"instance_id":"i",
		"services":[{"project_id":"`+projectX+`","environment":"`+strings.Repeat("e", 40)+`","service_id":"`+serviceX+`","phase":"Rejected","error_class":"DeletionHeld"}]}`)
	require.Equal(t, 204, got.status, got.body)
	require.Contains(t, w.admin("GET", clustersPath+"/"+clusterA, "").body, `"error_class":"DeletionHeld"`)
	require.NotContains(t, w.admin("GET", clustersPath+"/"+clusterB, "").body, "DeletionHeld")
}

func TestABadStatusReportIsRefusedWhole(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.seed()
	good := `{"project_id":"` + projectX + `","environment":"production","service_id":"` + serviceX + `","phase":"Healthy"}`
	head := `{"epoch":"` + w.pull(clusterA).Epoch + `","generation":3,"instance_id":"i","services":[`
	many := strings.Repeat(good+",", starbase.MaxStatusServices) + good
	for _, test := range []struct {
		name, body, contentType, code string
		status                        int
	}{
		{"not JSON", "{", "application/json", "malformed", 400},
		{"nothing", "", "application/json", "malformed", 400},
		{"null", "null", "application/json", "malformed", 400},
		{"two objects", head + "]}{}", "application/json", "malformed", 400},
		{"wrong type", head + `"x"]}`, "application/json", "invalid", 400},
		{"wrong phase", head + good + "," + strings.Replace(good, "Healthy", "Splendid", 1) + "]}", "application/json", "invalid", 400},
		{"too many", head + many + "]}", "application/json", "too_large", 413},
		{"too large", head + strings.Repeat(" ", 8<<20) + "]}", "application/json", "too_large", 413},
		{"wrong type of content", head + good + "]}", "text/plain", "unsupported_media_type", 415},
		{"no type of content", head + good + "]}", "", "unsupported_media_type", 415},
		{"wrong charset", head + good + "]}", "application/json; charset=latin1", "unsupported_media_type", 415},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := w.do("POST", statusPath(clusterA), w.tokens[clusterA], test.body, "Content-Type", test.contentType)
			require.Equal(t, test.status, got.status, "%.300s", got.body)
			require.Equal(t, test.code, got.failure(t).Code)
			require.NotContains(t, w.admin("GET", clustersPath+"/"+clusterA, "").body, "Healthy", "nothing may be stored")
		})
	}
	require.Equal(
		t,
		204,
		w.do("POST", statusPath(clusterA), w.tokens[clusterA], head+good+"]}", "Content-Type", "application/json; charset=utf-8").status,
	)
}

func TestAWrongMethodIsAnsweredWithTheRightOnes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	got := w.do("DELETE", statePath(clusterA), w.tokens[clusterA], "")
	require.Equal(t, http.StatusMethodNotAllowed, got.status)
	require.Equal(t, "GET", got.header.Get("Allow"))
	require.Equal(t, "method_not_allowed", got.failure(t).Code)
	got = w.admin("PATCH", projectsPath+projectX, "{}")
	require.Equal(t, http.StatusMethodNotAllowed, got.status)
	require.Equal(t, "PUT, GET, DELETE", got.header.Get("Allow"))
	require.Equal(t, "unknown_path", w.admin("GET", "/api/v1/admin/nothing", "").failure(t).Code)
	require.Equal(t, 404, w.do("GET", "/", "", "").status)
}

func TestARotatedTokenReplacesTheOldOne(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	path := clustersPath + "/" + clusterA + "/rotate-token"
	try := func(token string) int { return w.do("GET", statePath(clusterA), token, "").status }
	first := w.tokens[clusterA]
	second := w.admin("POST", path, "").text("token")
	require.NotEmpty(t, second)
	require.Equal(t, 401, try(first), "revoked at once")
	require.Equal(t, 200, try(second))

	third := w.admin("POST", path, `{"overlap_seconds":60}`).text("token")
	require.Equal(t, 200, try(second), "valid during the overlap")
	require.Equal(t, 200, try(third))
	fourth := w.admin("POST", path, `{"overlap_seconds":1}`).text("token")
	require.Equal(t, 401, try(second), "two rotations ago")
	require.Equal(t, 200, try(third))
	await.Until(t, 5e9, "the overlap ends", func() bool { return try(third) == 401 })
	require.Equal(t, 200, try(fourth))

	require.Equal(t, 404, w.admin("POST", clustersPath+"/"+clusterC+"/rotate-token", "").status)
	require.Equal(t, 400, w.admin("POST", path, `{"overlap_seconds":-1}`).status)
	w.tokens[clusterA] = fourth
	require.EqualValues(t, 1, w.pull(clusterA).Generation, "a token is no part of the desired state")
}
