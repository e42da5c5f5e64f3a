package upstream_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/seed-9e1ffd66/trueup/apply"
	"github.com/seed-9e1ffd66/trueup/reconcile"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube"
	"github.com/seed-9e1ffd66/trueup/reconcile/simtest"
	"github.com/seed-9e1ffd66/trueup/reconcile/simtest/upstream"
)

// TestMain takes out the handlers of client-go that keep the time of the last error
// for the whole process: a simulated world has a time of its own.
func TestMain(m *testing.M) {
	utilruntime.ErrorHandlers = nil
	os.Exit(m.Run())
}

// operator keeps a ConfigMap for each page of a Site, with package apply, as
// examples/operator does. The ConfigMaps of one Site are a part.
type operator struct {
	applier    apply.Applier
	controller kube.Controller[*site]
	finalizer  kube.Finalizer
}

type site struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitzero"`

	Spec struct {
		Pages map[string]string `json:"pages"`
	} `json:"spec"`
}

func run(ctx context.Context, net http.RoundTripper) error {
	access := &rest.Config{Host: "http://simtest", Transport: net, QPS: -1, UserAgent: "operator"}
	client, failed := dynamic.NewForConfig(access)
	views, err := metadata.NewForConfig(access)
	if err = errors.Join(failed, err); err != nil {
		return err
	}
	o, resource := &operator{}, schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "sites"}
	o.controller.Client, o.controller.Kind.Resource, o.controller.Reconcile = client, resource, o.reconcile
	o.finalizer = kube.Finalizer{Client: client, Resource: resource, Name: "example.com/pages", OnWrite: o.controller.Wrote}
	wake := func(child apply.Observed) { o.controller.AddUID(child.Controller, types.UID(child.Part)) }
	mapper := meta.NewDefaultRESTMapper(nil)
	kind := schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}
	mapper.Add(kind, meta.RESTScopeNamespace)
	live := &apply.Live{
		Client:   views,
		Mapper:   mapper,
		OnChange: wake,
		OnDrift:  wake,
		Kinds:    []schema.GroupVersionKind{kind},
		Owner: apply.Owner{
			Manager:   "operator",
			Domain:    "example.com",
			PartLabel: "example.com/site",
			Labels:    map[string]string{"managed-by": "operator"},
		},
	}
	o.applier.Live, o.applier.Objects = live, client
	group := reconcile.Group{Members: []reconcile.Member{{Name: "live", Starter: live}, {Name: "controller", Starter: &o.controller}}}
	return group.Start(ctx)
}

func (o *operator) reconcile(ctx context.Context, _ types.NamespacedName, s *site) (reconcile.Result, error) {
	if s == nil {
		return reconcile.Result{}, nil
	}
	part := apply.SetOptions{Part: string(s.UID)}
	alive, result, err := o.finalizer.Finalize(ctx, s, func(ctx context.Context) (gone bool, err error) {
		left, err := o.applier.DeletePart(ctx, part.Part, apply.DeleteOptions{})
		return left.Remaining == 0, err
	})
	if !alive || err != nil {
		return result, err
	}
	var pages []*unstructured.Unstructured
	for _, name := range slices.Sorted(maps.Keys(s.Spec.Pages)) {
		text := s.Spec.Pages[name]
		page := &unstructured.Unstructured{
			Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "data": map[string]any{"text": text, "title": name}},
		}
		page.SetNamespace(s.Namespace)
		page.SetName(kube.Name(0, s.Name, name))
		page.SetOwnerReferences(
			[]metav1.OwnerReference{*metav1.NewControllerRef(s, schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Site"})},
		)
		pages = append(pages, page)
	}
	set, invalid := apply.NewSet(o.applier.Live.Owner, pages, part)
	_, failed := o.applier.Apply(ctx, set)
	_, kept := o.applier.Prune(ctx, set, apply.PruneOptions{Complete: invalid == nil, AllowEmpty: true})
	return result, errors.Join(invalid, failed, kept)
}

// edit is what users do: Sites come, change and go, and a page is edited by hand.
func edit(w *simtest.World) {
	name := fmt.Sprint("s", w.Random.IntN(2))
	pages := map[string]any{}
	for i := range w.Random.IntN(4) {
		pages[fmt.Sprint("p", i)] = fmt.Sprint("text ", w.Random.IntN(3))
	}
	var err error
	switch live := w.Object("sites.example.com", "web", name); {
	case live == nil:
		err = w.Create(simtest.Object{
			"apiVersion": "example.com/v1",
			"kind":       "Site",
			"metadata":   map[string]any{"namespace": "web", "name": name},
			"spec":       map[string]any{"pages": pages},
		})
	case w.Random.IntN(5) == 0:
		err = w.Delete("sites.example.com", "web", name)
	case w.Random.IntN(4) == 0:
		err = w.Update("configmaps", "web", name+"-p0", func(o simtest.Object) { o.Set("by hand", "data", "text") })
	default:
		err = w.Update("sites.example.com", "web", name, func(o simtest.Object) { o.Set(pages, "spec", "pages") })
	}
	_ = err // a user who comes too late does nothing
}

func converged(w *simtest.World) error {
	for _, each := range w.Objects("sites.example.com") {
		pages, _ := each.Field("spec", "pages").(map[string]any)
		for name, text := range pages {
			if page := w.Object("configmaps", "web", each.Name()+"-"+name); page == nil || page.Field("data", "text") != text {
				return fmt.Errorf("page %s of %s wants %q: %v", name, each.Name(), text, page)
			}
		}
	}
	return nil
}

var hash = regexp.MustCompile(`"example.com/desired-hash":"[0-9a-f]+"`)

func scenario() simtest.Scenario {
	return simtest.Scenario{
		Kinds: []simtest.Kind{
			{Group: "example.com", Version: "v1", Resource: "sites", Kind: "Site", Status: true},
			{Version: "v1", Resource: "configmaps", Kind: "ConfigMap"},
		},
		Machinery: &upstream.Machinery{}, Program: run, Edit: edit, Converged: converged,
		// The hash of what is wanted includes the UID of the Site.
		State: func(w *simtest.World) string {
			lines := strings.Split(hash.ReplaceAllString(w.State(), ""), "\n")
			slices.Sort(lines)
			return strings.Join(lines, "\n")
		},
	}
}

func TestAnApplierInASimulatedWorld(t *testing.T) {
	t.Parallel()
	for seed := range uint64(10) {
		r := simtest.Simulate(t, scenario, seed+1)
		require.Empty(t, r.Wrong, "seed %d", seed+1)
	}
}

func TestAnApplierMayBeKilledAnywhere(t *testing.T) {
	t.Parallel()
	c := simtest.Sweep(t, func() simtest.Scenario {
		s := scenario()
		s.Edits = 5
		return s
	}, 1)
	for _, r := range c.Failed {
		require.Empty(t, r.Wrong, "%s", r.Cut)
	}
	require.Equal(t, c.Boundaries, c.Reached)
	fmt.Printf("figure sim_applier_boundaries_reached %d count\n", c.Reached)
}
