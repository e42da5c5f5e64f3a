package apply //nolint:testpackage // views show what a test gives them

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
)

// isolationID is the policy of these tests.
var isolationID = ID{Group: policyKind.Group, Kind: policyKind.Kind, Namespace: "shop", Name: "isolation"}

// ofServer is the metadata of an object of the server: its name, and if it has one its controller, "apps/v1 ReplicaSet web".
func ofServer(name, controller string, ends bool) metav1.PartialObjectMetadata {
	o := metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "shop", UID: types.UID(name)}}
	if of := strings.Fields(controller); len(of) > 0 {
		yes := true
		o.OwnerReferences = []metav1.OwnerReference{{APIVersion: of[0], Kind: of[1], Name: of[2], UID: types.UID(of[2]), Controller: &yes}}
	}
	if ends {
		o.DeletionTimestamp = &metav1.Time{Time: time.Now()}
	}
	return o
}

// serve answers lists of a resource with its objects, and with the error if it is there.
func (s *stage) serve(objects map[string][]metav1.PartialObjectMetadata, errs map[string]error) {
	s.lists = func(resource string, _ metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
		return &metav1.PartialObjectMetadataList{Items: objects[resource]}, errs[resource]
	}
}

// What isolates pods goes when no pod ends, whatever the workloads are.
func TestWhatIsolatesPodsStaysWhileOneEnds(t *testing.T) {
	t.Parallel()
	type objects = map[string][]metav1.PartialObjectMetadata
	one := func(name, controller string, ends bool) []metav1.PartialObjectMetadata {
		return []metav1.PartialObjectMetadata{ofServer(name, controller, ends)}
	}
	const ofSet, ofDeployment = "apps/v1 ReplicaSet web-1", "apps/v1 Deployment web"
	for name, test := range map[string]struct {
		there objects
		stays bool
	}{
		"no pod":                  {objects{}, false},
		"a pod that nothing owns": {objects{"pods": one("web", "", false)}, false},
		"one that is deleted":     {objects{"pods": one("web", "", true)}, true},
		"the second of two":       {objects{"pods": append(one("a", "", false), ofServer("b", "", true))}, true},
		"the first of two":        {objects{"pods": append(one("a", "", true), ofServer("b", "", false))}, true},
		"whose set is gone":       {objects{"pods": one("web", ofSet, false)}, true},
		"whose set is deleted":    {objects{"pods": one("web", ofSet, false), "replicasets": one("web-1", "", true)}, true},
		"whose set nothing owns":  {objects{"pods": one("web", ofSet, false), "replicasets": one("web-1", "", false)}, false},
		"whose set was made again": {objects{
			"pods": one("web", ofSet, false), "replicasets": {{ObjectMeta: metav1.ObjectMeta{Name: "web-1", UID: "new"}}},
		}, true},
		"whose deployment is gone": {objects{"pods": one("web", ofSet, false), "replicasets": one("web-1", ofDeployment, false)}, true},
		"whose deployment is there": {objects{
			"pods": one("web", ofSet, false), "replicasets": one("web-1", ofDeployment, false), "deployments": one("web", "", false),
		}, false},
		"whose deployment is deleted": {objects{
			"pods": one("web", ofSet, false), "replicasets": one("web-1", ofDeployment, false), "deployments": one("web", "", true),
		}, true},
		"of a deployment that stays, and it is deleted": {objects{
			"pods": one("web", ofSet, true), "replicasets": one("web-1", ofDeployment, false), "deployments": one("web", "", false),
		}, false},
		"of a set that stays, and it is deleted": {objects{"pods": one("web", ofSet, true), "replicasets": one("web-1", "", false)}, false},
		"of a set of another kind, and it is deleted": {objects{
			"pods": one("web", ofSet, true), "replicasets": one("web-1", "argoproj.io/v1 Rollout web", false),
		}, true},
		"whose set is the second of two": {objects{
			"pods": one("web", ofSet, false), "replicasets": append(one("other", "", false), ofServer("web-1", "", false)),
		}, false},
		"whose owner is no controller": {objects{"pods": {{ObjectMeta: metav1.ObjectMeta{
			Name: "web", OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web-1", UID: "web-1"}},
		}}}}, false},
		"whose owners are a circle": {objects{
			"pods": one("web", ofSet, false), "replicasets": one("web-1", ofDeployment, false),
			"deployments": one("web", ofSet, false),
		}, false},
		"whose owners are a circle, and it is deleted": {objects{
			"pods": one("web", ofSet, true), "replicasets": one("web-1", ofDeployment, false),
			"deployments": one("web", ofSet, false),
		}, true},
		"of a Job that is gone":               {objects{"pods": one("web", "batch/v1 Job web", false)}, true},
		"of an old controller that is gone":   {objects{"pods": one("web", "v1 ReplicationController web", false)}, true},
		"of a kind that is not of Kubernetes": {objects{"pods": one("web", "argoproj.io/v1 Rollout web", false)}, false},
		"of such a kind, and it is deleted":   {objects{"pods": one("web", "argoproj.io/v1 Rollout web", true)}, true},
		"whose set is of another kind": {objects{
			"pods": one("web", ofSet, false), "replicasets": one("web-1", "argoproj.io/v1 Rollout web", false),
		}, false},
	} {
		for call, do := range map[string]func(*stage) (PruneReport, error){
			"Prune":  func(s *stage) (PruneReport, error) { return s.Prune(t.Context(), s.set(SetOptions{}), whole) },
			"Delete": func(s *stage) (PruneReport, error) { return s.Delete(t.Context(), []ID{isolationID}, DeleteOptions{}) },
		} {
			s := newStage(t, program, policyKind)
			s.show(isolationID, nil)
			s.serve(test.there, nil)
			report, err := do(s)
			require.NoError(t, err, name)
			require.Equal(t, test.stays, len(s.deleted) == 0, "%s, %s", name, call)
			require.Equal(t, test.stays, report.Pending == 1, "%s, %s", name, call)
		}
	}
}

