package agent //nolint:testpackage // views have the objects that a test gives them

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/seed-9e1ffd66/trueup/apply"
	"github.com/seed-9e1ffd66/trueup/cmd/api/ctrl/specs"
	ctrlv1 "github.com/seed-9e1ffd66/trueup/cmd/api/ctrl/v1"
	"github.com/seed-9e1ffd66/trueup/cmd/krane/render"
	"github.com/seed-9e1ffd66/trueup/cmd/krane/stream"
	"github.com/seed-9e1ffd66/trueup/internal/test/logtest"
	"github.com/seed-9e1ffd66/trueup/reconcile"
	"github.com/seed-9e1ffd66/trueup/statesync"
)

// seen is an object of a deployment in a cluster.
type seen struct {
	kind, namespace, name, id string
	ends                      bool             // it is being deleted
	of                        render.Component // empty: of a deployment
	applied                   bool             // the agent has fields of it
}

func (s seen) at() apply.ID {
	group := map[string]string{"ReplicaSet": "apps", specs.PolicyKind: "cilium.io"}[s.kind]
	return apply.ID{Group: group, Kind: s.kind, Namespace: s.namespace, Name: s.name}
}

// seeing returns the views of a region whose cluster has these objects. A UID is a namespace and a name.
func seeing(t *testing.T, objects ...seen) parts {
	t.Helper()
	scheme := runtime.NewScheme()
	require.NoError(t, metav1.AddMetaToScheme(scheme))
	var all []runtime.Object
	for _, s := range objects {
		o := &metav1.PartialObjectMetadata{}
		o.APIVersion, o.Kind = map[string]string{"ReplicaSet": "apps/v1", specs.PolicyKind: specs.PolicyAPIVersion}[s.kind], s.kind
		if o.APIVersion == "" {
			o.APIVersion = "v1"
		}
		o.Namespace, o.Name, o.UID, o.ResourceVersion = s.namespace, s.name, types.UID(s.namespace+"/"+s.name), "1"
		o.Labels = render.Owner(cmp.Or(s.of, render.Deployment), "eu").Labels
		if s.id != "" {
			o.Labels[labelDeploymentID] = s.id
		}
		if s.applied {
			o.ManagedFields = []metav1.ManagedFieldsEntry{{
				Manager: "krane", Operation: metav1.ManagedFieldsOperationApply, APIVersion: o.APIVersion, FieldsType: "FieldsV1",
				FieldsV1: &metav1.FieldsV1{Raw: []byte(`{"f:spec":{}}`)},
			}}
		}
		if s.ends {
			o.DeletionTimestamp, o.Finalizers = &metav1.Time{Time: time.Now()}, []string{"example.com/theirs"}
		}
		all = append(all, o)
	}
	ps := newParts(fake.NewSimpleMetadataClient(scheme, all...), nil, "eu", slog.New(slog.DiscardHandler), none, none)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, len(ps))
	for _, p := range ps {
		go func() { done <- p.live.Start(ctx) }()
	}
	t.Cleanup(func() {
		cancel()
		for range ps {
			require.NoError(t, <-done)
		}
	})
	until, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	require.NoError(t, ps.waitSynced(until))
	return ps
}

func keyOf(namespace, name string) statesync.Key { return stream.Deployments.Key(namespace, name) }

// wants makes a deployment desired.
func (r *registry) wants(key statesync.Key, id string) *entry {
	e := r.entry(key)
	r.set(e, desired{received: true, apply: &ctrlv1.ApplyDeployment{DeploymentId: id}})
	return e
}

