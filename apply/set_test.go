package apply_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/seed-9e1ffd66/trueup/apply"
	"github.com/seed-9e1ffd66/trueup/diff"
)

var owner = apply.Owner{Manager: "me", Labels: map[string]string{"example.com/owner": "me"}, Domain: "example.com"}

func parsed(t *testing.T, manifests ...string) []*unstructured.Unstructured {
	t.Helper()
	return (&bench{ns: "x"}).objects(t, manifests...)
}

func TestASetNamesEachObjectItCannotApplyAndKeepsTheRest(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ manifest, want string }{
		{"{kind: ConfigMap, metadata: {name: a}}", "apiVersion, kind and metadata.name are required"},
		{"{apiVersion: v1, metadata: {name: a}}", "apiVersion, kind and metadata.name are required"},
		{"{apiVersion: v1, kind: ConfigMap, metadata: {generateName: a}}", "metadata.name is required: with metadata.generateName each apply would make another"},
		{"{apiVersion: a/b/c, kind: ConfigMap, metadata: {name: a}}", `apiVersion: is "a/b/c", must be a version or group/version`},
		{"{apiVersion: v1, kind: List, items: []}", `kind: is "List", a list: state its items`},
		{"{apiVersion: v1, kind: ConfigMap, metadata: {name: a, uid: u}}", "ConfigMap/a: metadata.uid: is for the server to set; leave it out"},
		{"{apiVersion: v1, kind: ConfigMap, metadata: {name: a, resourceVersion: '1'}}", "metadata.resourceVersion: is for the server to set"},
		{"{apiVersion: v1, kind: ConfigMap, metadata: {name: a, managedFields: []}}", "metadata.managedFields: is for the server to set"},
		{"{apiVersion: v1, kind: ConfigMap, metadata: {name: a, labels: {x: 1}}}", "metadata.labels: want a map of strings"},
		{"{apiVersion: v1, kind: ConfigMap, metadata: {name: a, annotations: {x: [1]}}}", "metadata.annotations: want a map of strings"},
		{"{apiVersion: v1, kind: ConfigMap, metadata: {name: a, labels: {example.com/owner: other}}}", `metadata.labels: example.com/owner is "other"; the owner's is "me"`},
		{"{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: A_B}}", `metadata.namespace: "A_B"`},
	} {
		set, err := apply.NewSet(owner, parsed(t, test.manifest, configMap("good", "1")), apply.SetOptions{})
		require.ErrorContains(t, err, test.want, test.manifest)
		require.Equal(t, 1, set.Len())
		require.True(t, set.Has(apply.ID{Kind: "ConfigMap", Namespace: "x", Name: "good"}))
	}
}

func TestAnObjectWithANameMayHaveItems(t *testing.T) {
	t.Parallel()
	_, err := apply.NewSet(owner, parsed(t, "{apiVersion: example.com/v1, kind: Menu, metadata: {name: a}, items: []}"), apply.SetOptions{})
	require.NoError(t, err)
}

func TestASetAppliesNoneOfTwoObjectsWithOneID(t *testing.T) {
	t.Parallel()
	set, err := apply.NewSet(
		owner,
		parsed(t, configMap("a", "1"), configMap("b", "1"), configMap("a", "2"), configMap("a", "1")),
		apply.SetOptions{},
	)
	require.EqualError(t, err, "ConfigMap/x/a: stated more than once (v1, v1, v1); none of them is applied")
	require.Equal(t, 1, set.Len())
	require.True(t, set.Has(apply.ID{Kind: "ConfigMap", Namespace: "x", Name: "a"}), "it still counts as wanted")
}

func TestASetTakesWhatJSONCanHold(t *testing.T) {
	t.Parallel()
	object := func(data any) []*unstructured.Unstructured {
		return []*unstructured.Unstructured{{Object: map[string]any{
			"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "a", "creationTimestamp": nil}, "data": data,
		}}}
	}
	_, err := apply.NewSet(
		owner,
		object(map[string]any{"i": 1, "s": []string{"x"}, "m": map[string]string{"a": "b"}, "big": int64(1) << 60}),
		apply.SetOptions{},
	)
	require.NoError(t, err)
	_, err = apply.NewSet(owner, object(math.Inf(1)), apply.SetOptions{})
	require.ErrorContains(t, err, "ConfigMap/a: json: unsupported value")
	_, err = apply.NewSet(owner, object(func() {}), apply.SetOptions{})
	require.ErrorContains(t, err, "ConfigMap/a: json: unsupported type")
	_, err = apply.NewSet(owner, []*unstructured.Unstructured{nil, {}}, apply.SetOptions{})
	require.ErrorContains(t, err, "object 0 ()")
	require.ErrorContains(t, err, "object 1 ()")
}