// The workloads of a namespace are asked for once in a pass, however many pods they have and policies isolate these.
func TestWorkloadsAreAskedForOnce(t *testing.T) {
	t.Parallel()
	s := newStage(t, program, policyKind)
	for _, name := range []string{"isolation", "ingress", "egress"} {
		s.show(ID{Group: policyKind.Group, Kind: policyKind.Kind, Namespace: "shop", Name: name}, nil)
	}
	s.show(ID{Group: policyKind.Group, Kind: policyKind.Kind, Namespace: "bank", Name: "isolation"}, nil)
	there := map[string][]metav1.PartialObjectMetadata{
		"replicasets": {ofServer("web-1", "apps/v1 Deployment web", false)}, "deployments": {ofServer("web", "", false)},
	}
	for _, pod := range []string{"a", "b", "c"} {
		there["pods"] = append(there["pods"], ofServer(pod, "apps/v1 ReplicaSet web-1", false))
	}
	s.serve(there, nil)
	want := []string{
		"bank deployments ", "bank pods ", "bank replicasets ",
		"shop deployments ", "shop pods ", "shop pods ", "shop pods ", "shop replicasets ",
	}
	for range 2 { // the next pass asks again
		_, err := s.Plan(t.Context(), s.set(SetOptions{}), whole)
		require.NoError(t, err)
		slices.Sort(s.listed)
		require.Equal(t, want, s.listed)
		s.listed = nil
	}
}

// Pods that cannot be seen may be there. The error says what is not seen, and nothing else waits.
func TestWhatIsolatesPodsStaysWhileTheServerShowsNone(t *testing.T) {
	t.Parallel()
	forbidden := func(resource string) error {
		return apierrors.NewForbidden(schema.GroupResource{Resource: resource}, "", errors.New("no right"))
	}
	ofSet := map[string][]metav1.PartialObjectMetadata{"pods": {ofServer("web", "apps/v1 ReplicaSet web-1", false)}}
	for resource, message := range map[string]string{
		"pods":        "pods is forbidden: no right",
		"replicasets": "ReplicaSet.apps: replicasets is forbidden: no right",
	} {
		message = "NetworkPolicy.networking.k8s.io/shop/isolation: the live state is not known: the pods that it isolates: " + message
		s := newStage(t, program, policyKind, configMapKind)
		s.show(isolationID, nil)
		s.show(mapID("a"), nil)
		s.serve(ofSet, map[string]error{resource: forbidden(resource)})
		report, err := s.Prune(t.Context(), s.set(SetOptions{}), whole)
		require.ErrorIs(t, err, ErrNotSynced)
		require.ErrorContains(t, err, message)
		require.Equal(t, []string{"configmaps a"}, s.deleted)
		require.Zero(t, report.Pending, "an error tells of it")
		require.Equal(t, Waiting, report.Results[0].Action)

		plan, err := s.Plan(t.Context(), s.set(SetOptions{}), whole)
		require.ErrorContains(t, err, message)
		require.Empty(t, plan.Changes)
	}
}

