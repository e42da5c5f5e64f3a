package apply //nolint:testpackage // fills the live view without a server

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clientmetadata "k8s.io/client-go/metadata"
)

// restful counts applies that change nothing, by name.
type restful struct {
	clientmetadata.Getter

	objects map[string]*metav1.PartialObjectMetadata
	applied map[string][]time.Time
}

func (r *restful) Resource(schema.GroupVersionResource) clientmetadata.Getter { return r }

func (r *restful) Namespace(string) clientmetadata.ResourceInterface { return r }

func (r *restful) Patch(
	_ context.Context, name string, _ types.PatchType, _ []byte, _ metav1.PatchOptions, _ ...string,
) (*metav1.PartialObjectMetadata, error) {
	r.applied[name] = append(r.applied[name], time.Now())
	return r.objects[name].DeepCopy(), nil
}

// restart returns a program that has just listed what the set states.
func (r *restful) restart(t *testing.T, set *Set, interval time.Duration) *Applier {
	t.Helper()
	r.objects = map[string]*metav1.PartialObjectMetadata{}
	for _, o := range benchmarkObjects(set) {
		m := o.(*metav1.PartialObjectMetadata) //nolint:forcetypeassert // made so
		r.objects[m.Name] = m
	}
	a := benchmarkApplier(t, set, func(l *Live) { l.Client, l.ReapplyInterval = r, interval })
	a.Concurrency = 1
	return a
}

func TestEachObjectIsAppliedAgainOnceADayAlsoOverRestarts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const objects, every = 500, 10 * time.Minute
		set := benchmarkSet(t, objects)
		server := &restful{applied: map[string][]time.Time{}}
		pass := func(a *Applier, of time.Duration) {
			for end := time.Now().Add(of); time.Now().Before(end); time.Sleep(every) {
				before := 0
				for _, times := range server.applied {
					before += len(times)
				}
				report, err := a.Apply(t.Context(), set)
				require.NoError(t, err)
				require.Equal(t, objects, report.Unchanged, "they were as stated")
				for _, times := range server.applied {
					before -= len(times)
				}
				require.Less(t, -before, 20, "of 500 in a day, 3.5 are due in ten minutes, and twice as many after a restart")
			}
		}
		day := 24 * time.Hour
		began := time.Now()
		first := server.restart(t, set, 0)
		plan, err := first.Plan(t.Context(), set, PruneOptions{}) // a request for the plan would panic: it reads objects
		require.NoError(t, err)
		require.Empty(t, plan.Changes)
		pass(first, 55*time.Minute)
		require.Empty(t, server.applied, "nothing is due soon after a start")
		// Each restart is a few hours before or after the last one's time of day.
		for _, running := range []time.Duration{day - time.Hour, day / 3, 3 * day / 2, 3 * time.Hour, 3 * time.Hour, 3 * time.Hour, day} {
			pass(server.restart(t, set, 0), running)
		}
		require.Len(t, server.applied, objects)
		for name, times := range server.applied {
			last := began
			for _, at := range append(times, time.Now()) {
				require.LessOrEqual(t, at.Sub(last), 26*time.Hour+every, "%s at %v", name, times)
				last = at
			}
			require.LessOrEqual(t, len(times), 7, "once a day, and again only where a restart has forgotten it")
		}
	})
}

func TestNothingIsAppliedAgainIfTheProgramSaysSo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		set := benchmarkSet(t, 100)
		server := &restful{applied: map[string][]time.Time{}}
		a := server.restart(t, set, -1)
		for range 100 {
			report, err := a.Apply(t.Context(), set)
			require.NoError(t, err)
			require.Equal(t, 100, report.Unchanged)
			time.Sleep(time.Hour)
		}
		require.Empty(t, server.applied)
	})
}
