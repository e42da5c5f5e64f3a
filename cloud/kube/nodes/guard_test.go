package nodes //nolint:testpackage // what a Node says is not exported

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/seed-9e1ffd66/trueup/cloud"
	"github.com/seed-9e1ffd66/trueup/reconcile/simtest"
)

// TestAMachineWithPodsIsNotStopped has a pod on the Node of the machine, and one on the Node of
// another machine. No watch has shown them.
func TestAMachineWithPodsIsNotStopped(t *testing.T) {
	t.Parallel()
	const running, ending = string(cloud.StateRunning), string(cloud.StateTerminating)
	draining := func(since time.Duration) cloud.Intent {
		return cloud.Intent{Verb: cloud.Terminate, Since: started.Add(since)}
	}
	for name, c := range map[string]struct {
		verb   cloud.Verb // empty: stop
		state  string     // of the Node, empty if it was deleted
		tag    string     // of the machine: the name of its Node
		intent cloud.Intent
		off    bool // the machine does not run
		stops  bool
	}{
		"it runs":                              {state: running, tag: "node"},
		"it runs, and is stopped by force":     {verb: cloud.ForceStop, state: running, tag: "node", stops: true},
		"it warms up":                          {state: "warmup", tag: "node", stops: true},
		"its Node was deleted":                 {tag: "node"},
		"its Node is not known":                {stops: true},
		"its tag names that of another":        {tag: "other", stops: true},
		"its tag names one that has no pods":   {tag: "free", stops: true},
		"its tag is old, and its Node is ours": {state: running, tag: "free"},
		"it is drained before its end":         {verb: cloud.Terminate, state: ending, intent: draining(-4 * time.Minute)},
		"the time of its drain is over":        {verb: cloud.Terminate, state: ending, intent: draining(-5 * time.Minute), stops: true},
		"it is terminated without a drain":     {verb: cloud.Terminate, state: running, stops: true},
		"it is drained, and is off":            {verb: cloud.Terminate, state: ending, intent: draining(-4 * time.Minute), off: true, stops: true},
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
			w := New(domain, platform, func([]string, bool) {})
			other := machine()
			other.Name, other.UID, other.Spec.ProviderID = "other", "v", "aws:///eu-west-1a/i-2"
			w.SawNode(other)
			if c.state != "" {
				n := machine()
				n.Labels[domain.StateLabel()] = c.state
				if c.intent.Verb != "" {
					n.Annotations[domain.intent()], err = formatIntent(c.intent, cloud.StateRunning)
					require.NoError(t, err)
				}
				w.SawNode(n)
			}
			scope := cloud.Scope{Domain: string(domain)}
			g := Guard{
				Marks: &Marks{Client: client, Cluster: w, Pool: Pool{Domain: domain}, now: func() time.Time { return started }},
				Scope: scope, DrainTimeout: 5 * time.Minute,
				Instance: func(id string) (cloud.Instance, bool) {
					i := cloud.Instance{ID: "i-1", State: cloud.InstanceRunning, Tags: map[string]string{scope.Key("node"): c.tag}}
					if c.off {
						i.State = cloud.InstanceStopped
					}
					return i, id == i.ID
				},
			}
			verb := c.verb
			if verb == "" {
				verb = cloud.Stop
			}
			err = g.Check(t.Context(), cloud.Action{Verb: verb, Machine: "i-1"})
			if c.stops {
				require.NoError(t, err)
			} else {
				require.ErrorIs(t, err, ErrChanged)
				require.ErrorContains(t, err, "pod team/on-node is on it")
			}
		})
	}
}

func TestAMachineWhosePodsCannotBeReadIsNotStopped(t *testing.T) {
	t.Parallel()
	client, err := dynamic.NewForConfig(&rest.Config{Host: "http://simtest", Transport: &simtest.Server{}}) // it has no pods
	require.NoError(t, err)
	w := New(domain, platform, func([]string, bool) {})
	w.SawNode(machine())
	g := Guard{
		Marks:    &Marks{Client: client, Cluster: w, Pool: Pool{Domain: domain}},
		Instance: func(string) (cloud.Instance, bool) { return cloud.Instance{}, false },
	}
	require.ErrorContains(t, g.Check(t.Context(), cloud.Action{Verb: cloud.Stop, Machine: "i-1"}), "pods of node node")
}

