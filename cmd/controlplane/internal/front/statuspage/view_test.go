package statuspage_test

import (
	"encoding/json"
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/front/statuspage"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/db"
	"github.com/seed-9e1ffd66/trueup/internal/test/await"
)

// crowd fills the tables with clusters and regions of which the last is the only one that
// fails.
func (w *world) crowd(n int) {
	w.t.Helper()
	now := time.Now().UnixMilli()
	ctx := w.t.Context()
	require.NoError(w.t, w.database.Write(ctx, func(tx *db.Tx) error {
		for i := range n {
			heartbeat := now
			if i == n-1 {
				heartbeat = 1
			}
			for _, step := range []struct {
				statement string
				args      []any
			}{
				{`INSERT INTO regions (id, name, platform, token_hash, created_at, heartbeat_at) VALUES (?, ?, 'aws', ?, 1, ?)`, []any{fmt.Sprintf("reg_%04d", i), fmt.Sprintf("r-%04d", i), fmt.Sprintf("r%d", i), heartbeat}},
				{`INSERT INTO region_log (scope, region_id) VALUES (?, ?)`, []any{fmt.Sprintf("r-%04d", i), fmt.Sprintf("reg_%04d", i)}},
				{`INSERT INTO clusters (id, region, token_hash, epoch, generation, lb_size_units, created_at, last_pull_at, last_pull_version, reported_at, reported_epoch, reported_generation)
					VALUES (?, ?, ?, 'e', 1, 1, 1, ?, 'e-1.n', ?, 'e', 1)`, []any{fmt.Sprintf("%08d-0000-4000-8000-000000000000", i), fmt.Sprintf("z-%04d", i), fmt.Sprintf("c%d", i), heartbeat, heartbeat}},
			} {
				if _, err := tx.ExecContext(ctx, step.statement, step.args...); err != nil {
					return err
				}
			}
			if err := w.database.Log.AddScope(ctx, tx.Tx, fmt.Sprintf("r-%04d", i)); err != nil {
				return err
			}
		}
		return nil
	}))
	w.database.Log.Wake()
	await.Until(w.t, eventually, "err == nil && len(list) == n", func() bool {
		list, err := w.database.Log.Progress(ctx)
		return err == nil && len(list) == n
	})
}

// lists returns the answer with the lists of a view.
func (w *world) lists(query string) (html map[string]string, pages map[string]list) {
	w.t.Helper()
	got := w.get("/status/rows"+query, "Authorization", "Bearer "+adminToken)
	require.Equal(w.t, 200, got.status, got.body)
	require.Equal(w.t, "application/json", got.header.Get("Content-Type"))
	var answer struct {
		Now      time.Time
		Sections []struct {
			list
			Section, HTML string
		}
	}
	require.NoError(w.t, json.Unmarshal([]byte(got.body), &answer))
	html, pages = map[string]string{}, map[string]list{}
	for _, s := range answer.Sections {
		html[s.Section], pages[s.Section] = s.HTML, s.list
	}
	return html, pages
}

type list struct {
	Q                                      string
	Total, Found, Page, Pages, First, Last int
	Previous, Next                         string
}

func rowsOf(html, prefix string) (ids []string) {
	for _, found := range regexp.MustCompile(`<tr role="row" id="`+prefix+`-([^"]*)"`).FindAllStringSubmatch(html, -1) {
		ids = append(ids, found[1])
	}
	return ids
}

