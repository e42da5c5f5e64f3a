package agent //nolint:testpackage // what an agent knows is what a test gives it

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed-9e1ffd66/trueup/apply"
	ctrlv1 "github.com/seed-9e1ffd66/trueup/cmd/api/ctrl/v1"
	"github.com/seed-9e1ffd66/trueup/cmd/api/ctrl/v1/ctrlv1connect"
	"github.com/seed-9e1ffd66/trueup/cmd/krane/internal/breaker"
	"github.com/seed-9e1ffd66/trueup/cmd/krane/internal/pods"
	"github.com/seed-9e1ffd66/trueup/cmd/krane/render"
	"github.com/seed-9e1ffd66/trueup/cmd/krane/stream"
	"github.com/seed-9e1ffd66/trueup/internal/test/logtest"
	"github.com/seed-9e1ffd66/trueup/statesync"
)

// asked is a control plane that answers point queries for deployments: nil is an answer that does not come.
type asked struct {
	ctrlv1connect.ClusterServiceClient

	answer *ctrlv1.DeploymentState
	err    error
}

func (a asked) GetDesiredDeploymentState(
	ctx context.Context,
	_ *connect.Request[ctrlv1.GetDesiredDeploymentStateRequest],
) (*connect.Response[ctrlv1.DeploymentState], error) {
	if a.answer == nil && a.err == nil {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if a.err != nil {
		return nil, a.err
	}
	return connect.NewResponse(a.answer), nil
}

var (
	states  = &ctrlv1.DeploymentState{State: &ctrlv1.DeploymentState_Apply{Apply: &ctrlv1.ApplyDeployment{DeploymentId: "d"}}}
	deletes = &ctrlv1.DeploymentState{State: &ctrlv1.DeploymentState_Delete{Delete: &ctrlv1.DeleteDeployment{}}}
	unknown = connect.NewError(connect.CodeNotFound, errors.New("unknown"))
	away    = connect.NewError(connect.CodeUnavailable, errors.New("away"))
)

// deciding returns what decides about the deployments of a region, without streams.
func deciding(of parts, control asked) *resyncer {
	m, logger, registry := newMetrics(), slog.New(slog.DiscardHandler), newRegistry()
	s := &streams{contact: newContact("", m, logger), metrics: m, logger: logger, problems: newProblems(allSeen)}
	s.replicas = map[stream.Collection]*statesync.Replica{stream.Deployments: {}}
	reports := &reporter{metrics: m, registry: registry}
	reports.init()
	return &resyncer{
		client: control, breakers: &breaker.Set{}, streams: s, contact: s.contact, parts: of, registry: registry, metrics: m, logger: logger,
		converger: &converger{
			parts: of, registry: registry, reporter: reports, metrics: m, problems: s.problems,
			proven: func(stream.Collection) bool { return true },
		},
	}
}

// TestOnlyAnAnswerDeletesWhatHasComeBack with a backup of the cluster: no failure does, and no other answer.
func TestOnlyAnAnswerDeletesWhatHasComeBack(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		control asked
		there   bool
		deletes bool
	}{
		"it must go":      {asked{answer: deletes}, true, true},
		"it is not there": {asked{answer: deletes}, false, false},
		"it is unknown":   {asked{err: unknown}, true, false},
		"no answer":       {asked{err: away}, true, false},
		"an answer late":  {asked{}, true, false},
		"it is wanted":    {asked{answer: states}, true, false},
		"an empty answer": {asked{answer: &ctrlv1.DeploymentState{}}, true, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			began, key, of := time.Now(), keyOf("shop", "web"), seeing(t)
			if test.there {
				of = seeing(t, seen{kind: "ReplicaSet", namespace: "shop", name: "web", id: "d"})
			}
			r := deciding(of, test.control)
			tried := false
			r.converger.problems.changed = func() { tried = true }
			e := r.registry.entry(key)
			r.registry.set(e, desired{received: true, gone: true})
			r.registry.setID(key, "d")
			r.converger.problems.of[resourceOf(key)] = "a pass that succeeds takes it away"
			_, err := r.query(t.Context(), key)
			require.NoError(t, err, name)
			require.Equal(t, test.deletes, tried || e.failures > 0, name)
			require.LessOrEqual(t, time.Since(began), reportTimeout, name)
		})
	}
}

