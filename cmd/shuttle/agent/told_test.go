package agent //nolint:testpackage // passes are made one by one, in virtual time

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"

	"github.com/seed-9e1ffd66/trueup/apply"
	"github.com/seed-9e1ffd66/trueup/cmd/api/starbase"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/owntoken"
	"github.com/seed-9e1ffd66/trueup/internal/test/httpfunc"
	"github.com/seed-9e1ffd66/trueup/reconcile"
)

// told returns the report after the last pass.
func (p *passes) told() *starbase.StatusReport {
	p.t.Helper()
	r := p.status
	report := r.report(r.last, together(&r.cluster), r.epoch)
	require.NotNil(p.t, report)
	require.Empty(p.t, report.Validate())
	return report
}

// of is what a report says about the service with that number, nil for nothing.
func (p *passes) of(n int) *starbase.ServiceStatus {
	report := p.told()
	for i := range report.Services {
		if strings.HasSuffix(report.Services[i].ServiceID, string(rune('0'+n))) {
			return &report.Services[i]
		}
	}
	return nil
}

// tombstone states web, and api as deleted.
func (p *passes) tombstone(generation int64) *starbase.DesiredState {
	s := p.state(generation, "web", "api")
	s.Services[1].Deleted = true
	return s
}

// fails makes a pass that fails.
func (p *passes) fails() error {
	p.t.Helper()
	_, err := p.Reconcile(p.t.Context())
	require.Error(p.t, err)
	synctest.Wait()
	return err
}

// heldBy is how many objects the metric says that this keeps.
func (p *passes) heldBy(reason string) float64 {
	var m dto.Metric
	require.NoError(p.t, p.metrics.held.WithLabelValues(reason).Write(&m))
	return m.GetGauge().GetValue()
}

func (p *passes) generationApplied() float64 {
	var m dto.Metric
	require.NoError(p.t, p.metrics.generation.Write(&m))
	return m.GetGauge().GetValue()
}

// TestWhatIsDeletedStaysSoWhileNothingIsSeen has an API server that goes away.
func TestWhatIsDeletedStaysSoWhileNothingIsSeen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPasses(t)
		p.accept(p.state(1, "web", "api"))
		p.pass()
		p.accept(p.tombstone(2))
		p.pass()
		p.pass()
		require.Nil(t, p.of(1), "it is gone")
		require.True(t, p.told().Complete)
		require.Empty(t, p.told().ClusterErrorClass)

		p.away(true)
		time.Sleep(time.Minute)
		p.desired.confirm()
		_ = p.fails()
		require.Nil(t, p.of(1), "it was gone, and nothing shows that it is back")
		require.Equal(t, starbase.PhaseApplying, p.of(0).Phase)
		require.Equal(t, starbase.ClassUnseen, p.told().ClusterErrorClass)
		require.Contains(t, p.told().ClusterMessage, "what is reported is what was so before: ")
		require.False(t, p.told().Complete)

		p.done = nil // as after a restart
		_ = p.fails()
		require.Equal(t, starbase.ClassUnseen, p.of(1).ErrorClass)
		require.Equal(t, starbase.PhaseApplying, p.of(1).Phase)

		p.away(false)
		time.Sleep(2 * time.Minute)
		p.desired.confirm()
		p.pass()
		require.Nil(t, p.of(1))
		require.Empty(t, p.told().ClusterErrorClass)
		require.True(t, p.told().Complete)
	})
}

// TestAServiceThatCameBackIsNotKnownToBeGone deletes it again while nothing can be seen.
func TestAServiceThatCameBackIsNotKnownToBeGone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPasses(t)
		p.accept(p.tombstone(1))
		p.pass()
		require.Nil(t, p.of(1))
		p.away(true)
		time.Sleep(time.Minute)
		p.accept(p.state(2, "web", "api"))
		_ = p.fails()
		p.accept(p.tombstone(3))
		_ = p.fails()
		require.Equal(t, starbase.ClassUnseen, p.of(1).ErrorClass)
	})
}

