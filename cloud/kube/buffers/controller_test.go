package buffers_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/seed-9e1ffd66/trueup/apply/applytest"
	"github.com/seed-9e1ffd66/trueup/cloud"
	"github.com/seed-9e1ffd66/trueup/cloud/demand"
	"github.com/seed-9e1ffd66/trueup/cloud/kube/buffers"
	"github.com/seed-9e1ffd66/trueup/cloud/kube/nodes"
	"github.com/seed-9e1ffd66/trueup/cloud/kube/pools"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube"
	"github.com/seed-9e1ffd66/trueup/reconcile/simtest"
)

const strategy = "buffer.example.com/standby-capacity"

var (
	definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	templates   = schema.GroupVersionResource{Version: "v1", Resource: "podtemplates"}
	deployments = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
	stateful    = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "statefulsets"}
)

// kinds are what the API server of a test serves.
func kinds() []simtest.Kind {
	return []simtest.Kind{
		{Group: definitions.Group, Version: "v1", Resource: definitions.Resource, Kind: "CustomResourceDefinition", Cluster: true, Status: true},
		{Group: buffers.Group, Version: buffers.Version, Resource: buffers.Plural, Kind: buffers.Kind, Status: true},
		{Version: "v1", Resource: "podtemplates", Kind: "PodTemplate"},
		{Group: "apps", Version: "v1", Resource: "deployments", Kind: "Deployment", Status: true},
		{Group: "apps", Version: "v1", Resource: "statefulsets", Kind: "StatefulSet", Status: true},
		{Group: "events.k8s.io", Version: "v1", Resource: "events", Kind: "Event"},
	}
}

// newPool returns a pool whose machines have four cores.
func newPool(name string, size int) *pools.Pool {
	return &pools.Pool{
		Spec:  cloud.Pool{Size: size, Templates: []cloud.Template{{Name: "subnet-a", InstanceType: "large", Zone: "zone-a"}}},
		Nodes: nodes.Pool{Domain: domain, Name: name, UID: "uid of " + name}, Memory: &cloud.SharedMemory{},
		Machine:  func(cloud.Template) demand.Node { return demand.Node{Labels: map[string]string{}} },
		Capacity: func(int) demand.Resources { return demand.Resources{CPU: 4000, Memory: 16 << 30, Pods: 20} },
	}
}

// world is a Controller and an API server in virtual time. Its pool web may have five machines, and has none.
type world struct {
	*testing.T
	buffers.Controller

	net    applytest.Transport // of the Controller
	client dynamic.Interface   // of a user
	hidden atomic.Bool         // not everything was looked at yet

	mu    sync.Mutex
	pools map[string]*pools.Pool
	looks []string
}

// in runs a test. The Controller has not been started.
func in(t *testing.T, do func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{T: t, pools: map[string]*pools.Pool{"web": newPool("web", 5)}}
		server := &simtest.Server{Kinds: kinds()}
		var err error
		w.client, err = dynamic.NewForConfig(&rest.Config{Host: "http://simtest", Transport: server, QPS: -1})
		require.NoError(t, err)
		w.Client, err = dynamic.NewForConfig(&rest.Config{Host: "http://simtest", Transport: w.net.Wrap(server), QPS: -1})
		require.NoError(t, err)
		w.Strategy = strategy
		w.ScaleUp = &pools.ScaleUp{Cluster: nodes.New(domain, nodes.Zoned("fake", nil), func([]string, bool) {})}
		w.ScaleUp.Pools = func() map[string]*pools.Pool {
			w.mu.Lock()
			defer w.mu.Unlock()
			return maps.Clone(w.pools)
		}
		w.ScaleUp.Look = func(pool string) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.looks = append(w.looks, pool)
		}
		w.Seen = func() error {
			if w.hidden.Load() {
				return errors.New("pool web is not looked at yet")
			}
			return nil
		}
		do(w)
	})
}

