package operator //nolint:testpackage // the journal is not exported

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/seed-9e1ffd66/trueup/cloud"
	"github.com/seed-9e1ffd66/trueup/cloud/kube/nodes"
	"github.com/seed-9e1ffd66/trueup/cmd/api/stratos/v1alpha1"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube"
)

// superseded returns the way to the status of a pool that is as current says by the time of
// the first write, nil for gone.
func superseded(current *unstructured.Unstructured) kube.Status[*v1alpha1.NodePool] {
	client := fake.NewSimpleDynamicClient(runtime.NewScheme())
	client.PrependReactor("patch", "nodepools", func(clienttesting.Action) (bool, runtime.Object, error) {
		if current == nil {
			return true, nil, apierrors.NewNotFound(poolsResource.GroupResource(), "pool")
		}
		return true, nil, apierrors.NewConflict(poolsResource.GroupResource(), "pool", errors.New("it has changed"))
	})
	client.PrependReactor("get", "nodepools", func(clienttesting.Action) (bool, runtime.Object, error) {
		if current == nil {
			return true, nil, apierrors.NewNotFound(poolsResource.GroupResource(), "pool")
		}
		return true, current, nil
	})
	return kube.Status[*v1alpha1.NodePool]{Client: client, Resource: poolsResource}
}

// TestNothingIsLaunchedThatIsNotRecorded has a process that acts on a pool as it was,
// though the pool is deleted or another process has acted on a later generation: neither a
// launch nor a region counts as recorded.
func TestNothingIsLaunchedThatIsNotRecorded(t *testing.T) {
	t.Parallel()
	for name, current := range map[string]*unstructured.Unstructured{
		"gone": nil,
		"a later generation": {Object: map[string]any{
			"apiVersion": v1alpha1.GroupVersion().String(), "kind": "NodePool",
			"metadata": map[string]any{"name": "pool", "uid": "u", "generation": int64(2), "resourceVersion": "9"},
			"status":   map[string]any{"observedGeneration": int64(2)},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := &v1alpha1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "pool", UID: "u", Generation: 1, ResourceVersion: "5"}}
			o := &operator{status: superseded(current)}
			l := &poolMemory{journal: o.newJournal()}
			l.journal.Open(pool)
			err := l.journal.Record(t.Context(), cloud.LaunchIntent{Operation: "o", Ordinal: 1, Count: 1, Since: time.Now()})
			require.ErrorIs(t, err, nodes.ErrJournal)
			intents, _ := l.journal.Intents()
			require.Empty(t, intents)

			p := &poolPass{state: &poolState{op: o, pool: copyOf(pool), region: "us-east-1", kept: l}}
			require.ErrorContains(t, p.recordRegion(t.Context()), "the pool has changed meanwhile")
			require.Empty(t, p.state.pool.Status.Regions)
		})
	}
}
