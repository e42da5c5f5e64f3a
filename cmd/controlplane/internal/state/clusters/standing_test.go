package clusters_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// report posts a status of the agent of cluster A on the state that it pulls now.
func (w *world) report(complete bool, services ...string) {
	w.t.Helper()
	w.reportOn(w.pull(clusterA).Generation, complete, services...)
}

func (w *world) reportOn(generation int64, complete bool, services ...string) {
	w.t.Helper()
	got := w.do(
		"POST",
		statusPath(clusterA),
		w.tokens[clusterA],
		fmt.Sprintf(`{"epoch":%q,"generation":%d,"instance_id":"i","complete":%t,"services":[%s]}`,
			w.pull(clusterA).Epoch, generation, complete, strings.Join(services, ",")),
	)
	require.Equal(w.t, 204, got.status, got.body)
}

// status is the entry of service X in a report.
func status(phase, class string) string {
	return fmt.Sprintf(
		`{"project_id":%q,"environment":"production","service_id":%q,"phase":%q,"error_class":%q}`,
		projectX,
		serviceX,
		phase,
		class,
	)
}

func (w *world) standings() any {
	w.t.Helper()
	return w.admin("GET", clustersPath+"/"+clusterA, "").member("standings")
}

func TestTheLastServiceStandsAsDeletedOnceTheAgentHasSaidSo(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.seed()
	w.report(true, status("Healthy", ""))
	require.Equal(t, map[string]any{"Healthy": 1.0}, w.standings())
	deleted := w.must("DELETE", servicePath, "")
	w.pull(clusterA)
	require.Equal(t, map[string]any{"Pending": 1.0}, w.standings(), "it was fetched, which proves nothing")
	w.reportOn(deleted-1, true, status("Healthy", ""))
	require.Equal(t, map[string]any{"Pending": 1.0}, w.standings(), "a late report is about what was before")
	w.report(true, status("Applying", "Deleting"))
	require.Equal(t, map[string]any{"Applying": 1.0}, w.standings(), "objects are left")
	w.reportOn(deleted-1, true)
	require.Equal(t, map[string]any{"Applying": 1.0}, w.standings(), "a late report takes back nothing")
	w.report(false)
	require.Equal(t, map[string]any{"Applying": 1.0}, w.standings(), "a part of a report takes back nothing")
	w.report(true)
	require.Equal(t, map[string]any{"Deleted": 1.0}, w.standings())

	shown := w.admin("GET", clustersPath+"/"+clusterA, "")
	require.Equal(t, deleted, shown.number("reported_generation"))
	require.NotEmpty(t, shown.text("last_report_at"))

	w.must("PUT", servicePath, serviceBody)
	require.Equal(t, map[string]any{"Unknown": 1.0}, w.standings())
	w.must("DELETE", servicePath, "")
	w.must("POST", clustersPath+"/"+clusterA+"/new-epoch", "")
	require.Equal(t, map[string]any{"Unknown": 1.0}, w.standings(), "reports of another epoch say nothing")
	w.report(true)
	require.Equal(t, map[string]any{"Deleted": 1.0}, w.standings())
}

func TestAHeldDeletionIsNotDeleted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.seed()
	w.report(true, status("Healthy", ""))
	w.must("DELETE", servicePath, "")
	w.report(true, status("Failed", "DeletionHeld"))
	require.Equal(t, map[string]any{"Failed": 1.0}, w.standings())
	w.must("POST", clustersPath+"/"+clusterA+"/allow-mass-delete", w.holding("held-1"))
	w.report(true, status("Failed", "DeletionHeld"))
	require.Equal(t, map[string]any{"Failed": 1.0}, w.standings())
	w.report(true)
	require.Nil(t, w.admin("GET", clustersPath+"/"+clusterA, "").member("held_deletions"))
	require.Equal(t, map[string]any{"Deleted": 1.0}, w.standings())
}