// TestPodsOnTheFormerNodeOfAMachineCount has a machine whose kubelet has registered under another
// name: its pods may be on either Node. On the former one no kubelet ends a pod that is deleted.
func TestPodsOnTheFormerNodeOfAMachineCount(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		on     string // the Node of the pod
		ending bool
		late   bool // the former Node is seen last
		stops  bool
	}{
		"on the present one":                    {on: "second"},
		"on the present one, the other changed": {on: "second", late: true},
		"on the former one":                     {on: "node"},
		"ending on the former one":              {on: "node", ending: true, stops: true},
		"ending on the present one":             {on: "second", ending: true},
		"on another":                            {on: "third", stops: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := &simtest.Server{Kinds: []simtest.Kind{{Version: "v1", Resource: "pods", Kind: "Pod", Status: true}}}
			client, err := dynamic.NewForConfig(&rest.Config{Host: "http://simtest", Transport: server})
			require.NoError(t, err)
			pod := map[string]any{"name": "p", "finalizers": []any{"example.com/keep"}}
			pods := client.Resource(podsResource).Namespace("team")
			_, err = pods.Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "v1", "kind": "Pod", "metadata": pod, "spec": map[string]any{"nodeName": c.on},
			}}, metav1.CreateOptions{})
			require.NoError(t, err)
			if c.ending {
				require.NoError(t, pods.Delete(t.Context(), "p", metav1.DeleteOptions{}))
			}
			w := New(domain, platform, func([]string, bool) {})
			former, present := machine(), machine()
			former.CreationTimestamp, present.CreationTimestamp = metav1.NewTime(started), metav1.NewTime(started.Add(time.Hour))
			present.Name, present.UID = "second", "w"
			w.SawNode(former)
			w.SawNode(present)
			if c.late {
				former = former.DeepCopy()
				former.ResourceVersion = "99"
				w.SawNode(former)
			}
			g := Guard{Marks: &Marks{Client: client, Cluster: w, Pool: Pool{Domain: domain}}}
			err = g.Check(t.Context(), cloud.Action{Verb: cloud.Stop, Machine: "i-1"})
			if c.stops {
				require.NoError(t, err)
			} else {
				require.ErrorIs(t, err, ErrChanged)
			}
		})
	}
}

// TestTheYoungestNodeIsThatOfTheMachine whatever is seen last, and the other one again once it is
// deleted.
func TestTheYoungestNodeIsThatOfTheMachine(t *testing.T) {
	t.Parallel()
	w := New(domain, platform, func([]string, bool) {})
	saw := func(name string, created time.Duration, version string) {
		n := machine()
		n.Name, n.ResourceVersion, n.CreationTimestamp = name, version, metav1.NewTime(started.Add(created))
		w.SawNode(n)
	}
	is := func(want string) {
		t.Helper()
		v, ok := w.OfMachine("i-1")
		require.Equal(t, want != "", ok)
		require.Equal(t, want, v.Status.Name)
		var names []string
		for _, m := range w.Machines(v.Pool, v.PoolUID, map[string]bool{"i-1": true}) {
			if m.Status.ID == "i-1" {
				names = append(names, m.Status.Name)
			}
		}
		if want != "" {
			require.Equal(t, []string{want}, names)
		}
	}
	saw("b", time.Hour, "2")
	is("b")
	saw("a", 0, "3")
	is("b")
	saw("a", 0, "4")
	is("b")
	saw("c", 2*time.Hour, "5")
	is("c")
	w.DropNode("c", "")
	is("b")
	n := machine()
	n.Name, n.ResourceVersion, n.Spec.ProviderID = "b", "6", "aws:///eu-west-1a/i-2"
	w.SawNode(n)
	is("a")
	w.DropNode("a", "")
	is("")
}
