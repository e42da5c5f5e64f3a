package apply_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"

	"github.com/seed-9e1ffd66/trueup/apply"
	"github.com/seed-9e1ffd66/trueup/internal/test/logtest"
)

// silentServer serves empty lists and watches that say nothing by themselves, in
// a time that tests can let pass.
type silentServer struct {
	log logtest.Log // of the Live that watches it
	metadata.Getter

	// definitions are the names of those that it lists; refusal: it does not list them.
	definitions []string
	refusal     error

	mu      sync.Mutex
	watches map[string][]*watch.FakeWatcher
}

func (s *silentServer) Resource(r schema.GroupVersionResource) metadata.Getter {
	return &resourceOf{silentServer: s, name: r.Resource}
}

type resourceOf struct {
	*silentServer
	name string
}

func (r *resourceOf) List(context.Context, metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
	list := &metav1.PartialObjectMetadataList{ListMeta: metav1.ListMeta{ResourceVersion: "10"}}
	if r.name != "customresourcedefinitions" {
		return list, nil
	}
	if r.refusal != nil {
		return nil, r.refusal
	}
	for _, name := range r.definitions {
		list.Items = append(list.Items, metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	return list, nil
}

func (r *resourceOf) Watch(_ context.Context, options metav1.ListOptions) (watch.Interface, error) {
	if options.SendInitialEvents != nil { // as a server that cannot stream a list
		return nil, apierrors.NewInvalid(schema.GroupKind{Kind: "ListOptions"}, "", nil)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	w := watch.NewFake()
	if r.watches == nil {
		r.watches = map[string][]*watch.FakeWatcher{}
	}
	r.watches[r.name] = append(r.watches[r.name], w)
	return w, nil
}

func (s *silentServer) opened(resource string) []*watch.FakeWatcher {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.watches[resource]
}

// lateMapper knows a kind only after its definition.
type lateMapper struct {
	meta.RESTMapper

	mu      sync.Mutex
	down    error
	defined bool
	asked   int
	resets  int
}

func (m *lateMapper) RESTMapping(kind schema.GroupKind, versions ...string) (*meta.RESTMapping, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.down != nil {
		return nil, m.down
	}
	if kind.Kind == "Widget" {
		m.asked++
		if !m.defined {
			return nil, &meta.NoKindMatchError{GroupKind: kind}
		}
	}
	return m.RESTMapper.RESTMapping(kind, versions...)
}

func (m *lateMapper) Reset() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.resets++
}

// count returns how often the mapper was asked for the kind.
func (m *lateMapper) count() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.asked
}

func startSilent(t *testing.T, kinds ...schema.GroupVersionKind) (*silentServer, *lateMapper, *apply.Live, func()) {
	t.Helper()
	known := meta.NewDefaultRESTMapper(nil)
	for _, kind := range kinds {
		known.Add(kind, meta.RESTScopeRoot)
	}
	server, mapper := &silentServer{}, &lateMapper{RESTMapper: known}
	live := &apply.Live{Client: server, Mapper: mapper, Discovery: groups{}, Owner: owner, Kinds: kinds}
	live.Logger = slog.New(slog.NewTextHandler(&server.log, nil))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- live.Start(ctx) }()
	return server, mapper, live, func() {
		cancel()
		require.NoError(t, <-done)
	}
}

// groups is a Discovery of groups with a version v1 that has no kinds, or answers
// with an error.
type groups map[string]error

func (g groups) ServerGroups() (*metav1.APIGroupList, error) {
	list := &metav1.APIGroupList{}
	for name := range g {
		list.Groups = append(list.Groups, metav1.APIGroup{Name: name, Versions: []metav1.GroupVersionForDiscovery{{GroupVersion: name + "/v1"}}})
	}
	return list, nil
}

func (g groups) ServerResourcesForGroupVersion(version string) (*metav1.APIResourceList, error) {
	name, _, _ := strings.Cut(version, "/")
	return &metav1.APIResourceList{}, g[name]
}

func (g groups) ServerPreferredResources() ([]*metav1.APIResourceList, error) { return nil, nil }

