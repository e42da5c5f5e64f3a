package clusters_test

import (
	"encoding/json"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/api/starbase"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/db"
)

// spec returns what the database keeps of service X.
func (w *world) spec() (spec string) {
	w.t.Helper()
	require.NoError(w.t, w.store.Database.Read(w.t.Context(), func(tx *db.Tx) error {
		return tx.QueryRowContext(w.t.Context(), `SELECT spec FROM services WHERE service_id = ?`, serviceX).Scan(&spec)
	}))
	return spec
}

func TestATombstoneIsAnIdentityAlone(t *testing.T) {
	t.Parallel()
	for _, path := range []string{servicePath, projectsPath + projectX} {
		w := newWorld(t)
		w.seed()
		require.Contains(t, w.spec(), "env-secret-value")
		w.must("DELETE", path, "")
		require.Equal(t, "{}", w.spec(), path)
		require.Equal(t, starbase.Service{
			WorkspaceID: workspace, ProjectID: projectX, ServiceID: serviceX, Environment: "production", Deleted: true,
		}, w.pull(clusterA).Services[0])
	}

	// One that an earlier version has written.
	w := newWorld(t)
	w.seed()
	w.update(`UPDATE services SET deleted = 1`)
	require.Empty(t, w.pull(clusterA).Services[0].Image)
}

func (w *world) update(statement string, arguments ...any) {
	w.t.Helper()
	require.NoError(w.t, w.store.Database.Write(w.t.Context(), func(tx *db.Tx) error {
		_, err := tx.ExecContext(w.t.Context(), statement, arguments...)
		return err
	}))
}

func TestATombstoneEndsWhenItIsOldAndProvenGone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.seed()
	age := func(days int) {
		t.Helper()
		w.update(`UPDATE services SET updated_at = ?`, time.Now().Add(-time.Duration(days)*24*time.Hour-time.Minute).UnixMilli())
	}
	kept := func(why string) {
		t.Helper()
		require.Len(t, w.pull(clusterA).Services, 1, why)
	}
	age(100)
	w.report(true)
	kept("it is wanted, whatever the report")

	deleted := w.must("DELETE", servicePath, "")
	age(100)
	w.reportOn(deleted-1, true)
	kept("the report is about a state before the deletion")
	age(0)
	w.report(true)
	kept("it is young")
	age(6)
	w.report(true)
	kept("it is young")
	age(7)
	w.report(false)
	kept("the report is not complete")
	w.report(true, status("Failed", "DeletionHeld"))
	kept("it is not gone")
	before := w.pull(clusterA).Generation
	w.report(true)
	state := w.pull(clusterA)
	require.Empty(t, state.Services)
	require.Equal(t, before+1, state.Generation)
	require.Equal(t, 1.0, w.counter("trueup_controlplane_tombstones_dropped_total"))
	w.report(true)
	require.Equal(t, state.Generation, w.pull(clusterA).Generation, "there is nothing more to drop")
	require.EqualValues(t, 1, w.pull(clusterB).Generation)

	w.must("PUT", servicePath, serviceBody)
	require.False(t, w.pull(clusterA).Services[0].Deleted)
}

// counter returns the sum of a counter over its labels.
func (w *world) counter(name string) (sum float64) {
	w.t.Helper()
	families, err := w.registry.Gather()
	require.NoError(w.t, err)
	for _, family := range families {
		for _, m := range family.GetMetric() {
			if family.GetName() == name {
				sum += m.GetCounter().GetValue()
			}
		}
	}
	return sum
}

