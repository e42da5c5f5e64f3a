package statuspage_test

import (
	"encoding/json"
	"fmt"
	"html"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/api/starbase"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/edge/second"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/edge/tokens"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/front/adminapi"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/front/statuspage"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/agents"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/regions"
)

// placeRows returns the rows of the list of clusters or regions as text, and their links.
func (w *world) placeRows(path string) (rows, links []string, page string) {
	w.t.Helper()
	got := w.get(path, "Authorization", "Bearer "+adminToken)
	require.Equal(w.t, 200, got.status, got.body)
	_, body, _ := strings.Cut(got.body, "<tbody")
	body, _, _ = strings.Cut(body, "</tbody>")
	for _, row := range strings.Split(body, "<tr role=\"row\">")[1:] {
		rows = append(rows, plain(row))
		links = append(links, regexp.MustCompile(`href="([^"]+)"`).FindStringSubmatch(row)[1])
	}
	return rows, links, got.body
}

// seen returns a page as a bearer sees it.
func (w *world) seen(path string) string {
	w.t.Helper()
	got := w.get(path, "Authorization", "Bearer "+adminToken)
	require.Equal(w.t, 200, got.status, "%s: %s", path, got.body)
	return got.body
}

func TestEveryClusterAndRegionIsARowAndAPage(t *testing.T) {
	t.Parallel()
	each(t, statuspage.Config{}, func(w *world) {
		t := w.t
		w.seed()
		rows, links, page := w.placeRows("/status/clusters")
		require.Len(t, rows, 4)
		for n, want := range []string{
			`^fra1 ` + clusterB + ` failing \d+ s ago`, `^sgp1 ` + clusterC + ` held – held 2 deletions are held until a person approves`,
			`^lon1 ` + clusterD + ` never seen \d+ s ago .* UTC never seen No agent`, `^nyc3 ` + clusterA + ` in step – –`,
		} {
			require.Regexp(t, want, rows[n])
		}
		require.Contains(t, plain(page), "1 failing 1 held 1 never seen 1 in step")
		require.Contains(t, plain(w.shown()), "1 failing 1 held 1 never seen 1 in step", "the front page says the same")
		require.Equal(t, "/status/clusters/"+clusterC, links[1])
		for query, want := range map[string]int{"held": 1, "FRA1": 1, clusterA[:12]: 1, "makes+no+progress": 0, "have+failed": 1, "nothing": 0} {
			found, _, _ := w.placeRows("/status/clusters?q=" + query)
			require.Len(t, found, want, query)
		}

		heldPage := w.seen(links[1])
		text := plain(heldPage)
		for _, part := range []string{
			"sgp1 " + clusterC, "held : 2 deletions are held", "controlplane approve cluster " + clusterC + " held-1",
			"They are not approved.", "service shop 6", "service web 6 absent", "2 of 2, by name", "Load balancer 3 units", "by i",
			"configure, changed cluster sgp1 " + clusterC,
		} {
			require.Contains(t, text, part)
		}
		require.NotContains(t, heldPage, "<script>alert")
		require.NotContains(t, heldPage, "\u202e")
		require.NotContains(t, heldPage, "<button type=\"submit\">Approve")
		w.admin("POST", "clusters/"+clusterC+"/allow-mass-delete", map[string]any{"digest": "held-1"})
		text = plain(w.seen(links[1]))
		require.Contains(t, text, "approved : 2 deletions are held, and approved.")
		require.Regexp(t, `admin/[0-9a-f]{8} has approved them \d+ s ago`, text)
		rows, _, _ = w.placeRows("/status/clusters?q=approved")
		require.Len(t, rows, 1)

		rows, links, _ = w.placeRows("/status/regions")
		require.Regexp(t, `^eu-1 reg_eu failing – failing 1 instance has failed. aws, cell cell-a`, rows[0])
		require.Regexp(t, `^us-1 reg_us never seen \d+ s ago`, rows[1])
		text = plain(w.seen(links[0]))
		require.Regexp(
			t,
			`Objects .* ws/app-0 deployment d_0 failed running 2 running 1 pending 1 failed app-0-d: container web was restarted`,
			text,
		)
		require.Contains(t, text, "put, created deployment app-2 reg_eu/d_2")
		require.NotContains(t, w.seen(links[0]), "\u202e")

		for _, path := range []string{
			"clusters/" + id(clusterA, 7), "clusters/x", "regions/reg_no", "regions/%2e%2e%2fx", "clusters/a%2Fb", "regions/%00",
		} {
			missing := w.get("/status/"+path, "Authorization", "Bearer "+adminToken)
			require.Equal(t, 404, missing.status, path)
		}
		for _, path := range []string{"clusters?after=x", "clusters?page=2", "regions?after=1/2", "regions?q=%00"} {
			require.Equal(t, 400, w.get("/status/"+path, "Authorization", "Bearer "+adminToken).status, path)
		}
		for _, path := range []string{"clusters", "regions", "clusters/" + clusterA, "regions/reg_eu"} {
			require.Equal(t, 303, w.get("/status/"+path).status, path)
			require.Equal(t, 405, w.send("POST", "/status/"+path, nil, "Authorization", "Bearer "+adminToken).status, path)
		}
	})
}

