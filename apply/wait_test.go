package apply //nolint:testpackage // views show what a test gives them

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/seed-9e1ffd66/trueup/apply/readiness"
)

// reader serves whole objects, and counts how often they are read.
type reader struct {
	dynamic.NamespaceableResourceInterface

	holds func(name string) *unstructured.Unstructured
	reads map[string]int
}

func (r *reader) Resource(schema.GroupVersionResource) dynamic.NamespaceableResourceInterface {
	return r
}

func (r *reader) Namespace(string) dynamic.ResourceInterface { return r }

func (r *reader) Get(_ context.Context, name string, _ metav1.GetOptions, _ ...string) (*unstructured.Unstructured, error) {
	r.reads[name]++
	return r.holds(name), nil
}

// reporting is an object that reports a condition.
func reporting(m *metav1.PartialObjectMetadata, condition, status string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/v1", "kind": "Widget",
		"metadata": map[string]any{"name": m.Name, "namespace": m.Namespace, "uid": string(m.UID), "resourceVersion": m.ResourceVersion},
		"status":   map[string]any{"conditions": []any{map[string]any{"type": condition, "status": status, "reason": "Why", "message": ""}}},
	}}
}

func TestAnObjectIsReadForItsReadinessOnceAVersion(t *testing.T) {
	t.Parallel()
	s := newStage(t, program, widgetKind)
	id := ID{Group: "example.com", Kind: "Widget", Namespace: "shop", Name: "w"}
	m, status := s.show(id, nil), "False"
	r := &reader{reads: map[string]int{}}
	r.holds = func(string) *unstructured.Unstructured { return reporting(m, "Ready", status) }
	s.Objects = r
	set := s.set(SetOptions{}, id)
	ready := func(want readiness.Status, reads int, why string) {
		t.Helper()
		for range 2 {
			found, err := s.Readiness(t.Context(), set)
			require.NoError(t, err)
			require.Equal(t, want, found[id].Status, why)
			require.Equal(t, reads, r.reads["w"], why)
		}
	}
	ready(readiness.InProgress, 1, "at first")
	m, status = s.show(id, nil), "True"
	ready(readiness.Current, 2, "in another version")

	// What was read may be ahead of the view.
	m, status = s.show(id, nil), "False"
	ahead := m.DeepCopy()
	ahead.ResourceVersion = strconv.Itoa(s.version + 10)
	m = ahead
	ready(readiness.InProgress, 3, "read ahead")
	s.show(id, nil)
	ready(readiness.InProgress, 3, "the view has not caught up")

	// A backup brings back the object as it was, which is not what was read of it later.
	restored := ahead.DeepCopy()
	restored.ResourceVersion = "60"
	require.NoError(t, s.Live.registry.view(widgetKind).Sink("").Replace([]any{restored}, "2000"))
	m, status = restored, "True"
	ready(readiness.Current, 4, "of before")

	// A server that was restored counts from a lower version, and holds another object.
	successor := ahead.DeepCopy()
	successor.UID, successor.ResourceVersion = "another", "50"
	require.NoError(t, s.Live.registry.view(widgetKind).Sink("").Replace([]any{successor}, "50"))
	m, status = successor, "False"
	ready(readiness.InProgress, 5, "of another object")
}

func TestOneFailedObjectEndsTheWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, program, widgetKind)
		failed := ID{Group: "example.com", Kind: "Widget", Namespace: "shop", Name: "failed"}
		slow := ID{Group: "example.com", Kind: "Widget", Namespace: "shop", Name: "slow"}
		shown := map[string]*metav1.PartialObjectMetadata{"failed": s.show(failed, nil), "slow": s.show(slow, nil)}
		s.Objects = &reader{reads: map[string]int{}, holds: func(name string) *unstructured.Unstructured {
			if name == "failed" {
				return reporting(shown[name], "Stalled", "True")
			}
			return reporting(shown[name], "Ready", "False")
		}}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		err := s.WaitReady(ctx, s.set(SetOptions{}, failed, slow))
		missing, ok := errors.AsType[*NotReadyError](err)
		require.True(t, ok, "%v", err)
		require.Equal(t, readiness.Failed, missing.Objects[failed].Status)
		require.Equal(t, readiness.InProgress, missing.Objects[slow].Status)
		require.NoError(t, ctx.Err(), "the other object is not waited for")
	})
}

// TestAKindWhoseReadinessIsInItsMetadataIsNeverRead is what a restart costs: of an
// application's objects only the workload is read.
func TestAKindWhoseReadinessIsInItsMetadataIsNeverRead(t *testing.T) {
	t.Parallel()
	of := func(group, kind string) schema.GroupKind { return schema.GroupKind{Group: group, Kind: kind} }
	kinds := []schema.GroupKind{
		configMapKind, secretKind, of("", "ServiceAccount"), of("", "Service"), of("", "ResourceQuota"),
		of("rbac.authorization.k8s.io", "Role"), of("networking.k8s.io", "NetworkPolicy"), of("networking.k8s.io", "Ingress"), widgetKind,
	}
	s := newStage(t, program, kinds...)
	var ids []ID
	for _, kind := range kinds {
		ids = append(ids, ID{Group: kind.Group, Kind: kind.Kind, Namespace: "shop", Name: strings.ToLower(kind.Kind)})
	}
	set := s.set(SetOptions{}, ids...)
	widget := s.show(ids[len(ids)-1], nil)
	r := &reader{reads: map[string]int{}}
	r.holds = func(string) *unstructured.Unstructured { return reporting(widget, "Ready", "True") }
	s.Objects = r
	found, err := s.Readiness(t.Context(), set)
	require.NoError(t, err)
	require.Equal(t, readiness.Result{Status: readiness.Unknown, Message: "it does not exist"}, found[ids[0]])

	for _, id := range ids[:len(ids)-1] {
		s.show(id, nil)
	}
	require.NoError(t, s.WaitReady(t.Context(), set))
	s.show(ids[0], func(m *metav1.PartialObjectMetadata) { m.DeletionTimestamp = &metav1.Time{Time: time.Now()} })
	found, err = s.Readiness(t.Context(), set)
	require.NoError(t, err)
	require.Equal(t, readiness.Terminating, found[ids[0]].Status)
	require.Equal(t, map[string]int{"widget": 1}, r.reads)

	found, err = s.Readiness(t.Context(), set, secretKind)
	require.NoError(t, err)
	require.Len(t, found, 1, "of the other kinds nothing is asked")
}