// TestAStartIsNoOutage says nothing about what is not seen yet.
func TestAStartIsNoOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPasses(t)
		p.accept(p.state(1, "web"))
		p.away(true)
		time.Sleep(time.Minute)
		_ = p.fails()
		require.Empty(t, p.told().ClusterErrorClass, "never seen, for less than half a minute of passes")
		time.Sleep(slowStart)
		_ = p.fails()
		require.Equal(t, starbase.ClassUnseen, p.told().ClusterErrorClass)
	})
}

// lost is a memory that cannot be used.
type lost struct{ err error }

func (l lost) Load(context.Context) ([]byte, string, error)         { return nil, "", l.err }
func (l lost) Save(context.Context, []byte, string) (string, error) { return "", l.err }

// TestARecordThatCannotBeReadIsTheReason names the ConfigMap for deletions that wait for it.
func TestARecordThatCannotBeReadIsTheReason(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPasses(t)
		p.accept(p.state(1, "web", "api"))
		p.pass()
		require.EqualValues(t, 1, p.generationApplied())
		p.guard.Memory, p.memory = lost{errors.New("it is garbage")}, "ConfigMap starform-system/shuttle-deletions-x"
		p.accept(p.tombstone(2))
		_ = p.fails()
		require.Equal(t, 2, p.count("deployments"))
		require.EqualValues(t, 1, p.generationApplied(), "the pass has failed")
		for _, text := range []string{p.of(1).Message, p.told().ClusterMessage} {
			require.Contains(t, text, "ConfigMap starform-system/shuttle-deletions-x cannot be used: ")
			require.Contains(t, text, "it is garbage")
			require.Contains(t, text, "correct or delete it")
			require.NotContains(t, text, "limit")
		}
		require.Equal(t, starbase.ClassDeletionHeld, p.of(1).ErrorClass)
		require.Equal(t, starbase.ClassDeletionsNotRecorded, p.told().ClusterErrorClass)

		p.guard.Memory = nil
		p.desired.confirm()
		p.pass()
		p.pass()
		require.Empty(t, p.told().ClusterErrorClass)
		require.Equal(t, 1, p.count("deployments"))
	})
}

// TestANamespaceThatAPersonUsesIsReported keeps it, and says so a minute later.
func TestANamespaceThatAPersonUsesIsReported(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPasses(t)
		p.accept(p.state(1, "web"))
		p.pass()
		theirs := &metav1.PartialObjectMetadata{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
			ObjectMeta: metav1.ObjectMeta{Namespace: "proj-shop", Name: "kept", UID: "k"},
		}
		maps := schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
		require.NoError(t, p.server.Tracker().Create(maps, theirs, "proj-shop"))
		gone := p.state(2)
		gone.Projects[0].Deleted = true
		p.accept(gone)
		for range 5 {
			_, _ = p.Reconcile(t.Context())
			synctest.Wait()
			p.desired.confirm()
		}
		require.Equal(t, 1, p.count("namespaces"))
		require.Empty(t, p.told().ClusterErrorClass, "it takes a while")
		time.Sleep(slowDeletion)
		_ = p.fails()
		require.Equal(t, starbase.ClassLeftover, p.told().ClusterErrorClass)
		require.Contains(t, p.told().ClusterMessage, "Namespace/proj-shop: ")
		require.Contains(t, p.told().ClusterMessage, "ConfigMap/proj-shop/kept")
		require.Equal(t, []string{gone.Projects[0].ProjectID}, p.told().LeftProjects)
		require.EqualValues(t, 1, p.heldBy("needed"))
		require.EqualValues(t, 1, p.generationApplied(), "a pass that failed is not applied")

		require.NoError(t, p.server.Tracker().Delete(maps, "proj-shop", "kept"))
		for range 5 { // it looks again after a while
			time.Sleep(time.Minute)
			p.desired.confirm()
			_, _ = p.Reconcile(t.Context())
			synctest.Wait()
		}
		require.Zero(t, p.count("namespaces"))
		require.Empty(t, p.told().ClusterErrorClass)
		require.EqualValues(t, 2, p.generationApplied())
		require.Zero(t, p.heldBy("needed"))
	})
}

