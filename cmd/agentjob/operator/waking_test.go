package operator //nolint:testpackage // what wakes a job is not exported

import (
	"testing"

	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed-9e1ffd66/trueup/cmd/api/thurkube/v1alpha1"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube"
)

func TestACronJobWakesItsJobForWhatAPassReads(t *testing.T) {
	t.Parallel()
	var woken []types.UID
	see := waking(func(job types.UID) { woken = append(woken, job) }, schedule)
	cron := &batchv1.CronJob{ObjectMeta: metav1.ObjectMeta{
		Namespace: "team", Name: "review", UID: "c1", ResourceVersion: "1", Generation: 1, Labels: map[string]string{v1alpha1.LabelOwner: "j1"},
	}}
	key := kube.KeyOf(cron)
	wakes := func(change func()) []types.UID {
		t.Helper()
		woken = nil
		change()
		_, err := see(t.Context(), key, cron.DeepCopy())
		require.NoError(t, err)
		return woken
	}
	job := []types.UID{"j1"}
	require.Equal(t, job, wakes(func() {}), "it appears")
	require.Empty(t, wakes(func() {
		cron.ResourceVersion, cron.Generation = "2", 2
		cron.Annotations = map[string]string{"hash": "2"}
		cron.Spec.JobTemplate.Labels = map[string]string{"a": "b"}
	}), "our own write of another template")
	at := metav1.Now()
	for what, change := range map[string]func(){
		"last start":   func() { cron.Status.LastScheduleTime = &at },
		"last success": func() { cron.Status.LastSuccessfulTime = &at },
		"suspended":    func() { cron.Spec.Suspend = new(true) },
		"resumed":      func() { cron.Spec.Suspend = new(false) },
		"deleted":      func() { cron.DeletionTimestamp = &at },
		"made again":   func() { cron.UID, cron.DeletionTimestamp = "c2", nil },
	} {
		require.Equal(t, job, wakes(change), what)
		require.Empty(t, wakes(func() { cron.ResourceVersion += "0" }), "nothing else after %s", what)
	}
	require.Equal(t, []types.UID{"j2"}, wakes(func() { cron.Labels[v1alpha1.LabelOwner] = "j2" }))
	woken = nil
	for range 2 {
		_, err := see(t.Context(), key, nil)
		require.NoError(t, err)
	}
	require.Equal(t, []types.UID{"j2"}, woken, "it is gone, once")
	require.Equal(t, []types.UID{"j2"}, wakes(func() {}), "it appears again")
}
