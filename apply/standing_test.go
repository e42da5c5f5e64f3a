package apply //nolint:testpackage // views show what a test gives them

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/seed-9e1ffd66/trueup/diff"
)

var (
	deploymentKind  = schema.GroupKind{Group: "apps", Kind: "Deployment"}
	policyKind      = schema.GroupKind{Group: "networking.k8s.io", Kind: "NetworkPolicy"}
	clusterwideKind = schema.GroupKind{Group: "cilium.io", Kind: "CiliumClusterwideNetworkPolicy"}
	ciliumKind      = schema.GroupKind{Group: "cilium.io", Kind: "CiliumNetworkPolicy"}
	podKind         = schema.GroupKind{Kind: "Pod"}
	volumeKind      = schema.GroupKind{Kind: "PersistentVolume"}
	quotaKind       = schema.GroupKind{Kind: "ResourceQuota"}
)

// byName makes all objects one unit whose names begin with the same word.
func byName(o Observed) string {
	unit, _, _ := strings.Cut(o.ID.Name, "-")
	return unit
}

// TestWhatAStandingWorkloadNeedsStays has a shop that goes, and a Deployment of it that does not.
func TestWhatAStandingWorkloadNeedsStays(t *testing.T) {
	t.Parallel()
	refused := errors.New("refused by a webhook")
	in := func(kind schema.GroupKind, namespace, name string) ID {
		return ID{Group: kind.Group, Kind: kind.Kind, Namespace: namespace, Name: name}
	}
	web := in(deploymentKind, "shop", "web-1")
	withUnits := PruneOptions{Guard: &Guard{Unit: byName, Absent: Limit{Percent: 100}}}
	grace := PruneOptions{Guard: withUnits.Guard, Grace: func(kind schema.GroupKind) Grace {
		return map[string]Grace{"Deployment": {Age: time.Hour}}[kind.Kind]
	}}
	background := PruneOptions{Guard: withUnits.Guard, Propagation: metav1.DeletePropagationBackground}
	ciliumDefinition := ID{Group: crdKind.Group, Kind: crdKind.Kind, Name: "ciliumnetworkpolicies.cilium.io"}
	after := func(needs map[string]string) func(*metav1.PartialObjectMetadata) {
		return func(m *metav1.PartialObjectMetadata) {
			if need := needs[m.Name]; need != "" {
				m.Annotations = map[string]string{"example.com/depends-on": need}
			}
		}
	}
	controlled := func(m *metav1.PartialObjectMetadata) {
		if m.Name == "web-2" {
			m.OwnerReferences = []metav1.OwnerReference{{UID: "uid of Deployment.apps/shop/web-1", Controller: new(true)}}
		}
	}
	for name, test := range map[string]struct {
		others  []ID // beside web
		options PruneOptions
		refuses string // the name of what the server does not delete
		change  func(*metav1.PartialObjectMetadata)
		goes    []string
		pending int
		errs    []string
	}{
		"a refused one keeps its isolation, its configuration and its namespace": {
			others: []ID{
				in(policyKind, "shop", "web-2"), in(configMapKind, "shop", "web-3"), in(secretKind, "shop", "web-4"),
				{Kind: "Namespace", Name: "shop"},
			},
			options: withUnits, refuses: "web-1", pending: 3,
			goes: []string{"deployments web-1"},
			errs: []string{"Deployment.apps/shop/web-1: refused", "Namespace/shop: is still needed: Deployment.apps/shop/web-1 must stay"},
		},
		"another service beside it goes, but for what isolates both": {
			others: []ID{
				in(deploymentKind, "shop", "api-1"), in(configMapKind, "shop", "api-2"), in(configMapKind, "shop", "shared-1"),
				in(policyKind, "shop", "shared-2"), in(quotaKind, "shop", "shared-3"),
			},
			options: withUnits, refuses: "web-1", pending: 2,
			goes: []string{"deployments api-1", "deployments web-1", "configmaps api-2", "resourcequotas shared-3"},
			errs: []string{"Deployment.apps/shop/web-1: refused"},
		},
		"another namespace has nothing to do with it": {
			others:  []ID{in(policyKind, "bank", "web-2"), in(configMapKind, "bank", "shared")},
			options: withUnits, refuses: "web-1",
			goes: []string{"deployments web-1", "configmaps shared", "networkpolicies web-2"},
			errs: []string{"Deployment.apps/shop/web-1: refused"},
		},
		"what isolates all namespaces stays": {
			others: []ID{in(clusterwideKind, "", "all")}, options: withUnits, refuses: "web-1", pending: 1,
			goes: []string{"deployments web-1"}, errs: []string{"Deployment.apps/shop/web-1: refused"},
		},
		"what its controller takes along is not waited for": {
			others:  []ID{in(policyKind, "shop", "web-2")},
			options: withUnits, change: controlled, goes: []string{"deployments web-1", "networkpolicies web-2"},
		},
		"a controller that is refused takes nothing along": {
			others: []ID{in(policyKind, "shop", "web-2")}, options: withUnits, change: controlled, refuses: "web-1", pending: 1,
			goes: []string{"deployments web-1"}, errs: []string{"Deployment.apps/shop/web-1: refused"},
		},
		"a controller in its grace takes nothing along": {
			others: []ID{in(policyKind, "shop", "web-2")}, options: grace, change: controlled, pending: 2,
		},
		"a workload of another kind is isolated until it is gone": {
			others: []ID{in(widgetKind, "bank", "w"), in(policyKind, "bank", "p")}, options: withUnits, pending: 1,
			goes: []string{"deployments web-1", "widgets w"},
		},
		"what is deleted in the background is not waited for, as the options state it": {
			others: []ID{in(policyKind, "shop", "p")}, options: background, goes: []string{"deployments web-1", "networkpolicies p"},
		},
		"a pod is waited for, whatever they state": {
			others: []ID{in(podKind, "shop", "one"), in(policyKind, "shop", "p")}, options: background, pending: 1,
			goes: []string{"deployments web-1", "pods one"},
		},
		"what is deleted in the foreground is waited for, as the options state it": {
			others: []ID{in(policyKind, "shop", "p")}, pending: 1, goes: []string{"deployments web-1"},
			options: PruneOptions{Guard: withUnits.Guard, Propagation: metav1.DeletePropagationForeground},
		},
		"what is set free is not waited for": {
			others: []ID{in(policyKind, "shop", "p")}, goes: []string{"networkpolicies p"},
			options: PruneOptions{Guard: withUnits.Guard, Orphan: func(o Observed) bool { return o.ID == web }},
		},
		"what isolates all namespaces stays until it is gone": {
			others: []ID{in(clusterwideKind, "", "all")}, options: withUnits, pending: 1, goes: []string{"deployments web-1"},
		},
		"what depends on a workload goes before it, as the objects state it": {
			others: []ID{in(policyKind, "shop", "p")}, options: withUnits, change: after(map[string]string{"p": "Deployment.apps/shop/web-1"}),
			goes: []string{"deployments web-1", "networkpolicies p"},
		},
		"a volume of its unit stays": {
			others:  []ID{in(volumeKind, "", "web-2"), in(volumeKind, "", "api-2"), in(deploymentKind, "shop", "api-1")},
			options: withUnits, refuses: "web-1", pending: 1,
			goes: []string{"deployments web-1", "deployments api-1", "persistentvolumes api-2"},
			errs: []string{"Deployment.apps/shop/web-1: refused"},
		},
		"the definition of what isolates one that is being deleted stays": {
			others: []ID{in(ciliumKind, "shop", "web-2"), ciliumDefinition}, options: withUnits, pending: 2,
			change: func(m *metav1.PartialObjectMetadata) {
				if m.Name == "web-1" {
					dying(m)
				}
			},
		},
		"the definition of what isolates one that goes stays": {
			others: []ID{in(ciliumKind, "shop", "web-2"), ciliumDefinition}, options: withUnits, pending: 2, goes: []string{"deployments web-1"},
		},
		"one in its grace keeps what its needs depend on": {
			others: []ID{in(quotaKind, "bank", "a"), in(quotaKind, "bank", "b"), in(quotaKind, "bank", "c")}, options: grace, pending: 3,
			change: after(map[string]string{"web-1": "ResourceQuota/bank/a", "a": "ResourceQuota/bank/b"}), goes: []string{"resourcequotas c"},
		},
		"a namespace that it depends on keeps its isolation": {
			others: []ID{{Kind: "Namespace", Name: "bank"}, in(policyKind, "bank", "p")}, options: grace, pending: 3,
			change: after(map[string]string{"web-1": "Namespace/bank"}),
		},
		"a namespace that it depends on and that depends on what lives in it": {
			others: []ID{{Kind: "Namespace", Name: "bank"}, in(policyKind, "bank", "p"), in(podKind, "bank", "one")}, options: grace, pending: 4,
			change: after(map[string]string{"web-1": "Namespace/bank", "bank": "Pod/bank/one"}),
		},
		"one in its grace keeps them": {
			others:  []ID{in(policyKind, "shop", "web-2"), in(configMapKind, "shop", "web-3"), in(quotaKind, "shop", "web-4")},
			options: PruneOptions{Guard: &Guard{}, Grace: grace.Grace},
			pending: 3, goes: []string{"resourcequotas web-4"},
		},
		"one that the guard holds keeps what is not of its unit": {
			others: []ID{in(policyKind, "shop", "shared-1"), in(secretKind, "shop", "shared-2"), in(configMapKind, "bank", "x")},
			options: PruneOptions{Guard: &Guard{Unit: byName, Named: Limit{}, Absent: Limit{Count: -1}}, Gone: func(o Observed) bool {
				return byName(o) != "web"
			}},
			pending: 2, goes: []string{"configmaps x"}, errs: []string{"so these are held: web"},
		},
		"one that is kept by a decision keeps nothing but its namespace": {
			others:  []ID{in(policyKind, "shop", "web-2"), in(configMapKind, "shop", "web-3"), {Kind: "Namespace", Name: "shop"}},
			options: PruneOptions{Guard: withUnits.Guard, Keep: func(o Observed) bool { return o.ID == web }},
			goes:    []string{"configmaps web-3", "networkpolicies web-2"}, errs: []string{"Namespace/shop: is still needed"},
		},
		"one that is being deleted keeps its isolation": {
			others:  []ID{in(policyKind, "shop", "web-2"), in(configMapKind, "shop", "web-3")},
			options: withUnits, pending: 1, goes: []string{"configmaps web-3"},
			change: func(m *metav1.PartialObjectMetadata) {
				if m.Name == "web-1" {
					dying(m)
				}
			},
		},
		"what it depends on stays": {
			others:  []ID{in(quotaKind, "bank", "a"), in(quotaKind, "bank", "b"), in(quotaKind, "bank", "c")},
			options: withUnits, refuses: "web-1", pending: 2,
			change: after(map[string]string{"web-1": "ResourceQuota/bank/a", "a": "ResourceQuota/bank/b"}),
			goes:   []string{"deployments web-1", "resourcequotas c"}, errs: []string{"Deployment.apps/shop/web-1: refused"},
		},
		"a definition of what was refused stays": {
			others:  []ID{in(widgetKind, "shop", "w"), {Group: crdKind.Group, Kind: crdKind.Kind, Name: "widgets.example.com"}},
			options: withUnits, refuses: "w",
			goes: []string{"deployments web-1", "widgets w"},
			errs: []string{"Widget.example.com/shop/w: refused", "widgets.example.com: is still needed: Widget.example.com/shop/w must stay"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, program, deploymentKind, policyKind, clusterwideKind, ciliumKind, quotaKind, configMapKind, secretKind, namespaceKind,
				podKind, volumeKind, widgetKind, crdKind)
			s.deletes = func(name string, _ metav1.DeleteOptions) error {
				if name == test.refuses {
					return refused
				}
				return nil
			}
			for _, id := range append(slices.Clone(test.others), web) {
				s.show(id, test.change)
			}
			options := test.options
			options.Complete, options.AllowEmpty, options.DeleteForeign = true, true, true
			report, err := s.Prune(t.Context(), s.set(SetOptions{}), options)
			if len(test.errs) == 0 {
				require.NoError(t, err)
			}
			for _, text := range test.errs {
				require.ErrorContains(t, err, text)
			}
			require.ElementsMatch(t, test.goes, s.deleted, "what the server was asked to delete")
			require.Equal(t, test.pending, report.Pending)
			require.GreaterOrEqual(t, report.Remaining, test.pending, "what waits is not gone")
		})
	}
}

