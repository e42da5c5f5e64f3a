package operator //nolint:testpackage // outcomes are given

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/seed-9e1ffd66/trueup/reconcile"
	"github.com/seed-9e1ffd66/trueup/reconcile/external"
)

func TestPartsAreSeenInTheOutcome(t *testing.T) {
	t.Parallel()
	down, foreign := errors.New("503 Service Unavailable"), external.Owned("example.com", "record www", "made by hand")
	waits := fmt.Errorf("%w for: host", external.ErrWaits)
	for name, test := range map[string]struct {
		made, mail external.Part
		want       string
		again      time.Duration
		err        string
	}{
		"both are as they should be": {want: "Ready Ready: every child is as stated, and ready", again: time.Hour},
		"one fails": {
			mail: external.Part{Err: down}, again: time.Hour,
			want: "Reconciling RequestFailed: mail: 503 Service Unavailable", err: "mail: 503 Service Unavailable",
		},
		"one is another's, and is looked at again": {
			mail: external.Part{Err: foreign}, again: time.Hour,
			want: "Stalled NotOurs: mail: record www exists and has no mark of this operator: is owned by another; " +
				"remove it, or choose another name",
		},
		"one waits, and has its turn soon": {
			mail: external.Part{Err: waits}, want: "Reconciling Progressing: mail: waits for: host", again: 5 * time.Second,
		},
		"one is another's, and what is left waits": {
			mail: external.Part{Err: foreign, Left: waits}, again: 5 * time.Second,
			want: "Stalled NotOurs: mail: record www exists and has no mark of this operator: is owned by another; " +
				"remove it, or choose another name (and 1 more)",
		},
		"one fails, and another waits": {
			made: external.Part{Err: down}, mail: external.Part{Err: waits}, again: 5 * time.Second,
			want: "Reconciling RequestFailed: host: 503 Service Unavailable (and 1 more)", err: "host: 503 Service Unavailable",
		},
		"what is left fails": {
			made: external.Part{Left: down}, want: "Reconciling RequestFailed: host: 503 Service Unavailable",
			err: "host: 503 Service Unavailable", again: time.Hour,
		},
		"what only a person can end": {
			made: external.Part{Err: reconcile.Terminal(down)}, again: time.Hour,
			want: "Stalled RequestFailed: host: 503 Service Unavailable",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test.made.Name, test.mail.Name = "host", "mail"
			var o outcome
			err := o.seen(&external.Pass{Parts: []*external.Part{&test.made, &test.mail}}, time.Hour)
			state, reason, message := o.state()
			require.Equal(t, test.want, fmt.Sprintf("%s %s: %s", state, reason, message))
			require.Equal(t, test.again, o.again)
			if test.err == "" {
				require.NoError(t, err)
				return
			}
			require.EqualError(t, err, test.err)
			require.ErrorIs(t, err, down)
		})
	}
	for why, pass := range map[string]*external.Pass{
		"":                  {Parts: []*external.Part{{Name: "host", Wanted: true}, {Name: "mail", Err: down}}},
		"a part has failed": {Parts: []*external.Part{{Name: "host", Wanted: true, Err: down}}},
	} {
		err := inUse(pass, outcome{})
		require.Equal(t, why != "", errors.Is(err, external.ErrWaits), why)
		require.ErrorIs(t, inUse(pass, failed(down)), external.ErrWaits, "a child has failed")
	}
	var o outcome
	o.look(askAgain)
	require.NoError(t, o.seen(nil, 0))
	require.Equal(t, askAgain, o.again, "without things outside all is as before")
}

// TestWhatIsKnownOfPartsGoesWithTheirObject: a program that runs for months sees many objects come and go.
func TestWhatIsKnownOfPartsGoesWithTheirObject(t *testing.T) {
	t.Parallel()
	w, object, looks := worker(t, &rest.Config{}), shopIn("x"), 0
	var things []external.Thing
	w.operator.Outside = &Outside[*shop]{
		Things: func(*shop) *[]external.Thing { return &things },
		Parts: func(*shop) []*external.Part {
			return []*external.Part{{Name: "host", Wanted: true, Make: func(context.Context) error { looks++; return nil }}}
		},
	}
	w.checks = &external.Checks{Interval: time.Hour}
	look := func() {
		pass, err := w.outside(object)
		require.NoError(t, err)
		pass.Make(t.Context())
	}
	look()
	look()
	require.Equal(t, 1, looks)
	gone, err := w.teardown(t.Context(), object)
	require.NoError(t, err)
	require.True(t, gone)
	look()
	require.Equal(t, 2, looks)
}

// TestAnObjectThatTheTypeCannotHoldStaysWithWhatItHasOutside: its fields may say how to find that.
func TestAnObjectThatTheTypeCannotHoldStaysWithWhatItHasOutside(t *testing.T) {
	t.Parallel()
	s := &server{}
	w, object := worker(t, &rest.Config{Host: "http://server", Transport: s}), shopIn("x")
	w.operator.Outside = &Outside[*shop]{}
	now := metav1.Now()
	object.DeletionTimestamp, object.Finalizers = &now, []string{w.finalizer.Name}
	_, err := w.misfit(t.Context(), object, reconcile.Terminal(errors.New("cannot hold it")))
	require.ErrorContains(t, err, "cannot hold it")
	require.Equal(t, 1, s.writes, "of the status")
	require.EqualValues(t, reasonInvalidObject, readyOf(object.Status.Conditions).Reason)
}

// TestAPanicOfPartsIsInTheStatus: a deletion that does not go on says why.
func TestAPanicOfPartsIsInTheStatus(t *testing.T) {
	t.Parallel()
	s := &server{}
	w, object := worker(t, &rest.Config{Host: "http://server", Transport: s}), shopIn("x")
	w.operator.Outside = &Outside[*shop]{
		Parts:  func(*shop) []*external.Part { panic("no such zone") },
		Things: func(*shop) *[]external.Thing { return &[]external.Thing{} },
	}
	gone, err := w.teardown(t.Context(), object)
	require.False(t, gone)
	require.ErrorContains(t, err, "no such zone")
	require.Equal(t, 1, s.writes)
	require.Contains(t, readyOf(object.Status.Conditions).Message, "no such zone")
}

func TestPartsAreLookedAtEveryFiveMinutesUnlessAnotherTimeIsStated(t *testing.T) {
	t.Parallel()
	o := worker(t, &rest.Config{}).operator
	for stated, want := range map[time.Duration]time.Duration{0: 5 * time.Minute, time.Hour: time.Hour} {
		o.Outside = &Outside[*shop]{Interval: stated}
		w, err := newWork(o)
		require.NoError(t, err)
		require.Equal(t, want, w.checks.Interval)
	}
}