func TestAnInvalidOwnerGivesNoSet(t *testing.T) {
	t.Parallel()
	for want, broken := range map[string]func(*apply.Owner){
		`Owner.Manager: is "", of 0 bytes, must have 1 to 128`: func(o *apply.Owner) { o.Manager = "" },
		`of 129 bytes, must have 1 to 128`:                     func(o *apply.Owner) { o.Manager = strings.Repeat("x", 129) },
		`Owner.Labels: is empty, must have at least one`:       func(o *apply.Owner) { o.Labels = nil },
		`Owner.Labels: has the key "a b"`:                      func(o *apply.Owner) { o.Labels = map[string]string{"a b": "c"} },
		`Owner.Labels: has the value "c d" of a`:               func(o *apply.Owner) { o.Labels = map[string]string{"a": "c d"} },
		`Owner.Domain: is ""`:                                  func(o *apply.Owner) { o.Domain = "" },
		`Owner.Domain: is "Example_Com"`:                       func(o *apply.Owner) { o.Domain = "Example_Com" },
	} {
		bad := owner
		broken(&bad)
		set, err := apply.NewSet(bad, nil, apply.SetOptions{})
		require.Nil(t, set)
		require.ErrorContains(t, err, want)
	}
}

func TestIDsReadAsPeopleWriteThem(t *testing.T) {
	t.Parallel()
	require.Equal(t, "Deployment.apps/shop/web", apply.ID{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: "web"}.String())
	require.Equal(t, "Namespace/shop", apply.ID{Kind: "Namespace", Name: "shop"}.String())
}

func TestAnApplierNamesWhatItLacks(t *testing.T) {
	t.Parallel()
	set, err := apply.NewSet(owner, nil, apply.SetOptions{})
	require.NoError(t, err)
	_, err = (&apply.Applier{}).Apply(t.Context(), set)
	require.EqualError(t, err, "apply: Applier.Live: is required")
	_, err = (&apply.Applier{Live: &apply.Live{}}).Apply(t.Context(), set)
	require.EqualError(t, err, "apply: Live.Client: is required")
	require.EqualError(t, (&apply.Live{}).Start(t.Context()), "apply: Live.Client: is required")
}

func TestBadNamesPartsAndVersionsAreNamed(t *testing.T) {
	t.Parallel()
	parts := owner
	parts.PartLabel = "example.com/part"
	named := func(name string) []*unstructured.Unstructured {
		o := parsed(t, configMap("a", "1"), configMap("good", "1"))
		o[0].SetName(name)
		return o
	}
	for want, objects := range map[string][]*unstructured.Unstructured{
		`ConfigMap/x/victim/status: metadata.name: "victim/status": may not contain '/'`: named("victim/status"),
		`ConfigMap/x/..: metadata.name: "..": may not be '..'`:                           named(".."),
		`object 0 (ConfigMap/x): apiVersion, kind and metadata.name are required`:        named(""),
	} {
		set, err := apply.NewSet(owner, objects, apply.SetOptions{})
		require.ErrorContains(t, err, want)
		require.Equal(t, 1, set.Len(), "the other object is in the set")
	}

	two := parsed(t,
		"{apiVersion: autoscaling/v1, kind: HorizontalPodAutoscaler, metadata: {name: a, namespace: x}}",
		"{apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler, metadata: {name: a, namespace: x}}")
	_, err := apply.NewSet(owner, two, apply.SetOptions{})
	require.EqualError(
		t,
		err,
		"HorizontalPodAutoscaler.autoscaling/x/a: stated more than once (autoscaling/v1, autoscaling/v2); none of them is applied",
	)

	for want, test := range map[string]struct {
		owner apply.Owner
		part  string
	}{
		"SetOptions.Part: is required with Owner.PartLabel, example.com/part": {parts, ""},
		`SetOptions.Part: is "p", must be empty without Owner.PartLabel`:      {owner, "p"},
		`SetOptions.Part: is "a b": a valid label must`:                       {parts, "a b"},
	} {
		set, err := apply.NewSet(test.owner, nil, apply.SetOptions{Part: test.part})
		require.Nil(t, set)
		require.ErrorContains(t, err, want)
	}
	other := parsed(t, configMap("a", "1"))
	other[0].SetLabels(map[string]string{"example.com/part": ""})
	_, err = apply.NewSet(parts, other, apply.SetOptions{Part: "p"})
	require.EqualError(t, err, `ConfigMap/x/a: metadata.labels: example.com/part is ""; the part of the set is "p"`)

	same := owner
	same.PartLabel = "example.com/owner"
	_, err = apply.NewSet(same, nil, apply.SetOptions{Part: "p"})
	require.ErrorContains(t, err, "must not be a key of Owner.Labels")
	self := owner
	self.Supersedes = []string{owner.Manager}
	_, err = apply.NewSet(self, nil, apply.SetOptions{})
	require.ErrorContains(t, err, "must not have Owner.Manager")
}

