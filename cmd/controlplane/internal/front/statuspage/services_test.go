package statuspage_test

import (
	"context"
	"fmt"
	"html"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/api/starbase"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/front/statuspage"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/db"
)

// sql changes the database past the API.
func (w *world) sql(statement string, args ...any) {
	w.t.Helper()
	require.NoError(w.t, w.database.Write(w.t.Context(), func(tx *db.Tx) error {
		_, err := tx.ExecContext(context.WithoutCancel(w.t.Context()), statement, args...)
		return err
	}))
}

var tags = regexp.MustCompile(`<[^>]*>`)

// plain returns the text of a part of a page, with single spaces.
func plain(part string) string {
	return strings.Join(strings.Fields(html.UnescapeString(tags.ReplaceAllString(part, " "))), " ")
}

// serviceRows returns the rows of the list of services as text, and the links of these.
func (w *world) serviceRows(query string) (rows, links []string, page string) {
	w.t.Helper()
	got := w.get("/status/services"+query, "Authorization", "Bearer "+adminToken)
	for range 5 { // a database on a busy machine may take too long, which is answered so
		if got.status == 503 {
			got = w.get("/status/services"+query, "Authorization", "Bearer "+adminToken)
		}
	}
	require.Equal(w.t, 200, got.status, got.body)
	_, body, _ := strings.Cut(got.body, "<tbody")
	body, _, _ = strings.Cut(body, "</tbody>")
	for _, row := range strings.Split(body, "<tr role=\"row\">")[1:] {
		rows = append(rows, plain(row))
		link := ""
		name, _, _ := strings.Cut(row, "</th>")
		if found := regexp.MustCompile(`href="([^"]+)"`).FindStringSubmatch(name); found != nil {
			link = found[1]
		}
		links = append(links, link)
	}
	return rows, links, got.body
}

func TestEveryServiceIsARowWhatNeedsALookFirst(t *testing.T) {
	t.Parallel()
	each(t, statuspage.Config{}, func(w *world) {
		w.seed()
		rows, links, page := w.serviceRows("")
		require.Len(t, rows, 11)
		var words []string
		for _, row := range rows {
			words = append(words, regexp.MustCompile(`\b(failed|rejected|progressing|deletion held|healthy|unknown)\b`).FindString(row))
		}
		require.Equal(t, []string{
			"failed", "rejected", "deletion held", "progressing", "unknown", "healthy", "healthy", "healthy", "healthy", "healthy", "healthy",
		}, words)
		require.Contains(t, rows[0], "RolloutStuck 2 of 3 pods wait for an image that cannot be pulled")
		require.Contains(t, rows[0], "fra1 "+clusterB)
		require.Contains(t, plain(page), "1 failed 1 rejected 1 deletion held 1 progressing 1 unknown 6 healthy")
		require.NotContains(t, page, "<script>alert", "what an agent reports is text")

		for query, want := range map[string]int{
			"?q=fra1": 3, "?q=" + clusterB: 3, "?q=Healthy": 6, "?q=NameTaken": 1, "?q=" + id(clusterA, 3): 1, "?q=nothing+of+it": 0, "?q=progressing": 1,
		} {
			found, _, _ := w.serviceRows(query)
			require.Len(t, found, want, query)
		}

		// Its own page says how, since when, why, and what next.
		got := w.get(links[1], "Authorization", "Bearer "+adminToken)
		require.Equal(t, 200, got.status)
		text := plain(got.body)
		for _, part := range []string{
			"rejected since", "NameTaken", "What next: Another program has an object of this name", "Image registry.example.com/shop:1", "Replicas 2",
			"Cluster fra1 " + clusterB, "Changed generation", "by i", "put", "service shop / production / " + id(clusterB, 1) + " " + id(clusterB, 100) + "/production/" + id(clusterB, 1),
		} {
			require.Contains(t, text, part)
		}
		require.NotContains(t, got.body, "<script>alert")
		held := w.get(links[2], "Authorization", "Bearer "+adminToken)
		require.Contains(t, plain(held.body), "controlplane approve cluster")
		require.Contains(t, plain(held.body), "2 deletions wait for an approval")
		require.NotContains(t, plain(held.body), "Image", "nothing is wanted of it")

		// One that is reported alone, and one that is not there.
		w.sql(`DELETE FROM services WHERE project_id = ?`, id(clusterA, 100))
		w.sql(`DELETE FROM projects WHERE id = ?`, id(clusterA, 100))
		orphan := w.get(
			fmt.Sprintf("/status/services/%s/%s/production", id(clusterA, 100), id(clusterA, 0)),
			"Authorization",
			"Bearer "+adminToken,
		)
		require.Equal(t, 200, orphan.status)
		require.Contains(t, plain(orphan.body), "not wanted")
		require.Contains(t, plain(orphan.body), "it is not in the database")
		for _, path := range []string{id(clusterA, 7) + "/x/y", id(clusterB, 100) + "/" + id(clusterB, 77) + "/production", "%00/x/y", "a%2Fb/x/y"} {
			missing := w.get("/status/services/"+path, "Authorization", "Bearer "+adminToken)
			require.Equal(t, 404, missing.status, path)
			require.Contains(t, missing.body, "There is no such service")
		}
		require.Equal(t, 400, w.get("/status/services?services=0", "Authorization", "Bearer "+adminToken).status)
		require.Equal(t, 400, w.get("/status/services?page=2", "Authorization", "Bearer "+adminToken).status)
	})
}