// TestADeploymentIsRemovedWithWhatIsItsOwn and with nothing else.
func TestADeploymentIsRemovedWithWhatIsItsOwn(t *testing.T) {
	t.Parallel()
	set := seen{kind: "ReplicaSet", namespace: "shop", name: "web", id: "d"}
	secret := seen{kind: "Secret", namespace: "shop", name: "of-d", id: "d"}
	policy := seen{kind: specs.PolicyKind, namespace: "shop", name: render.IngressPolicy("web"), id: "d"}
	but := func(s seen, change func(*seen)) seen {
		change(&s)
		return s
	}
	for name, test := range map[string]struct {
		there   []seen
		removed []seen
		claimed bool // another deployment has the Secret
	}{
		"all of it":                  {there: []seen{set, secret, policy}, removed: []seen{secret, set, policy}},
		"what was made before a set": {there: []seen{secret, policy}, removed: []seen{secret, policy}},
		"not what is of no id": {
			there:   []seen{but(set, func(s *seen) { s.id = "" }), but(secret, func(s *seen) { s.id = "" })},
			removed: []seen{set},
		},
		"not what is elsewhere": {
			there:   []seen{set, but(secret, func(s *seen) { s.namespace = "b" }), but(set, func(s *seen) { s.namespace = "b" })},
			removed: []seen{set},
		},
		"not what another has": {there: []seen{set, secret}, removed: []seen{set}, claimed: true},
		"not what is going":    {there: []seen{but(set, func(s *seen) { s.ends = true }), secret}, removed: []seen{secret}},
	} {
		synctest.Test(t, func(t *testing.T) {
			c := &converger{parts: seeing(t, test.there...), registry: newRegistry()}
			if test.claimed {
				_, _, free := c.registry.claim(c.registry.wants(keyOf("shop", "new"), "d"), secret.at())
				require.True(t, free)
			}
			var want []apply.ID
			for _, s := range test.removed {
				want = append(want, s.at())
			}
			require.Equal(t, want, c.belongings(c.registry.entry(keyOf("shop", "web"))), name)
		})
	}
}

// TestAnIngressPolicyIsKeptForPods of its deployment, with an owner or without, and while they cannot be seen. It keeps nothing else.
func TestAnIngressPolicyIsKeptForPods(t *testing.T) {
	t.Parallel()
	secret := seen{kind: "Secret", namespace: "shop", name: "of-d", id: "d", applied: true}
	policy := seen{kind: specs.PolicyKind, namespace: "shop", name: render.IngressPolicy("web"), id: "d", applied: true}
	unnamed := seen{kind: specs.PolicyKind, namespace: "shop", name: "of-nothing", applied: true}
	pod := func(namespace, id string) seen { return seen{kind: "Pod", namespace: namespace, name: "web-1", id: id} }
	no := errors.New("no")
	for name, test := range map[string]struct {
		pod     seen
		refused error
		left    []apply.ID
		kept    int
	}{
		"a pod":              {pod: pod("shop", "d"), left: []apply.ID{policy.at()}, kept: 1},
		"of another":         {pod: pod("shop", "other")},
		"in another place":   {pod: pod("bank", "d")},
		"perhaps":            {pod: pod("bank", "d"), refused: no, left: []apply.ID{policy.at()}},
		"not any more there": {pod: pod("shop", "")},
	} {
		synctest.Test(t, func(t *testing.T) {
			p := seeing(t, secret, policy, unnamed, test.pod)[render.Deployment]
			p.live.Client.(*fake.FakeMetadataClient).PrependReactor("list", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
				return test.refused != nil, nil, test.refused
			})
			report, err := p.remove(t.Context(), []apply.ID{secret.at(), policy.at(), unnamed.at()})
			require.ErrorIs(t, err, test.refused, name)
			require.Equal(t, test.kept, report.Pending, name)
			synctest.Wait()
			var left []apply.ID
			for o := range p.live.All() {
				left = append(left, o.ID)
			}
			require.ElementsMatch(t, test.left, left, name)
		})
	}
}

// TestAPodThatEndsWhileItIsAskedForIsNotMissed. Its event comes before the answer, and finds what waits.
func TestAPodThatEndsWhileItIsAskedForIsNotMissed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		policy := seen{kind: specs.PolicyKind, namespace: "shop", name: render.IngressPolicy("web"), id: "d", applied: true}
		parts := seeing(t, policy, seen{kind: "Pod", namespace: "shop", name: "web-1", id: "d"})
		key, noted := keyOf("shop", "web"), false
		c := &converger{parts: parts, registry: newRegistry()}
		e := c.registry.entry(key)
		c.registry.set(e, desired{received: true, version: 7})
		parts[render.Deployment].live.Client.(*fake.FakeMetadataClient).PrependReactor(
			"list", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
				noted = c.registry.desired(key).ending
				return false, nil, nil
			})
		require.NoError(t, c.remove(t.Context(), e))
		require.True(t, noted)
		require.Equal(t, desired{received: true, version: 7, gone: true, ending: true}, c.registry.desired(key))
	})
}

