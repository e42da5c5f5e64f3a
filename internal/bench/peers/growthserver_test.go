package main

import (
	"context"
	"maps"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/seed-9e1ffd66/trueup/apply"
)

// sampled are the samples of a world as a real server would have them, as far as package apply and
// the server look at them.
func sampled(t *testing.T, w growthWorld) [][]byte {
	t.Helper()
	samples := make([][]byte, len(w.forms))
	for form := range w.forms {
		i := growthSample + w.forms[form].digits[0]
		live := w.object(i).DeepCopy()
		labels := live.GetLabels()
		maps.Copy(labels, w.owner().Labels)
		owned := `{"f:metadata":{"f:annotations":{"f:bench.example.com/desired-hash":{}},"f:labels":{"f:app":{},"f:example.com/contender":{}`
		if w.parts {
			labels[partLabel] = string(w.parent(i / 10).GetUID())
			owned += `,"f:example.com/parent":{}},"f:ownerReferences":{"k:{\"uid\":\"` + labels[partLabel] + `\"}":{}`
		}
		live.SetLabels(labels)
		hash, err := w.hash(i)
		if err != nil {
			t.Fatal(err)
		}
		live.SetAnnotations(map[string]string{w.owner().Domain + "/desired-hash": hash.String()})
		owned += `}}` + map[string]string{
			"config": `,"f:data":{"f:level":{}}`, "login": `,"f:type":{},"f:data":{"f:password":{}}`,
			"service": `,"f:spec":{"f:clusterIP":{},"f:selector":{},"f:ports":{"k:{\"port\":80,\"protocol\":\"TCP\"}":{".":{},"f:port":{}}}}`,
			"web": `,"f:spec":{"f:selector":{},"f:template":{"f:metadata":{"f:labels":{"f:run":{}}},` +
				`"f:spec":{"f:containers":{"k:{\"name\":\"main\"}":{".":{},"f:name":{},"f:image":{}}}}}}`,
		}[w.forms[form].name] + `}`
		live.SetManagedFields([]metav1.ManagedFieldsEntry{{
			Manager: w.owner().Manager, Operation: metav1.ManagedFieldsOperationApply, APIVersion: live.GetAPIVersion(),
			FieldsType: "FieldsV1", FieldsV1: &metav1.FieldsV1{Raw: []byte(owned)},
		}})
		if samples[form], err = live.MarshalJSON(); err != nil {
			t.Fatal(err)
		}
	}
	return samples
}

// growing is a server of n objects, and a run against it.
func growing(t *testing.T, n int, parts bool) *growthRun {
	t.Helper()
	w := newGrowthWorld(parts)
	server, err := newGrowthServer(w, n, sampled(t, w))
	if err != nil {
		t.Fatal(err)
	}
	at := httptest.NewServer(server)
	t.Cleanup(at.CloseClientConnections)
	t.Cleanup(at.Close)
	r := &growthRun{world: w, n: n, config: &rest.Config{Host: at.URL, QPS: -1}}
	r.config.Wrap(r.count.wrap)
	return r
}