// TestAFinalizerIsNamed has a Deployment that does not go.
func TestAFinalizerIsNamed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPasses(t)
		p.accept(p.state(1, "web", "api"))
		p.pass()
		p.finalize("deployments")
		p.accept(p.tombstone(2))
		p.pass()
		p.desired.confirm()
		p.pass()
		require.Equal(t, "Deleting", p.of(1).ErrorClass)
		require.Equal(t, "1 object is not deleted yet", p.of(1).Message)
		p.passUntil(time.Now().Add(slowDeletion + 4*time.Second))
		require.Contains(t, p.of(1).Message, "1 object is not gone yet: Deployment.apps/proj-shop/")
		require.Contains(t, p.of(1).Message, " (finalizers: example.com/hold)")
		require.True(t, p.awaits.Load(), "its end wakes a pass")
		p.release("api")
		p.desired.confirm()
		p.pass()
		p.desired.confirm()
		p.pass()
		require.False(t, p.awaits.Load())
	})
}

// TestAFewAreAskedForTheirFinalizers in each pass, however many do not go.
func TestAFewAreAskedForTheirFinalizers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPasses(t)
		all := []string{"a", "b", "c", "d", "e", "f", "g"}
		p.accept(p.state(1, all...))
		p.pass()
		p.finalize("deployments")
		gone := p.state(2, all...)
		for n := range gone.Services {
			gone.Services[n].Deleted = true
		}
		p.accept(gone)
		p.pass()
		time.Sleep(slowDeletion)
		p.server.ClearActions()
		p.pass()
		asked := 0
		for _, action := range p.server.Actions() {
			if action.Matches("get", "deployments") {
				asked++
			}
		}
		require.Equal(t, maxAsked, asked)
	})
}

// TestWhatNamesNoProjectIsNeverAllThatIsLeft of a service, nor what names no environment: no report can name it.
func TestWhatNamesNoProjectIsNeverAllThatIsLeft(t *testing.T) {
	t.Parallel()
	for _, more := range []map[string]string{{}, {labelProjectID: hex32(shop.ProjectID)}, {labelEnvironment: shop.Environment}} {
		synctest.Test(t, func(t *testing.T) {
			p := newPasses(t)
			p.guard = newGuard(0, nil)
			p.accept(p.state(1, "web"))
			p.pass()
			require.True(t, p.told().Complete)
			p.labelled(labelServiceID, hex32(shop.ServiceID), more)
			p.desired.confirm()
			p.pass()
			require.False(t, p.told().Complete)
		})
	}
}

// labelled creates a ConfigMap with the labels of the agent and these, as a copy of one of its own has.
func (p *passes) labelled(label, value string, more map[string]string) {
	lost := &metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "proj-shop", Name: "lost", UID: "l", ResourceVersion: "1", Labels: Owner(passing).Labels},
	}
	lost.Labels[label] = value
	maps.Copy(lost.Labels, more)
	require.NoError(p.t, p.server.Tracker().Create(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, lost, "proj-shop"))
	synctest.Wait()
}

// TestANamespaceThatDoesNotEndIsNamed gives it five minutes.
func TestANamespaceThatDoesNotEndIsNamed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPasses(t)
		p.accept(p.state(1, "web"))
		p.pass()
		p.finalize("namespaces")
		gone := p.state(2)
		gone.Projects[0].Deleted = true
		p.accept(gone)
		p.passUntil(time.Now().Add(slowEnd - 10*time.Second))
		require.Empty(t, p.told().ClusterErrorClass)
		p.passUntil(time.Now().Add(time.Minute))
		require.Equal(t, starbase.ClassLeftover, p.told().ClusterErrorClass)
		require.Contains(t, p.told().ClusterMessage, "Namespace/proj-shop (finalizers: example.com/hold) is being deleted for long")
		require.True(t, p.awaits.Load(), "its end wakes a pass")
	})
}