// TestAServiceIsSoSinceItBecameSo reports the same, and then something else.
func TestAServiceIsSoSinceItBecameSo(t *testing.T) {
	t.Parallel()
	each(t, statuspage.Config{}, func(w *world) {
		w.register(clusterA, "nyc3", 1)
		since := func() (at, reported time.Time) {
			state := w.admin("GET", "clusters/"+clusterA, nil)["services"].([]any)[0].(map[string]any)
			for name, into := range map[string]*time.Time{"since": &at, "reported_at": &reported} {
				text, _ := state[name].(string)
				var err error
				*into, err = time.Parse(time.RFC3339Nano, text)
				require.NoError(t, err)
			}
			return at, reported
		}
		pulling := [3]string{"Progressing", "ImagePull", "one"}
		w.report(clusterA, pulling)
		first, reported := since()
		require.Equal(t, reported, first)
		pulling[2] = "another message"
		w.report(clusterA, pulling)
		again, reported := since()
		require.Equal(t, first, again)
		require.True(t, reported.After(first))
		w.report(clusterA, [3]string{"Progressing", "CrashLoop", "one"})
		changed, reported := since()
		require.Equal(t, reported, changed, "another reason")
		w.sql(`UPDATE service_status SET since = 0`)
		rows, _, _ := w.serviceRows("")
		require.Contains(t, rows[0], "progressing not known", "a report from before this was noted")
		w.report(clusterA, [3]string{"Progressing", "CrashLoop", "one"})
		_, reported = since()
		changed, _ = since()
		require.Equal(t, reported, changed)
	})
}

// TestAPersonFindsTheOneOfTenThousandThatMakesNoProgress follows two links.
func TestAPersonFindsTheOneOfTenThousandThatMakesNoProgress(t *testing.T) {
	t.Parallel()
	each(t, statuspage.Config{}, func(w *world) {
		const many = 10_000
		w.register(clusterA, "nyc3", 1)
		w.register(clusterB, "fra1", 1)
		w.report(clusterA, [3]string{"Healthy"})
		w.report(clusterB, [3]string{"Healthy"})
		w.sql("ANALYZE") // the statistics of two services are what a database has while thousands more come
		for _, cluster := range []string{clusterA, clusterB} {
			w.sql(`WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < ?)
				INSERT INTO services (project_id, environment, service_id, spec, deleted, generation, updated_at)
				SELECT s.project_id, s.environment, 'ffffffff-0000-4000-8000-' || CAST(100000000000 + n AS TEXT), s.spec, 0, s.generation, s.updated_at
				FROM services s, numbers WHERE s.project_id = ?`, many/2-1, id(cluster, 100))
			w.sql(`WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < ?)
				INSERT INTO service_status (cluster_id, project_id, environment, service_id, epoch, generation, instance_id,
				observed_generation, phase, ready, desired, image_digest, error_class, message, reported_at, since)
				SELECT r.cluster_id, r.project_id, r.environment, 'ffffffff-0000-4000-8000-' || CAST(100000000000 + n AS TEXT), r.epoch, r.generation, r.instance_id,
				r.observed_generation, r.phase, r.ready, r.desired, '', '', '', r.reported_at, r.since
				FROM service_status r, numbers WHERE r.cluster_id = ?`, many/2-1, cluster)
		}
		long := time.Now().Add(-25 * time.Minute).UnixMilli()
		w.sql(`UPDATE service_status SET phase = 'Progressing', error_class = 'ImagePull', message = 'manifest unknown', since = ?
			WHERE cluster_id = ? AND service_id = 'ffffffff-0000-4000-8000-100000003777'`, long, clusterB)
		// Some that have only begun.
		w.sql(
			`UPDATE service_status SET phase = 'Progressing' WHERE cluster_id = ? AND service_id IN ('ffffffff-0000-4000-8000-100000000001', 'ffffffff-0000-4000-8000-100000000002')`,
			clusterA,
		)

		shown := w.get("/status", "Authorization", "Bearer "+adminToken).body
		first := regexp.MustCompile(`href="(/status/services\?q=[^"]*)"><b>1</b> no progress<`).FindStringSubmatch(shown)
		require.Len(t, first, 2, "the first click: %s", plain(shown))
		require.Contains(t, plain(shown), "9,997 healthy")
		require.Contains(t, plain(shown), "2 progressing")
		rows, links, _ := w.serviceRows(strings.TrimPrefix(html.UnescapeString(first[1]), "/status/services"))
		require.Len(t, rows, 1, "the second click")
		page := plain(w.get(links[0], "Authorization", "Bearer "+adminToken).body)
		require.Contains(t, page, "no progress since 25 min ago")
		require.Contains(
			t,
			page,
			"ImagePull manifest unknown What next: The image cannot be pulled: check its name, tag and the registry's credentials.",
		)
		require.Contains(t, page, "shop / production / ffffffff-0000-4000-8000-100000003777")

		all, _, list := w.serviceRows("")
		require.Len(t, all, 50)
		require.Contains(t, all[0], "no progress")
		require.Contains(t, plain(list), "1 to 50 of 10,000 Next")
		require.Contains(t, list, `<a rel="next" href="/status/services?services=2#services">`)
		last, _, list := w.serviceRows("?services=200")
		require.Len(t, last, 50)
		require.Contains(t, plain(list), "9,951 to 10,000 of 10,000 Previous")
	})
}

