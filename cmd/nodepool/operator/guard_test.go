package operator //nolint:testpackage // the guard is not exported

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/seed-9e1ffd66/trueup/cloud"
	"github.com/seed-9e1ffd66/trueup/cmd/api/stratos/v1alpha1"
	"github.com/seed-9e1ffd66/trueup/reconcile/simtest"
)

// stopping is a cloud that stops each machine.
type stopping struct {
	Provider

	stopped []string
}

func (s *stopping) StopInstances(_ context.Context, ids []string, _ bool) map[string]error {
	s.stopped = append(s.stopped, ids...)
	return nil
}

// TestAMachineWithPodsIsNotStopped has a pod on the Node of the machine, and one on the Node of
// another machine.
func TestAMachineWithPodsIsNotStopped(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		state string // of the Node, empty if it was deleted
		tag   string // of the machine: the name of its Node
		force bool
		stops bool
	}{
		"it runs":                              {state: "running", tag: "node"},
		"it runs, and is stopped by force":     {state: "running", tag: "node", force: true, stops: true},
		"it warms up":                          {state: "warmup", tag: "node", stops: true},
		"its Node was deleted":                 {tag: "node"},
		"its Node is not known":                {stops: true},
		"its tag names that of another":        {tag: "other", stops: true},
		"its tag names one that has no pods":   {tag: "free", stops: true},
		"its tag is old, and its Node is ours": {state: "running", tag: "free"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := &simtest.Server{Kinds: []simtest.Kind{{Version: "v1", Resource: "pods", Kind: "Pod", Status: true}}}
			client, err := dynamic.NewForConfig(&rest.Config{Host: "http://simtest", Transport: server})
			require.NoError(t, err)
			for _, node := range []string{"node", "other"} {
				_, err := client.Resource(podsResource).Namespace("team").Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
					"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": "on-" + node}, "spec": map[string]any{"nodeName": node},
				}}, metav1.CreateOptions{})
				require.NoError(t, err)
			}
			w := newWorld(func([]string, bool) {})
			other := machine()
			other.Name, other.UID, other.Spec.ProviderID = "other", "v", "aws:///eu-west-1a/i-2"
			w.sawNode(other)
			if c.state != "" {
				n := machine()
				n.Labels[v1alpha1.LabelState] = c.state
				w.sawNode(n)
			}
			scope := cloud.Scope{Domain: "stratos.sh"}
			provider := &stopping{}
			g := guarded{
				provider, &marks{client: client, world: w, now: time.Now},
				&poolMemory{instances: []cloud.Instance{{ID: "i-1", Tags: map[string]string{scope.Key("node"): c.tag}}}}, cloud.Pool{Scope: scope},
			}
			err = g.StopInstance(t.Context(), "i-1", c.force)
			if c.stops {
				require.NoError(t, err)
				require.Equal(t, []string{"i-1"}, provider.stopped)
			} else {
				require.ErrorIs(t, err, errChanged)
				require.Empty(t, provider.stopped)
			}
		})
	}
}