// TestWhatMayBeWantedIsDenied by nothing but an answer.
func TestWhatMayBeWantedIsDenied(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		control asked
		denied  bool
	}{
		"unknown": {asked{err: unknown}, true}, "deleted": {asked{answer: deletes}, true}, "wanted": {asked{answer: states}, false},
		"away": {asked{err: away}, false}, "newer": {asked{answer: &ctrlv1.DeploymentState{}}, false},
	} {
		err := deciding(nil, test.control).denied(t.Context(), of(string(stream.Deployments)), "d")
		require.Equal(t, test.denied, err == nil, "%s: %v", name, err)
	}
}

// TestDoubtsAndFailuresAreThoseInARow: an answer that agrees, a pass that succeeds and another order end them.
func TestDoubtsAndFailuresAreThoseInARow(t *testing.T) {
	t.Parallel()
	key := keyOf("shop", "web")
	r := deciding(nil, asked{answer: states})
	r.converger.reporter.session.superseded.Store(true) // nothing is written
	e := r.registry.wants(key, "d")
	e.doubts = 1
	_, err := r.query(t.Context(), key)
	require.NoError(t, err)
	require.Zero(t, e.doubts)

	unseen := newParts(nil, nil, "eu", slog.New(slog.DiscardHandler), none, none)
	r = deciding(unseen, asked{})
	e = r.registry.entry(key)
	e.failures, e.doubts = lastingFailures-1, 1
	require.Error(t, r.converger.handle(t.Context(), statesync.Item{Key: key, Deleted: true}))
	require.Zero(t, e.failures)
	require.Zero(t, e.doubts)

	synctest.Test(t, func(t *testing.T) {
		r := deciding(seeing(t), asked{})
		e := r.registry.entry(key)
		r.registry.set(e, desired{received: true})
		e.failures = lastingFailures - 1
		_, err := r.converger.converge(t.Context(), e, fromResync)
		require.NoError(t, err)
		require.Zero(t, e.failures)
	})
}

// TestAProvenListConfirmsTheDeletionsThatItStates.
func TestAProvenListConfirmsTheDeletionsThatItStates(t *testing.T) {
	t.Parallel()
	key := keyOf("shop", "web")
	for name, test := range map[string]struct {
		item statesync.Item
		want bool
	}{
		"states it":    {statesync.Item{Deleted: true, Version: 7}, true},
		"a newer one":  {statesync.Item{Deleted: true, Version: 8}, false},
		"wants it":     {statesync.Item{Version: 7}, false},
		"has it not":   {statesync.Item{}, false},
		"an older one": {statesync.Item{Deleted: true, Version: 6}, false},
	} {
		r := newRegistry()
		r.set(r.entry(key), desired{received: true, version: 7, deferred: true})
		listed := map[statesync.Key]statesync.Item{key: test.item}
		require.Empty(t, r.confirm(string(stream.Sentinels), listed), name)
		require.Equal(t, test.want, len(r.confirm(string(stream.Deployments), listed)) == 1, name)
		require.Equal(t, !test.want, r.desired(key).deferred, name)
	}
}

// TestWhatNoListHasIsForgotten with its id and its objects, unless a worker has it.
func TestWhatNoListHasIsForgotten(t *testing.T) {
	t.Parallel()
	r, object := newRegistry(), apply.ID{Kind: "Secret", Namespace: "shop", Name: "of-d"}
	old, busy, listed := keyOf("shop", "old"), keyOf("shop", "busy"), keyOf("shop", "listed")
	other := stream.Sentinels.Key("shop", "guard")
	for _, key := range []statesync.Key{old, busy, listed, other} {
		r.wants(key, "d")
		r.setID(key, "d")
	}
	_, _, ok := r.claim(r.entry(old), object)
	require.True(t, ok)
	_, _, ok = r.claim(r.entry(listed), object)
	require.False(t, ok, "another has it")
	before := r.entry(old)
	require.NoError(t, r.entry(busy).lock(t.Context()))
	r.forget(string(stream.Deployments), map[statesync.Key]statesync.Item{listed: {}})
	require.ElementsMatch(t, []statesync.Key{busy, listed, other}, r.present())
	require.Empty(t, r.id(old))
	require.Equal(t, "d", r.id(listed))
	_, known := r.owner(render.Deployment, object)
	require.False(t, known)
	require.True(t, before.tryLock(), "a worker that had it at hand goes on")
	require.False(t, r.entry(busy).tryLock(), "it is the same")
}