// start starts the Controller, which ends with the test.
func (w *world) start() {
	w.Helper()
	ctx, stop := context.WithCancel(w.Context())
	done := make(chan error, 1)
	go func() { done <- w.Start(ctx) }()
	w.Cleanup(func() {
		stop()
		require.NoError(w, <-done)
	})
	w.pass(time.Second)
}

// pass lets time pass.
func (w *world) pass(d time.Duration) {
	w.Helper()
	time.Sleep(d)
	synctest.Wait()
}

// apply makes an object, or replaces its spec and its status, as a user does, and lets a second pass.
func (w *world) apply(resource schema.GroupVersionResource, text string) {
	w.Helper()
	o := &unstructured.Unstructured{}
	require.NoError(w, yaml.Unmarshal([]byte(text), &o.Object))
	namespace := "team"
	if resource == definitions {
		namespace = ""
	}
	to := w.client.Resource(resource).Namespace(namespace)
	if was, err := to.Get(w.Context(), o.GetName(), metav1.GetOptions{}); err == nil {
		o.SetResourceVersion(was.GetResourceVersion())
		_, err = to.Update(w.Context(), o, metav1.UpdateOptions{})
		require.NoError(w, err)
	} else {
		status := o.Object["status"]
		o, err = to.Create(w.Context(), o, metav1.CreateOptions{})
		require.NoError(w, err)
		if status != nil {
			o.Object["status"] = status
			_, err = to.UpdateStatus(w.Context(), o, metav1.UpdateOptions{})
			require.NoError(w, err)
		}
	}
	w.pass(time.Second)
}

// define brings the definition.
func (w *world) define(version string, served, established bool) {
	w.Helper()
	w.apply(definitions, fmt.Sprintf(`{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition,
  metadata: {name: capacitybuffers.autoscaling.x-k8s.io}, spec: {versions: [{name: %s, served: %v}]},
  status: {conditions: [{type: Established, status: "%v"}]}}`, version, served, map[bool]string{true: "True", false: "False"}[established]))
}

// template makes the PodTemplate web, of whose pods a machine has room for so many.
func (w *world) template(pods int) {
	w.Helper()
	w.apply(templates, fmt.Sprintf(`{apiVersion: v1, kind: PodTemplate, metadata: {name: web, namespace: team},
  template: {spec: {containers: [{name: c, image: x, resources: {requests: {cpu: %dm}}}]}}}`, 4000/pods))
}

// deployment makes the Deployment web with ten pods, of which a machine has room for five.
func (w *world) deployment(spec string) {
	w.Helper()
	w.apply(deployments, `{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, namespace: team}, spec: {replicas: 10,
  selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}},
  spec: {`+spec+`containers: [{name: c, image: x, resources: {requests: {cpu: 800m}}}]}}}}`)
}

func (w *world) buffer(name, spec string) {
	w.Helper()
	w.bufferOf(name, strategy, spec)
}

func (w *world) bufferOf(name, strategy, spec string) {
	w.Helper()
	w.apply(buffers.Resource(), fmt.Sprintf(`{apiVersion: autoscaling.x-k8s.io/v1beta1, kind: CapacityBuffer,
  metadata: {name: %s, namespace: team}, spec: {provisioningStrategy: %s, %s}}`, name, strategy, spec))
}

func (w *world) delete(resource schema.GroupVersionResource, namespace, name string) {
	w.Helper()
	require.NoError(w, w.client.Resource(resource).Namespace(namespace).Delete(w.Context(), name, metav1.DeleteOptions{}))
	w.pass(time.Second)
}

// recordEvents has the Controller record Events until the test ends.
func (w *world) recordEvents() {
	w.Events = &kube.Events{Client: w.client, Controller: "example.com/pools", Instance: "one"}
	ctx, stop := context.WithCancel(w.Context())
	done := make(chan error, 1)
	go func() { done <- w.Events.Start(ctx) }()
	w.Cleanup(func() {
		stop()
		require.NoError(w, <-done)
	})
}

