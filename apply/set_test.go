package apply_test

import (
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/seed-9e1ffd66/trueup/apply"
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
		{"{apiVersion: v1, kind: ConfigMap, metadata: {generateName: a}}", "apiVersion, kind and metadata.name are required"},
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

func TestASetAppliesNoneOfTwoObjectsWithOneID(t *testing.T) {
	t.Parallel()
	set, err := apply.NewSet(owner, parsed(t, configMap("a", "1"), configMap("b", "1"), configMap("a", "2"), configMap("a", "1")), apply.SetOptions{})
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
	_, err := apply.NewSet(owner, object(map[string]any{"i": 1, "s": []string{"x"}, "m": map[string]string{"a": "b"}, "big": int64(1) << 60}), apply.SetOptions{})
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
		`Owner.Manager is "", of 0 bytes; want 1 to 128`: func(o *apply.Owner) { o.Manager = "" },
		`of 129 bytes; want 1 to 128`:                    func(o *apply.Owner) { o.Manager = strings.Repeat("x", 129) },
		`Owner.Labels is empty; want at least one`:       func(o *apply.Owner) { o.Labels = nil },
		`Owner.Labels has the key "a b"`:                 func(o *apply.Owner) { o.Labels = map[string]string{"a b": "c"} },
		`Owner.Labels has the value "c d" of a`:          func(o *apply.Owner) { o.Labels = map[string]string{"a": "c d"} },
		`Owner.Domain is ""`:                             func(o *apply.Owner) { o.Domain = "" },
		`Owner.Domain is "Example_Com"`:                  func(o *apply.Owner) { o.Domain = "Example_Com" },
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
	require.EqualError(t, err, "apply: Applier.Live is required")
	_, err = (&apply.Applier{Live: &apply.Live{}}).Apply(t.Context(), set)
	require.EqualError(t, err, "apply: Live.Client is required")
	require.EqualError(t, (&apply.Live{}).Start(t.Context()), "apply: Live.Client is required")
}