// TestEveryLinkOfEveryPageIsAnswered follows all links from the front page.
func TestEveryLinkOfEveryPageIsAnswered(t *testing.T) {
	t.Parallel()
	w := small(t, statuspage.Config{Interval: time.Nanosecond})
	w.seed()
	seen, queue := map[string]bool{}, []string{"/status"}
	for len(queue) > 0 {
		path, _, _ := strings.Cut(html.UnescapeString(queue[0]), "#")
		queue = queue[1:]
		if seen[path] {
			continue
		}
		seen[path] = true
		body := w.seen(path)
		for _, found := range regexp.MustCompile(`(?:href|action)="([^"]+)"`).FindAllStringSubmatch(body, -1) {
			if strings.HasPrefix(found[1], "/status") && found[1] != "/status/logout" {
				queue = append(queue, found[1])
			}
		}
	}
	for _, path := range []string{
		"/status/clusters/" + clusterA, "/status/regions/reg_eu", "/status/regions/reg_us", "/status/clusters?q=held",
		"/status/services/" + id(clusterB, 100) + "/" + id(clusterB, 1) + "/production",
	} {
		require.True(t, seen[path], "%s is linked", path)
	}
}

// TestEachStateOfAClusterIsShown makes each, by what its agent sends where that can be.
func TestEachStateOfAClusterIsShown(t *testing.T) {
	t.Parallel()
	size := 0
	w := small(t, statuspage.Config{StateBytes: func(string) int { return size }})
	w.register(clusterA, "nyc3", 1)
	ago := func(d time.Duration) int64 { return time.Now().Add(-d).UnixMilli() }
	well := func() {
		size = 0
		w.report(clusterA, [3]string{"Healthy"})
		w.capacity(clusterA, 10, time.Now())
	}
	for name, test := range map[string]struct {
		make        func()
		state, page string
	}{
		"never seen": {func() { w.sql(`UPDATE clusters SET last_pull_at = 0, reported_at = 0`) }, `never seen \d+ s ago`, "controlplane rotate cluster " + clusterA},
		"silent": {
			func() {
				w.sql(`UPDATE clusters SET last_pull_at = ?, reported_at = ?`, ago(9*time.Minute), ago(20*time.Minute))
			},
			"silent 9 min ago", "kubectl logs -n starform-system",
		},
		"no report": {func() { w.sql(`UPDATE clusters SET reported_at = ?`, ago(12*time.Minute)) }, "no report 12 min ago", "does not report"},
		"error": {func() {
			state := w.call("GET", "/api/v1/clusters/"+clusterA+"/desired-state", w.tokens[clusterA], nil)
			w.call("POST", "/api/v1/clusters/"+clusterA+"/status", w.tokens[clusterA], map[string]any{
				"epoch": state["epoch"], "generation": state["generation"], "instance_id": "i", "services": []any{},
				"cluster_error_class": starbase.ClassGatewayMissing, "cluster_message": evil,
			})
		}, "error – error GatewayMissing: <script>", "The configuration of the cluster is not in effect"},
		"unseen": {func() {
			state := w.call("GET", "/api/v1/clusters/"+clusterA+"/desired-state", w.tokens[clusterA], nil)
			w.call("POST", "/api/v1/clusters/"+clusterA+"/status", w.tokens[clusterA], map[string]any{
				"epoch": state["epoch"], "generation": state["generation"], "instance_id": "i", "services": []any{},
				"cluster_error_class": starbase.ClassUnseen, "cluster_message": "what is reported is what was so before",
			})
		}, "error – error Unseen: what is reported is what was so before", "The live state is not known meanwhile"},
		"failing": {func() { w.report(clusterA, [3]string{"Failed", "ImagePull", "no"}) }, `failing \d+ s ago .* 1 service has failed`, "Look at each of them"},
		"stuck": {func() {
			w.report(clusterA, [3]string{"Progressing"})
			w.sql(`UPDATE service_status SET since = ?`, ago(15*time.Minute))
		}, "failing 15 min ago", "makes no progress"},
		"full":        {func() { w.capacity(clusterA, 1000, time.Now().Add(time.Second)) }, `full 0 s ago|full \d+ s ago`, "Build the next cluster"},
		"nearly full": {func() { w.capacity(clusterA, 800, time.Now().Add(time.Second)) }, `nearly full \d+ s ago .* 800 of 1,000 pods, 80 %`, "Build the next"},
		"body":        {func() { size = starbase.MaxBody*8/10 + 1 }, "nearly too large – nearly too large The desired state has 13,421,7", "another cluster"},
		"version":     {func() { w.sql(`UPDATE clusters SET last_pull_version = 'other-3.n'`) }, "unknown version – unknown version The agent has version other-3.n", "See the runbook"},
		"behind": {
			func() {
				w.admin("PUT", "clusters/"+clusterA+"/config", map[string]any{"lb_size_units": 10 + time.Now().Nanosecond()%100})
			},
			"behind – behind", "reports once it has applied",
		},
	} {
		well()
		w.sql(`DELETE FROM capacity_reports WHERE current_pod_count >= 800`)
		rows, _, _ := w.placeRows("/status/clusters")
		require.Regexp(t, "nyc3 "+clusterA+" in step – –", rows[0], name)
		test.make()
		rows, _, _ = w.placeRows("/status/clusters")
		require.Regexp(t, test.state, rows[0], name)
		require.Contains(t, plain(w.seen("/status/clusters/"+clusterA)), test.page, name)
	}
}

