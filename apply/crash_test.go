package apply_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/seed-9e1ffd66/trueup/apply"
	"github.com/seed-9e1ffd66/trueup/apply/applytest"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube/kubetest"
)

// TestKilledAnywhereItEndsTheSame kills a program before and after every request
// of a scenario with 60 objects: to create, to update, drifted, to prune, a
// definition with objects of its kind, and one that is invalid. TRUEUP_SWEEP=all
// tries every boundary, otherwise each fourth, and with -short each tenth.
func TestKilledAnywhereItEndsTheSame(t *testing.T) {
	t.Parallel()
	sweep := applytest.Sweep{Skip: 3}
	switch {
	case os.Getenv("TRUEUP_SWEEP") == "all":
		sweep.Skip = 0
	case testing.Short():
		sweep.Skip = 9
	}
	sweepWorlds(t, sweep)
}

// TestDisturbedAnywhereItEndsTheSame does other things at the requests of the
// same scenario. TRUEUP_SWEEP=all tries every boundary, which takes minutes.
func TestDisturbedAnywhereItEndsTheSame(t *testing.T) {
	t.Parallel()
	sweep := applytest.Sweep{Skip: 12, Disturbances: []applytest.Disturbance{
		applytest.LoseRequest, applytest.LoseAnswer, applytest.ServerError, applytest.Throttle,
		applytest.CutWatches, applytest.ExpireWatches, applytest.FreezeWatches,
	}}
	switch {
	case os.Getenv("TRUEUP_SWEEP") == "all":
		sweep.Skip = 0
	case testing.Short():
		sweep.Skip = 60
	}
	sweepWorlds(t, sweep)
}

var worlds atomic.Int64

func sweepWorlds(t *testing.T, sweep applytest.Sweep) {
	t.Helper()
	cluster := bare.Cluster(t)
	sweep.Run(t, func(t *testing.T) applytest.Scenario {
		t.Helper()
		w := newWorld(t, cluster, int(worlds.Add(1)))
		return applytest.Scenario{World: w.ns, Run: w.run, State: w.state, MayDelete: func(r applytest.Request) bool {
			return strings.HasPrefix(r.Name, "prune-")
		}}
	})
}

// world is one namespace with what an earlier version of the program left in it.
type world struct {
	*bench
	group   string
	admin   dynamic.Interface
	desired *apply.Set
}

func newWorld(t *testing.T, cluster *kubetest.Cluster, n int) *world {
	t.Helper()
	w := &world{bench: &bench{cluster: cluster, ns: fmt.Sprintf("crash-%d", n), config: rest.CopyConfig(cluster.Config)}}
	w.config.QPS = -1
	w.group = w.ns + ".example.com"
	w.owner = apply.Owner{Manager: "bench", Labels: map[string]string{"example.com/owner": w.ns}, Domain: "example.com"}
	admin, err := dynamic.NewForConfig(w.config)
	require.NoError(t, err)
	w.admin = admin

	var earlier, final []string
	for i := range 10 {
		earlier = append(earlier, configMap(fmt.Sprintf("update-%d", i), "old"))
		final = append(final, configMap(fmt.Sprintf("update-%d", i), "new"))
	}
	for i := range 5 {
		drifted := configMap(fmt.Sprintf("drift-%d", i), "right")
		earlier, final = append(earlier, drifted), append(final, drifted)
		earlier = append(earlier, configMap(fmt.Sprintf("prune-%d", i), "1"))
	}
	for i := range 15 {
		final = append(final, configMap(fmt.Sprintf("create-%d", i), "1"))
	}
	for i := range 6 {
		final = append(
			final,
			fmt.Sprintf("{apiVersion: v1, kind: Secret, metadata: {name: create-%d, namespace: NAMESPACE}, stringData: {password: x}}", i),
			fmt.Sprintf("{apiVersion: v1, kind: ServiceAccount, metadata: {name: create-%d, namespace: NAMESPACE-more}}", i),
			fmt.Sprintf(
				"{apiVersion: v1, kind: Service, metadata: {name: create-%d, namespace: NAMESPACE}, spec: {ports: [{name: t, port: 53}, {name: u, port: 53, protocol: UDP}]}}",
				i,
			),
		)
	}
	for i := range 4 {
		final = append(final, strings.Replace(selecting("one"), "name: web", fmt.Sprintf("name: web-%d", i), 1),
			fmt.Sprintf("{apiVersion: %s/v1, kind: Widget, metadata: {name: create-%d, namespace: NAMESPACE}, spec: {size: 1}}", w.group, i))
	}
	final = append(final, definitionOf(w.group, "v1"), "{apiVersion: v1, kind: Namespace, metadata: {name: NAMESPACE-more}}",
		after("late", "Widget."+w.group+"/NAMESPACE/create-0"),
		"{apiVersion: v1, kind: Service, metadata: {name: invalid, namespace: NAMESPACE}, spec: {ports: [{port: 70000}]}}")

	home := "{apiVersion: v1, kind: Namespace, metadata: {name: NAMESPACE}}"
	w.desired = w.set(t, append(final, home)...)
	require.GreaterOrEqual(t, w.desired.Len(), 60)
	require.NoError(t, w.pass(t.Context(), &applytest.Transport{}, w.set(t, append(earlier, home)...), false))
	for i := range 5 {
		_, err := w.resource("configmaps").Patch(t.Context(), fmt.Sprintf("drift-%d", i), types.MergePatchType,
			[]byte(`{"data":{"key":"wrong","theirs":"x"}}`), metav1.PatchOptions{FieldManager: "somebody"})
		require.NoError(t, err)
	}
	t.Cleanup(func() {
		crd := w.admin.Resource(schema.GroupVersionResource{Group: definitionKind.Group, Version: "v1", Resource: "customresourcedefinitions"})
		if err := crd.Delete(context.Background(), "widgets."+w.group, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			t.Error(err)
		}
	})
	return w
}