// A mapper lacks a kind also while the server behind its APIService is down.
func TestAKindWhoseServerIsDownIsNotTakenForOneThatIsNotServed(t *testing.T) {
	t.Parallel()
	down := apierrors.NewServiceUnavailable("no endpoints")
	for name, test := range map[string]struct {
		discovery apply.Discovery
		server    *silentServer
		unseen    string
	}{
		"the server is down":     {groups{"example.com": down, "other.example.com": nil}, &silentServer{}, "example.com/v1: no endpoints"},
		"another server is down": {groups{"other.example.com": down}, &silentServer{}, ""},
		"no such kind":           {groups{"example.com": nil}, &silentServer{}, ""},
		"no such version":        {groups{"example.com": apierrors.NewNotFound(schema.GroupResource{}, "v1")}, &silentServer{}, ""},
		"nothing to ask":         {nil, &silentServer{}, "Live.Discovery: is required"},
		"its definition sleeps": {
			groups{}, &silentServer{definitions: []string{"widgets.example.com"}}, "the definition widgets.example.com exists, and no version of it is served",
		},
		"another definition sleeps": {groups{}, &silentServer{definitions: []string{"widgets.other.example.com"}}, ""},
		"no right to see that": {
			groups{}, &silentServer{refusal: apierrors.NewForbidden(schema.GroupResource{Resource: "definitions"}, "", errors.New("no right"))}, "",
		},
		"no answer to that": {groups{}, &silentServer{refusal: down}, "definitions: no endpoints"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				mapper := &lateMapper{RESTMapper: meta.NewDefaultRESTMapper(nil)}
				live := &apply.Live{
					Client: test.server, Mapper: mapper, Discovery: test.discovery, Owner: owner,
					Kinds: []schema.GroupVersionKind{{Group: "example.com", Version: "v1", Kind: "Widget"}},
				}
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan error, 1)
				go func() { done <- live.Start(ctx) }()
				time.Sleep(time.Hour)
				if err := live.Unseen(); test.unseen == "" {
					require.NoError(t, err)
				} else {
					require.ErrorContains(t, err, test.unseen)
				}
				cancel()
				require.NoError(t, <-done)
			})
		})
	}
}

func TestASilentWatchOfALiveIsBegunAnew(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server, _, live, stop := startSilent(t, schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"})
		defer stop()
		require.NoError(t, live.WaitSynced(t.Context()))
		synctest.Wait()
		require.Len(t, server.opened("configmaps"), 1)
		time.Sleep(3*time.Minute - time.Second)
		require.Len(t, server.opened("configmaps"), 1)
		time.Sleep(10 * time.Second)
		require.Len(t, server.opened("configmaps"), 2)
		require.True(t, server.opened("configmaps")[0].IsStopped())
		synced, err := live.Synced(schema.GroupKind{Kind: "ConfigMap"})
		require.True(t, synced, "a synced kind stays synced")
		require.NoError(t, err)
	})
}

func TestAWatchThatIsAliveOrFailsIsReported(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		kind := schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}
		known := meta.NewDefaultRESTMapper(nil)
		known.Add(kind, meta.RESTScopeNamespace)
		var mu sync.Mutex
		alive, failures := 0, []string{}
		count := func() (int, []string) {
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			return alive, failures
		}
		server := &silentServer{}
		live := &apply.Live{
			Client: server,
			Mapper: known,
			Owner:  owner,
			Kinds:  []schema.GroupVersionKind{kind},
			OnWatch: func(of schema.GroupKind, err error) {
				mu.Lock()
				defer mu.Unlock()
				require.Equal(t, kind.GroupKind(), of)
				if err == nil {
					alive++
				} else {
					failures = append(failures, err.Error())
				}
			},
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- live.Start(ctx) }()
		require.NoError(t, live.WaitSynced(t.Context()))
		n, failed := count()
		require.Equal(t, 1, n, "the list")
		require.Empty(t, failed, "the server cannot stream a list, which is no failure")
		server.opened("configmaps")[0].Action(watch.Bookmark, &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "11"}})
		n, _ = count()
		require.Equal(t, 2, n, "a bookmark")
		server.opened("configmaps")[0].Add(
			&metav1.PartialObjectMetadata{
				ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "x", UID: "u", ResourceVersion: "12", Labels: owner.Labels},
			},
		)
		n, _ = count()
		require.Equal(t, 3, n, "an event")
		time.Sleep(3*time.Minute + 10*time.Second)
		n, failed = count()
		require.Equal(t, 3, n, "a new watch proves nothing before it speaks")
		require.Equal(t, "the watch is silent", failed[len(failed)-1])
		cancel()
		require.NoError(t, <-done)
	})
}