// TestWhatIsOnItsWayIsNotYetStuck has services that have been so for less and for more than ten
// minutes.
func TestWhatIsOnItsWayIsNotYetStuck(t *testing.T) {
	t.Parallel()
	w := small(t, statuspage.Config{})
	w.register(clusterA, "nyc3", 4)
	on := [3]string{"Progressing"}
	w.report(clusterA, on, on, on, on)
	for n, age := range []time.Duration{9 * time.Minute, 11 * time.Minute, 2 * time.Minute} {
		w.sql(`UPDATE service_status SET since = ? WHERE service_id = ?`, time.Now().Add(-age).UnixMilli(), id(clusterA, n))
	}
	w.sql(`UPDATE service_status SET since = 0 WHERE service_id = ?`, id(clusterA, 3))
	rows, _, _ := w.serviceRows("")
	require.Regexp(t, "no progress 11 min ago", rows[0])
	require.Regexp(t, "progressing not known", rows[1], "since before it was noted")
	require.Regexp(t, "progressing 9 min ago", rows[2], "what has been so for longest comes first")
	require.Regexp(t, "progressing 2 min ago|progressing 120 s ago", rows[3])

	// A change makes it pending since then; one that was never reported is being deleted.
	w.admin("PUT", servicePath(clusterA, 1), map[string]any{"image": "registry.example.com/shop:2", "replicas": 2, "service_name": "checkout"})
	rows, links, _ := w.serviceRows("?q=checkout")
	require.Regexp(t, `^shop / production / checkout pending \d+ s ago`, rows[0])
	page := plain(w.get(links[0], "Authorization", "Bearer "+adminToken).body)
	require.Contains(t, page, "shop / production / checkout pending since")
	require.NotContains(t, page, id(clusterA, 2), "changes of others")
	w.admin("PUT", servicePath(clusterA, 5), map[string]any{"image": "registry.example.com/shop:2", "replicas": 2})
	w.admin("DELETE", servicePath(clusterA, 5), nil)
	rows, _, _ = w.serviceRows("?q=" + id(clusterA, 5))
	require.Contains(t, rows[0], "being deleted")
	w.report(clusterA, on, [3]string{"Healthy"}, on, on)
	rows, _, _ = w.serviceRows("?q=checkout")
	require.Regexp(t, `healthy \d+ s ago`, rows[0], "since it is healthy")
	rows, _, _ = w.serviceRows("?q=" + id(clusterA, 5))
	require.Regexp(t, `deleted \d+ s ago`, rows[0])
}

