package operator //nolint:testpackage // how a run is recorded is not exported

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/seed-9e1ffd66/trueup/cmd/api/thurkube/v1alpha1"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube"
)

// TestARunThatIsNotRecordedIsNotReleased has a process that acts on a job as it was, though
// the job is deleted or another process has acted on a later generation: the pass ends before
// it removes the finalizer of the run, which keeps the only trace of its outcome.
func TestARunThatIsNotRecordedIsNotReleased(t *testing.T) {
	t.Parallel()
	resource := v1alpha1.GroupVersion().WithResource("agentjobs")
	absent := func(schema.GroupResource) error { return apierrors.NewNotFound(resource.GroupResource(), "review") }
	changed := func(r schema.GroupResource) error {
		return apierrors.NewConflict(r, "review", errors.New("it has changed"))
	}
	for name, c := range map[string]struct {
		refused func(schema.GroupResource) error
		current *unstructured.Unstructured
	}{
		"gone": {refused: absent},
		"a later generation": {refused: changed, current: &unstructured.Unstructured{Object: object{
			"apiVersion": v1alpha1.GroupVersion().String(), "kind": "AgentJob",
			"metadata": object{"name": "review", "namespace": "shop", "uid": "u", "generation": int64(2), "resourceVersion": "9"},
			"status":   object{"observedGeneration": int64(2)},
		}}},
	} {
		client := fake.NewSimpleDynamicClient(runtime.NewScheme())
		client.PrependReactor("patch", "agentjobs", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, c.refused(resource.GroupResource())
		})
		client.PrependReactor("get", "agentjobs", func(clienttesting.Action) (bool, runtime.Object, error) {
			if c.current == nil {
				return true, nil, absent(resource.GroupResource())
			}
			return true, c.current, nil
		})
		job := &v1alpha1.AgentJob{ObjectMeta: metav1.ObjectMeta{Name: "review", Namespace: "shop", UID: "u", Generation: 1, ResourceVersion: "5"}}
		p := &pass{op: &operator{status: kube.Status[*v1alpha1.AgentJob]{Client: client, Resource: resource}, metrics: newMetrics()}, job: job}
		err := p.record(t.Context(), &v1alpha1.Run{UID: "run", RunHash: "h", Outcome: v1alpha1.RunSucceeded})
		require.ErrorContains(t, err, "the job has changed meanwhile", name)
	}
}
