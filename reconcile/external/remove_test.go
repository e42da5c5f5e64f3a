package external_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/apply/readiness"
	"github.com/seed-9e1ffd66/trueup/reconcile"
	"github.com/seed-9e1ffd66/trueup/reconcile/external"
)

func TestWhatIsNoLongerWantedIsRemovedByItsPolicy(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change   func(*world)
		calls    []string
		recorded int
	}{
		"a part": {func(w *world) { w.mail = false }, []string{"delete Mailbox/post"}, 3},
		"two parts": {
			func(w *world) { w.zone, w.records = false, false },
			[]string{"delete Record/api", "delete Record/www", "delete Zone/example"},
			1,
		},
		"a thing":       {func(w *world) { w.names = []string{"api"} }, []string{"delete Record/www"}, 3},
		"another name":  {func(w *world) { w.names = []string{"www", "app"} }, []string{"create Record/app", "delete Record/api"}, 4},
		"one is needed": {func(w *world) { w.zone = false }, nil, 4},
		"nothing":       {func(*world) {}, nil, 4},
	} {
		for _, policy := range []string{"Delete", "Retain"} {
			w := newWorld(t)
			w.policy = policy
			_, err := w.run(t.Context())
			require.NoError(t, err)
			before := len(w.things)
			w.calls = nil
			c.change(w)
			p, err := w.run(t.Context())
			require.NoError(t, err)
			require.Equal(t, c.calls, w.calls, name)
			require.Len(t, w.status, c.recorded, name)
			require.Len(t, w.ours(), c.recorded, name)
			if policy == "Retain" {
				require.GreaterOrEqual(t, len(w.things), before, "%s: it is left", name)
			}
			if name == "one is needed" {
				require.EqualError(t, named(p, "records").Err, "waits for: zone", "it is turned off")
				require.EqualError(t, named(p, "zone").Left, "waits for: records")
			}
		}
	}
}

func TestWhatIsInUseStays(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, err := w.run(t.Context())
	require.NoError(t, err)
	w.mail, w.names = false, []string{"api"}
	p := w.pass()
	require.NoError(t, p.Plan(w.record(p)))
	p.Make(t.Context())
	inUse, asked := errors.New("the pods still use it"), 0
	p.Prune(t.Context(), func(context.Context) error {
		if asked++; asked == 1 {
			return inUse // the mail
		}
		return nil
	})
	require.Equal(t, 2, asked, "for each part that has such things")
	require.Equal(t, inUse, named(p, "mail").Left)
	require.NoError(t, named(p, "records").Left)
	require.NoError(t, w.write(p))
	require.Equal(t, []string{"Mailbox/post", "Record/api", "Zone/example"}, w.ours())
	require.Len(t, w.status, 3)
}

func TestAPartThatCannotBeRemovedHoldsUpOnlyWhatItNeeds(t *testing.T) {
	t.Parallel()
	for fails, left := range map[string][]string{
		"delete Zone":       {"Zone/example"},
		"delete Record/www": {"Record/www", "Zone/example"},
		"delete Mailbox":    {"Mailbox/post"},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			_, err := w.run(t.Context())
			require.NoError(t, err)
			w.fails[fails] = errAway
			began := time.Now()
			require.ErrorIs(t, w.teardown(t.Context()), errAway)
			require.Greater(t, time.Since(began), 3*time.Second, "it is tried again")
			require.Equal(t, left, w.ours(), fails)
			require.False(t, w.finished)
			for _, name := range left {
				require.Contains(t, names(w.status), name)
			}
			clear(w.fails)
			require.NoError(t, w.teardown(t.Context()))
			require.True(t, w.finished)
			require.Empty(t, w.ours())
		})
	}
}

// TestADeletionThatIsDeniedIsTriedAgain runs in a queue, which parks what only an event can change.
func TestADeletionThatIsDeniedIsTriedAgain(t *testing.T) {
	t.Parallel()
	for name, denied := range map[string]error{"denied": reconcile.Terminal(errAway), "foreign": external.ErrOwnedByOther} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			_, err := w.run(t.Context())
			require.NoError(t, err)
			w.fails["delete Zone"] = denied
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			began := time.Now()
			queue := &reconcile.Queue[string]{Backoff: reconcile.Backoff{Min: time.Minute}}
			queue.Reconcile = func(ctx context.Context, _ string) (reconcile.Result, error) {
				if time.Since(began) > 90*time.Second {
					clear(w.fails)
				}
				err := w.teardown(ctx)
				if err == nil {
					cancel()
				} else if !errors.Is(err, denied) {
					t.Errorf("%s: %v", name, err)
				}
				return reconcile.Result{}, err
			}
			queue.Add("site")
			time.AfterFunc(time.Hour, cancel)
			require.NoError(t, queue.Start(ctx))
			require.True(t, w.finished, name)
		})
	}
}

func names(things []external.Thing) (found []string) {
	for _, e := range things {
		found = append(found, key(e))
	}
	return found
}

func TestAPartThatIsRemovedInPartIsRecordedForTheRest(t *testing.T) {
	t.Parallel()
	for fail, err := range map[string]error{"denied": reconcile.Terminal(errAway), "away": errAway} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			_, failed := w.run(t.Context())
			require.NoError(t, failed)
			w.records = false
			w.fails["delete Record/www"] = err
			p, failed := w.run(t.Context())
			require.NoError(t, failed)
			require.ErrorIs(t, named(p, "records").Left, errAway)
			require.Equal(t, []string{"Mailbox/post", "Record/www", "Zone/example"}, w.ours(), fail)
			require.Equal(t, []string{"Zone/example", "Record/www", "Mailbox/post"}, names(w.status), fail)
		})
	}
}