func TestTwoThousandRegionsAreFortyPagesOfWhatNeedsALookFirst(t *testing.T) {
	t.Parallel()
	// Longer than the test: one look at the database.
	each(t, statuspage.Config{Interval: time.Hour}, func(w *world) {
		t := w.t
		const n = 2000
		w.crowd(n)
		page := w.shown()
		require.Less(t, len(page), 250<<10, "the first paint is small")
		t.Logf("the page of %d regions and clusters has %d bytes", n, len(page))
		require.Contains(t, page, `<b class="total">2,000</b>`, "the summary is that of all")
		regions := rowsOf(page, "region")
		require.Len(t, regions, 50)
		require.Equal(t, []string{"reg_1999", "reg_0000", "reg_0001"}, regions[:3], "the one that is silent comes first")
		require.Len(t, rowsOf(page, "cluster"), 50)
		require.Contains(t, page, "1 to 50 of 2,000, what needs a look first")

		// Each row is on one page, and the pages are linked.
		seen := map[string]bool{}
		address, pages := "/status", 0
		for address != "" {
			query := ""
			if _, text, found := strings.Cut(address, "?"); found {
				query, _, _ = strings.Cut(text, "#")
				query = "?" + query
			}
			html, lists := w.lists(query)
			for _, id := range rowsOf(html["regions"], "region") {
				require.False(t, seen[id], id)
				seen[id] = true
			}
			require.Contains(t, rowsOf(html["clusters"], "cluster")[0], "00001999", "the other list stays where it is")
			pages++
			require.Equal(t, pages, lists["regions"].Page)
			require.Equal(t, 40, lists["regions"].Pages)
			address = lists["regions"].Next
		}
		require.Len(t, seen, n)
		html, lists := w.lists("?regions=1000000")
		require.Equal(t, 40, lists["regions"].Page, "a page beyond the last is the last")
		require.Equal(t, "/status?regions=39#regions", lists["regions"].Previous)
		require.Len(t, rowsOf(html["regions"], "region"), 50)
	})
}

func TestASearchFindsWhatIsNotOnThePage(t *testing.T) {
	t.Parallel()
	w := small(t, statuspage.Config{Interval: time.Nanosecond})
	w.seed()
	w.admin("PUT", servicePath(clusterB, 2), map[string]any{"service_name": "checkout", "image": "registry.example.com/shop:1", "replicas": 3})
	w.report(clusterB, [3]string{"Healthy"}, [3]string{"Rejected", "NameTaken", "no"}, [3]string{"Failed", "RolloutStuck", "stuck"})
	page := w.shown()
	require.Equal(t, []string{clusterB, clusterC, clusterD, clusterA}, rowsOf(page, "cluster"), "failing, held, never seen, in step")
	require.Contains(
		t,
		page,
		`<code title="`+id(
			clusterB,
			100,
		)+` / production / `+id(
			clusterB,
			2,
		)+`">shop / production / checkout</code></a> <strong>RolloutStuck</strong>`,
	)
	require.Contains(t, page, `>shop / production / `+id(clusterB, 1)+`</code>`, "a service without a name is its id")
	for query, want := range map[string][]string{
		"checkout": {clusterB}, "CHECKOUT": {clusterB}, id(clusterB, 2): {clusterB}, "NameTaken": {clusterB},
		"sgp1": {clusterC}, clusterD[:10]: {clusterD}, "never": {clusterD}, "held": {clusterC}, "nothing-like-it": nil, "aws": nil,
	} {
		html, lists := w.lists("?q=" + url.QueryEscape(query))
		require.Equal(t, want, rowsOf(html["clusters"], "cluster"), query)
		require.Equal(t, len(want), lists["clusters"].Found, query)
		require.Equal(t, 4, lists["clusters"].Total, query)
		require.Equal(t, want, rowsOf(html["capacity"], "load"), query)
		if want == nil {
			require.Contains(t, html["clusters"], "None of 4 matches <q>"+query+"</q>.")
			require.Contains(t, html["clusters"], `<a href="/status">Show all</a>`)
		}
	}
	html, _ := w.lists("?q=app-0-d")
	require.Equal(t, []string{"reg_eu"}, rowsOf(html["regions"], "region"), "a region by an instance that has failed")
	got := w.get("/status?q="+url.QueryEscape(`"><script>`), "Authorization", "Bearer "+adminToken)
	require.Equal(t, 200, got.status)
	require.NotContains(t, got.body, "<script>")
	require.Contains(t, got.body, `value="&#34;&gt;&lt;script&gt;"`)

	// A stream has the view of its address.
	stream := w.openAt("/status/events?q=fra1", "Authorization", "Bearer "+adminToken)
	first := stream.section("clusters", clusterB)
	require.NotContains(t, first, clusterA)
	w.report(clusterB, [3]string{"Healthy"}, [3]string{"Healthy"}, [3]string{"Healthy"})
	require.NotContains(t, stream.section("clusters", "3</b> healthy"), clusterA)
	stream.close()
}