func TestADefinitionStartsTheWatchOfItsKindAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		widget := schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}
		server, mapper, live, stop := startSilent(t, definitionKind, widget)
		defer stop()
		time.Sleep(time.Hour) // by now it is asked for every 30 seconds
		synctest.Wait()
		synced, err := live.Synced(widget.GroupKind())
		require.False(t, synced)
		require.True(t, meta.IsNoMatchError(err))
		asked := mapper.asked
		require.Less(t, asked, 300)
		said := server.log.String()
		require.Equal(t, 1, strings.Count(said, "Widget.example.com"), "that it is not there is said once: %s", said)
		require.Positive(t, mapper.resets, "a mapper that remembers what there is has to look again")

		mapper.mu.Lock()
		mapper.defined = true
		mapper.mu.Unlock()
		event := &metav1.PartialObjectMetadata{
			ObjectMeta: metav1.ObjectMeta{Name: "gadgets.other.example.org", UID: "u", ResourceVersion: "11", Labels: owner.Labels},
		}
		open := server.opened("customresourcedefinitions")
		open[len(open)-1].Add(event)
		synctest.Wait()
		require.Equal(t, asked, mapper.asked, "another group's definition is none of its business")
		mine := event.DeepCopy()
		mine.Name, mine.ResourceVersion = "widgets.example.com", "12"
		open[len(open)-1].Add(mine)
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		synced, err = live.Synced(widget.GroupKind())
		require.NoError(t, err)
		require.True(t, synced)
	})
}

func TestAKindIsNotServedOnlyIfAFreshMapperLacksIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, mapper, live, stop := startSilent(t, schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"})
		defer stop()
		synctest.Wait()
		asked := mapper.count()
		require.Positive(t, asked)
		require.ErrorIs(t, live.Unseen(), apply.ErrNotSynced, "what the mapper remembers may be old")
		time.Sleep(2 * time.Second)
		synctest.Wait()
		require.Equal(t, 2*asked, mapper.count())
		require.NoError(t, live.Unseen(), "there is nothing to see")
	})
}

func TestDiscoveryThatIsDownIsNamedAndOvercome(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		kind := schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}
		known := meta.NewDefaultRESTMapper(nil)
		known.Add(kind, meta.RESTScopeNamespace)
		mapper := &lateMapper{RESTMapper: known, down: errors.New("discovery is down")}
		live := &apply.Live{Client: &silentServer{}, Mapper: mapper, Owner: owner, Kinds: []schema.GroupVersionKind{kind}}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- live.Start(ctx) }()
		synctest.Wait()
		set, err := apply.NewSet(owner, parsed(t, configMap("a", "1")), apply.SetOptions{})
		require.NoError(t, err)
		report, err := (&apply.Applier{Live: live}).Apply(t.Context(), set)
		require.ErrorIs(t, err, apply.ErrNotSynced)
		require.ErrorContains(t, err, "ConfigMap/x/a: the live state is not known\ndiscovery is down")
		require.Equal(t, 1, report.Count(apply.Waiting))

		mapper.mu.Lock()
		mapper.down = nil
		mapper.mu.Unlock()
		require.NoError(t, live.WaitSynced(t.Context()))
		cancel()
		require.NoError(t, <-done)
	})
}

func TestALiveThatIsStartedAgainKnowsNothingBeforeItHasListed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		kind := schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}
		_, _, live, stop := startSilent(t, kind)
		require.NoError(t, live.WaitSynced(t.Context()))
		require.Error(t, live.Start(t.Context()), "it is running already")
		stop()
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		require.NoError(t, live.Start(ended))
		synced, err := live.Synced(kind.GroupKind())
		require.NoError(t, err)
		require.False(t, synced, "what it shows may be long gone")

		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- live.Start(ctx) }()
		require.NoError(t, live.WaitSynced(t.Context()))
		cancel()
		require.NoError(t, <-done)
	})
}