// TestThePageSaysWhoHasAskedForAnApproval has a first request that waits for a second person.
func TestThePageSaysWhoHasAskedForAnApproval(t *testing.T) {
	t.Parallel()
	each(t, statuspage.Config{}, func(w *world) {
		t := w.t
		w.register(clusterA, "nyc3", 1)
		w.hold(clusterA)
		alice := tokens.Only(adminToken)()[0]
		alice.Name = "alice"
		person := &second.Person{
			Database: w.database, Admins: func() []tokens.Admin { return []tokens.Admin{alice} }, Actions: []string{adminapi.ActionApprove},
		}
		r := httptest.NewRequestWithContext(t.Context(), "POST", adminapi.Prefix+"clusters/"+clusterA+"/"+adminapi.ActionApprove, nil)
		agreed, err := person.Agree(httptest.NewRecorder(), r, adminapi.ActionApprove, alice, agents.Approval{Digest: "held-1"})
		require.NoError(t, err)
		require.False(t, agreed)
		page := plain(w.seen("/status/clusters/" + clusterA))
		require.Regexp(t, `alice has asked for the approval; another administrator must ask for the same until 2\d{3}-`, page)
		w.sql(`UPDATE second_person SET asked_at = ?`, time.Now().Add(-61*time.Minute).UnixMilli())
		require.Contains(t, plain(w.seen("/status/clusters/"+clusterA)), "They are not approved.")
	})
}

// TestACommandToTypeIsOneWordEach has a digest for a shell, as an older version took it from an agent.
func TestACommandToTypeIsOneWordEach(t *testing.T) {
	t.Parallel()
	w := small(t, statuspage.Config{Interval: time.Nanosecond})
	w.register(clusterA, "nyc3", 1)
	state := w.call("GET", "/api/v1/clusters/"+clusterA+"/desired-state", w.tokens[clusterA], nil)
	w.call("POST", "/api/v1/clusters/"+clusterA+"/status", w.tokens[clusterA], map[string]any{
		"epoch": state["epoch"], "generation": state["generation"], "instance_id": "i", "services": []any{},
	})
	for digest, want := range map[string]string{
		"a';$(reboot)":         "approve cluster " + clusterA + ` 'a'\'';$(reboot)'`,
		"--server=http://evil": "approve -- cluster " + clusterA + " '--server=http://evil'",
	} {
		units := []starbase.HeldUnit{{Unit: "x", Objects: 1, Reason: "r"}}
		held, err := json.Marshal(starbase.HeldDeletions{Digest: digest, Count: 1, Units: units})
		require.NoError(t, err)
		w.sql(`UPDATE clusters SET held_deletions = ?`, string(held))
		for _, path := range []string{"/status", "/status/clusters/" + clusterA} {
			require.Contains(t, plain(w.seen(path)), "controlplane "+want, path)
		}
	}
}