func TestAWrongViewIsRefusedWithItsParameter(t *testing.T) {
	t.Parallel()
	w := small(t, statuspage.Config{})
	for query, field := range map[string]string{"?clusters=0": "clusters", "?regions=x": "regions", "?regions=1000001": "regions", "?q=" + strings.Repeat("x", 101): "q", "?q=%00": "q", "?page=2": "page", "?q=a&q=b": "q"} {
		for _, path := range []string{"/status", "/status/events", "/status/rows"} {
			got := w.get(path+query, "Authorization", "Bearer "+adminToken)
			require.Equal(t, 400, got.status, path+query)
			require.Contains(t, got.body, field, path+query)
		}
		require.Contains(t, w.get("/status/rows"+query, "Authorization", "Bearer "+adminToken).body, `"fields":[{"field":"`+field+`"`)
	}
	require.Equal(t, 401, w.get("/status/rows").status, "a program gets 401, no login form")
	require.Equal(t, 401, w.get("/status/rows", "Authorization", "Bearer x").status)
}

func TestWhatFailsAboutARegionIsNamed(t *testing.T) {
	t.Parallel()
	each(t, statuspage.Config{Interval: time.Nanosecond}, func(w *world) {
		t := w.t
		w.seed()
		w.admin("PUT", "regions/reg_eu/sentinels/s_1", map[string]any{"desired_state": "running", "spec": map[string]any{
			"k8s_namespace":  "ws",
			"k8s_name":       "gate",
			"workspace_id":   "ws_1",
			"project_id":     "prj_1",
			"app_id":         "app_1",
			"environment_id": "env_1",
			"image":          "s:1",
			"cpu_millicores": "250",
			"memory_mib":     "256",
			"replicas":       2,
		}})
		w.call(
			"POST",
			"/ctrl.v1.ClusterService/ReportSentinelStatus",
			w.tokens["eu"],
			map[string]any{"k8s_name": "gate", "health": "HEALTH_UNHEALTHY", "available_replicas": 1},
		)
		page := w.shown()
		require.Equal(t, []string{"reg_eu", "reg_us"}, rowsOf(page, "region"))
		failed := text(t, page, "failed-reg_eu")
		require.Contains(t, failed, "1 instance has failed; 1 sentinel is unhealthy")
		require.Contains(t, failed, "ws/gate unhealthy, 1 replica available")
		require.NoError(t, w.database.Write(t.Context(), func(tx *db.Tx) error {
			_, err := tx.ExecContext(t.Context(), `UPDATE region_log SET region_id = 'another' WHERE region_id = 'reg_eu'`)
			return err
		}))
		page = w.shown()
		require.Contains(t, text(t, page, "region-reg_eu"), " refused ")
		require.Contains(
			t,
			text(t, page, "failed-reg_eu"),
			"agents are refused; 1 instance has failed; 1 sentinel is unhealthy its log was made for another region",
		)
	})
}

func TestTheRootLeadsToThePageAndAnEmptyPageSaysWhatToDo(t *testing.T) {
	t.Parallel()
	w := small(t, statuspage.Config{})
	got := w.get("/")
	require.Equal(t, 302, got.status)
	require.Equal(t, "/status", got.header.Get("Location"))
	require.Equal(t, 405, w.send("POST", "/", nil).status)
	require.Equal(t, 404, w.get("/elsewhere").status)
	page := w.shown()
	require.Contains(t, page, "PUT /api/v1/admin/clusters/&lt;UUID&gt;")
	require.Contains(t, page, "PUT /api/v1/admin/regions/&lt;id&gt;")
	require.Contains(t, page, "No change is recorded yet.")
}

func TestTheLastChangesAreShown(t *testing.T) {
	t.Parallel()
	w := small(t, statuspage.Config{Interval: time.Nanosecond})
	for n := range 25 {
		w.admin("PUT", fmt.Sprintf("clusters/%08d-0000-4000-8000-000000000000", n), map[string]any{"region": "nyc3"})
	}
	page := w.shown()
	changes := rowsOf(page, "change")
	require.Len(t, changes, 20)
	newest := text(t, page, "change-"+changes[0])
	require.Regexp(
		t,
		`^\d+ s ago \d\d:\d\d:\d\d UTC admin/[0-9a-f]{8} put, created cluster nyc3 00000024-0000-4000-8000-000000000000 [0-9a-f]{32}$`,
		newest,
	)
	require.NotContains(t, page, adminToken)
}