// finalize has each deletion of these wait for a finalizer.
func (p *passes) finalize(resource string) {
	p.server.PrependReactor("delete", resource, func(action clienttesting.Action) (bool, runtime.Object, error) {
		d := action.(clienttesting.DeleteAction) //nolint:forcetypeassert // the verb says so
		found, err := p.server.Tracker().Get(d.GetResource(), d.GetNamespace(), d.GetName())
		require.NoError(p.t, err)
		o := found.DeepCopyObject().(*metav1.PartialObjectMetadata) //nolint:forcetypeassert // it has no others
		now := metav1.Now()
		o.DeletionTimestamp, o.Finalizers, o.ResourceVersion = &now, []string{"example.com/hold"}, "2"
		return true, nil, p.server.Tracker().Update(d.GetResource(), o, d.GetNamespace())
	})
}

// TestWhatIsBackIsNotHeldAnyMore reports it at once, also before another answer of Starbase allows deletions, and
// also of services that come back wrong: they keep what they have.
func TestWhatIsBackIsNotHeldAnyMore(t *testing.T) {
	t.Parallel()
	for _, replicas := range []int{2, -1} {
		synctest.Test(t, func(t *testing.T) { isBack(t, replicas) })
	}
}

func isBack(t *testing.T, replicas int) {
	t.Helper()
	p := newPasses(t)
	p.guard = newGuard(0, nil)
	all := []string{"a", "b", "c", "d", "e", "f", "g", "h"}
	p.accept(p.state(1, all...))
	p.pass()
	p.accept(p.state(2))
	p.passUntil(time.Now().Add(70 * time.Second))
	require.Equal(t, len(all), p.told().HeldDeletions.Count)
	require.Equal(t, len(all), p.count("deployments"))
	digest := p.told().HeldDeletions.Digest

	p.away(true)
	time.Sleep(time.Minute)
	p.desired.confirm()
	_ = p.fails()
	require.Equal(t, digest, p.told().HeldDeletions.Digest, "while nothing is seen, it is held")
	p.away(false)
	time.Sleep(2 * time.Minute)

	back := p.state(1, all...)
	back.Epoch = "e2" // a backup is restored
	for n := range back.Services {
		back.Services[n].Replicas = replicas
	}
	p.accept(back)
	p.pass()
	require.Nil(t, p.told().HeldDeletions)
}

// TestWhatIsHeldGoesOnceItIsApproved by its own digest, and by no other.
func TestWhatIsHeldGoesOnceItIsApproved(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPasses(t)
		log := p.logs()
		p.guard = newGuard(0, nil)
		all := []string{"a", "b", "c", "d", "e", "f", "g", "h"}
		p.accept(p.state(1, all...))
		p.pass()
		p.accept(p.state(2))
		p.passUntil(time.Now().Add(70 * time.Second))
		digest := p.told().HeldDeletions.Digest
		require.NotZero(t, p.heldBy("limit"))
		require.Equal(t, 1, strings.Count(log.String(), "deletions held"), "once, however often they are held")
		require.Contains(t, p.of(0).Message, "more at once than the limit allows")
		require.Empty(t, p.told().ClusterErrorClass, "it waits for an approval, and for nothing else")

		approved := p.state(3)
		approved.ApprovedDeletions = strings.Repeat("0", len(digest))
		p.accept(approved)
		p.pass()
		require.Equal(t, len(all), p.count("deployments"))

		approved = p.state(4)
		approved.ApprovedDeletions = digest
		p.accept(approved)
		p.pass()
		require.Zero(t, p.count("deployments"))
		p.desired.confirm()
		p.pass()
		require.Nil(t, p.told().HeldDeletions)
		require.Zero(t, p.heldBy("limit"))
	})
}

