package agent //nolint:testpackage // passes are made one by one, in virtual time

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/seed-9e1ffd66/trueup/apply"
	"github.com/seed-9e1ffd66/trueup/cmd/api/starbase"
)

// TestWhatVanishesGoesAfterItsGrace uses the periods that the program uses: services
// and a project that the desired state lacks without a tombstone go after a minute,
// the namespace after ten, counted again when they were back.
func TestWhatVanishesGoesAfterItsGrace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPasses(t)
		all := p.state(1, "web", "api")
		p.accept(all)
		p.pass()
		require.Equal(t, 2, p.count("deployments"))

		none := p.state(2)
		none.Projects = nil
		began := time.Now()
		p.accept(none)
		p.passUntil(began.Add(59 * time.Second))
		require.Equal(t, 2, p.count("deployments"), "before the grace is over")
		// They are back for one pass.
		p.accept(p.state(3, "web", "api"))
		p.pass()
		began = time.Now()
		none = p.state(4)
		none.Projects = nil
		p.accept(none)
		p.passUntil(began.Add(59 * time.Second))
		require.Equal(t, 2, p.count("deployments"), "the grace started over")
		p.passUntil(began.Add(64 * time.Second))
		require.Zero(t, p.count("deployments"))
		require.Zero(t, p.count("networkpolicies"))
		p.passUntil(began.Add(10*time.Minute - time.Second))
		require.Equal(t, 1, p.count("namespaces"), "a namespace has ten minutes")
		p.passUntil(began.Add(10*time.Minute + 4*time.Second))
		require.Zero(t, p.count("namespaces"))
	})
}

// TestAGraceNeedsTwoAnswers keeps what vanished as long as Starbase has not answered a
// second time, however long that takes.
func TestAGraceNeedsTwoAnswers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPasses(t)
		p.accept(p.state(1, "web", "api"))
		p.pass()
		p.accept(p.state(2, "web"))
		for range 60 {
			time.Sleep(time.Minute)
			p.pass()
		}
		require.Equal(t, 2, p.count("deployments"), "one answer is no proof that it lasts")
		require.Equal(t, starbase.ClassDeletionHeld, p.of(1).ErrorClass)
		require.Contains(t, p.of(1).Message, "absent from the desired state and not named as deleted")
		require.NotZero(t, p.heldBy("grace"))
		p.desired.confirm()
		p.pass()
		require.Equal(t, 1, p.count("deployments"))
		p.desired.confirm()
		p.pass()
		require.Nil(t, p.of(1))
		require.Zero(t, p.heldBy("grace"))
	})
}

// TestATombstoneHasNoGrace deletes services named as deleted at once.
func TestATombstoneHasNoGrace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPasses(t)
		p.accept(p.state(1, "web", "api"))
		p.pass()
		s := p.state(2, "web", "api")
		s.Services[1].Deleted = true
		require.NoError(t, s.Seal())
		p.accept(s)
		p.pass()
		require.Equal(t, 1, p.count("deployments"))
	})
}

// TestAPassDeletesNothingOnceANewerStateHasCome, also while it is not accepted, because the memory of the
// accepted generation cannot be written.
func TestAPassDeletesNothingOnceANewerStateHasCome(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPasses(t)
		p.accept(p.state(1, "web", "api"))
		p.pass()
		without := p.state(2, "web", "api")
		without.Services[0].Image, without.Services[1].Deleted = "example.com/web:2", true
		p.accept(without)
		memory := p.puller.newest.memory
		p.during = func() {
			p.during = nil
			p.puller.newest.memory = &unanswered{fails: true}
			again := p.state(3, "web", "api")
			require.NoError(t, again.Seal())
			require.ErrorContains(t, p.puller.accept(t.Context(), again), "cannot be written to")
		}
		p.pass()
		require.Nil(t, p.during, "it has come")
		p.pass()
		require.Equal(t, 2, p.count("deployments"))

		p.puller.newest = &newest{memory: memory}
		p.puller.client = &client{base: "https://starbase.example.com"}
		older := p.state(1, "web", "api")
		require.NoError(t, older.Seal())
		require.ErrorContains(t, p.puller.accept(t.Context(), older), "generation 1 is older than 2")
		p.desired.confirm()
		p.pass()
		require.Equal(t, 1, p.count("deployments"), "one that is refused is not newer")

		p.accept(p.state(3, "web", "api"))
		p.pass()
		without = p.state(4, "web", "api")
		without.Services[0].Image, without.Services[1].Deleted = "example.com/web:3", true
		p.accept(without)
		p.during = func() {
			p.during = nil
			p.accept(p.state(5, "web", "api"))
		}
		p.pass()
		require.Nil(t, p.during, "it has come")
		require.Equal(t, 2, p.count("deployments"), "it is accepted")
	})
}

