package operator //nolint:testpackage // children are given

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

// shop is a kind with or without a namespace.
type shop struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Status struct {
		ObservedGeneration int64              `json:"observedGeneration,omitempty"`
		Conditions         []metav1.Condition `json:"conditions,omitempty"`
	} `json:"status,omitzero"`
}

func shopIn(namespace string) *shop {
	return &shop{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "s", UID: "u", ResourceVersion: "7", Generation: 3}}
}

func worker(t *testing.T, config *rest.Config) *work[*shop] {
	t.Helper()
	w, err := newWork(&Operator[*shop]{
		Config: config, Name: "shops", Domain: "example.com", Scheme: scheme.Scheme,
		Kind: schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Shop"}, Instance: "shops-0",
		Owns:        []schema.GroupVersionKind{{Version: "v1", Kind: "ConfigMap"}},
		OwnsCluster: []schema.GroupVersionKind{{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "ClusterRole"}},
		Conditions:  func(s *shop) *[]metav1.Condition { return &s.Status.Conditions },
	})
	require.NoError(t, err)
	return w
}

// The garbage collector deletes an object without a namespace whose owner has one: it does not
// find that owner.
func TestAChildHasTheOwnerThatItCanHave(t *testing.T) {
	t.Parallel()
	w := worker(t, &rest.Config{})
	page := func(namespace string) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "a"}}
	}
	role := func(namespace string) *rbacv1.ClusterRole {
		return &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "a"}}
	}
	for name, test := range map[string]struct {
		object    *shop
		child     Object
		namespace string
		owned     bool
		refused   string
	}{
		"where its object is": {shopIn("x"), page(""), "x", true, ""},
		"said to be there":    {shopIn("x"), page("x"), "x", true, ""},
		"elsewhere": {
			shopIn("x"), page("y"), "", false,
			`ConfigMap "a": metadata.namespace: is "y", must be "x", where its Shop is`,
		},
		"without one":              {shopIn("x"), role(""), "", false, ""},
		"without one, of the same": {shopIn(""), role(""), "", true, ""},
		"in any, of one without":   {shopIn(""), page("y"), "y", true, ""},
		"nowhere":                  {shopIn(""), page(""), "", false, `ConfigMap "a": metadata.namespace: is required, since Shop has none`},
		"in one that cannot have it": {
			shopIn(""), role("x"), "", false,
			`ClusterRole "a": metadata.namespace: is "x", must be empty for a kind of OwnsCluster`,
		},
		"of a kind that is not said": {
			shopIn("x"), &corev1.Secret{}, "", false,
			`Secret "": the kind /v1, Kind=Secret is not in Operator.Owns or OwnsCluster`,
		},
		"none": {shopIn("x"), nil, "", false, "is nil"},
	} {
		u, err := w.stated(test.object, test.child)
		if test.refused != "" {
			require.EqualError(t, err, test.refused, name)
			continue
		}
		require.NoError(t, err, name)
		require.Equal(t, test.namespace, u.GetNamespace(), name)
		if !test.owned {
			require.Empty(t, u.GetOwnerReferences(), name)
			continue
		}
		require.Len(t, u.GetOwnerReferences(), 1, name)
		require.Equal(t, *metav1.NewControllerRef(test.object, w.operator.Kind), u.GetOwnerReferences()[0], name)
	}
}

// A function may return the same object again and again.
func TestAChildOfTheFunctionStaysAsItIs(t *testing.T) {
	t.Parallel()
	child := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "a"}, "data": map[string]any{"text": "a"},
	}}
	before := child.DeepCopy()
	w := worker(t, &rest.Config{})
	set, err := w.set(shopIn("x"), []Object{child, nil})
	require.EqualError(t, err, "child 1: is nil")
	require.Equal(t, 1, set.Len(), "the other is in the set")
	require.Equal(t, "u", set.Part())
	require.Equal(t, before, child)
}