// What isolates pods is left to a namespace that goes, and is not deleted while the namespace ends.
func TestIsolationIsLeftToItsNamespace(t *testing.T) {
	t.Parallel()
	shop := ID{Kind: "Namespace", Name: "shop"}
	policy := ID{Group: policyKind.Group, Kind: policyKind.Kind, Namespace: "shop", Name: "isolation"}
	for name, test := range map[string]struct {
		refused error
		orphan  bool
		goes    []string
		results []Result
		pending int
	}{
		"that goes":       {goes: []string{"namespaces shop"}, results: []Result{{ID: shop, Action: Deleted}, {ID: policy, Action: Deleted}}},
		"that is refused": {refused: errors.New("no"), goes: []string{"namespaces shop"}, pending: 1},
		"that is set free": {
			orphan: true, goes: []string{"networkpolicies isolation"},
			results: []Result{{ID: policy, Action: Deleted}, {ID: shop, Action: Released}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, program, policyKind, namespaceKind)
			s.deletes = func(string, metav1.DeleteOptions) error { return test.refused }
			s.show(shop, nil)
			s.show(policy, nil)
			options := whole
			if test.orphan {
				options.Orphan = func(o Observed) bool { return o.ID == shop }
			}
			report, err := s.Prune(t.Context(), s.set(SetOptions{}), options)
			require.ErrorIs(t, err, test.refused)
			require.Equal(t, test.goes, s.deleted)
			if test.refused == nil {
				require.Equal(t, test.results, report.Results)
			}
			require.Equal(t, test.pending, report.Pending)
			if name != "that goes" {
				return
			}
			require.Equal(t, 2, report.Remaining)
			s.show(shop, dying)
			report, err = s.Prune(t.Context(), s.set(SetOptions{}), options)
			require.NoError(t, err)
			require.Equal(t, test.goes, s.deleted, "its pods may still run")
			require.Equal(t, 2, report.Remaining)
			require.Empty(t, report.Results)
		})
	}
}