// events returns the object, the type and the reason of each Event.
func (w *world) events() (all []string) {
	w.Helper()
	events, err := w.client.Resource(kube.EventsResource()).Namespace("team").List(w.Context(), metav1.ListOptions{})
	require.NoError(w, err)
	for _, e := range events.Items {
		about, _, _ := unstructured.NestedString(e.Object, "regarding", "name")
		all = append(all, fmt.Sprint(about, " ", e.Object["type"], " ", e.Object["reason"]))
	}
	return all
}

func (w *world) status(name string) buffers.Status {
	w.Helper()
	o, err := w.client.Resource(buffers.Resource()).Namespace("team").Get(w.Context(), name, metav1.GetOptions{})
	require.NoError(w, err)
	b := &buffers.CapacityBuffer{}
	require.NoError(w, runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, b))
	return b.Status
}

// is requires what all conditions of a buffer say, by their types, and returns the message of Provisioning.
func (w *world) is(name string, reasons ...string) string {
	w.Helper()
	s := w.status(name)
	var got []string
	for _, kind := range buffers.Conditions() {
		if c := meta.FindStatusCondition(s.Conditions, kind); c != nil {
			got = append(got, c.Reason)
		}
	}
	require.Equal(w, reasons, got)
	return meta.FindStatusCondition(s.Conditions, buffers.ConditionProvisioning).Message
}

// keeps requires how many standby machines of a pool are kept; -1 is that it is not known.
func (w *world) keeps(pool string, want int) {
	w.Helper()
	w.mu.Lock()
	p := w.pools[pool]
	w.mu.Unlock()
	keep, known := w.Standby(p)
	n := 0
	for _, of := range keep {
		n += of
	}
	if !known {
		n = -1
	}
	require.Equal(w, want, n, pool)
}

// looked returns which pools were to be looked at since the last call.
func (w *world) looked() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	looks := w.looks
	w.looks = nil
	return looks
}

// asked returns how often the Controller has listed or watched a resource.
func (w *world) asked(resource string) (n int) {
	for _, r := range w.net.Requests() {
		if r.Resource == resource {
			n++
		}
	}
	return n
}

// TestTheDefinitionComesAndGoes: without it nothing is watched or kept, and nothing is left of its last time.
func TestTheDefinitionComesAndGoes(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		w.keeps("web", -1)
		w.start()
		w.keeps("web", 0)
		w.define("v1alpha1", true, true)
		w.keeps("web", 0)
		w.define("v1beta1", false, true)
		w.keeps("web", 0)
		w.delete(definitions, "", buffers.Definition)
		w.define("v1beta1", true, false)
		w.keeps("web", 0)
		w.template(2)
		w.buffer("web", "podTemplateRef: {name: web}, replicas: 3")
		require.Zero(w, w.asked(buffers.Plural)+w.asked("podtemplates")+w.asked("deployments"))
		require.Empty(w, w.looked())
		require.Empty(w, w.status("web"))

		w.delete(definitions, "", buffers.Definition)
		w.define("v1beta1", true, true)
		w.keeps("web", 2)
		require.Equal(w, []string{"web"}, w.looked())
		w.is("web", "Resolved", "Provisioned", "WarmingUp")
		require.EqualValues(w, 3, *w.status("web").Replicas)

		w.delete(definitions, "", buffers.Definition)
		w.keeps("web", 0)
		require.Equal(w, []string{"web"}, w.looked())
		w.delete(buffers.Resource(), "team", "web") // as the server does with all of them
		w.net.Reset()
		w.pass(time.Hour)
		require.Zero(w, w.asked(buffers.Plural)+w.asked("podtemplates")+w.asked("deployments"))
		w.define("v1beta1", true, true)
		w.keeps("web", 0)
		require.Empty(w, w.looked(), "the buffer of the last time counts no more")
	})
}