func TestWhatFailsForTheClusterIsThatOfItsNewestReport(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.seed()
	report := func(generation int64, more string) {
		got := w.do(
			"POST",
			statusPath(clusterA),
			w.tokens[clusterA],
			fmt.Sprintf(`{"epoch":%q,"generation":%d,"instance_id":"i","complete":true,"services":[]%s}`,
				w.pull(clusterA).Epoch, generation, more),
		)
		require.Equal(t, 204, got.status, got.body)
	}
	shown := func() (class, message string) {
		c := w.admin("GET", clustersPath+"/"+clusterA, "")
		if c.member("reported_error_class") == nil {
			require.Nil(t, c.member("reported_message"))
			return "", ""
		}
		return c.text("reported_error_class"), c.text("reported_message")
	}
	generation := w.pull(clusterA).Generation
	const missing = `,"cluster_error_class":"GatewayMissing","cluster_message":"no edge"`
	report(generation, missing)
	class, message := shown()
	require.Equal(t, "GatewayMissing", class)
	require.Equal(t, "no edge", message)
	report(generation-1, "")
	class, _ = shown()
	require.Equal(t, "GatewayMissing", class, "a late report takes back nothing")
	report(generation, "")
	class, _ = shown()
	require.Empty(t, class)
	report(generation-1, missing)
	class, _ = shown()
	require.Empty(t, class, "a late report brings back nothing")
	held := `,"held_deletions":{"digest":"d","count":1,"units":[{"unit":"project x","objects":1,"reason":"r"}]}`
	report(generation, held)
	none := func(more string) answer {
		return w.do("POST", statusPath(clusterA), w.tokens[clusterA], fmt.Sprintf(
			`{"epoch":%q,"generation":0,"instance_id":"i","services":[]%s}`, w.pull(clusterA).Epoch, more))
	}
	require.Equal(t, 204, none(missing).status)
	class, _ = shown()
	require.Equal(t, "GatewayMissing", class, "it has accepted no state, and says why")
	c := w.admin("GET", clustersPath+"/"+clusterA, "")
	require.NotNil(t, c.member("held_deletions"))
	require.EqualValues(t, generation, c.member("reported_generation"))
	require.Equal(t, 400, none("").status, "without an error it says nothing")
	require.Equal(t, 400, none(missing+`,"complete":true`).status)
	report(generation, "")
	for _, wrong := range []string{`,"cluster_message":"` + strings.Repeat("x", 1025) + `"`, `,"cluster_error_class":"` + strings.Repeat("x", 254) + `"`} {
		got := w.do(
			"POST",
			statusPath(clusterA),
			w.tokens[clusterA],
			fmt.Sprintf(`{"epoch":"e","generation":1,"instance_id":"i","services":[]%s}`, wrong),
		)
		require.Equal(t, 400, got.status, got.body)
		require.Contains(t, got.body, "cluster_")
	}
}

// TestOneServiceWithoutAProofHidesNoOther has an agent with an object that it does not
// delete, because nothing shows that it applied it: it is named, and the report is
// complete.
func TestOneServiceWithoutAProofHidesNoOther(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.seed()
	other := "cccccccc-0000-4000-8000-00000000000f"
	w.must("PUT", projectsPath+projectX+"/services/"+other+"/production", serviceBody)
	unproven := fmt.Sprintf(
		`{"project_id":%q,"environment":"production","service_id":%q,"phase":"Failed","error_class":"DeletionHeld"}`,
		projectX,
		other,
	)
	w.must("DELETE", projectsPath+projectX+"/services/"+other+"/production", "")
	w.report(true, status("Healthy", ""), unproven)
	require.Equal(t, map[string]any{"Healthy": 1.0, "Failed": 1.0}, w.standings())
	w.must("DELETE", servicePath, "")
	w.report(true, status("Applying", "Deleting"), unproven)
	require.Equal(t, map[string]any{"Applying": 1.0, "Failed": 1.0}, w.standings())
	w.report(true, unproven)
	require.Equal(t, map[string]any{"Deleted": 1.0, "Failed": 1.0}, w.standings())
	w.update(`UPDATE services SET updated_at = 1`)
	w.report(true, unproven)
	services := w.pull(clusterA).Services
	require.Len(t, services, 1, "the other has no tombstone left")
	require.Equal(t, other, services[0].ServiceID)
}

// TestAnotherRegionIsSaidOnce names both, and says nothing of an agent that tells none.
func TestAnotherRegionIsSaidOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	report := func(more string) {
		t.Helper()
		state := w.pull(clusterA)
		got := w.do("POST", statusPath(clusterA), w.tokens[clusterA],
			fmt.Sprintf(`{"epoch":%q,"generation":%d,"instance_id":"i","services":[]%s}`, state.Epoch, state.Generation, more))
		require.Equal(t, 204, got.status, got.body)
	}
	said := func() int { return strings.Count(w.log.String(), "has another region than the cluster") }
	report("")
	report(`,"region":"nyc3"`)
	require.Zero(t, said())
	report(`,"region":"fra1"`)
	report(`,"region":"fra1"`)
	require.Equal(t, 1, said())
	require.Contains(t, w.log.String(), `"agent":"fra1","cluster":"nyc3"`)
	report(`,"region":"nyc3"`)
	report(`,"region":"fra1"`)
	require.Equal(t, 2, said(), "it was right in between")
}

// The overview names what has failed; the name of any other service takes longer to read than all the rest.
func TestTheOverviewNamesWhatHasFailed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.seed()
	w.update(`UPDATE services SET spec = '{"service_name": "checkout"}'`)
	for phase, name := range map[string]string{"Healthy": "", "Failed": "checkout", "Rejected": "checkout", "Progressing": ""} {
		w.update(`DELETE FROM service_status`)
		w.report(true, status(phase, ""))
		services := w.overview().Services
		require.Len(t, services, 1)
		require.Equal(t, name, services[0].ServiceName, phase)
		all, err := w.store.Standings(t.Context())
		require.NoError(t, err)
		require.Equal(t, "checkout", all[0].Services[0].ServiceName, phase)
	}

	w.report(true, status("Failed", ""))
	w.update(`UPDATE projects SET cluster_id = ?`, clusterB)
	services := w.overview().Services
	require.Len(t, services, 1)
	require.Zero(t, services[0].WantedGeneration, "it is reported where it is not wanted")
	require.Empty(t, services[0].ServiceName)
}