func TestTheServerHasWhatIsDesired(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	r := growing(t, 1234, false)
	set, err := r.world.set(r.n, nil)
	if err != nil {
		t.Fatal(err)
	}
	applier, stop, err := r.live(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	if err := r.unchanged(ctx, applier, set); err != nil {
		t.Fatal(err)
	}
	if err := r.count.silent("a first pass"); err != nil {
		t.Fatal(err)
	}
	leave := func(i int) bool { return i == 7 || i == 1233 }
	fewer, err := r.world.set(r.n, leave)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := applier.Prune(ctx, fewer, apply.PruneOptions{Complete: true}); err != nil {
		t.Fatal(err)
	}
	if err := r.deleted(leave, 2); err != nil {
		t.Fatal(err)
	}
	if err := r.settle(ctx, applier, set); err != nil { // they are made again
		t.Fatal(err)
	}
	if _, other, _ := r.count.reset(); other != 2 {
		t.Fatalf("%d requests make 2 objects", other)
	}
	configs := r.world.forms[0].kind.GroupVersion().WithResource("configmaps")
	client, err := dynamic.NewForConfig(r.config)
	if err != nil {
		t.Fatal(err)
	}
	made, err := client.Resource(configs).Namespace(growthNamespace(1233)).Get(ctx, r.world.name(1233), metav1.GetOptions{})
	if err != nil || string(made.GetUID()) != growthUID(1233, 1) {
		t.Fatalf("the object that was made again has the UID %q, must be %q: %v", made.GetUID(), growthUID(1233, 1), err)
	}
	again, end, err := r.live(ctx) // another start sees the same
	if err != nil {
		t.Fatal(err)
	}
	defer end()
	if err := r.unchanged(ctx, again, set); err != nil {
		t.Fatal(err)
	}
}

func TestTheServerHasTheChildrenOfEachParent(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	r := growing(t, 300, true)
	applier, stop, err := r.live(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	for p := range 30 {
		set, err := r.world.part(p, growthChildren)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.unchanged(ctx, applier, set); err != nil {
			t.Fatalf("parent %d: %v", p, err)
		}
	}
	fewer, err := r.world.part(29, growthChildren-1)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := applier.Prune(ctx, fewer, apply.PruneOptions{Complete: true}); err != nil {
		t.Fatal(err)
	}
	if err := r.deleted(func(i int) bool { return i == 299 }, 1); err != nil {
		t.Fatal(err)
	}
}

// clientsOf returns a client for metadata and one for whole objects.
func clientsOf(t *testing.T, r *growthRun) (metadata.Interface, dynamic.Interface) {
	t.Helper()
	client, err := metadata.NewForConfig(r.config)
	if err != nil {
		t.Fatal(err)
	}
	dyn, err := dynamic.NewForConfig(r.config)
	if err != nil {
		t.Fatal(err)
	}
	return client, dyn
}

func TestTheServerRefusesAsAServerDoes(t *testing.T) {
	t.Parallel()
	r := growing(t, 20, false)
	client, dyn := clientsOf(t, r)
	secrets := r.world.forms[1].kind.GroupVersion().WithResource("secrets")
	at, whole := client.Resource(secrets).Namespace("ns-01"), dyn.Resource(secrets).Namespace("ns-01")
	live, err := whole.Get(t.Context(), "login-0000015", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if live.GetLabels()["app"] != live.GetName() || string(live.GetUID()) != growthUID(15, 0) ||
		live.GetResourceVersion() != growthVersion(15) {
		t.Fatalf("the object is %v", live.Object["metadata"])
	}
	for name, wrong := range map[string]func() error{
		"NotFound": func() error {
			_, err := at.Get(t.Context(), "login-0000016x", metav1.GetOptions{})
			return err
		},
		"NotFound ": func() error { return at.Delete(t.Context(), "login-0000025", metav1.DeleteOptions{}) }, // beyond n
		"Conflict": func() error {
			return at.Delete(t.Context(), "login-0000015", metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions("another")})
		},
		"Conflict ": func() error {
			old := "1"
			return at.Delete(t.Context(), "login-0000015", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{ResourceVersion: &old}})
		},
		"Conflict  ": func() error {
			body := []byte(`{"metadata":{"resourceVersion":"1"}}`)
			_, err := at.Patch(t.Context(), "login-0000015", types.ApplyPatchType, body, metav1.PatchOptions{})
			return err
		},
		"Invalid": func() error {
			body := []byte(`{"metadata":{"annotations":{"bench.example.com/desired-hash":"0"}}}`)
			_, err := at.Patch(t.Context(), "login-0000015", types.ApplyPatchType, body, metav1.PatchOptions{})
			return err
		},
		"UnsupportedMediaType": func() error {
			_, err := at.Patch(t.Context(), "login-0000015", types.MergePatchType, []byte(`{}`), metav1.PatchOptions{})
			return err
		},
		"MethodNotAllowed": func() error {
			_, err := at.List(t.Context(), metav1.ListOptions{})
			return err
		},
	} {
		if reason := apierrors.ReasonForError(wrong()); string(reason) != strings.TrimSpace(name) {
			t.Errorf("the reason is %q, must be %q", reason, strings.TrimSpace(name))
		}
	}
	if _, err := whole.Get(t.Context(), "login-0000015", metav1.GetOptions{}); err != nil {
		t.Errorf("a refused request has changed it: %v", err)
	}
}

// TestAWatchShowsEachObjectOnceAndThenWhatChanges in the order of namespaces and names, whole and
// as metadata.
func TestAWatchShowsEachObjectOnceAndThenWhatChanges(t *testing.T) {
	t.Parallel()
	r := growing(t, 2035, false)
	client, dyn := clientsOf(t, r)
	services := r.world.forms[2].kind.GroupVersion().WithResource("services")
	yes, from := true, ""
	for _, open := range []func(metav1.ListOptions) (watch.Interface, error){
		func(o metav1.ListOptions) (watch.Interface, error) {
			return client.Resource(services).Watch(t.Context(), o)
		},
		func(o metav1.ListOptions) (watch.Interface, error) {
			return dyn.Resource(services).Watch(t.Context(), o)
		},
	} {
		w, err := open(metav1.ListOptions{SendInitialEvents: &yes, AllowWatchBookmarks: true})
		if err != nil {
			t.Fatal(err)
		}
		seen, before := 0, ""
		for event := range w.ResultChan() {
			object := accessor(t, event.Object)
			if event.Type == watch.Bookmark {
				from = object.GetResourceVersion()
				if object.GetAnnotations()[metav1.InitialEventsAnnotationKey] != "true" {
					t.Error("the first bookmark does not end the list")
				}
				break
			}
			if now := object.GetNamespace() + "/" + object.GetName(); now > before && event.Type == watch.Added {
				before = now
			} else {
				t.Fatalf("%s %s after %s", event.Type, now, before)
			}
			seen++
		}
		if seen != 406 { // two of ten, and of the last five none
			t.Errorf("%d services, must be 406", seen)
		}
		w.Stop()
	}
	w, err := client.Resource(services).Watch(t.Context(), metav1.ListOptions{ResourceVersion: from})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	if err := client.Resource(services).Namespace("ns-00").Delete(t.Context(), "service-0000007", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	event := <-w.ResultChan()
	object := accessor(t, event.Object)
	if event.Type != watch.Deleted || object.GetName() != "service-0000007" || object.GetResourceVersion() <= from {
		t.Errorf("%s %s at %s", event.Type, object.GetName(), object.GetResourceVersion())
	}
}

func accessor(t *testing.T, object runtime.Object) metav1.Object {
	t.Helper()
	switch o := object.(type) {
	case *metav1.PartialObjectMetadata:
		return o
	case *unstructured.Unstructured:
		return o
	default:
		t.Fatalf("a %T", object)
		return nil
	}
}

func TestAnUnknownSizeIsRefused(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1000, 1_000_000} {
		if err := powerOfTen(n); err != nil {
			t.Error(err)
		}
	}
	for _, n := range []int{-1, 0, 100, 5000, 10_000_000} {
		if powerOfTen(n) == nil {
			t.Errorf("%d is taken", n)
		}
	}
}
