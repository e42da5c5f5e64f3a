package server_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/internal/db"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/starbase"
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
	w.report(true, said("Failed", "DeletionHeld"))
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

func (w *world) counter(name string) float64 {
	w.t.Helper()
	families, err := w.registry.Gather()
	require.NoError(w.t, err)
	for _, family := range families {
		if family.GetName() == name {
			return family.GetMetric()[0].GetCounter().GetValue()
		}
	}
	return 0
}
