package apply_test

import (
	"context"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/seed-9e1ffd66/trueup/apply"
	"github.com/seed-9e1ffd66/trueup/apply/applytest"
	"github.com/seed-9e1ffd66/trueup/apply/budget"
	"github.com/seed-9e1ffd66/trueup/internal/kubetest"
)

// TestOnARealServer runs what needs one on a single API server: each subtest
// has its own namespace, owner and user.
func TestOnARealServer(t *testing.T) {
	t.Parallel()
	cluster := kubetest.Start(t, kubetest.Options{GatewayAPI: true, Controllers: true})
	for name, test := range map[string]func(*testing.T, *bench){
		"objects are created once and then cost no request":                       createdOnceThenSilent,
		"a restart sends nothing but lists and watches":                           silentAfterRestart,
		"drift while we were down is repaired after a restart":                    driftWhileDown,
		"a foreign edit is repaired and foreign fields stay":                      foreignEdit,
		"an edited secret is repaired, key by key":                                editedSecret,
		"a conflict is reported and not forced when asked so":                     reportedConflict,
		"a deleted object comes back":                                             deletedComesBack,
		"a stripped label is put back":                                            strippedLabel,
		"a foreign object of the same name is refused":                            foreignName,
		"another owner's object is never taken":                                   anotherOwner,
		"defect 3: an invalid object holds back no other":                         invalidObject,
		"an unknown kind holds back no other":                                     unknownKind,
		"a terminating namespace is waited for":                                   terminatingNamespace,
		"a desired change is one request":                                         desiredChange,
		"defect 13: wiped managedFields are noticed once":                         wipedManagedFields,
		"an apply whose answer was lost is recognised":                            lostAnswer,
		"defect 12: replicas left to an autoscaler are not touched":               autoscaledReplicas,
		"a foreign successor is not taken over":                                   foreignSuccessor,
		"defect 11: a stale view neither creates twice nor surfaces":              staleView,
		"prune deletes what is absent, in reverse order":                          pruneAbsent,
		"prune deletes nothing beyond its limit":                                  pruneLimit,
		"prune deletes nothing without a complete and non-empty set":              pruneGuards,
		"prune waits out the grace":                                               pruneGrace,
		"prune spares what we did not apply":                                      pruneCopies,
		"defect 9: prune spares a successor":                                      pruneSuccessor,
		"prune releases instead of deleting when asked so":                        pruneOrphan,
		"prune spares a namespace in which something stays":                       pruneNamespaceInUse,
		"prune is not held up by what a controller made":                          pruneInherited,
		"prune spares a definition of which objects stay":                         pruneDefinitionInUse,
		"prune goes against dependencies":                                         pruneDependencies,
		"an ApplySet is what kubectl takes it for":                                applySet,
		"an immutable field is changed by recreation only if asked":               immutableField,
		"defect 2: a recreation held by a finalizer deletes once":                 recreationHeld,
		"defect 1: an invalid object is never deleted":                            invalidNeverDeleted,
		"a dependency is waited for until it is ready":                            dependencyReady,
		"a definition is waited for until it is established":                      definitionEstablished,
		"defect 14: two managers taking turns are told apart and named":           takingTurns,
		"a program under our own name is noticed":                                 sameManager,
		"upsert creates, is silent, repairs and keeps what is not stated":         upsertMode,
		"upsert gives up what is no longer stated":                                upsertRemoves,
		"a foreign object is skipped when asked so":                               skippedForeign,
		"a plan is what apply and prune then do":                                  planIsDone,
		"a stale plan changes nothing":                                            stalePlan,
		"a plan of a recreation says so":                                          planRecreation,
		"readiness is waited for by the watch":                                    waitReady,
		"defect 8: a served version is bumped without a fight":                    versionBump,
		"what lost watches did not tell is seen":                                  lostWatches,
		"a replayed watch changes nothing":                                        replayedWatch,
		"a frozen watch misleads nobody":                                          frozenWatch,
		"rights in some namespaces are enough":                                    namespacedRights,
		"a kind without managedFields is compared by content":                     aggregatedKind,
		"defect 4: values in another form are silent":                             silent(oddForms),
		"defect 5: fields left out are silent":                                    silent(leftOut),
		"defect 6: one port with two protocols is silent":                         silent(twoProtocols),
		"defect 6: of one port with two protocols the right one is named":         twoProtocolsDrift,
		"defect 7: what another one owns as well stays and is quiet":              coOwnedElement,
		"defect 7: an element of which another one owns a part goes and is quiet": partlyOwnedElement,
		"a narrower selector shows and touches its part only":                     narrowerSelector,
		"writes under way are bounded":                                            boundedWrites,
		"a set of another owner is refused":                                       setOfAnother,
		"upsert carries out its plan and no other":                                upsertPlans,
		"what is absent is not asked for all the time":                            waitForTheAbsent,
		"429 is waited out":                                                       throttled,
		"an object that is too large holds back no other":                         oversized,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, newBench(t, cluster))
		})
	}
	for name, test := range safeguards {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, newBench(t, cluster))
		})
	}
}

