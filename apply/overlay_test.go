package apply_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/seed-9e1ffd66/trueup/apply"
	"github.com/seed-9e1ffd66/trueup/apply/applytest"
)

// Fields of others' objects are stated, repaired and given back, and nothing else of them
// changes.
func TestAnOverlayStatesFieldsOfOthersObjectsAndGivesThemBack(t *testing.T) {
	t.Parallel()
	b := serverBench(t)
	kind := schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(kind, meta.RESTScopeNamespace)
	client, err := dynamic.NewForConfig(b.config)
	require.NoError(t, err)
	writes := 0
	overlay := apply.Overlay{Objects: client, Mapper: mapper, Manager: "size", OnWrite: func(w apply.Write) {
		writes++
		require.Equal(t, "patch", w.Verb)
		require.Equal(t, apply.ID{Kind: "ConfigMap", Namespace: b.ns, Name: "theirs"}, w.ID)
	}}
	fields := func(annotations map[string]any) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "ConfigMap",
			"metadata": map[string]any{"name": "theirs", "namespace": b.ns, "annotations": annotations},
		}}
	}
	state := func(annotations map[string]any, changes bool) {
		t.Helper()
		changed, err := overlay.State(t.Context(), fields(annotations))
		require.NoError(t, err)
		require.Equal(t, changes, changed)
	}
	has := func(want map[string]string) {
		t.Helper()
		have := map[string]string{}
		text := b.kubectl(t, "get", "configmap", "-n", b.ns, "theirs", "-o", "jsonpath={.metadata.annotations}")
		if text != "" {
			require.NoError(t, json.Unmarshal([]byte(text), &have))
		}
		require.Equal(t, want, have)
		require.Equal(t, "x", b.kubectl(t, "get", "configmap", "-n", b.ns, "theirs", "-o", "jsonpath={.data.k}"))
	}

	_, err = overlay.State(t.Context(), fields(map[string]any{"a": "1"}))
	require.True(t, apierrors.IsNotFound(err), "it makes no object: %v", err)
	changed, err := overlay.GiveBack(t.Context(), kind, b.ns, "theirs")
	require.NoError(t, err)
	require.False(t, changed)
	require.Zero(t, writes)

	b.kubectl(t, "create", "configmap", "-n", b.ns, "theirs", "--from-literal=k=x")
	b.kubectl(t, "annotate", "configmap", "-n", b.ns, "theirs", "note=theirs", "shared=1")
	_, err = overlay.GiveBack(t.Context(), kind, b.ns, "theirs")
	require.NoError(t, err)
	require.Zero(t, writes, "nothing of it is ours")

	state(map[string]any{"a": "1", "b": "1", "shared": "1"}, true)
	has(map[string]string{"note": "theirs", "shared": "1", "a": "1", "b": "1"})
	state(map[string]any{"a": "1", "b": "1", "shared": "1"}, false)
	require.Equal(t, 1, writes)

	b.kubectl(t, "annotate", "--overwrite", "configmap", "-n", b.ns, "theirs", "a=2")
	state(map[string]any{"a": "1", "b": "1", "shared": "1"}, true)
	has(map[string]string{"note": "theirs", "shared": "1", "a": "1", "b": "1"})
	state(map[string]any{"a": "1", "shared": "1"}, true)
	has(map[string]string{"note": "theirs", "shared": "1", "a": "1"})

	changed, err = overlay.GiveBack(t.Context(), kind, b.ns, "theirs")
	require.NoError(t, err)
	require.True(t, changed)
	has(map[string]string{"note": "theirs", "shared": "1"})
	changed, err = overlay.GiveBack(t.Context(), kind, b.ns, "theirs")
	require.NoError(t, err)
	require.False(t, changed)
	require.Equal(t, 4, writes)

	overlay.Manager = ""
	_, err = overlay.State(t.Context(), fields(nil))
	require.EqualError(t, err, "Overlay.Manager: is required")
}

// An object that is deleted, or replaced by another one, after it was read is neither made
// nor written.
func TestAnOverlayWritesOnlyToTheObjectThatItHasRead(t *testing.T) {
	t.Parallel()
	b := serverBench(t)
	kind := schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(kind, meta.RESTScopeNamespace)
	fields := b.objects(t, "{apiVersion: v1, kind: ConfigMap, metadata: {name: theirs, namespace: NAMESPACE, annotations: {a: '1'}}}")[0]
	for name, replaced := range map[string]bool{"deleted": false, "replaced": true} {
		b.kubectl(t, "create", "configmap", "-n", b.ns, "theirs")
		config := rest.CopyConfig(b.config)
		net := applytest.Transport{Fault: func(r applytest.Request) applytest.Fault {
			if r.Writes() {
				b.kubectl(t, "delete", "configmap", "-n", b.ns, "theirs")
				if replaced {
					b.kubectl(t, "create", "configmap", "-n", b.ns, "theirs")
				}
			}
			return applytest.Fault{}
		}}
		config.Wrap(net.Wrap)
		client, err := dynamic.NewForConfig(config)
		require.NoError(t, err)
		_, err = apply.Overlay{Objects: client, Mapper: mapper, Manager: "size"}.State(t.Context(), fields)
		require.Error(t, err, name)
		managers := b.kubectl(
			t,
			"get",
			"configmap",
			"-n",
			b.ns,
			"theirs",
			"--ignore-not-found",
			"-o",
			"jsonpath={.metadata.managedFields[*].manager}",
		)
		require.NotContains(t, managers, "size", name)
		require.Equal(t, replaced, b.kubectl(t, "get", "configmap", "-n", b.ns, "theirs", "--ignore-not-found") != "", name)
		b.kubectl(t, "delete", "configmap", "-n", b.ns, "theirs", "--ignore-not-found")
	}
}

// A 404 that names no object says nothing about it: the kind may be served in another version.
func TestAnOverlayHasGivenNothingBackIfThePathIsNotServed(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(server.Close)
	client, err := dynamic.NewForConfig(&rest.Config{Host: server.URL})
	require.NoError(t, err)
	kind := schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(kind, meta.RESTScopeNamespace)
	_, err = apply.Overlay{Objects: client, Mapper: mapper, Manager: "size"}.GiveBack(t.Context(), kind, "shop", "theirs")
	require.Error(t, err)
}