// TestVariablesBelongToACiphertextAndAKeyring.
func TestVariablesBelongToACiphertextAndAKeyring(t *testing.T) {
	t.Parallel()
	e := newEntry(keyOf("shop", "web"))
	of := func(keyring, ciphertext string) bool {
		_, known := e.plain(&ctrlv1.ApplyDeployment{EnvironmentId: keyring, EncryptedEnvironmentVariables: []byte(ciphertext)})
		return known
	}
	require.False(t, of("", ""), "nothing was decrypted")
	e.variables, e.keyring, e.ciphertext = map[string]string{}, "production", []byte("abc")
	require.True(t, of("production", "abc"))
	require.False(t, of("production", "abd"))
	require.False(t, of("preview", "abc"))
}

// TestOrphansAreSaidOnceInWhateverOrder.
func TestOrphansAreSaidOnceInWhateverOrder(t *testing.T) {
	t.Parallel()
	var log logtest.Log
	s := &sweeper{logger: slog.New(slog.NewTextHandler(&log, nil)), said: map[stream.Collection][]string{}}
	a, b := errors.New("a"), errors.New("b")
	for want, err := range []error{nil, errors.Join(a, b), b, errors.Join(b, a), nil} {
		s.say(t.Context(), stream.Deployments, err)
		s.say(t.Context(), stream.Deployments, err)
		s.say(t.Context(), stream.Sentinels, nil)
		require.Equal(t, min(want, 3), strings.Count(log.String(), "orphans not deleted"))
	}
	s.say(t.Context(), stream.Deployments, errors.Join(a, b))
	s.say(t.Context(), stream.Deployments, errors.Join(b, a))
	require.Equal(t, 4, strings.Count(log.String(), "orphans not deleted"))
}

// TestARefusalHoldsUntilItIsAnsweredOtherwise, and a report that is not repeated is forgotten.
func TestARefusalHoldsUntilItIsAnsweredOtherwise(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log logtest.Log
		m := newMetrics()
		c := newContact("", m, slog.New(slog.NewTextHandler(&log, nil)))
		held := func() float64 {
			families, err := m.registry.Gather()
			require.NoError(t, err)
			for _, f := range families {
				for _, each := range f.GetMetric() {
					if f.GetName() == metricPrefix+"deletions_held" && each.GetLabel()[0].GetValue() == unknownRegion {
						return each.GetGauge().GetValue()
					}
				}
			}
			return -1
		}
		c.failed("Heartbeat", fmt.Errorf("heartbeat: %w", statesync.ErrUnknownScope))
		require.True(t, c.refused())
		c.failed("Heartbeat", io.ErrUnexpectedEOF)
		require.True(t, c.refused(), "no answer is none that takes it back")
		require.InDelta(t, 1, held(), 0)
		c.failed("ReportDeploymentStatus", io.ErrUnexpectedEOF)
		c.answered("Heartbeat")
		require.False(t, c.refused())
		require.Zero(t, held())
		time.Sleep(forgotten)
		c.answered("Heartbeat")
		require.NotContains(t, log.String(), "again", "the report is to be repeated")
		time.Sleep(time.Nanosecond)
		c.answered("Heartbeat")
		require.Contains(t, log.String(), "contact with the control plane again")
		require.Contains(t, log.String(), "failures=3")
	})
}

// TestAReportThatIsNotAnsweredEnds.
func TestAReportThatIsNotAnsweredEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began, r := time.Now(), deciding(nil, asked{}).converger.reporter
		r.breakers, r.contact, r.logger = &breaker.Set{}, newContact("", r.metrics, slog.New(slog.DiscardHandler)), slog.New(slog.DiscardHandler)
		require.ErrorIs(t, r.send(t.Context(), keyOf("shop", "web"), "runs", "ReportDeploymentStatus", func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		}), context.DeadlineExceeded)
		require.Equal(t, reportTimeout, time.Since(began))
	})
}

// TestADeletionIsOwedOfDeploymentsAlone: of sentinels none is reported.
func TestADeletionIsOwedOfDeploymentsAlone(t *testing.T) {
	t.Parallel()
	r := deciding(nil, asked{}).converger.reporter
	r.lost(stream.Sentinels.Key("shop", "guard"))
	require.Empty(t, r.owed)
	r.lost(keyOf("shop", "web"))
	require.Len(t, r.owed, 1)
}