// TestWhatIsRejectedKeepsWhatItHas deletes nothing of a service that cannot be applied any
// more, also with the grace over: the desired state does not lack it.
func TestWhatIsRejectedKeepsWhatItHas(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPasses(t)
		p.accept(p.state(1, "web", "api", "old"))
		p.pass()
		s := p.state(2, "web", "api")
		s.Services[1].Replicas = -1
		p.accept(s)
		p.pass()
		require.Len(t, p.told().Services, 3)
		require.Equal(t, starbase.PhaseRejected, p.of(1).Phase, "and nothing of it is left")
		require.Equal(t, starbase.ClassDeletionHeld, p.of(2).ErrorClass)
		p.passUntil(time.Now().Add(15 * time.Minute))
		require.Equal(t, 2, p.count("deployments"))
		require.Len(t, p.told().Services, 2)
		require.Equal(t, starbase.PhaseRejected, p.of(1).Phase)
		p.accept(p.state(3, "web"))
		p.passUntil(time.Now().Add(2 * time.Minute))
		require.Equal(t, 1, p.count("deployments"))
	})
}

// passes runs the passes of a converger over a server in memory.
type passes struct {
	*converger

	t      *testing.T
	puller *puller
	server *fake.FakeMetadataClient
	mapper meta.RESTMapper
	during func() // called at each write, if not nil
	gone   atomic.Bool
	mu     sync.Mutex
	open   []watch.Interface
}

var errAway = &url.Error{Op: "Get", URL: "https://api.example.com", Err: errors.New("connection refused")}

// away makes the API server refuse all, and ends the watches, or ends that.
func (p *passes) away(is bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.gone.Store(is)
	for _, w := range p.open {
		w.Stop()
	}
	p.open = nil
}

func (p *passes) watch(action clienttesting.Action) (bool, watch.Interface, error) {
	if p.gone.Load() {
		return true, nil, errAway
	}
	w, err := p.server.Tracker().Watch(action.GetResource(), action.GetNamespace())
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open = append(p.open, w)
	return true, w, err
}

const passing = "00000000-0000-4000-8000-000000000901" // the cluster

func newPasses(t *testing.T) *passes {
	t.Helper()
	scheme := runtime.NewScheme()
	require.NoError(t, metav1.AddMetaToScheme(scheme))
	p := &passes{t: t, server: fake.NewSimpleMetadataClient(scheme)}
	p.server.PrependReactor("patch", "*", p.applied)
	p.server.PrependReactor("*", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
		return p.gone.Load(), nil, errAway
	})
	p.server.PrependWatchReactor("*", p.watch)
	mapper := meta.NewDefaultRESTMapper(nil)
	for _, kind := range Kinds() {
		scope := meta.RESTScopeNamespace
		if kind.Kind == "Namespace" {
			scope = meta.RESTScopeRoot
		}
		mapper.Add(kind, scope)
	}
	p.mapper = mapper
	owner, metrics, logger := Owner(passing), newMetrics(), slog.New(slog.NewTextHandler(t.Output(), nil))
	live := &apply.Live{Client: p.server, Mapper: mapper, Owner: owner, Kinds: Kinds(), Discovery: inhabitants{mapper: mapper}, Logger: logger}
	applier := &apply.Applier{Live: live}
	state := &desired{}
	p.converger = &converger{
		applier: applier, desired: state, guard: newGuard(100, nil), metrics: metrics, logger: logger,
		status: &reporter{instance: "one", trigger: func() {}, pods: &podView{}, rollouts: &rollouts{}}, awaits: &atomic.Bool{},
	}
	p.puller = &puller{
		owner:   owner,
		cluster: passing,
		desired: state,
		newest:  &newest{memory: &apply.FileMemory{Path: filepath.Join(t.TempDir(), "accepted")}},
		metrics: metrics,
		logger:  logger,
		changed: func() {},
		report:  func(string, problem) {},
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- live.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-done)
	})
	until, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	require.NoError(t, live.WaitSynced(until))
	return p
}