func TestATombstoneOfAProjectEndsByTheSameRule(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.seed()
	deleted := w.must("DELETE", projectsPath+projectX, "")
	age := func(table string, days int) {
		t.Helper()
		w.update(`UPDATE `+table+` SET updated_at = ?`, time.Now().Add(-time.Duration(days)*24*time.Hour-time.Minute).UnixMilli())
	}
	left := func(services, projects int, why string) {
		t.Helper()
		state := w.pull(clusterA)
		require.Len(t, state.Services, services, why)
		require.Len(t, state.Projects, projects, why)
	}
	age("projects", 7)
	w.report(true)
	left(1, 1, "its service is young")
	age("services", 7)
	age("projects", 6)
	w.report(true)
	left(0, 1, "it is young")
	age("projects", 100)
	w.reportOn(deleted-1, true)
	left(0, 1, "the report is about a state before the deletion")
	w.report(false)
	left(0, 1, "the report is not complete")
	w.report(true, status("Failed", "DeletionHeld"))
	left(0, 1, "a service of it has objects left")
	w.reportLeft(projectX)
	left(0, 1, "its Namespace is there")
	before := w.pull(clusterA).Generation
	w.reportLeft(projectY)
	left(0, 0, "")
	require.Equal(t, before+1, w.pull(clusterA).Generation)
	require.Equal(t, 2.0, w.counter("trueup_controlplane_tombstones_dropped_total"))
	require.Equal(t, 404, w.admin("GET", projectsPath+projectX, "").status)
	w.must("PUT", projectsPath+projectX, projectBody)
	w.must("PUT", servicePath, serviceBody)
	require.False(t, w.pull(clusterA).Services[0].Deleted)
}

// reportLeft posts a complete report of an agent that has objects of a project left.
func (w *world) reportLeft(projects ...string) {
	w.t.Helper()
	text, err := json.Marshal(projects)
	require.NoError(w.t, err)
	state := w.pull(clusterA)
	got := w.do(
		"POST",
		statusPath(clusterA),
		w.tokens[clusterA],
		fmt.Sprintf(`{"epoch":%q,"generation":%d,"instance_id":"i","complete":true,"services":[],"left_projects":%s}`,
			state.Epoch, state.Generation, text),
	)
	require.Equal(w.t, 204, got.status, got.body)
}

// TestTombstonesOfManyProjectsEnd has as many projects as years of customers leave
// behind.
func TestTombstonesOfManyProjectsEnd(t *testing.T) {
	t.Parallel()
	many := 10_000
	if testing.Short() { // the race detector makes the database twenty times as slow
		many = 500
	}
	w := newWorld(t)
	w.update(`WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ` + strconv.Itoa(many) + `)
		INSERT INTO projects (id, cluster_id, workspace_id, workspace_slug, slug, namespace, settings, deleted, generation, updated_at)
		SELECT 'p-' || i, '` + clusterA + `', 'w', 'w', 'p-' || i, 'proj-p-' || i, '{}', 1, 1, 1 FROM n`)
	count := func() (n int) {
		require.NoError(t, w.store.Database.Read(t.Context(), func(tx *db.Tx) error {
			return tx.QueryRowContext(t.Context(), `SELECT count(*) FROM projects`).Scan(&n)
		}))
		return n
	}
	report := func(left string) {
		var epoch string
		var generation int64
		require.NoError(t, w.store.Database.Read(t.Context(), func(tx *db.Tx) error {
			return tx.QueryRowContext(t.Context(), `SELECT epoch, generation FROM clusters WHERE id = ?`, clusterA).Scan(&epoch, &generation)
		}))
		body := fmt.Sprintf(
			`{"epoch":%q,"generation":%d,"instance_id":"i","complete":true,"services":[],"left_projects":[%s]}`,
			epoch,
			generation,
			left,
		)
		began := time.Now()
		got := w.do("POST", statusPath(clusterA), w.tokens[clusterA], body)
		require.Equal(t, 204, got.status, got.body)
		t.Logf("a report took %s", time.Since(began))
	}
	require.Equal(t, many, count())
	report(fmt.Sprintf(`"p-1","p-%d"`, many))
	require.Equal(t, 2, count())
	report("")
	require.Zero(t, count())
	require.InDelta(t, many, w.counter("trueup_controlplane_tombstones_dropped_total"), 0)
}