// bench is one owner with its own user and namespace.
type bench struct {
	cluster *kubetest.Cluster
	user    string
	ns      string
	config  *rest.Config
	owner   apply.Owner
}

func newBench(t *testing.T, cluster *kubetest.Cluster) *bench {
	t.Helper()
	words := strings.FieldsFunc(strings.ToLower(t.Name()), func(r rune) bool { return r < 'a' || r > 'z' })
	id := strings.Join(words, "-")
	id = strings.Trim(id[max(0, len(id)-40):], "-")
	b := &bench{cluster: cluster, user: id, ns: id, config: rest.CopyConfig(cluster.Config)}
	b.config.Impersonate = rest.ImpersonationConfig{UserName: b.user, Groups: []string{"system:masters"}}
	b.owner = apply.Owner{Manager: "bench", Labels: map[string]string{"example.com/owner": b.ns}, Domain: "example.com"}
	b.kubectl(t, "create", "namespace", b.ns)
	return b
}

// cleanup is kubectl when the test is over.
func (b *bench) cleanup(args ...string) {
	_, _ = b.cluster.Kubectl(context.Background(), args...)
}

func (b *bench) kubectl(t *testing.T, args ...string) string {
	t.Helper()
	out, err := b.cluster.Kubectl(t.Context(), args...)
	require.NoError(t, err)
	return out
}

var kinds = []schema.GroupVersionKind{
	{Version: "v1", Kind: "Namespace"},
	{Version: "v1", Kind: "ServiceAccount"},
	{Version: "v1", Kind: "ConfigMap"},
	{Version: "v1", Kind: "Secret"},
	{Version: "v1", Kind: "Service"},
	{Group: "apps", Version: "v1", Kind: "Deployment"},
	{Group: "networking.k8s.io", Version: "v1", Kind: "NetworkPolicy"},
	{Group: "gateway.networking.k8s.io", Version: "v1", Kind: "HTTPRoute"},
}

// agent is one start of a program: a live view and an applier.
type agent struct {
	*apply.Applier
	net      applytest.Transport
	throttle atomic.Int64 // writes that get 429
	drifts   atomic.Int64
	woken    chan apply.ID
	synced   chan schema.GroupKind
	stop     func()
}

func (b *bench) start(t *testing.T) *agent {
	t.Helper()
	a := b.startUnsynced(t)
	synced, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	require.NoError(t, a.Live.WaitSynced(synced))
	return a
}

func (b *bench) startUnsynced(t *testing.T, extra ...schema.GroupVersionKind) *agent {
	t.Helper()
	return b.startKinds(t, nil, slices.Concat(extra, kinds)...)
}