// asking has the puller ask a Starbase that answers with these states, one after the other.
func (p *passes) asking(closed func(), states ...*starbase.DesiredState) {
	p.t.Helper()
	at, err := url.Parse("https://starbase.example.com")
	require.NoError(p.t, err)
	tokens := owntoken.New(owntoken.Config{Given: func() (string, error) { return "t", nil }})
	answer := httpfunc.Transport(func(*http.Request) (*http.Response, error) {
		body, err := json.Marshal(states[0])
		states = states[1:]
		return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(bytes.NewReader(body))}, err
	})
	p.puller.client = newClient(&Config{StarbaseURL: at, ClusterID: passing}, tokens, closing{answer, closed}, p.metrics.observeStarbase)
	p.puller.report = p.status.updateState
}

// closing is a transport with idle connections.
type closing struct {
	http.RoundTripper
	closed func()
}

func (c closing) CloseIdleConnections() { c.closed() }

// TestAStateThatCannotBeWrittenDownSaysSo applies nothing of it: after a restart an older one would pass for the newest.
func TestAStateThatCannotBeWrittenDownSaysSo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPasses(t)
		memory := p.puller.newest.memory
		const name = "ConfigMap starform-system/shuttle-generation-x"
		p.puller.newest = &newest{memory: lost{errors.New("admission says no")}, name: name}
		p.asking(func() {}, p.state(3, "web"), p.state(3, "web"))
		ready := (&term{state: p.desired}).answered
		require.EqualError(t, ready(t.Context()), "no answer yet")
		_, err := p.puller.Reconcile(t.Context())
		require.ErrorContains(t, err, name)
		require.ErrorContains(t, ready(t.Context()), "no state is accepted yet: ")
		require.ErrorContains(t, ready(t.Context()), name)
		report := p.told()
		require.Equal(t, starbase.ClassStateNotRecorded, report.ClusterErrorClass)
		require.Contains(t, report.ClusterMessage, name)
		require.Contains(t, report.ClusterMessage, "admission says no")
		require.Zero(t, report.Generation)
		require.Equal(t, "e1", report.Epoch)
		p.pass()
		require.Zero(t, p.count("deployments"))

		p.puller.newest = &newest{memory: memory, name: name}
		_, err = p.puller.Reconcile(t.Context())
		require.NoError(t, err)
		require.NoError(t, ready(t.Context()))
		p.pass()
		require.Empty(t, p.told().ClusterErrorClass)
		require.EqualValues(t, 3, p.told().Generation)
	})
}

// TestAfterAnOlderStateAnotherConnectionIsTaken, which may lead to another Starbase; and what is wrong is said.
func TestAfterAnOlderStateAnotherConnectionIsTaken(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPasses(t)
		require.NoError(t, func() error { _, err := p.puller.newest.reach(t.Context(), p.state(55)); return err }())
		closed := 0
		p.asking(func() { closed++ }, p.state(52, "web"), p.state(55, "web"))
		_, err := p.puller.Reconcile(t.Context())
		require.ErrorContains(t, err, "generation 52 is older than 55")
		require.NotZero(t, closed)
		require.ErrorContains(t, (&term{state: p.desired}).answered(t.Context()), "generation 52 is older than 55")
		require.Equal(t, starbase.ClassStateRefused, p.told().ClusterErrorClass)
		closed = 0
		_, err = p.puller.Reconcile(t.Context())
		require.NoError(t, err)
		require.Zero(t, closed)
	})
}

// TestReadinessSaysWhyThereIsNoState, and no URL to those who may ask.
func TestReadinessSaysWhyThereIsNoState(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		err  error
		want string
	}{
		{nil, "no answer yet"},
		{&url.Error{Op: "Get", URL: "https://starbase.example.com", Err: errors.New("refused")}, "no answer yet"},
		{
			fmt.Errorf("https://starbase.example.com: %w", &StarbaseError{Status: 403, Code: "forbidden", Message: "another cluster"}),
			"no state is accepted yet: starbase answered 403 forbidden: another cluster",
		},
		{
			fmt.Errorf("https://starbase.example.com: %w", &starbase.RefusedError{Reason: reasonGeneration, Err: errors.New("52 after 55")}),
			"no state is accepted yet: " + (&starbase.RefusedError{Reason: reasonGeneration, Err: errors.New("52 after 55")}).Error(),
		},
	} {
		d := &desired{}
		d.fail(test.err)
		require.EqualError(t, (&term{state: d}).answered(t.Context()), test.want)
	}
}