// A server that does not answer what a pass asks before it deletes keeps what the question is about, and nothing else, however
// many such questions there are, and little time.
func TestAQuestionWithoutAnAnswerKeepsNothingElse(t *testing.T) {
	t.Parallel()
	const many = 50
	const unbounded = time.Duration(0)
	for _, silent := range []string{"pods", "replicasets", "configmaps"} {
		for _, left := range []time.Duration{unbounded, 5 * time.Minute, 5 * time.Second} {
			t.Run(silent+" "+left.String(), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					s := newStage(t, program, policyKind, secretKind, namespaceKind)
					s.Live.Discovery = resources{namespaced("configmaps", "ConfigMap")}
					s.show(ID{Kind: "Secret", Namespace: "zoo", Name: "z"}, nil)
					for i := range many {
						if name := fmt.Sprint("n", i); silent == "configmaps" { // perhaps of others
							s.show(ID{Kind: "Namespace", Name: name}, nil)
						} else {
							s.show(ID{Group: policyKind.Group, Kind: policyKind.Kind, Namespace: "shop", Name: name}, nil)
						}
					}
					s.serve(map[string][]metav1.PartialObjectMetadata{"pods": {ofServer("web", "apps/v1 ReplicaSet web-1", false)}}, nil)
					s.silent = silent
					ctx, options, began := t.Context(), whole, time.Now()
					options.DeleteForeign = false
					if left != unbounded {
						within, cancel := context.WithTimeout(ctx, left)
						defer cancel()
						ctx = within
					}
					report, err := s.Prune(ctx, s.set(SetOptions{}), options)
					require.Equal(t, []string{"secrets z"}, s.deleted)
					require.ErrorContains(t, err, "the server does not answer within ")
					require.Len(t, report.Results, many+1, "each that stays has an error")
					require.NoError(t, ctx.Err())
					require.LessOrEqual(t, time.Since(began), (many+7)/8*30*time.Second)
				})
			})
		}
	}
}

// A definition goes after what it defines, and that after pods.
func TestTheDefinitionOfWhatIsolatesStaysToo(t *testing.T) {
	t.Parallel()
	s := newStage(t, program, ciliumKind, crdKind)
	s.show(ID{Group: ciliumKind.Group, Kind: ciliumKind.Kind, Namespace: "shop", Name: "isolation"}, nil)
	s.show(ID{Group: crdKind.Group, Kind: crdKind.Kind, Name: "ciliumnetworkpolicies.cilium.io"}, nil)
	s.serve(map[string][]metav1.PartialObjectMetadata{"pods": {ofServer("web", "", true)}}, nil)
	report, err := s.Prune(t.Context(), s.set(SetOptions{}), whole)
	require.NoError(t, err)
	require.Empty(t, s.deleted)
	require.Equal(t, 2, report.Pending)
}

// A NetworkPolicy waits for the pods that it selects, what a caller names for these, and another kind for all of its namespace.
func TestThePodsThatAreAskedForAreTheSelectedOnes(t *testing.T) {
	t.Parallel()
	cilium := ID{Group: ciliumKind.Group, Kind: ciliumKind.Kind, Namespace: "shop", Name: "isolation"}
	terms := map[string]any{
		"matchLabels":      map[string]any{"app": "web"},
		"matchExpressions": []any{map[string]any{"key": "tier", "operator": "In", "values": []any{"front"}}},
	}
	ends := map[string][]metav1.PartialObjectMetadata{"pods": {ofServer("web", "", true)}}
	runs := map[string][]metav1.PartialObjectMetadata{"pods": {ofServer("web", "", false)}}
	states := map[string]any{"podSelector": terms}
	selected := []string{"shop pods app=web,tier in (front)"}
	named := func(text string) func(Observed) string { return func(Observed) string { return text } }
	for name, test := range map[string]struct {
		id      ID
		spec    map[string]any // nil: there is no such object
		objects bool
		podsOf  func(Observed) string
		there   map[string][]metav1.PartialObjectMetadata
		asked   []string
		stays   bool
		err     string
	}{
		"as it states": {isolationID, states, true, nil, ends, selected, true, ""},
		"all":          {isolationID, map[string]any{"podSelector": map[string]any{}}, true, nil, ends, []string{"shop pods "}, true, ""},
		"it is gone":   {isolationID, nil, true, nil, ends, nil, false, ""},
		"its labels cannot be read": {
			isolationID,
			map[string]any{"podSelector": map[string]any{"matchLabels": "web"}},
			true, nil, ends, nil, true, "the pods that it isolates",
		},
		"its operator is not known": {
			isolationID,
			map[string]any{"podSelector": map[string]any{"matchExpressions": []any{map[string]any{"key": "a", "operator": "Near"}}}},
			true, nil, ends, nil, true, "not a valid label selector operator",
		},
		"it cannot be read":       {isolationID, map[string]any{"podSelector": "web"}, true, nil, ends, nil, true, "podSelector"},
		"without Objects":         {isolationID, states, false, nil, ends, []string{"shop pods "}, true, ""},
		"of another kind":         {cilium, states, true, nil, ends, []string{"shop pods "}, true, ""},
		"as the caller says":      {isolationID, states, true, named("id=1"), runs, []string{"shop pods id=1"}, true, ""},
		"the caller has no word":  {isolationID, states, true, named(""), ends, nil, false, ""},
		"the caller, and no pods": {isolationID, nil, true, named("id=1"), nil, []string{"shop pods id=1"}, false, ""},
	} {
		s := newStage(t, program, policyKind, ciliumKind)
		s.show(test.id, nil)
		s.serve(test.there, nil)
		if test.objects {
			s.Objects = holder{spec: test.spec}
		}
		_, err := s.Delete(t.Context(), []ID{test.id}, DeleteOptions{PodsOf: test.podsOf})
		if test.err == "" {
			require.NoError(t, err, name)
		} else {
			require.ErrorContains(t, err, test.err, name)
		}
		require.Equal(t, test.stays, len(s.deleted) == 0, name)
		require.Equal(t, test.asked, slices.Compact(s.listed), name)
	}
}