// What isolates pods would vanish with its definition, before the pods.
func TestADefinitionOutlivesWhatIsolatesPodsInANamespaceThatGoes(t *testing.T) {
	t.Parallel()
	shop := ID{Kind: "Namespace", Name: "shop"}
	start := func(change func(*metav1.PartialObjectMetadata)) *stage {
		s := newStage(t, program, ciliumKind, namespaceKind, crdKind)
		s.show(shop, change)
		s.show(ID{Group: ciliumKind.Group, Kind: ciliumKind.Kind, Namespace: "shop", Name: "isolation"}, nil)
		s.show(ID{Group: crdKind.Group, Kind: crdKind.Kind, Name: "ciliumnetworkpolicies.cilium.io"}, nil)
		return s
	}
	prune := func(s *stage, what string, want ...string) {
		report, err := s.Prune(t.Context(), s.set(SetOptions{}), whole)
		require.NoError(t, err)
		require.Equal(t, want, s.deleted, what)
		require.Equal(t, 1, report.Pending, what)
		require.Equal(t, 3, report.Remaining, what)
	}
	s := start(nil)
	prune(s, "the namespace goes", "namespaces shop")
	prune(s, "no watch shows that it is going", "namespaces shop")
	prune(start(dying), "it is going since before a restart")
}