// TestWhatTheAgentOfARegionCannotDoIsShown has it as the reason of the region and of the resource.
func TestWhatTheAgentOfARegionCannotDoIsShown(t *testing.T) {
	t.Parallel()
	w := small(t, statuspage.Config{Interval: time.Nanosecond})
	w.crowd(1)
	w.sql(`INSERT INTO deployments (id, workspace_id, k8s_namespace, k8s_name, updated_at) VALUES ('d_web', 'w', 'ws', 'web', 0)`)
	w.sql(`INSERT INTO deployment_topology (deployment_id, region_id, workspace_id, desired_state, spec, updated_at)
		VALUES ('d_web', 'reg_0000', 'w', 'running', '{}', 0)`)
	problems := []regions.Problem{{Resource: "deployments/ws/web", Message: "ReplicaSet ws/web is not ours <b>"}}
	for n := range 6 {
		problems = append(problems, regions.Problem{Resource: fmt.Sprintf("deployments/ws/x-%d", n), Message: "is broken"})
	}
	text, err := json.Marshal(problems)
	require.NoError(t, err)
	w.sql(`UPDATE regions SET problems = ?, heartbeat_at = ? WHERE id = 'reg_0000'`, string(text), time.Now().UnixMilli())
	page := plain(w.seen("/status/regions/reg_0000"))
	require.Contains(t, page, "deployments/ws/web: ReplicaSet ws/web is not ours <b>")
	require.Contains(t, page, "deployments/ws/x-3: is broken")
	require.NotContains(t, page, "ws/x-4", "the first five")
	require.Contains(t, page, "The agent reports 2 more.")
	require.Contains(t, page, "controlplane get -o json region reg_0000")
	require.Contains(t, page, "ws/web deployment d_web not applied")
	require.Contains(t, plain(w.seen("/status/regions")), "deployments/ws/web: ReplicaSet ws/web is not ours <b>")
	w.sql(`UPDATE regions SET heartbeat_at = ? WHERE id = 'reg_0000'`, time.Now().Add(-time.Hour).UnixMilli())
	require.Contains(t, plain(w.seen("/status/regions/reg_0000")), "ws/web deployment d_web unknown", "a silent agent may have done it since")
}

// TestTwoThousandClustersArePagesByACursor walks over all, and has each once.
func TestTwoThousandClustersArePagesByACursor(t *testing.T) {
	t.Parallel()
	each(t, statuspage.Config{}, func(w *world) {
		t := w.t
		const n = 2000
		w.crowd(n)
		for _, list := range []string{"clusters", "regions"} {
			seen, pages, path := map[string]bool{}, 0, "/status/"+list
			for path != "" {
				_, links, page := w.placeRows(path)
				if pages++; pages == 1 {
					require.Contains(t, links[0], "1999", "the one that is silent comes first")
				}
				for _, link := range links {
					require.False(t, seen[link], link)
					seen[link] = true
				}
				path = ""
				if next := regexp.MustCompile(`rel="next" href="([^"]+)"`).FindStringSubmatch(page); next != nil {
					path = html.UnescapeString(next[1])
				}
			}
			require.Len(t, seen, n)
			require.Equal(t, n/100, pages)
			rows, _, page := w.placeRows("/status/" + list + "?after=99/zzz/zzz")
			require.Empty(t, rows, "after the last")
			require.Contains(t, page, `rel="prev"`)
			rows, _, _ = w.placeRows("/status/" + list + "?q=0777")
			require.Len(t, rows, 1)
		}
	})
}

func TestTheAuditHasNamesAndIsSearched(t *testing.T) {
	t.Parallel()
	each(t, statuspage.Config{Interval: time.Nanosecond}, func(w *world) {
		t := w.t
		w.seed()
		w.admin(
			"PUT",
			servicePath(clusterA, 1),
			map[string]any{"service_name": "checkout", "image": "registry.example.com/shop:1", "replicas": 3},
		)
		row := func(query string) (string, []string) {
			page := w.seen("/status?q=" + query)
			ids := rowsOf(page, "change")
			if len(ids) == 0 {
				require.Regexp(t, `None of the last \d+ changes matches`, plain(page))
				return "", nil
			}
			_, rest, _ := strings.Cut(page, `id="change-`+ids[0]+`"`)
			row, _, _ := strings.Cut(rest, "</tr>")
			return row, ids
		}
		first, ids := row("checkout")
		require.Len(t, ids, 2, "its creation, too")
		require.Contains(
			t,
			first,
			fmt.Sprintf(`<a href="/status/services/%s/%s/production">shop / production / checkout <code>`, id(clusterA, 100), id(clusterA, 1)),
		)
		first, _ = row("app-1")
		require.Contains(t, first, `deployment <a href="/status/regions/reg_eu">app-1 <code>reg_eu/d_1</code></a>`)
		_, ids = row("no-such-thing")
		require.Empty(t, ids)
		w.sql(`DELETE FROM deployment_topology WHERE deployment_id = 'd_1'`)
		first, _ = row("d_1")
		require.Contains(t, first, `deployment <code>reg_eu/d_1</code>`, "no link to what is not there")
	})
}
