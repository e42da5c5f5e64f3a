package write_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/seed-9e1ffd66/trueup/apply/internal/wire"
	"github.com/seed-9e1ffd66/trueup/apply/internal/write"
	"github.com/seed-9e1ffd66/trueup/diff"
)

// whole serves one object, and keeps what replaces it.
type whole struct {
	dynamic.NamespaceableResourceInterface

	held     map[string]any
	replaced map[string]any
}

func (w *whole) Resource(schema.GroupVersionResource) dynamic.NamespaceableResourceInterface {
	return w
}

func (w *whole) Namespace(string) dynamic.ResourceInterface { return w }

func (w *whole) Get(context.Context, string, metav1.GetOptions, ...string) (*unstructured.Unstructured, error) {
	return &unstructured.Unstructured{Object: w.held}, nil
}

func (w *whole) Update(
	_ context.Context,
	o *unstructured.Unstructured,
	_ metav1.UpdateOptions,
	_ ...string,
) (*unstructured.Unstructured, error) {
	w.replaced = o.Object
	return o, nil
}

// stating is a ConfigMap of ours with this content.
func stating(data map[string]any, hash string) map[string]any {
	return map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "data": data,
		"metadata": map[string]any{
			"name": "a", "namespace": "x", "labels": map[string]any{"owner": "me"}, "annotations": map[string]any{"example.com/hash": hash},
		},
	}
}

func encoded(t *testing.T, object map[string]any) wire.Body {
	t.Helper()
	body, err := wire.Encode(object)
	require.NoError(t, err)
	return body
}

func TestAReplacementKeepsWhatIsLeftToOthers(t *testing.T) {
	t.Parallel()
	held := stating(map[string]any{"k": "1", "left": "1", "dropped": "1", "theirs": "1"}, "before")
	held["metadata"].(map[string]any)["uid"] = "u"
	held["metadata"].(map[string]any)["managedFields"] = []any{map[string]any{
		"manager": "me", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1",
		"fieldsV1": map[string]any{"f:data": map[string]any{"f:k": map[string]any{}, "f:left": map[string]any{}, "f:dropped": map[string]any{}}},
	}}
	ignore, err := diff.NewIgnore(diff.Rule{Paths: []string{".data.left"}})
	require.NoError(t, err)
	for name, create := range map[string]wire.Body{
		"stated":           encoded(t, stating(map[string]any{"k": "2", "left": "2"}, "after")),
		"no longer stated": nil,
	} {
		s := &whole{held: held}
		known := target(t)
		known.Upsert, known.Left, known.Create = true, ignore, create
		known.Body = encoded(t, stating(map[string]any{"k": "2"}, "after"))
		done, _, err := (&write.Writer{Owner: owner, Objects: s}).Write(t.Context(), known)
		require.NoError(t, err, name)
		require.Equal(t, write.Updated, done, name)
		require.Equal(t, map[string]any{"k": "2", "left": "1", "theirs": "1"}, s.replaced["data"], name)
	}
}

func TestAFieldInAListCannotBeLeftByAReplacement(t *testing.T) {
	t.Parallel()
	spec := func(list any) map[string]any { return map[string]any{"spec": map[string]any{"a": "x", "items": list}} }
	items := []any{map[string]any{"name": "one", "size": "1"}}
	for name, test := range map[string]struct {
		create, body map[string]any
		want         string
	}{
		"nothing is left":     {nil, spec(items), ""},
		"a field beside":      {spec(items), map[string]any{"spec": map[string]any{"items": items}}, ""},
		"the whole list":      {spec(items), map[string]any{"spec": map[string]any{"a": "x"}}, ""},
		"a field of its item": {spec(items), spec([]any{map[string]any{"name": "one"}}), "a field in the list .spec.items is left to others"},
		"an item":             {spec(items), spec([]any{}), "a field in the list .spec.items is left to others"},
	} {
		known := target(t)
		known.Upsert, known.Body = true, encoded(t, test.body)
		if test.create != nil {
			known.Create = encoded(t, test.create)
		}
		err := write.Replaceable(known)
		if test.want == "" {
			require.NoError(t, err, name)
			continue
		}
		require.ErrorContains(t, err, test.want, name)
	}
}