// applied is the server's part of a server-side apply.
func (p *passes) applied(action clienttesting.Action) (bool, runtime.Object, error) {
	if p.during != nil {
		p.during()
	}
	patch := action.(clienttesting.PatchAction) //nolint:forcetypeassert // the verb says so
	object := &metav1.PartialObjectMetadata{}
	var fields map[string]any
	for _, into := range []any{object, &fields} {
		if err := json.Unmarshal(patch.GetPatch(), into); err != nil {
			return true, nil, err
		}
	}
	owned, err := json.Marshal(fieldsOf(fields))
	if err != nil {
		return true, nil, err
	}
	object.UID = types.UID(strings.Join([]string{patch.GetResource().Resource, patch.GetNamespace(), patch.GetName()}, "/"))
	object.ResourceVersion, object.Generation = "1", 1
	object.ManagedFields = []metav1.ManagedFieldsEntry{{
		Manager: manager, Operation: metav1.ManagedFieldsOperationApply, FieldsType: "FieldsV1", FieldsV1: &metav1.FieldsV1{Raw: owned},
	}}
	tracker := p.server.Tracker()
	if _, err := tracker.Get(patch.GetResource(), patch.GetNamespace(), patch.GetName()); err == nil {
		return true, object, tracker.Update(patch.GetResource(), object, patch.GetNamespace())
	}
	return true, object, tracker.Create(patch.GetResource(), object, patch.GetNamespace())
}

// fieldsOf names the fields of an object as managedFields do; lists are whole.
func fieldsOf(of map[string]any) map[string]any {
	fields := map[string]any{}
	for name, value := range of {
		within := map[string]any{}
		if deeper, ok := value.(map[string]any); ok {
			within = fieldsOf(deeper)
		}
		fields["f:"+name] = within
	}
	return fields
}

// state is one project with these services.
func (p *passes) state(generation int64, services ...string) *starbase.DesiredState {
	p.t.Helper()
	const project, workspace = "00000000-0000-4000-8000-000000000001", "00000000-0000-4000-8000-000000001001"
	s := &starbase.DesiredState{
		ClusterID: passing, Epoch: "e1", Generation: generation, ClusterConfig: starbase.ClusterConfig{LBSizeUnits: 1},
		Projects: []starbase.Project{{ProjectID: project, WorkspaceID: workspace, Slug: "shop", Namespace: "proj-shop"}},
	}
	for n, name := range services {
		s.Services = append(s.Services, starbase.Service{
			WorkspaceID: workspace, ProjectID: project, ServiceID: fmt.Sprintf("00000000-0000-4000-8000-%012d", 10+n),
			Environment: "production", ServiceName: name, Tier: "nova", Image: "example.com/" + name + ":1", Replicas: 2,
			Ports: []starbase.Port{{ContainerPort: 8080, Protocol: "TCP"}},
		})
	}
	require.NoError(p.t, s.Seal())
	return s
}

// accept is an answer of Starbase with a state.
func (p *passes) accept(s *starbase.DesiredState) {
	p.t.Helper()
	require.NoError(p.t, s.Seal())
	require.NoError(p.t, p.puller.accept(p.t.Context(), s))
}

// pass makes one, and waits until the live view shows what it did.
func (p *passes) pass() {
	p.t.Helper()
	_, err := p.Reconcile(p.t.Context())
	require.NoError(p.t, err)
	synctest.Wait()
}

// passUntil makes a pass every two seconds, each after an answer of Starbase.
func (p *passes) passUntil(end time.Time) {
	p.t.Helper()
	p.pass()
	for !time.Now().Add(2 * time.Second).After(end) {
		time.Sleep(2 * time.Second)
		p.desired.confirm()
		p.pass()
	}
}

// count returns how many objects of a resource the server has.
func (p *passes) count(resource string) int {
	p.t.Helper()
	for _, kind := range Kinds() {
		mapping, err := p.mapper.RESTMapping(kind.GroupKind(), kind.Version)
		require.NoError(p.t, err)
		if mapping.Resource.Resource == resource {
			list, err := p.server.Resource(mapping.Resource).List(p.t.Context(), metav1.ListOptions{})
			require.NoError(p.t, err)
			return len(list.Items)
		}
	}
	require.Fail(p.t, "no such resource", resource)
	return 0
}

func TestAServiceIsOneUnitWhateverItsObjects(t *testing.T) {
	t.Parallel()
	service := labelled{"p", "production", "s"}
	k := &absence{}
	require.Equal(t, "service p/production/s", k.unit(service))
	require.Equal(t, "project p", k.unit(labelled{project: "p", environment: "production"}))
	require.Empty(t, k.unit(labelled{}), "an object without labels is one of its own")
	put(&k.goneProjects, "p")
	require.Equal(t, "project p", k.unit(service), "a deleted project is one unit with its services")
}