func (w *world) resource(name string) dynamic.ResourceInterface {
	return w.admin.Resource(schema.GroupVersionResource{Version: "v1", Resource: name}).Namespace(w.ns)
}

// run is the program: passes until everything is as wanted.
func (w *world) run(ctx context.Context, net *applytest.Transport) error {
	return w.pass(ctx, net, w.desired, true)
}

func (w *world) pass(ctx context.Context, net *applytest.Transport, set *apply.Set, prune bool) error {
	applier, err := w.program(
		net,
		slices.Concat(kinds[:len(kinds)-1], []schema.GroupVersionKind{definitionKind, {Group: w.group, Version: "v1", Kind: "Widget"}}),
	)
	if err != nil {
		return err
	}
	live := applier.Live
	wake := make(chan struct{}, 1)
	trigger := func() {
		select {
		case wake <- struct{}{}:
		default:
		}
	}
	live.OnDrift = func(apply.Observed) { trigger() }
	live.OnSynced = func(schema.GroupKind) { trigger() }
	ctx, cancel := context.WithTimeoutCause(ctx, 5*time.Minute, errors.New("not converged within five minutes"))
	watching, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- live.Start(watching) }()
	defer func() {
		stop()
		<-done
		cancel()
	}()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	var last apply.Report
	var kept apply.PruneReport
	var failed error // of the last prune
	for {
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: last pass %+v; last prune %+v: %w; unseen: %w", context.Cause(ctx), last.Results, kept, failed, live.Unseen())
		case <-wake:
		case <-tick.C:
		}
		report, _ := applier.Apply(ctx, set) // the results have the errors
		if ctx.Err() == nil {
			last = report
		}
		if !onlyInvalid(report) || ctx.Err() != nil {
			continue
		}
		if !prune {
			return nil
		}
		if kept, failed = applier.Prune(ctx, set, complete); failed == nil && len(kept.Results) == 0 {
			return nil
		}
	}
}

// onlyInvalid reports that everything is as wanted but for the invalid object.
func onlyInvalid(r apply.Report) bool {
	return !slices.ContainsFunc(r.Results, func(r apply.Result) bool { return r.ID.Name != "invalid" })
}

// state lists everything in the world's namespaces, without what differs from
// world to world.
func (w *world) state(ctx context.Context) (string, error) {
	var lines []string
	for _, resource := range []schema.GroupVersionResource{
		{Version: "v1", Resource: "configmaps"},
		{Version: "v1", Resource: "secrets"},
		{Version: "v1", Resource: "services"},
		{Version: "v1", Resource: "serviceaccounts"},
		{Group: "apps", Version: "v1", Resource: "deployments"},
		{Group: w.group, Version: "v1", Resource: "widgets"},
	} {
		if resource.Group == "" && resource.Resource == "widgets" {
			continue // a world without them
		}
		for _, ns := range []string{w.ns, w.ns + "-more"} {
			list, err := w.admin.Resource(resource).Namespace(ns).List(ctx, metav1.ListOptions{})
			if err != nil {
				return "", err
			}
			for _, o := range list.Items {
				name := o.GetName()
				delete(o.Object, "status")
				delete(o.Object, "metadata")
				if spec, ok := o.Object["spec"].(map[string]any); ok {
					delete(spec, "clusterIP")
					delete(spec, "clusterIPs")
				}
				content, err := json.Marshal(o.Object)
				if err != nil {
					return "", err
				}
				lines = append(lines, strings.ReplaceAll(ns+"/"+name+" "+string(content), w.ns, "WORLD"))
			}
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n"), nil
}
