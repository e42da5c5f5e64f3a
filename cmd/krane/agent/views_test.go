package agent //nolint:testpackage // views have the objects that a test gives them

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata/fake"

	"github.com/seed-9e1ffd66/trueup/apply"
	"github.com/seed-9e1ffd66/trueup/cmd/api/ctrl/specs"
	ctrlv1 "github.com/seed-9e1ffd66/trueup/cmd/api/ctrl/v1"
	"github.com/seed-9e1ffd66/trueup/cmd/krane/render"
	"github.com/seed-9e1ffd66/trueup/cmd/krane/stream"
	"github.com/seed-9e1ffd66/trueup/statesync"
)

// seen is an object of a deployment in a cluster.
type seen struct {
	kind, namespace, name, id string
	ends                      bool // it is being deleted
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
		o.Labels = render.Owner(render.Deployment, "eu").Labels
		if s.id != "" {
			o.Labels[labelDeploymentID] = s.id
		}
		if s.ends {
			o.DeletionTimestamp, o.Finalizers = &metav1.Time{Time: time.Now()}, []string{"example.com/theirs"}
		}
		all = append(all, o)
	}
	ps := newParts(fake.NewSimpleMetadataClient(scheme, all...), nil, "eu", slog.New(slog.DiscardHandler), func(render.Component, apply.ID) {})
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