func TestAWrongSettingIsNamed(t *testing.T) {
	t.Parallel()
	with := func(change func(*apply.Owner)) error {
		o := owner
		change(&o)
		_, err := apply.NewSet(o, nil, apply.SetOptions{})
		return err
	}
	live := func(change func(*apply.Live)) error {
		l := &apply.Live{Client: &silentServer{}, Mapper: meta.NewDefaultRESTMapper(nil), Owner: owner}
		change(l)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		return l.Start(ctx)
	}
	pruned := func(guard *apply.Guard) error {
		l := &apply.Live{Client: &silentServer{}, Mapper: meta.NewDefaultRESTMapper(nil), Owner: owner}
		set, err := apply.NewSet(owner, nil, apply.SetOptions{})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = (&apply.Applier{Live: l}).Prune(ctx, set, apply.PruneOptions{Complete: true, AllowEmpty: true, Guard: guard})
		return err
	}
	_, overlay := apply.Overlay{Manager: "me"}.State(t.Context(), nil)
	_, unnamed := apply.Overlay{Manager: "me"}.State(t.Context(), &unstructured.Unstructured{})
	_, concurrent := (&apply.Applier{
		Live: &apply.Live{Client: &silentServer{}, Mapper: meta.NewDefaultRESTMapper(nil), Owner: owner}, Concurrency: -1,
	}).Delete(t.Context(), nil, apply.DeleteOptions{})
	for want, err := range map[string]error{
		"Owner.Supersedes[1]: is empty, must be a field manager": with(func(o *apply.Owner) { o.Supersedes = []string{"a", ""} }),
		`Owner.ApplySet: is "ConfigMap/all", must have a namespace`: with(func(o *apply.Owner) {
			o.ApplySet = apply.ID{Kind: "ConfigMap", Name: "all"}
		}),
		`Live.Namespaces[0]: is "Bad NS": `:                               live(func(l *apply.Live) { l.Namespaces = []string{"Bad NS"} }),
		"Live.Kinds[0]: has no kind":                                      live(func(l *apply.Live) { l.Kinds = make([]schema.GroupVersionKind, 1) }),
		"Guard.Window: is -1s, must be 0 (an hour) or more":               pruned(&apply.Guard{Window: -time.Second}),
		"Guard.Absent.Percent: is 300, must be 0 to 100":                  pruned(&apply.Guard{Absent: apply.Limit{Percent: 300}}),
		"Guard.Named.Percent: is -5, must be 0 to 100":                    pruned(&apply.Guard{Named: apply.Limit{Percent: -5}}),
		"Overlay.State: fields: needs apiVersion, kind and metadata.name": overlay,
		"Applier.Concurrency: is -1, must be 0 (8) or more":               concurrent,
		`Owner.ApplySet: is "Secret/all", must have a namespace`: with(func(o *apply.Owner) {
			o.ApplySet = apply.ID{Kind: "Secret", Name: "all"}
		}),
	} {
		require.ErrorContains(t, err, want)
	}
	require.ErrorContains(t, unnamed, "Overlay.State: fields: needs apiVersion, kind and metadata.name")
}

func TestASetCopiesEachObjectOnce(t *testing.T) {
	items := make([]any, 200)
	for i := range items {
		items[i] = map[string]any{"name": fmt.Sprint(i), "port": map[string]any{"name": "web"}}
	}
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/v1", "kind": "Widget", "metadata": map[string]any{"name": "a"}, "spec": map[string]any{"items": items},
	}}
	prepared := testing.AllocsPerRun(10, func() {
		_, err := apply.NewSet(owner, []*unstructured.Unstructured{object}, apply.SetOptions{})
		require.NoError(t, err)
	})
	// What cannot be spared: a copy through JSON, its hash, and the body.
	needed := testing.AllocsPerRun(10, func() {
		data, err := json.Marshal(object.Object)
		require.NoError(t, err)
		var copied map[string]any
		require.NoError(t, utiljson.Unmarshal(data, &copied))
		_, err = diff.Hash(copied)
		require.NoError(t, err)
		_, err = json.Marshal(copied)
		require.NoError(t, err)
	})
	t.Logf("%v allocations, %v are needed", prepared, needed)
	require.Less(t, prepared, needed+200, "no more than for the labels and the ID: one for each item is a second copy")
}

// TestASetIsMadeWithFewAllocations measures the process: it runs alone. A program makes a set for
// each parent and pass.
func TestASetIsMadeWithFewAllocations(t *testing.T) { //nolint:paralleltest // as above
	var environment []string
	for n := range 12 {
		environment = append(environment, fmt.Sprintf("{name: VARIABLE_%d, value: some text of some length}", n))
	}
	objects := parsed(t, `{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, spec: {replicas: 3, template: {spec: {containers: [
		{name: web, image: "example.com/web:1", env: [`+strings.Join(environment, ", ")+`]}]}}}}`)
	allocations := testing.AllocsPerRun(100, func() {
		if _, err := apply.NewSet(owner, objects, apply.SetOptions{}); err != nil {
			t.Error(err)
		}
	})
	t.Logf("%.0f allocations for a Deployment of 12 variables", allocations)
	require.Less(t, allocations, 300.0)
}