// TestAPodBelongsToItsReplicaSetAlone.
func TestAPodBelongsToItsReplicaSetAlone(t *testing.T) {
	t.Parallel()
	for kind, want := range map[string]bool{"ReplicaSet": true, "Job": false, "": false} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-abc"}}
		if controls := true; kind != "" {
			pod.OwnerReferences = []metav1.OwnerReference{{Kind: kind, Name: "web", Controller: &controls}}
		}
		key, ok := deploymentOf(pod)
		require.Equal(t, want, ok, kind)
		require.Equal(t, want, key == keyOf("shop", "web"), kind)
	}
}

// TestTheFirstHundredOfWhatIsHeldAreReported, and how many there are. What cannot be recorded is news, too.
func TestTheFirstHundredOfWhatIsHeldAreReported(t *testing.T) {
	t.Parallel()
	a, units := &approvals{held: map[stream.Collection]apply.Held{}}, make([]apply.HeldUnit, maxHeldUnits+1)
	units[0].Reason = strings.Repeat("r", maxHeldReason-1) + "ü" // which is cut
	require.True(t, a.hold(stream.Deployments, apply.Held{Units: units}))
	require.Nil(t, a.heldDeletions(), "there is nothing to approve")
	require.True(t, a.hold(stream.Deployments, apply.Held{Units: units[1:]}))
	require.False(t, a.hold(stream.Deployments, apply.Held{Units: units[1:]}))
	require.True(t, a.hold(stream.Deployments, apply.Held{Units: units, Digest: "d"}))
	report := a.heldDeletions()
	require.Len(t, report.GetUnits(), maxHeldUnits)
	require.EqualValues(t, maxHeldUnits+1, report.GetCount())
	require.Equal(t, strings.Repeat("r", maxHeldReason-1), report.GetUnits()[0].GetReason())
}

// TestASupersededAgentHoldsNothing: the other agent tells what it holds.
func TestASupersededAgentHoldsNothing(t *testing.T) {
	t.Parallel()
	r := deciding(nil, asked{})
	s := &sweeper{
		streams: r.streams, reporter: r.converger.reporter, metrics: r.metrics,
		held: map[stream.Collection]map[string]int{stream.Deployments: {"limit": 3}},
	}
	pass := func() (limit float64) {
		t.Helper()
		_, err := s.Reconcile(t.Context())
		require.NoError(t, err)
		var m dto.Metric
		require.NoError(t, r.metrics.held.WithLabelValues("limit").Write(&m))
		return m.GetGauge().GetValue()
	}
	require.InDelta(t, 3, pass(), 0)
	s.reporter.session.superseded.Store(true)
	require.Zero(t, pass())
}

// TestWhatIsAcceptedIsForgottenWithItsKey, and asked for of one collection alone.
func TestWhatIsAcceptedIsForgottenWithItsKey(t *testing.T) {
	t.Parallel()
	r := deciding(nil, asked{}).converger.reporter
	r.observer = newObserver(nil, "eu", r.metrics, slog.New(slog.DiscardHandler), r.changed)
	wanted, gone, old, owed := keyOf("shop", "web"), keyOf("shop", "gone"), keyOf("shop", "old"), keyOf("shop", "owed")
	guard := stream.Sentinels.Key("shop", "guard")
	r.registry.wants(wanted, "d")
	r.registry.wants(guard, "g")
	r.registry.set(r.registry.entry(gone), desired{received: true, gone: true})
	r.owe(owed)
	for _, key := range []statesync.Key{wanted, gone, old, owed, guard} {
		r.accepted[key], r.histories[key] = accepted{content: isGone}, &pods.History{}
	}
	keys := func() (all []statesync.Key) { return sorted(slices.Collect(maps.Keys(r.accepted))) }
	r.queueAll()
	require.Equal(t, []statesync.Key{gone, owed, wanted, guard}, keys())
	require.Len(t, r.histories, 4)
	r.again(stream.Deployments)
	require.Equal(t, []statesync.Key{guard}, keys())
}

// TestADebtIsPaidByTheReportThatWasAccepted, also if the same is not sent again.
func TestADebtIsPaidByTheReportThatWasAccepted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, key := deciding(nil, asked{}).converger.reporter, keyOf("shop", "web")
		r.inventory = time.Minute
		r.accepted[key] = accepted{content: isGone, at: time.Now(), holds: time.Minute}
		r.owe(key)
		require.NoError(t, r.send(t.Context(), key, isGone, "ReportDeploymentStatus", func(context.Context) error {
			return errors.New("it is sent")
		}))
		require.Empty(t, r.owed)
	})
}