// TestAPolicyOfItsOwnWaitsForNoPods, deleted or in no list: it may have let others in.
func TestAPolicyOfItsOwnWaitsForNoPods(t *testing.T) {
	t.Parallel()
	for name, remove := range map[string]func(*part, context.Context, []apply.ID) (apply.PruneReport, error){
		"deleted": (*part).remove,
		"in no list": func(p *part, ctx context.Context, ids []apply.ID) (apply.PruneReport, error) {
			return p.sweep(ctx, ids, &apply.Guard{}, "")
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			policy := seen{kind: specs.PolicyKind, namespace: "shop", name: "rule", of: render.Policy, applied: true}
			p := seeing(t, policy, seen{kind: "Pod", namespace: "shop", name: "web-1", ends: true})[render.Policy]
			report, err := remove(p, t.Context(), []apply.ID{policy.at()})
			require.NoError(t, err, name)
			require.Zero(t, report.Pending, name)
			require.Len(t, report.Results, 1, name)
			require.Equal(t, apply.Deleted, report.Results[0].Action, name)
		})
	}
}

// TestWhatRootsHaveLeftCountsForNoLimit deletes more network policies without a root than the limit allows for roots.
func TestWhatRootsHaveLeftCountsForNoLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var left []seen
		var ids []apply.ID
		for _, n := range []string{"1", "2", "3", "4", "5", "6", "7"} {
			one := seen{kind: specs.PolicyKind, namespace: "shop", name: render.IngressPolicy("web-" + n), id: "d" + n, applied: true}
			left, ids = append(left, one), append(ids, one.at())
		}
		pod := seen{kind: "Pod", namespace: "shop", name: "web-8", id: "d8"}
		policy := seen{kind: specs.PolicyKind, namespace: "shop", name: render.IngressPolicy("web-8"), id: "d8", applied: true}
		left, ids = append(left, pod, policy), append(ids, policy.at())
		s := &sweeper{parts: seeing(t, left...), logger: slog.New(slog.DiscardHandler), heldChanged: func() {}}
		s.init(0, time.Hour, "")
		held := map[string]int{}
		require.NoError(t, s.remove(t.Context(), of(string(stream.Deployments)), ids, held))
		require.Zero(t, held["limit"])
		require.Equal(t, 1, held["grace"], "one has a pod")
		report, err := s.parts[render.Deployment].remove(t.Context(), ids)
		require.NoError(t, err)
		require.Empty(t, report.Results, "all others are deleted")
		require.Equal(t, 1, report.Pending)
	})
}

// TestNamesBelongToTheFirstWhoseRootIsThere and free where nothing of that id runs.
func TestNamesBelongToTheFirstWhoseRootIsThere(t *testing.T) {
	t.Parallel()
	account := seen{kind: "ServiceAccount", namespace: "shop", name: "deploy-d-same", id: "d_same"}
	root := func(namespace, name, id string) seen {
		return seen{kind: "ReplicaSet", namespace: namespace, name: name, id: id}
	}
	own := seen{kind: "ServiceAccount", namespace: "shop", name: "deploy-d-same", id: "D-Same"}
	ending := func(s seen) seen {
		s.ends = true
		return s
	}
	for name, test := range map[string]struct {
		there []seen
		free  bool
	}{
		"nothing":                        {nil, true},
		"without a root":                 {[]seen{account}, true},
		"with a root":                    {[]seen{account, root("shop", "first", "d_same")}, false},
		"with a root that goes":          {[]seen{account, ending(root("shop", "first", "d_same"))}, true},
		"with a root in another place":   {[]seen{account, root("b", "first", "d_same")}, true},
		"with a root of another id":      {[]seen{account, root("shop", "first", "d_other")}, true},
		"with a root of the same name":   {[]seen{account, root("shop", "second", "d_same")}, true},
		"that go":                        {[]seen{ending(account), root("shop", "first", "d_same")}, true},
		"of its own id, of another name": {[]seen{own, root("shop", "old", "D-Same")}, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			c := &converger{parts: seeing(t, test.there...), registry: newRegistry()}
			o := &unstructured.Unstructured{}
			o.SetAPIVersion("v1")
			o.SetKind(account.kind)
			o.SetNamespace(account.namespace)
			o.SetName(account.name)
			err := c.claim(c.registry.wants(keyOf("shop", "second"), "D-Same"), []*unstructured.Unstructured{o})
			if test.free {
				require.NoError(t, err, name)
			} else {
				require.ErrorIs(t, err, apply.ErrNotOurs, name)
			}
		})
	}
}

