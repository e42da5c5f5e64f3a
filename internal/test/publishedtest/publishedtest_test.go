package publishedtest //nolint:testpackage // what is compared is not exported

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/reconcile/simtest"
)

// TestWhatIsFoundIsComparedWithWhatIsOnRecord compares findings of ten histories.
func TestWhatIsFoundIsComparedWithWhatIsOnRecord(t *testing.T) {
	t.Parallel()
	defects := []Defect{
		{Name: "D1", Controller: "job", Symptom: `^pod \S+ stays`, Within: 10},
		{Name: "D2", Controller: "job", Symptom: `is not ready`, Within: 11},
		{Name: "D3", Controller: "job", Symptom: `spins`, Within: ByChance},
		{Name: "D4", Controller: "node", Symptom: `.*`, Within: 10},
	}
	found := func(all ...string) (f simtest.Findings) {
		f.Histories = 10
		for _, each := range all {
			f.Symptoms = append(f.Symptoms, simtest.Symptom{Wrong: each, Seeds: []uint64{4}, Report: &simtest.Report{Trace: "its trace"}})
		}
		return f
	}
	require.Empty(t, compare(found("pod a stays"), "job", defects))
	require.Empty(t, compare(found("pod a stays", "job b is not ready", "it spins"), "job", defects))
	require.Equal(t, []string{"D1 is not found: "}, compare(found(), "job", defects))
	require.Equal(
		t, []string{"not on record: a pod is gone, seeds [4]\nits trace", "D1 is not found: "}, compare(found("a pod is gone"), "job", defects),
	)
	require.Empty(t, compare(found(), "service", defects))
}
