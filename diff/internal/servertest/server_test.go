// Package servertest_test holds the tests of diff that ask a real API server.
// They are not in diff itself, because what a package's tests import lands in
// the go.sum of those who import it.
package servertest_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/seed-9e1ffd66/trueup/diff"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube/kubetest"
)

// What is installed is served within milliseconds.
const (
	waitLimit = 20 * time.Second
	waitStep  = 20 * time.Millisecond
)

// shared is the cluster of all tests of this package.
var shared kubetest.Shared

func TestMain(m *testing.M) { shared.Main(m) }

// server is a namespace of its own, and a client.
type server struct {
	client    dynamic.Interface
	namespace string
}

var namespaces atomic.Int64

func newServer(t *testing.T) *server {
	t.Helper()
	client, err := dynamic.NewForConfig(shared.Cluster(t).Config)
	require.NoError(t, err)
	s := &server{client: client, namespace: fmt.Sprintf("test-%d", namespaces.Add(1))}
	s.apply(t, "setup", "{apiVersion: v1, kind: Namespace, metadata: {name: "+s.namespace+"}}")
	return s
}

func (s *server) read(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	data, err := yaml.YAMLToJSON([]byte(text))
	require.NoError(t, err, text)
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON(data); err != nil {
		require.NoError(t, err, text)
	}
	if u.GetKind() != "Namespace" && u.GroupVersionKind().Group != "admissionregistration.k8s.io" {
		u.SetNamespace(s.namespace)
	}
	return u
}

func (s *server) resource(u *unstructured.Unstructured) dynamic.ResourceInterface {
	gvk := u.GroupVersionKind()
	plural := strings.ToLower(gvk.Kind) + "s"
	if stem, ok := strings.CutSuffix(plural, "ys"); ok {
		plural = stem + "ies"
	}
	if gvk.Kind == "Endpoints" {
		plural = "endpoints"
	}
	r := s.client.Resource(schema.GroupVersionResource{Group: gvk.Group, Version: gvk.Version, Resource: plural})
	if u.GetNamespace() == "" {
		return r
	}
	return r.Namespace(u.GetNamespace())
}

// apply is a forced server-side apply of YAML.
func (s *server) apply(t *testing.T, manager, text string) *unstructured.Unstructured {
	t.Helper()
	answer, err := s.tryApply(t.Context(), manager, s.read(t, text), metav1.ApplyOptions{Force: true})
	require.NoError(t, err)
	return answer
}

func (s *server) tryApply(
	ctx context.Context,
	manager string,
	u *unstructured.Unstructured,
	options metav1.ApplyOptions,
) (*unstructured.Unstructured, error) {
	options.FieldManager = manager
	return s.resource(u).Apply(ctx, u.GetName(), u, options)
}

// dryApply returns what a forced apply would leave.
func (s *server) dryApply(t *testing.T, manager string, u *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	t.Helper()
	return s.tryApply(t.Context(), manager, u, metav1.ApplyOptions{Force: true, DryRun: []string{metav1.DryRunAll}})
}

func (s *server) get(t *testing.T, of *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	found, err := s.resource(of).Get(t.Context(), of.GetName(), metav1.GetOptions{})
	require.NoError(t, err)
	return found
}

// update puts the live object as edited.
func (s *server) update(t *testing.T, manager string, of *unstructured.Unstructured, edit func(map[string]any)) *unstructured.Unstructured {
	t.Helper()
	found := s.get(t, of)
	edit(found.Object)
	answer, err := s.resource(of).Update(t.Context(), found, metav1.UpdateOptions{FieldManager: manager})
	require.NoError(t, err)
	return answer
}

// patch merges YAML into the object.
func (s *server) patch(
	t *testing.T,
	manager string,
	of *unstructured.Unstructured,
	kind types.PatchType,
	text string,
	subresources ...string,
) *unstructured.Unstructured {
	t.Helper()
	data, err := yaml.YAMLToJSON([]byte(text))
	require.NoError(t, err)
	answer, err := s.resource(of).Patch(t.Context(), of.GetName(), kind, data, metav1.PatchOptions{FieldManager: manager}, subresources...)
	require.NoError(t, err)
	return answer
}

// digest returns the digest of what the tests' manager owns.
func digest(t *testing.T, u *unstructured.Unstructured) diff.Sum {
	t.Helper()
	sum, ok := diff.Digest(u, manager)
	require.True(t, ok, "%s owns nothing", manager)
	return sum
}

func covers(t *testing.T, live, desired *unstructured.Unstructured, manager string) bool {
	t.Helper()
	entry := diff.Entry(live.GetManagedFields(), manager)
	if entry == nil {
		return false
	}
	owned, err := diff.Owned(entry)
	require.NoError(t, err)
	return diff.Covers(owned, desired.Object)
}

// lines returns the fields as people see them, without the time.
func lines(t *testing.T, desired, live *unstructured.Unstructured, options diff.Options) []string {
	t.Helper()
	fields, err := diff.Fields(desired.Object, live.Object, options)
	require.NoError(t, err)
	found := []string{}
	for _, f := range fields {
		for i := range f.By {
			f.By[i].Time = metav1.Time{}.Time
		}
		found = append(found, string(f.Difference)+" "+f.String())
	}
	return found
}

func unmarshal(text string, into any) error {
	return yaml.Unmarshal([]byte(text), into)
}