func TestAPanicOfADeletionKeepsTheRecord(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, err := w.run(t.Context())
	require.NoError(t, err)
	p := w.pass()
	named(p, "records").Delete = func(_ context.Context, e external.Thing) error {
		if e.ID == "www" {
			panic("a bug")
		}
		return w.remove(e)
	}
	gone, err := p.Teardown(t.Context())
	require.False(t, gone)
	require.EqualError(t, err, "undo records: panic: a bug")
	require.NoError(t, w.write(p))
	require.Equal(t, []string{"Zone/example", "Record/www", "Record/api"}, names(w.status))

	w.records = false
	p = w.pass()
	named(p, "records").Delete = func(context.Context, external.Thing) error { panic("a bug") }
	p.Prune(t.Context(), free)
	require.Equal(t, readiness.Lasting, external.CauseOf(named(p, "records").Left).Outlook)
	require.Len(t, p.Recorded, 3)
}

// TestATeardownIsNotDoneWhileAPartWaits: the service is in use by as many passes as may.
func TestATeardownIsNotDoneWhileAPartWaits(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, err := w.run(t.Context())
	require.NoError(t, err)
	gate := external.NewGate(1)
	gate <- struct{}{}
	w.gates["records"] = gate
	p := w.pass()
	removed := 0
	named(p, "records").Removed = func(context.Context) error { removed++; return nil }
	gone, err := p.Teardown(t.Context())
	require.NoError(t, err)
	require.False(t, gone)
	require.Zero(t, removed)
	require.EqualError(t, named(p, "records").Left, "waits for its turn")
	require.EqualError(t, named(p, "zone").Left, "waits for: records")
	require.Equal(t, []string{"Record/api", "Record/www", "Zone/example"}, w.ours())
	<-gate
	gone, err = p.Teardown(t.Context())
	require.NoError(t, err)
	require.True(t, gone)
	require.Equal(t, 1, removed)
	require.Empty(t, w.ours())
}

func TestWhatGoesWithAPartIsRemovedAfterItsThings(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, err := w.run(t.Context())
	require.NoError(t, err)
	p := w.pass()
	fails := errAway
	mail := named(p, "mail")
	mail.Removed = func(context.Context) error {
		require.NotContains(t, w.ours(), "Mailbox/post")
		return fails
	}
	gone, err := p.Teardown(t.Context())
	require.ErrorIs(t, err, errAway)
	require.False(t, gone)
	fails = nil
	gone, err = p.Teardown(t.Context())
	require.NoError(t, err)
	require.True(t, gone)
}

func TestAFailingTeardownIsReportedBeforeTheWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		_, err := w.run(t.Context())
		require.NoError(t, err)
		w.fails["delete Mailbox"] = errAway
		p := w.pass()
		early, began := 0, time.Now()
		mail := named(p, "mail")
		mail.Early = func(context.Context) {
			require.ErrorIs(t, mail.Left, errAway)
			require.Zero(t, time.Since(began))
			early++
		}
		_, err = p.Teardown(t.Context())
		require.EqualError(t, err, "undo mail: the service is away")
		require.Equal(t, 1, early)
	})
}

// TestWhatNoPartKnowsIsNotForgotten has a status of a later version of the program.
func TestWhatNoPartKnowsIsNotForgotten(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.status = []external.Thing{{Kind: "Tunnel", ID: "t"}}
	_, err := w.run(t.Context())
	require.NoError(t, err)
	require.ErrorContains(t, w.teardown(t.Context()), "Tunnel t: is recorded, and no part has its kind")
	require.False(t, w.finished)
	require.Equal(t, []string{"Tunnel/t"}, names(w.status))
}

func TestWhatHasTheMarkOfAnotherIsRefusedAndNeverDeleted(t *testing.T) {
	t.Parallel()
	other := external.Mark{Domain: "dns.example.com", Cluster: "c", Namespace: "blue", Name: "site", UID: "u9"}
	for _, text := range []string{other.String(), "made by a person", "other.example.com" + other.String()[len(other.Domain):]} {
		w := newWorld(t)
		w.things["Record/www"] = text
		p, err := w.run(t.Context())
		require.NoError(t, err)
		require.ErrorIs(t, named(p, "records").Err, external.ErrOwnedByOther)
		require.Equal(t, "NotOurs", string(external.CauseOf(named(p, "records").Err).Reason))
		require.False(t, p.Usable(named(p, "records")))
		require.Equal(t, []string{"Mailbox/post", "Record/api", "Zone/example"}, w.ours())
		w.records = false
		_, err = w.run(t.Context())
		require.NoError(t, err)
		require.NoError(t, w.teardown(t.Context()))
		require.True(t, w.finished)
		require.Equal(t, map[string]string{"Record/www": text}, w.things)
	}
}

func TestASuccessorOfTheSameNameAdoptsWhatWasLeft(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.policy = "Retain"
	_, err := w.run(t.Context())
	require.NoError(t, err)
	require.NoError(t, w.teardown(t.Context()))
	require.True(t, w.finished)
	require.Len(t, w.things, 4)
	require.Empty(t, w.ours())
	w.uid = "u2"
	_, err = w.run(t.Context())
	require.NoError(t, err)
	require.Len(t, w.ours(), 4)
}