// TestAnAbsenceBeginsAgainOnceItIsOver has an object that a list has again, and one that goes by another hand.
func TestAnAbsenceBeginsAgainOnceItIsOver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := of(string(stream.Deployments))
		s := &sweeper{
			registry: newRegistry(), absent: map[types.UID]absence{"shop/web": {lists: 1}, "shop/going": {lists: 1}, "shop/old": {lists: 1}},
			parts: seeing(t,
				seen{kind: "ReplicaSet", namespace: "shop", name: "web", id: "d"}, seen{kind: "ReplicaSet", namespace: "shop", name: "old", id: "o"},
				seen{kind: "ReplicaSet", namespace: "shop", name: "going", id: "g", ends: true}),
		}
		list := statesync.Snapshot{Items: map[statesync.Key]statesync.Item{keyOf("shop", "web"): {}}}
		orphans := s.orphans(r, list, map[string]bool{"d": true})
		require.Equal(t, map[types.UID]apply.ID{"shop/old": r.rootID(keyOf("shop", "old"))}, orphans)
		require.Equal(t, map[types.UID]absence{"shop/old": {lists: 1}}, s.absent)
	})
}

// TestARootThatGoesIsNone has one being deleted: it does not keep a list from being the last, and is nothing to delete.
func TestARootThatGoesIsNone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ps := seeing(t, seen{kind: "ReplicaSet", namespace: "shop", name: "web", id: "d", ends: true})
		require.Zero(t, (&sweeper{parts: ps}).emptied(nil))
		require.False(t, (&resyncer{parts: ps}).lives(newEntry(keyOf("shop", "web"))))
	})
	synctest.Test(t, func(t *testing.T) {
		ps := seeing(t, seen{kind: "ReplicaSet", namespace: "shop", name: "web", id: "d"})
		require.Equal(t, 1, (&sweeper{parts: ps}).emptied(nil))
		require.True(t, (&resyncer{parts: ps}).lives(newEntry(keyOf("shop", "web"))))
	})
}

// TestARootThatNoViewHasIsNotDeleted: without its id nothing denies that it is wanted.
func TestARootThatNoViewHasIsNotDeleted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var asked []string
		r := of(string(stream.Deployments))
		s := &sweeper{
			parts: seeing(t, seen{kind: "ReplicaSet", namespace: "shop", name: "web", id: "d"}),
			ask: func(_ context.Context, _ resource, id string) error {
				asked = append(asked, id)
				return nil
			},
		}
		web, away := r.rootID(keyOf("shop", "web")), r.rootID(keyOf("shop", "away"))
		sure, doubts := s.undoubted(t.Context(), r, []apply.ID{away, web})
		require.Equal(t, []apply.ID{web}, sure)
		require.Len(t, doubts, 1)
		require.ErrorContains(t, doubts[0], away.String()+": not deleted: ")
		require.Equal(t, []string{"d"}, asked)
	})
}