// TestAWrongReferenceIsReportedUntilItIsPutRight: at once, also while no plan can be made.
func TestAWrongReferenceIsReportedUntilItIsPutRight(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		w.recordEvents()
		w.hidden.Store(true)
		w.define("v1beta1", true, true)
		w.buffer("web", "podTemplateRef: {name: web}, replicas: 3")
		w.buffer("share", "scalableRef: {apiGroup: apps, kind: Deployment, name: web}, percentage: 50")
		w.start()
		message := w.is("web", "PodTemplateNotFound", "PodTemplateNotFound", "PodTemplateNotFound")
		require.Equal(w, `spec.podTemplateRef.name: PodTemplate "web" does not exist in namespace team`, message)
		message = w.is("share", "ScalableNotFound", "ScalableNotFound", "ScalableNotFound")
		require.Equal(w, `spec.scalableRef.name: Deployment "web" does not exist in namespace team`, message)
		require.ElementsMatch(w, []string{"web Warning PodTemplateNotFound", "share Warning ScalableNotFound"}, w.events())

		w.hidden.Store(false)
		w.pass(time.Second)
		w.keeps("web", 0)
		w.template(2)
		w.deployment("nodeSelector: {none: has}, ")
		w.keeps("web", 2)
		w.is("web", "Resolved", "Provisioned", "WarmingUp")
		require.EqualValues(w, 3, *w.status("web").Replicas)
		require.Contains(w, w.is("share", "Resolved", "DoesNotFit", "DoesNotFit"), "0 of 5 pods have room")
		require.Contains(w, w.events(), "share Warning DoesNotFit")
		w.deployment("")
		w.is("share", "Resolved", "Provisioned", "WarmingUp")
		w.keeps("web", 3)

		w.delete(templates, "team", "web")
		w.keeps("web", 1)
		w.is("web", "PodTemplateNotFound", "PodTemplateNotFound", "PodTemplateNotFound")
		require.Nil(w, w.status("web").Replicas)
	})
}

// TestAnEventTellsAReasonOnce: not that all is well, nor the same again with other numbers.
func TestAnEventTellsAReasonOnce(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		w.recordEvents()
		w.define("v1beta1", true, true)
		w.template(1)
		w.start()
		w.buffer("web", "podTemplateRef: {name: web}, replicas: 2")
		w.is("web", "Resolved", "Provisioned", "WarmingUp")
		require.Empty(w, w.events())
		for _, pods := range []string{"7", "8"} {
			w.buffer("web", "podTemplateRef: {name: web}, replicas: "+pods)
			require.Contains(w, w.is("web", "Resolved", "DoesNotFit", "DoesNotFit"), "5 of "+pods+" pods have room")
			require.Equal(w, []string{"web Warning DoesNotFit"}, w.events())
		}
	})
}

func TestABufferTakesItsPodsFromAStatefulSet(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		w.define("v1beta1", true, true)
		w.apply(stateful, `{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: web, namespace: team}, spec: {replicas: 10,
  selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}},
  spec: {containers: [{name: c, image: x, resources: {requests: {cpu: 4}}}]}}}}`)
		w.buffer("web", "scalableRef: {apiGroup: apps, kind: StatefulSet, name: web}, percentage: 20")
		w.start()
		w.is("web", "Resolved", "Provisioned", "WarmingUp")
		w.keeps("web", 2)
	})
}

func TestATemplateThatNamesItsNodeIsRefused(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		w.define("v1beta1", true, true)
		w.apply(templates, `{apiVersion: v1, kind: PodTemplate, metadata: {name: web, namespace: team},
  template: {spec: {nodeName: here, containers: [{name: c, image: x}]}}}`)
		w.buffer("web", "podTemplateRef: {name: web}, replicas: 1")
		w.start()
		message := w.is("web", "InvalidTemplate", "InvalidTemplate", "InvalidTemplate")
		require.Equal(w, `the template's spec.nodeName: is "here", must not be set: such a pod runs there and nowhere else`, message)
		w.keeps("web", 0)
	})
}