// TestTheOlderOfTwoIsLeft has two Starbases behind one address, which gives each connection to the next of them.
func TestTheOlderOfTwoIsLeft(t *testing.T) {
	t.Parallel()
	p := &passes{t: t}
	var servers []net.Listener
	for _, generation := range []int64{52, 55} {
		body, err := json.Marshal(p.state(generation, "web"))
		require.NoError(t, err)
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(body) }))
		t.Cleanup(server.Close)
		servers = append(servers, server.Listener)
	}
	next := 0
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		to := servers[next%2].Addr()
		next++
		return (&net.Dialer{}).DialContext(ctx, to.Network(), to.String())
	}
	transport := &http.Transport{DialContext: dial}
	t.Cleanup(transport.CloseIdleConnections)
	at, err := url.Parse("http://starbase.example.com")
	require.NoError(t, err)
	tokens := owntoken.New(owntoken.Config{Given: func() (string, error) { return "t", nil }})
	puller := &puller{
		client: newClient(&Config{StarbaseURL: at, ClusterID: passing}, tokens, transport, newMetrics().observeStarbase),
		owner:  Owner(passing), cluster: passing, desired: &desired{}, metrics: newMetrics(), logger: slog.New(slog.DiscardHandler),
		newest:  &newest{memory: &apply.FileMemory{Path: filepath.Join(t.TempDir(), "accepted")}},
		changed: func() {}, report: func(string, problem) {},
	}
	_, err = puller.newest.reach(t.Context(), p.state(55))
	require.NoError(t, err)
	_, err = puller.Reconcile(t.Context())
	require.ErrorContains(t, err, "generation 52 is older than 55")
	_, err = puller.Reconcile(t.Context())
	require.NoError(t, err, "the other one")
	require.Equal(t, 2, next)
	_, err = puller.Reconcile(t.Context())
	require.NoError(t, err)
	require.Equal(t, 2, next, "this connection stays")
}

// TestAnOutageIsOneLine has a hundred objects fail for one cause, and one for another, in each pass.
func TestAnOutageIsOneLine(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	c := &converger{logger: slog.New(slog.NewTextHandler(&log, nil))}
	var results []apply.Result
	for n := range 100 {
		id := apply.ID{Group: "apps", Kind: "Deployment", Namespace: "proj-shop", Name: "web-" + string(rune('a'+n%26)) + string(rune('a'+n/26))}
		results = append(results, apply.Result{ID: id, Action: apply.Failed, Err: &url.Error{
			Op: "Patch", URL: "https://api/deployments/" + id.Name, Err: errors.New("connection refused"),
		}})
	}
	results = append(results, apply.Result{ID: results[0].ID, Action: apply.Failed, Err: errors.New("denied")})
	for range 3 {
		c.failed = c.log(t.Context(), c.failed, results[50:])
		c.undone = c.log(t.Context(), c.undone, nil)
	}
	require.Equal(t, 2, strings.Count(log.String(), "\n"), log.String())
	require.Contains(t, log.String(), "count=50")
	log.Reset()
	for range 3 { // more than before
		c.failed = c.log(t.Context(), c.failed, results)
	}
	c.failed = c.log(t.Context(), c.failed, results[:1])
	c.failed = c.log(t.Context(), c.failed, results[:100]) // as many as before
	require.Equal(t, 1, strings.Count(log.String(), "\n"), log.String())
	require.Contains(t, log.String(), "count=100")
	require.Contains(t, log.String(), "Deployment.apps/proj-shop/web-aa, Deployment.apps/proj-shop/web-ba, Deployment.apps/proj-shop/web-ca\"")
	log.Reset()
	c.failed = c.log(t.Context(), c.failed, nil) // it has ended
	c.failed = c.log(t.Context(), c.failed, results)
	require.Equal(t, 2, strings.Count(log.String(), "\n"), log.String())
	require.Contains(t, log.String(), "error=denied object=Deployment.apps/proj-shop/web-aa")
}