// TestTheLastItemIsRememberedAtItsList, or where the stream is before the position of a list is known.
func TestTheLastItemIsRememberedAtItsList(t *testing.T) {
	t.Parallel()
	list := &atomic.Pointer[statesync.Cursor]{}
	s := &sweeper{
		streams: &streams{lists: map[stream.Collection]*atomic.Pointer[statesync.Cursor]{stream.Deployments: list}},
		lists:   map[stream.Collection]uint64{}, last: map[stream.Collection]lastItem{},
	}
	web, now := keyOf("shop", "web"), statesync.Cursor{Epoch: "e", Version: 7}
	snapshots := map[stream.Collection]statesync.Snapshot{
		stream.Deployments: {Items: map[statesync.Key]statesync.Item{web: {}, keyOf("shop", "old"): {Deleted: true}}, Cursor: now, Lists: 1},
	}
	s.remember(snapshots)
	require.Equal(t, lastItem{web, now}, s.last[stream.Deployments])
	at := statesync.Cursor{Epoch: "e", Version: 5}
	list.Store(&at)
	s.remember(snapshots)
	require.Equal(t, lastItem{web, at}, s.last[stream.Deployments])
}

// TestANamespaceMustBeEmptyAllTheTime, and be no other's: what it had in between, or what another agent does, counts again.
func TestANamespaceMustBeEmptyAllTheTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		space := func(name string, ends bool) seen {
			return seen{kind: "Namespace", name: name, of: render.Namespace, ends: ends}
		}
		began := time.Now()
		s := &namespaceSweeper{
			streams: &streams{}, registry: newRegistry(), session: &session{}, after: 2 * time.Hour,
			empty: map[string]time.Time{"used": began, "wanted": began, "going": began, "gone": began},
			parts: seeing(t, space("empty", false), space("used", false), space("wanted", false), space("going", true),
				seen{kind: "Secret", namespace: "empty", name: "login", of: render.Namespace},
				seen{kind: "Secret", namespace: "used", name: "of-d", id: "d"}),
		}
		s.registry.wants(keyOf("wanted", "web"), "w")
		time.Sleep(time.Hour)
		since := time.Now()
		pass := func() {
			t.Helper()
			_, err := s.Reconcile(t.Context())
			require.NoError(t, err)
		}
		pass()
		require.Equal(t, map[string]time.Time{"empty": since}, s.empty)
		time.Sleep(time.Hour)
		pass()
		require.Equal(t, map[string]time.Time{"empty": since}, s.empty, "not long enough")
		s.streams.replicas = map[stream.Collection]*statesync.Replica{stream.Deployments: {}}
		time.Sleep(2 * time.Hour)
		pass()
		require.Equal(t, map[string]time.Time{"empty": since}, s.empty, "without a complete list none is deleted")
		s.session.superseded.Store(true)
		pass()
		require.Empty(t, s.empty)
	})
}

// TestAMissingRightToListIsSaidOnce, and no other reason is that.
func TestAMissingRightToListIsSaidOnce(t *testing.T) {
	t.Parallel()
	var log logtest.Log
	s := &namespaceSweeper{logger: slog.New(slog.NewTextHandler(&log, nil))}
	s.unlistable(t.Context(), errors.New("it has a ConfigMap"))
	s.unlistable(t.Context(), apierrors.NewNotFound(schema.GroupResource{Resource: "secrets"}, "a"))
	require.Empty(t, log.String())
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, "", errors.New("no rule"))
	s.unlistable(t.Context(), forbidden)
	require.Contains(t, log.String(), "no right to list every kind in them")
	log.Reset()
	s.unlistable(t.Context(), forbidden)
	require.Empty(t, log.String())
}

// TestANamespaceOfAnotherManagerIsOursOnceItHasOurLabels, or once it is deleted.
func TestANamespaceOfAnotherManagerIsOursOnceItHasOurLabels(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := &namespaces{parts: seeing(t)}
		require.False(t, n.isForeign("shop"))
		n.setForeign("shop")
		n.setForeign("edge")
		require.True(t, n.isForeign("shop"))
		n.notForeign("edge")
		require.False(t, n.isForeign("edge"))
		unlabelled := n.parts
		n.parts = seeing(t, seen{kind: "Namespace", name: "shop", of: render.Namespace})
		require.False(t, n.isForeign("shop"))
		n.parts = unlabelled
		require.False(t, n.isForeign("shop"), "nor once it is away: it is to be created")
	})
}

