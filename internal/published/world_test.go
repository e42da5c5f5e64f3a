package published_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	_ "k8s.io/kubernetes/pkg/apis/apps/install"
	_ "k8s.io/kubernetes/pkg/apis/batch/install"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
	_ "k8s.io/kubernetes/pkg/apis/discovery/install"
	_ "k8s.io/kubernetes/pkg/apis/policy/install"

	"github.com/seed-9e1ffd66/trueup/apply/applytest"
	"github.com/seed-9e1ffd66/trueup/reconcile/simtest"
	"github.com/seed-9e1ffd66/trueup/reconcile/simtest/upstream"
)

// TestMain takes out the handlers of client-go that keep the time of the last error
// for the whole process: a simulated world has a time of its own.
func TestMain(m *testing.M) {
	utilruntime.ErrorHandlers = nil
	os.Exit(m.Run())
}

// controllers runs controllers on informers of their own, until ctx ends.
type controllers func(
	ctx context.Context, client kubernetes.Interface, factory informers.SharedInformerFactory,
) (run []func(context.Context), err error)

// program is the main of these controllers.
func (start controllers) program(ctx context.Context, access *rest.Config) error {
	client, err := kubernetes.NewForConfig(access)
	if err != nil {
		return err
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	runs, err := start(ctx, client, factory)
	if err != nil {
		return err
	}
	factory.Start(ctx.Done())
	done := make(chan struct{})
	for _, run := range runs {
		go func() { run(ctx); done <- struct{}{} }()
	}
	for range runs {
		<-done
	}
	factory.Shutdown()
	return nil
}

// workloads is a scenario of controllers of Kubernetes, with the kinds, defaults and
// patches of a real server, and a kubelet that runs the pods. The caller adds what the
// user does.
func workloads(run controllers) simtest.Scenario {
	return simtest.Scenario{
		Kinds: kinds, Admit: defaults, Machinery: &upstream.Machinery{Scheme: scheme.Scheme}, Program: upstream.Program(run.program),
		Actors: []func(*simtest.World, simtest.Change){simtest.Kubelet{}.Act},
		// Made again, deleted again: after a backup it is no defect.
		Without: []applytest.Disturbance{simtest.RestoreStore},
		Edits:   10, Settle: 20 * time.Minute, Rest: 2 * time.Hour,
	}
}

// defaults sets the defaults of a real server.
func defaults(a *simtest.Admission) error {
	if a.Object == nil {
		return nil
	}
	o := a.Object
	typed, err := legacyscheme.Scheme.New(schema.FromAPIVersionAndKind(fmt.Sprint(o["apiVersion"]), fmt.Sprint(o["kind"])))
	if err != nil {
		return err
	}
	data, err := json.Marshal(o)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, typed); err != nil {
		return err
	}
	legacyscheme.Scheme.Default(typed)
	if data, err = json.Marshal(typed); err != nil {
		return err
	}
	var whole map[string]any
	if err := json.Unmarshal(data, &whole); err != nil {
		return err
	}
	for name, value := range whole {
		if name != "metadata" && name != "status" {
			o[name] = value
		}
	}
	if o["kind"] == "Job" && a.Before == nil { // as its strategy does
		selector := map[string]any{"batch.kubernetes.io/controller-uid": o.UID()}
		o.Set(selector, "spec", "selector", "matchLabels")
		o.Set(o.UID(), "spec", "template", "metadata", "labels", "batch.kubernetes.io/controller-uid")
		o.Set(o.Name(), "spec", "template", "metadata", "labels", "batch.kubernetes.io/job-name")
	}
	return nil
}

// kinds are the kinds of the core and of workloads that the controllers use.
var kinds = []simtest.Kind{
	{Version: "v1", Resource: "pods", Kind: "Pod", Status: true},
	{Group: "batch", Version: "v1", Resource: "jobs", Kind: "Job", Status: true},
	{Group: "batch", Version: "v1", Resource: "cronjobs", Kind: "CronJob", Status: true},
	{Group: "apps", Version: "v1", Resource: "deployments", Kind: "Deployment", Status: true},
	{Group: "apps", Version: "v1", Resource: "replicasets", Kind: "ReplicaSet", Status: true},
	{Group: "apps", Version: "v1", Resource: "statefulsets", Kind: "StatefulSet", Status: true},
	{Group: "apps", Version: "v1", Resource: "daemonsets", Kind: "DaemonSet", Status: true},
	{Version: "v1", Resource: "replicationcontrollers", Kind: "ReplicationController", Status: true},
	{Group: "policy", Version: "v1", Resource: "poddisruptionbudgets", Kind: "PodDisruptionBudget", Status: true},
	{Group: "apps", Version: "v1", Resource: "controllerrevisions", Kind: "ControllerRevision"},
	{Version: "v1", Resource: "services", Kind: "Service", Status: true},
	{Group: "discovery.k8s.io", Version: "v1", Resource: "endpointslices", Kind: "EndpointSlice"},
	{Version: "v1", Resource: "persistentvolumeclaims", Kind: "PersistentVolumeClaim", Status: true},
}

// withNodes adds the kind Node, and two of them. A habit of the world may delete one.
func withNodes(s simtest.Scenario) simtest.Scenario {
	s.Kinds = append(slices.Clone(s.Kinds), simtest.Kind{Version: "v1", Resource: "nodes", Kind: "Node", Cluster: true, Status: true})
	s.Start = func(w *simtest.World) {
		for n := range 2 {
			_ = w.Create(simtest.Object{"apiVersion": "v1", "kind": "Node", "metadata": map[string]any{"name": fmt.Sprint("node-", n)}}) // it is new
		}
	}
	return s
}

// template returns a pod template with the label app.
func template(app, image string, policy any) map[string]any {
	spec := map[string]any{"containers": []any{map[string]any{"name": "c", "image": image}}}
	if policy != nil {
		spec["restartPolicy"] = policy
	}
	return map[string]any{"metadata": map[string]any{"labels": map[string]any{"app": app}}, "spec": spec}
}

// owned counts the living objects of a controller.
func owned(w *simtest.World, resource, uid string) (n int) {
	for _, o := range w.Objects(resource) {
		if o.Owner() == uid && !o.Deleting() {
			n++
		}
	}
	return n
}