// TestWhatIsWantedIsReported although the server has refused it; an autoscaler wants what it likes.
func TestWhatIsWantedIsReported(t *testing.T) {
	t.Parallel()
	live := rollout{uid: "u", generation: 2, observed: 2, desired: 5, total: 5, updated: 5, ready: 5}
	r := reporter{pods: &podView{}, rollouts: showing(t, live)}
	o := outcomeOf(deletions{})
	service := &o.current.rendered.Services[0]
	id := apply.ID{Group: "apps", Kind: "Deployment", Namespace: "proj-shop", Name: "web"}
	service.Objects = []apply.ID{id}
	o.results[id] = apply.Result{ID: id, Action: apply.Failed, Err: errors.New("replicas: denied")}
	list, _ := r.statuses(o)
	require.Equal(t, starbase.PhaseFailed, list[0].Phase)
	require.Equal(t, service.Replicas, list[0].Desired)
	require.Equal(t, 5, list[0].Ready)
	service.Autoscaled = true
	list, _ = r.statuses(o)
	require.Equal(t, 5, list[0].Desired)
}

// TestANameThatIsTakenIsSaidOnce, with what to do, whatever the number of objects.
func TestANameThatIsTakenIsSaidOnce(t *testing.T) {
	t.Parallel()
	o := outcomeOf(deletions{})
	s := &o.current.rendered.Services[0]
	for n := range 40 {
		id := apply.ID{Kind: "ConfigMap", Namespace: "proj-shop", Name: strings.Repeat("x", 40) + string(rune('a'+n))}
		s.Objects = append(s.Objects, id)
		o.results[id] = apply.Result{ID: id, Action: apply.Refused, Err: fmt.Errorf("%w: it was made by kubectl", apply.ErrNotOurs)}
	}
	phase, class, message := stand(s, o.results)
	require.Equal(t, starbase.PhaseRejected, phase)
	require.Equal(t, starbase.ClassNameTaken, class)
	require.LessOrEqual(t, len(message), starbase.MaxStatusMessage)
	require.True(t, strings.HasSuffix(message, "; rename the service, or remove what has its names"), message)
	s.Objects = s.Objects[:2]
	_, _, message = stand(s, o.results)
	require.Equal(t, 1, strings.Count(message, "it was made by kubectl"), message)
	require.NotContains(t, message, "Applier")
}

// TestTheAgentKnowsTheNamesOfItsRecords, and its region, and lets a refused state be reported.
func TestTheAgentKnowsTheNamesOfItsRecords(t *testing.T) {
	t.Parallel()
	at, err := url.Parse("https://starbase.example.com")
	require.NoError(t, err)
	a := &Agent{
		Config:     Config{StarbaseURL: at, ClusterID: passing, Region: "fra1", SnapshotInterval: time.Minute, CapacityInterval: time.Minute},
		Kubernetes: &rest.Config{Host: "http://127.0.0.1:1"}, Logger: slog.New(slog.DiscardHandler),
	}
	made, err := a.newTerm(newMetrics())
	require.NoError(t, err)
	found := 0
	var status *reporter
	for _, member := range made.group.Members {
		loop, ok := member.Starter.(*reconcile.Loop)
		if !ok {
			continue
		}
		switch r := loop.Reconciler.(type) {
		case *converger:
			require.Equal(t, "ConfigMap starform-system/shuttle-deletions-"+passing, r.memory)
			found++
		case *puller:
			require.Equal(t, "ConfigMap starform-system/shuttle-generation-"+passing, r.newest.name)
			r.report("e", problem{"X", "y"})
			found++
		case *reporter:
			require.Equal(t, "fra1", r.region)
			status = r
			found++
		}
	}
	require.Equal(t, 3, found)
	require.Equal(t, &starbase.StatusReport{
		Epoch: "e", InstanceID: status.instance, Region: "fra1", Services: starbase.Statuses{}, ClusterErrorClass: "X", ClusterMessage: "y",
	}, status.report(nil, together(&status.cluster), status.epoch))
}