// A kind that cannot be seen may have pods that run.
func TestIsolationStaysWhilePodsCannotBeSeen(t *testing.T) {
	t.Parallel()
	for kind, stays := range map[schema.GroupKind]bool{deploymentKind: true, podKind: true, widgetKind: false} {
		s := newStage(t, program, policyKind)
		s.Live.Mapper.(*meta.DefaultRESTMapper).Add(kind.WithVersion("v1"), meta.RESTScopeNamespace)
		s.Live.registry.add(kind, "")
		t.Cleanup(s.fails(kind))
		s.serve(nil, nil) // no pod that nothing watches
		s.show(ID{Group: policyKind.Group, Kind: policyKind.Kind, Namespace: "shop", Name: "isolation"}, nil)
		report, err := s.Prune(t.Context(), s.set(SetOptions{}), whole)
		require.ErrorIs(t, err, ErrNotSynced)
		require.Equal(t, stays, len(s.deleted) == 0, kind.String())
		require.Equal(t, stays, report.Pending == 1, kind.String())
	}
}

// A deletion by name may come back to what isolates a workload that it has deleted before.
func TestADeletionByNameWaitsForPodsThatItDoesNotName(t *testing.T) {
	t.Parallel()
	policy := ID{Group: policyKind.Group, Kind: policyKind.Kind, Namespace: "shop", Name: "isolation"}
	web := ID{Group: deploymentKind.Group, Kind: deploymentKind.Kind, Namespace: "shop", Name: "web"}
	elsewhere := web
	elsewhere.Namespace = "bank"
	everywhere := ID{Group: clusterwideKind.Group, Kind: clusterwideKind.Kind, Name: "all"}
	start := func() *stage {
		s := newStage(t, program, policyKind, clusterwideKind, deploymentKind)
		s.show(policy, nil)
		s.show(everywhere, nil)
		return s
	}
	order := func(s *stage, id ID, pending int, what string) {
		t.Helper()
		report, err := s.Delete(t.Context(), []ID{id}, DeleteOptions{})
		require.NoError(t, err)
		require.Equal(t, pending, report.Pending, what)
		require.Equal(t, pending == 0, len(s.deleted) > 0, what)
	}
	s := start()
	s.show(web, dying)
	order(s, policy, 1, "its pods may run")
	s = start()
	s.show(elsewhere, dying)
	order(s, policy, 0, "it isolates no pods in another namespace")
	s = start()
	s.show(elsewhere, dying)
	order(s, everywhere, 1, "it isolates pods in all namespaces")
	s = start()
	s.show(web, nil)
	order(s, policy, 0, "a caller that names it and not the workload means it")

	s = newStage(t, program, policyKind)
	s.Live.Mapper.(*meta.DefaultRESTMapper).Add(deploymentKind.WithVersion("v1"), meta.RESTScopeNamespace)
	s.Live.registry.add(deploymentKind, "")
	t.Cleanup(s.fails(deploymentKind))
	s.show(policy, nil)
	order(s, policy, 1, "pods may run that cannot be seen")
}