func (b *bench) startKinds(t *testing.T, namespaces []string, watched ...schema.GroupVersionKind) *agent {
	t.Helper()
	a := &agent{woken: make(chan apply.ID, 1000), synced: make(chan schema.GroupKind, 1000)}
	a.net.Fault = func(r applytest.Request) applytest.Fault {
		if r.Writes() && a.throttle.Load() > 0 {
			a.throttle.Add(-1)
			return applytest.Fault{Status: http.StatusTooManyRequests, RetryAfter: time.Second}
		}
		return applytest.Fault{}
	}
	applier, err := b.program(&a.net, watched)
	require.NoError(t, err)
	a.Applier = applier
	live := a.Live
	live.Namespaces = namespaces
	live.OnDrift = func(o apply.Observed) {
		a.drifts.Add(1)
		a.woken <- o.ID
	}
	live.OnSynced = func(kind schema.GroupKind) { a.synced <- kind }
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- live.Start(ctx) }()
	a.stop = func() {
		cancel()
		require.NoError(t, <-done)
		done <- nil
	}
	t.Cleanup(a.stop)
	return a
}

// program is what a program consists of: it talks to the server through net.
func (b *bench) program(net *applytest.Transport, watched []schema.GroupVersionKind) (*apply.Applier, error) {
	config := rest.CopyConfig(b.config)
	config.QPS = -1
	config.Wrap(net.Wrap)
	config.Wrap((&budget.Budget{}).Wrap)
	client, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	objects, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	mapper := meta.NewDefaultRESTMapper(nil)
	for _, kind := range watched {
		scope := meta.RESTScopeNamespace
		switch kind.Kind {
		case "Namespace", "CustomResourceDefinition", "ClusterRole":
			scope = meta.RESTScopeRoot
		}
		mapper.Add(kind, scope)
	}
	return &apply.Applier{Objects: objects, Discovery: discovery{b.cluster.Config}, Live: &apply.Live{Client: client, Mapper: mapper, Owner: b.owner, Kinds: watched}}, nil
}

// waitWoken waits until the view has called for a pass because of the object.
func (a *agent) waitWoken(t *testing.T, kind, name string) {
	t.Helper()
	timeout := time.After(20 * time.Second)
	for {
		select {
		case id := <-a.woken:
			if id.Kind == kind && id.Name == name {
				return
			}
		case <-timeout:
			t.Fatalf("no wake-up for %s %s", kind, name)
		}
	}
}

// writes returns the requests of the user other than list and watch.
func (b *bench) requests(t *testing.T) []string {
	t.Helper()
	all, err := b.cluster.Requests(b.user)
	require.NoError(t, err)
	var found []string
	for _, r := range all {
		if r.Verb != "list" && r.Verb != "watch" {
			found = append(found, r.Verb+" "+r.Resource+"/"+r.Name)
		}
	}
	return found
}

func (b *bench) set(t *testing.T, manifests ...string) *apply.Set {
	t.Helper()
	set, err := apply.NewSet(b.owner, b.objects(t, manifests...), apply.SetOptions{})
	require.NoError(t, err)
	return set
}

func (b *bench) objects(t *testing.T, manifests ...string) []*unstructured.Unstructured {
	t.Helper()
	var objects []*unstructured.Unstructured
	for _, manifest := range manifests {
		for document := range strings.SplitSeq(strings.ReplaceAll(manifest, "NAMESPACE", b.ns), "\n---\n") {
			object := &unstructured.Unstructured{}
			require.NoError(t, yaml.Unmarshal([]byte(document), &object.Object))
			objects = append(objects, object)
		}
	}
	return objects
}

func (b *bench) mixed(t *testing.T) *apply.Set {
	t.Helper()
	data, err := os.ReadFile("testdata/mixed.yaml")
	require.NoError(t, err)
	return b.set(t, string(data))
}

func configMap(name, value string) string {
	return "{apiVersion: v1, kind: ConfigMap, metadata: {name: " + name + ", namespace: NAMESPACE}, data: {key: '" + value + "'}}"
}

func apply1(t *testing.T, a *agent, set *apply.Set) apply.Report {
	t.Helper()
	report, err := a.Apply(t.Context(), set)
	require.NoError(t, err)
	return report
}