// holder is a server with one object, or none if it has no spec.
type holder struct {
	dynamic.NamespaceableResourceInterface

	spec map[string]any
}

func (h holder) Resource(schema.GroupVersionResource) dynamic.NamespaceableResourceInterface {
	return h
}
func (h holder) Namespace(string) dynamic.ResourceInterface { return h }

func (h holder) Get(_ context.Context, name string, _ metav1.GetOptions, _ ...string) (*unstructured.Unstructured, error) {
	if h.spec == nil {
		return nil, apierrors.NewNotFound(schema.GroupResource{}, name)
	}
	return &unstructured.Unstructured{Object: map[string]any{"spec": h.spec}}, nil
}

// No server is asked for pods where nothing isolates them, or where it is not deleted.
func TestNoPodsAreAskedForWithoutNeed(t *testing.T) {
	t.Parallel()
	s := newStage(t, program, policyKind, clusterwideKind, configMapKind)
	s.show(isolationID, nil)
	s.show(ID{Group: clusterwideKind.Group, Kind: clusterwideKind.Kind, Name: "all"}, nil)
	s.show(mapID("a"), nil)
	s.serve(map[string][]metav1.PartialObjectMetadata{"pods": {ofServer("web", "", true)}}, nil)
	options := whole
	options.Orphan = func(o Observed) bool { return o.ID == isolationID }
	_, err := s.Prune(t.Context(), s.set(SetOptions{}), options)
	require.NoError(t, err)
	require.ElementsMatch(t, []string{"configmaps a", "ciliumclusterwidenetworkpolicies all"}, s.deleted)
	require.Equal(t, []string{"networkpolicies isolation"}, s.patched, "it is released")
	require.Empty(t, s.listed)
}

// Each policy waits for the pods of its own namespace.
func TestEachPolicyWaits(t *testing.T) {
	t.Parallel()
	s := newStage(t, program, policyKind)
	var want []string
	for _, namespace := range []string{"bank", "shop", "zoo"} {
		s.show(ID{Group: policyKind.Group, Kind: policyKind.Kind, Namespace: namespace, Name: "isolation"}, nil)
		want = append(want, namespace+" pods ")
	}
	s.serve(map[string][]metav1.PartialObjectMetadata{"pods": {ofServer("web", "", true)}}, nil)
	report, err := s.Prune(t.Context(), s.set(SetOptions{}), whole)
	require.NoError(t, err)
	require.Empty(t, s.deleted)
	require.Equal(t, 3, report.Pending)
	require.ElementsMatch(t, want, s.listed)
}

// What the guard holds stays anyhow: no server is asked for its pods.
func TestNoPodsAreAskedForWhatTheGuardHolds(t *testing.T) {
	t.Parallel()
	s := newStage(t, program, policyKind)
	s.show(isolationID, nil)
	s.serve(nil, nil)
	options := whole
	options.Guard = &Guard{Window: -time.Second} // a wrong setting holds everything
	_, err := s.Prune(t.Context(), s.set(SetOptions{}), options)
	require.Error(t, err)
	_, planned := s.Plan(t.Context(), s.set(SetOptions{}), options)
	require.Equal(t, err.Error(), planned.Error())
	require.Empty(t, s.listed)
	require.Empty(t, s.deleted)
}