// A plan names what goes with a namespace, too.
func TestAPlanNamesTheIsolationThatGoesWithItsNamespace(t *testing.T) {
	t.Parallel()
	s := newStage(t, program, policyKind, namespaceKind)
	s.show(ID{Kind: "Namespace", Name: "shop"}, nil)
	s.show(ID{Group: policyKind.Group, Kind: policyKind.Kind, Namespace: "shop", Name: "isolation"}, nil)
	plan, err := s.Plan(t.Context(), s.set(SetOptions{}), whole)
	require.NoError(t, err)
	require.Len(t, plan.Changes, 2)
	report, err := s.Execute(t.Context(), s.set(SetOptions{}), whole, plan)
	require.NoError(t, err)
	require.Equal(t, 2, report.Count(Deleted))
	require.Equal(t, []string{"namespaces shop"}, s.deleted)
}

// A plan has what is deleted now: Execute has a result for each of its changes, and for no other.
func TestEachPlannedDeletionHasAResult(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		namespace bool
		approves  []string // kinds; nil: all
		planned   int
		goes      []string
		err       string
	}{
		"all, without what waits for the pods": {planned: 2, goes: []string{"deployments web", "configmaps a"}},
		"what a workload needs that is left": {
			planned: 1, approves: []string{"ConfigMap"}, err: "ConfigMap/shop/a: is still needed: Deployment.apps/shop/web must stay",
		},
		"a workload that others would go with": {planned: 1, approves: []string{"Deployment"}, goes: []string{"deployments web"}},
		"all, with a namespace": {
			namespace: true, planned: 4, goes: []string{"deployments web", "configmaps a", "namespaces shop"},
		},
		"a namespace with what isolates its pods left": {
			namespace: true, planned: 3, approves: []string{"Deployment", "ConfigMap", "Namespace"},
			goes: []string{"deployments web", "configmaps a"},
			err:  "Namespace/shop: is still needed: NetworkPolicy.networking.k8s.io/shop/isolation must stay",
		},
		"what isolates the pods of a namespace that is left": {
			namespace: true, planned: 1, approves: []string{"NetworkPolicy"},
			err: "NetworkPolicy.networking.k8s.io/shop/isolation: is still needed: Namespace/shop must stay",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, program, deploymentKind, policyKind, namespaceKind, configMapKind)
			s.show(ID{Group: deploymentKind.Group, Kind: deploymentKind.Kind, Namespace: "shop", Name: "web"}, nil)
			s.show(ID{Group: policyKind.Group, Kind: policyKind.Kind, Namespace: "shop", Name: "isolation"}, nil)
			s.show(mapID("a"), nil)
			if test.namespace {
				s.show(ID{Kind: "Namespace", Name: "shop"}, nil)
			}
			plan, err := s.Plan(t.Context(), s.set(SetOptions{}), whole)
			require.NoError(t, err)
			plan.Changes = slices.DeleteFunc(plan.Changes, func(c diff.Change) bool {
				return test.approves != nil && !slices.Contains(test.approves, c.Kind)
			})
			require.Len(t, plan.Changes, test.planned)
			report, err := s.Execute(t.Context(), s.set(SetOptions{}), whole, plan)
			require.Len(t, report.Results, test.planned)
			require.Equal(t, test.goes, s.deleted)
			if test.err == "" {
				require.NoError(t, err)
			} else {
				require.EqualError(t, err, test.err)
			}
		})
	}
}