// TestWhatCannotBeSeenIsNotHeld has an agent whose API server is away: whether a service is deleted is not known.
func TestWhatCannotBeSeenIsNotHeld(t *testing.T) {
	t.Parallel()
	well, next := [3]string{"Healthy"}, "What next: The agent cannot see the cluster: look at its API server."
	for class, is := range map[string]string{starbase.ClassUnseen: "being deleted", "Deleting": "deletion held"} {
		w := small(t, statuspage.Config{})
		w.register(clusterA, "nyc3", 2)
		w.report(clusterA, well, well)
		w.admin("DELETE", servicePath(clusterA, 1), nil)
		w.report(clusterA, well, [3]string{"Applying", class, "1 object"})
		rows, links, _ := w.serviceRows("?q=" + id(clusterA, 1))
		require.Contains(t, rows[0], is)
		require.Equal(t, class == starbase.ClassUnseen, strings.Contains(plain(w.seen(links[0])), next))
		list, _, _ := w.placeRows("/status/clusters")
		require.Equal(t, class == "Deleting", strings.Contains(plain(w.shown()), "1 deletion held"))
		for _, page := range []string{list[0], plain(w.seen("/status/clusters/" + clusterA))} {
			require.Equal(t, class == "Deleting", strings.Contains(page, "1 deleted service is still there"), page)
		}
	}
}

// TestSinceIsOfWhatIsShown deletes a service that was healthy for long, and reports without one.
func TestSinceIsOfWhatIsShown(t *testing.T) {
	t.Parallel()
	w := small(t, statuspage.Config{})
	w.register(clusterA, "nyc3", 2)
	w.report(clusterA, [3]string{"Healthy"}, [3]string{"Healthy"})
	w.sql(`UPDATE service_status SET since = ?`, time.Now().Add(-5*time.Hour).UnixMilli())
	w.sql(`UPDATE services SET updated_at = ?`, time.Now().Add(-6*time.Hour).UnixMilli())
	rows, _, _ := w.serviceRows("?q=" + id(clusterA, 0))
	require.Contains(t, rows[0], "healthy 5 h ago")

	w.admin("DELETE", servicePath(clusterA, 0), nil)
	w.report(clusterA, [3]string{"Healthy"}, [3]string{"Healthy"})
	rows, _, _ = w.serviceRows("?q=" + id(clusterA, 0))
	require.Regexp(t, `deletion held \d+ s ago`, rows[0], "since the deletion, not since it was healthy")

	w.report(clusterA, [3]string{"Healthy"})
	rows, links, _ := w.serviceRows("?q=unknown")
	require.Contains(t, rows[0], "unknown not known")
	page := w.get(links[0], "Authorization", "Bearer "+adminToken)
	require.Contains(t, plain(page.body), "The newest report of the cluster's agent does not name the service")

	// After a restore, and of a cluster that is not heard.
	w.report(clusterA, [3]string{"Healthy"}, [3]string{"Healthy"})
	w.sql(`UPDATE clusters SET epoch = 'of-another-time'`)
	rows, _, _ = w.serviceRows("?q=" + id(clusterA, 1))
	require.Contains(t, rows[0], "pending not known")
	w.sql(
		`UPDATE clusters SET last_pull_at = ?, reported_at = ?`,
		time.Now().Add(-9*time.Minute).UnixMilli(),
		time.Now().Add(-9*time.Minute).UnixMilli(),
	)
	rows, links, _ = w.serviceRows("?q=silent")
	require.Len(t, rows, 2)
	require.Contains(t, rows[0], "silent 9 min ago")
	require.Contains(t, plain(w.get(links[0], "Authorization", "Bearer "+adminToken).body), "The cluster's agent is silent: see to it first.")
	require.Contains(t, rows[1], "It was pending when the agent was heard last.")
	w.sql(`UPDATE service_status SET service_id = 'a/b?c#d' WHERE service_id = ?`, id(clusterA, 1))
	rows, links, page2 := w.serviceRows("?q=a%2Fb")
	require.Len(t, rows, 1)
	require.Empty(t, links[0])
	require.NotContains(t, page2, "a/b?c#d/production")

	steered := w.get("/status/services?q=%E2%80%AEabc", "Authorization", "Bearer "+adminToken)
	require.Equal(t, 200, steered.status)
	require.NotContains(t, steered.body, "\u202e")
	require.NotContains(t, w.get("/status?q=%E2%80%AEabc", "Authorization", "Bearer "+adminToken).body, "\u202e")
}

func TestNobodyWithoutATokenSeesServices(t *testing.T) {
	t.Parallel()
	w := small(t, statuspage.Config{})
	w.register(clusterA, "nyc3", 1)
	for _, path := range []string{"/status/services", "/status/services/" + id(clusterA, 100) + "/" + id(clusterA, 0) + "/production"} {
		require.Equal(t, 303, w.get(path).status, "to the login")
		require.Equal(t, 401, w.get(path, "Authorization", "Bearer "+w.tokens[clusterA]).status)
		page := w.get(path, "Accept", "text/html")
		require.NotContains(t, page.body, id(clusterA, 0))
	}
}