// TestPodsOfAHigherPriorityHaveRoomFirst has two buffers, and room for one.
func TestPodsOfAHigherPriorityHaveRoomFirst(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		w.define("v1beta1", true, true)
		for name, priority := range map[string]string{"a": "0", "b": "10"} {
			w.apply(templates, `{apiVersion: v1, kind: PodTemplate, metadata: {name: `+name+`, namespace: team},
  template: {spec: {priority: `+priority+`, containers: [{name: c, image: x, resources: {requests: {cpu: 4}}}]}}}`)
			w.buffer(name, "podTemplateRef: {name: "+name+"}, replicas: 5")
		}
		w.start()
		w.keeps("web", 5)
		w.is("b", "Resolved", "Provisioned", "WarmingUp")
		require.Contains(w, w.is("a", "Resolved", "DoesNotFit", "DoesNotFit"), "0 of 5 pods have room")
	})
}

// TestAStatusThatIsEditedByHandIsCorrected within a period, although nothing else has changed.
func TestAStatusThatIsEditedByHandIsCorrected(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		w.define("v1beta1", true, true)
		w.template(2)
		w.buffer("web", "podTemplateRef: {name: web}, replicas: 3")
		w.start()
		was := w.status("web")
		patch := `{"status": {"replicas": 99, "conditions": [{"type": "Ready", "status": "True", "reason": "Hacked", "message": "",
  "lastTransitionTime": "2000-01-01T00:00:00Z"}]}}`
		_, err := w.client.Resource(buffers.Resource()).Namespace("team").Patch(
			w.Context(), "web", types.MergePatchType, []byte(patch), metav1.PatchOptions{}, "status",
		)
		require.NoError(w, err)
		w.pass(31 * time.Second)
		require.Equal(w, was.Replicas, w.status("web").Replicas)
		w.is("web", "Resolved", "Provisioned", "WarmingUp")
	})
}

// TestAStatusIsWrittenOnlyWhenItChanges counts the writes of an hour in which pods and pools change.
func TestAStatusIsWrittenOnlyWhenItChanges(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		w.define("v1beta1", true, true)
		w.template(2)
		w.buffer("web", "podTemplateRef: {name: web}, replicas: 3")
		w.buffer("wrong", "podTemplateRef: {name: none}, replicas: 3")
		w.start()
		w.is("web", "Resolved", "Provisioned", "WarmingUp")
		w.is("wrong", "PodTemplateNotFound", "PodTemplateNotFound", "PodTemplateNotFound")
		w.looked()
		writes := func() (all []string) {
			for _, r := range w.net.Requests() {
				if r.Writes() {
					all = append(all, r.String())
				}
			}
			w.net.Reset()
			return all
		}
		require.Len(w, writes(), 2)
		for range 60 {
			w.Wake()
			w.pass(time.Minute)
		}
		require.Empty(w, writes())
		w.template(1) // the same number of pods, on more machines
		require.Equal(w, []string{"patch capacitybuffers.autoscaling.x-k8s.io/status team/web"}, writes())
		w.keeps("web", 3)
		require.Equal(w, []string{"web"}, w.looked())
		generation := *w.status("web").PodTemplateGeneration
		w.apply(templates, `{apiVersion: v1, kind: PodTemplate, metadata: {name: web, namespace: team},
  template: {spec: {hostname: other, containers: [{name: c, image: x, resources: {requests: {cpu: 4}}}]}}}`)
		require.Equal(w, generation+1, *w.status("web").PodTemplateGeneration)
		require.Len(w, writes(), 1, "the outcome of another template is the same")
		w.bufferOf("web", "buffer.x-k8s.io/active-capacity", "podTemplateRef: {name: web}, replicas: 3")
		w.keeps("web", 0)
		require.Empty(w, writes(), "it is another controller's")
		require.EqualValues(w, 3, *w.status("web").Replicas)
	})
}