// A workload beside whose pods their isolation goes is deleted in the foreground.
func TestWorkloadsOutliveTheirPodsWhereIsolationGoes(t *testing.T) {
	t.Parallel()
	background, foreground := metav1.DeletePropagationBackground, metav1.DeletePropagationForeground
	web := ID{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: "web"}
	for name, test := range map[string]struct {
		policy ID
		stated metav1.DeletionPropagation
		want   metav1.DeletionPropagation
		grace  bool
	}{
		"beside it, later": {
			ID{Group: policyKind.Group, Kind: policyKind.Kind, Namespace: "shop", Name: "p"}, "", foreground, true,
		},
		"beside it":         {ID{Group: policyKind.Group, Kind: policyKind.Kind, Namespace: "shop", Name: "p"}, "", foreground, false},
		"of all namespaces": {ID{Group: clusterwideKind.Group, Kind: clusterwideKind.Kind, Name: "p"}, "", foreground, false},
		"elsewhere":         {ID{Group: policyKind.Group, Kind: policyKind.Kind, Namespace: "bank", Name: "p"}, "", background, false},
		"stated":            {ID{Group: policyKind.Group, Kind: policyKind.Kind, Namespace: "shop", Name: "p"}, background, background, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, program, policyKind, clusterwideKind, deploymentKind, configMapKind)
			found := map[string]metav1.DeletionPropagation{}
			s.deletes = func(name string, options metav1.DeleteOptions) error {
				s.mu.Lock()
				defer s.mu.Unlock()
				if options.PropagationPolicy != nil {
					found[name] = *options.PropagationPolicy
				}
				return nil
			}
			for _, id := range []ID{test.policy, web, mapID("a")} {
				s.show(id, nil)
			}
			options := whole
			options.Propagation = test.stated
			options.Grace = func(kind schema.GroupKind) Grace {
				return Grace{Passes: map[bool]int{true: 2}[test.grace && isolates(kind)]}
			}
			_, err := s.Prune(t.Context(), s.set(SetOptions{}), options)
			require.NoError(t, err)
			require.Equal(t, test.want, found["web"])
			require.Equal(t, background, found["a"], "it has no pods")
		})
	}
}