// TestADriftWakesOneOfItsOwn: of what many share, one of the namespace is enough.
func TestADriftWakesOneOfItsOwn(t *testing.T) {
	t.Parallel()
	secret := apply.ID{Kind: "Secret", Namespace: "shop", Name: "of-d"}
	for name, test := range map[string]struct {
		component render.Component
		id        apply.ID
		want      []statesync.Key
	}{
		"an object":         {render.Deployment, secret, []statesync.Key{keyOf("shop", "web")}},
		"an object of none": {render.Deployment, apply.ID{Kind: "Secret", Namespace: "shop", Name: "x"}, nil},
		"a namespace":       {render.Namespace, apply.ID{Kind: "Namespace", Name: "shop"}, []statesync.Key{keyOf("shop", "web")}},
		"what a namespace has": {
			render.Namespace,
			apply.ID{Kind: "Secret", Namespace: "edge", Name: "shop"},
			[]statesync.Key{keyOf("edge", "api")},
		},
		"an account": {
			render.Account,
			apply.ID{Kind: "ServiceAccount", Namespace: "edge", Name: "default"},
			[]statesync.Key{keyOf("edge", "api")},
		},
		"a namespace of nothing": {render.Namespace, apply.ID{Kind: "Namespace", Name: "other"}, nil},
	} {
		synctest.Test(t, func(t *testing.T) {
			var woken []statesync.Key
			r := &repairer{registry: newRegistry(), queue: &reconcile.Queue[statesync.Key]{
				Reconcile: func(_ context.Context, key statesync.Key) (reconcile.Result, error) {
					woken = append(woken, key)
					return reconcile.Result{}, nil
				},
			}}
			_, _, free := r.registry.claim(r.registry.wants(keyOf("shop", "web"), "d"), secret)
			require.True(t, free)
			r.registry.wants(keyOf("edge", "api"), "e")
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			r.drifted(test.component, test.id)
			require.NoError(t, r.queue.Start(ctx))
			require.Equal(t, test.want, woken, name)
		})
	}
}

// TestWhatWaitsForPodsIsTriedWhenOneChanges and nothing else.
func TestWhatWaitsForPodsIsTriedWhenOneChanges(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var woken []statesync.Key
		r := &repairer{registry: newRegistry(), queue: &reconcile.Queue[statesync.Key]{
			Workers: 1,
			Reconcile: func(_ context.Context, key statesync.Key) (reconcile.Result, error) {
				woken = append(woken, key)
				return reconcile.Result{}, nil
			},
		}}
		for key, waits := range map[statesync.Key]bool{keyOf("shop", "web"): true, keyOf("shop", "other"): true, keyOf("shop", "gone"): false} {
			r.registry.set(r.registry.entry(key), desired{received: true, gone: true, ending: waits})
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		r.left(keyOf("shop", "web"))
		r.left(keyOf("shop", "gone"))
		r.left(keyOf("shop", "unknown"))
		require.NoError(t, r.queue.Start(ctx))
		require.Equal(t, []statesync.Key{keyOf("shop", "web")}, woken)
	})
}

// TestOnlyWhatIsWantedIsRepaired.
func TestOnlyWhatIsWantedIsRepaired(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		of    desired
		tried bool
	}{
		"wanted":           {desired{received: true}, true},
		"to be deleted":    {desired{received: true, gone: true}, false},
		"not received yet": {desired{apply: &ctrlv1.ApplyDeployment{}}, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := deciding(seeing(t), asked{})
			e := r.registry.entry(keyOf("shop", "web"))
			r.registry.set(e, test.of)
			e.uid, e.failures = "of before", 1
			_, err := (&repairer{registry: r.registry, converger: r.converger}).repair(t.Context(), e.key)
			require.NoError(t, err, name)
			require.Equal(t, test.tried, e.uid == "" && e.failures == 0, name)
		})
	}
}