// TestSurplusIsHeldUntilItIsKnownWhatTheBuffersTake has lists that the server refuses for a while.
func TestSurplusIsHeldUntilItIsKnownWhatTheBuffersTake(t *testing.T) {
	t.Parallel()
	for _, resource := range []string{definitions.Resource, buffers.Plural, templates.Resource} {
		t.Run(resource, func(t *testing.T) {
			t.Parallel()
			in(t, func(w *world) {
				var refused atomic.Bool
				refused.Store(true)
				w.net.Fault = func(r applytest.Request) applytest.Fault {
					if r.Resource == resource && refused.Load() {
						return applytest.Fault{Status: http.StatusForbidden}
					}
					return applytest.Fault{}
				}
				w.define("v1beta1", true, true)
				w.template(2)
				w.buffer("web", "podTemplateRef: {name: web}, replicas: 3")
				w.start()
				w.pass(time.Hour)
				w.keeps("web", -1)
				ctx, stop := context.WithTimeout(w.Context(), time.Second)
				defer stop()
				_, err := w.Preview(ctx)
				require.ErrorContains(w, err, resource)
				refused.Store(false)
				w.pass(time.Minute)
				w.keeps("web", 2)
			})
		})
	}
}

// TestAPoolThatWasNotLookedAtHoldsItsSurplus: what it has would be missing in a plan.
func TestAPoolThatWasNotLookedAtHoldsItsSurplus(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		w.hidden.Store(true)
		w.define("v1beta1", true, true)
		w.template(1)
		w.buffer("web", "podTemplateRef: {name: web}, replicas: 7")
		w.start()
		w.pass(time.Hour)
		w.keeps("web", -1)
		require.Empty(w, w.status("web"))
		w.hidden.Store(false)
		w.pass(time.Second)
		w.keeps("web", 5)
		require.Contains(w, w.is("web", "Resolved", "DoesNotFit", "DoesNotFit"), "5 of 7 pods have room on standby machines: 5 of pool web")

		w.mu.Lock()
		w.pools["new"] = newPool("new", 5)
		w.mu.Unlock()
		w.keeps("new", -1)
		w.keeps("web", 5)
		w.Wake() // as its first pass does
		w.pass(time.Second)
		w.keeps("web", 2)
		w.keeps("new", 5)
		w.is("web", "Resolved", "Provisioned", "WarmingUp")
		require.ElementsMatch(w, []string{"web", "web", "new"}, w.looked())

		w.mu.Lock()
		w.pools["web"] = newPool("web", 5)
		w.pools["web"].Nodes.UID = "of another pool of the name"
		w.mu.Unlock()
		w.keeps("web", -1)
	})
}

// TestAPreviewWritesNothing has a Controller that only says what the buffers would take.
func TestAPreviewWritesNothing(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		w.Dry = true
		w.start()
		text, err := w.Preview(w.Context())
		require.NoError(w, err)
		require.Empty(w, text)
		w.define("v1beta1", true, true)
		w.template(2)
		w.buffer("web", "podTemplateRef: {name: web}, replicas: 3")
		w.buffer("wrong", "podTemplateRef: {name: none}, replicas: 3")
		text, err = w.Preview(w.Context())
		require.NoError(w, err)
		require.Equal(w, "buffer team/web: 3 of 3 pods have room on standby machines: 2 of pool web, 3 of them once these have warmed up\n"+
			"buffer team/wrong: spec.podTemplateRef.name: PodTemplate \"none\" does not exist in namespace team\n", text)
		w.keeps("web", 2)
		w.net.NoWrites(w)
	})
}

// TestABufferIsReadyOnceItsMachinesAreOnStandby shows the Controller the machine that it asks for.
func TestABufferIsReadyOnceItsMachinesAreOnStandby(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		w.define("v1beta1", true, true)
		w.template(2)
		w.buffer("web", "podTemplateRef: {name: web}, replicas: 2")
		w.start()
		w.is("web", "Resolved", "Provisioned", "WarmingUp")
		w.ScaleUp.Cluster.SawNode(machine("i-1", cloud.StateStandby, "1"))
		w.Wake()
		w.pass(time.Second)
		require.Equal(w, "2 pods have room on standby machines: 1 of pool web", w.is("web", "Resolved", "Provisioned", "OnStandby"))
		w.ScaleUp.Cluster.DropNode("i-1", "")
		w.pass(time.Minute) // it looks again without a wake
		w.is("web", "Resolved", "Provisioned", "WarmingUp")
	})
}
