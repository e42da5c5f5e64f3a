package external_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/apply/readiness"
	"github.com/seed-9e1ffd66/trueup/reconcile"
	"github.com/seed-9e1ffd66/trueup/reconcile/external"
)

func TestPartsAreMadeInOrderAndTakenDownInReverse(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, err := w.run(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{"create Zone/example", "create Record/www", "create Record/api", "create Mailbox/post"}, w.calls)
	require.Equal(t, []external.Thing{
		{Kind: "Zone", ID: "example", Made: true},
		{Kind: "Record", ID: "www", Made: true},
		{Kind: "Record", ID: "api", Made: true},
		{Kind: "Mailbox", ID: "post", Made: true},
	}, w.status)
	w.calls = nil
	require.NoError(t, w.teardown(t.Context()))
	require.Equal(t, []string{"delete Mailbox/post", "delete Record/api", "delete Record/www", "delete Zone/example"}, w.calls)
	require.True(t, w.finished)
	require.Empty(t, w.status)
}

func TestAPartThatFailsHoldsUpOnlyWhatNeedsIt(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		fails string
		ours  []string
		err   map[string]string
	}{
		{"create Zone", []string{"Mailbox/post"}, map[string]string{"zone": "the service is away", "records": "waits for: zone", "mail": ""}},
		{
			"create Record/www",
			[]string{"Mailbox/post", "Record/api", "Zone/example"},
			map[string]string{"zone": "", "records": "the service is away", "mail": ""},
		},
		{
			"create Mailbox",
			[]string{"Record/api", "Record/www", "Zone/example"},
			map[string]string{"zone": "", "records": "", "mail": "the service is away"},
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			w.fails[c.fails] = errAway
			p, err := w.run(t.Context())
			require.NoError(t, err)
			require.Equal(t, c.ours, w.ours())
			for name, message := range c.err {
				part := named(p, name)
				if message == "" {
					require.NoError(t, part.Err, name)
				} else {
					require.EqualError(t, part.Err, message, name)
				}
				require.Equal(t, message == "", p.Usable(part), name)
			}
			clear(w.fails)
			_, err = w.run(t.Context())
			require.NoError(t, err)
			require.Len(t, w.ours(), 4, "it is made once it can be")
		})
	}
}

// TestAPartWaitsForWhatIsNotWanted has a need that no part meets.
func TestAPartWaitsForWhatIsNotWanted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.zone = false
	p, err := w.run(t.Context())
	require.NoError(t, err)
	require.ErrorIs(t, named(p, "records").Err, external.ErrWaits)
	require.Equal(t, []string{"Mailbox/post"}, w.ours())
	p = w.pass()
	named(p, "mail").Needs = []string{"zone", "records"}
	require.NoError(t, p.Plan(w.record(p)))
	w.checks.Forget(w.uid)
	p.Make(t.Context())
	require.EqualError(t, named(p, "mail").Err, "waits for: zone, records")
	require.True(t, p.Usable(named(p, "mail")), "it was made before")
}

func TestAPartWithoutThingsIsUsableUnlessItFails(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	part := &external.Part{Name: "part", Wanted: true}
	p := external.Pass{Parts: []*external.Part{part}, Checks: &w.checks}
	require.True(t, p.Usable(part))
	part.Make = func(context.Context) error { return reconcile.Terminal(errAway) }
	p.Make(t.Context())
	require.False(t, p.Usable(part))
}

func TestEachGateLetsOnePass(t *testing.T) {
	t.Parallel()
	for _, passes := range []int{-1, 0, 1} {
		w := newWorld(t)
		w.gates["mail"] = external.NewGate(passes)
		p, err := w.run(t.Context())
		require.NoError(t, err)
		require.NoError(t, named(p, "mail").Err, passes)
	}
}

func TestAPartIsTriedThreeTimesMore(t *testing.T) {
	t.Parallel()
	within := func(t *testing.T, d, least, most time.Duration) {
		t.Helper()
		require.GreaterOrEqual(t, d, least)
		require.LessOrEqual(t, d, most)
	}
	for _, fails := range []int{0, 1, 2, 3, 4} {
		synctest.Test(t, func(t *testing.T) {
			var at []time.Time
			early := 0
			part := &external.Part{Name: "part", Wanted: true, Make: func(context.Context) error {
				if at = append(at, time.Now()); len(at) <= fails {
					return errAway
				}
				return nil
			}}
			part.Early = func(context.Context) {
				require.ErrorIs(t, part.Err, errAway)
				require.Len(t, at, 1, "the first failure is reported before a wait")
				early++
			}
			p := external.Pass{Parts: []*external.Part{part}, Checks: &external.Checks{Interval: time.Minute}}
			began := time.Now()
			p.Make(t.Context())
			require.Len(t, at, min(fails+1, 4))
			require.Equal(t, min(fails, 1), early)
			require.Equal(t, fails == 4, part.Err != nil)
			require.Equal(t, time.Since(began), part.Took)
			for i := 1; i < len(at); i++ {
				wait := time.Second << (i - 1)
				within(t, at[i].Sub(at[i-1]), wait/2, wait*3/2)
			}
		})
	}
}

func TestWhatOnlyAPersonCanEndIsNotTriedAgain(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func() error{
		"terminal": func() error { return fmt.Errorf("record: %w", reconcile.Terminal(errors.New("denied"))) },
		"foreign":  func() error { return external.Owned("dns.example.com", "record www", "") },
		"one of two": func() error {
			return errors.Join(errAway, reconcile.Terminal(errors.New("denied")))
		},
		"panic": func() error { panic("a bug") },
	} {
		synctest.Test(t, func(t *testing.T) {
			began, calls := time.Now(), 0
			part := &external.Part{
				Name: "part", Wanted: true, Make: func(context.Context) error { calls++; return fail() },
				Early: func(context.Context) { t.Error("it is reported at the end") },
			}
			other := &external.Part{Name: "other", Wanted: true, Make: func(context.Context) error { return nil }}
			p := external.Pass{Parts: []*external.Part{part, other}, Checks: &external.Checks{Interval: time.Minute}}
			p.Make(t.Context())
			require.Equal(t, readiness.Lasting, external.CauseOf(part.Err).Outlook, name)
			require.Equal(t, 1, calls, name)
			require.Zero(t, time.Since(began), name)
			require.True(t, other.Checked, "the next part is made")
			require.NoError(t, other.Err)
		})
	}
}

// TestAServiceThatHangsHoldsUpNoOther has one pass that hangs in a part, and one for another object.
func TestAServiceThatHangsHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, other := newWorld(t), newWorld(t)
		w.gates["zone"] = external.NewGate(1)
		other.gates = w.gates
		hanging := w.pass()
		named(hanging, "zone").Make = func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, time.Minute)
			defer cancel()
			<-ctx.Done()
			return ctx.Err()
		}
		require.NoError(t, hanging.Plan(w.record(hanging)))
		done := make(chan struct{})
		began := time.Now()
		go func() {
			defer close(done)
			hanging.Make(t.Context())
		}()
		synctest.Wait()
		p, err := other.run(t.Context())
		require.NoError(t, err)
		require.Zero(t, time.Since(began))
		require.EqualError(t, named(p, "zone").Err, "waits for its turn")
		require.Equal(t, readiness.Waiting, external.CauseOf(named(p, "zone").Err).Outlook)
		require.Equal(t, []string{"Mailbox/post"}, other.ours())
		<-done
		require.Equal(t, []string{"Mailbox/post"}, w.ours(), "the other parts of the object follow")
		require.ErrorIs(t, named(hanging, "zone").Err, context.DeadlineExceeded)
		require.Less(t, time.Since(began), 5*time.Minute)
		_, err = other.run(t.Context())
		require.NoError(t, err)
		require.Len(t, other.ours(), 4, "the turn is given back")
	})
}

func TestNothingIsMadeThatIsNotRecorded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.pass()
	p.Make(t.Context())
	require.EqualError(t, named(p, "mail").Err, "nothing is made that is not recorded")

	p = w.pass()
	w.fails["status"] = errAway
	require.ErrorIs(t, p.Plan(w.record(p)), errAway)
	p.Make(t.Context())

	p = w.pass()
	gone := func() ([]external.Thing, error) { return nil, nil } // the object is not there any more
	require.ErrorContains(t, p.Plan(gone), "the object has changed meanwhile")
	p.Make(t.Context())
	require.Empty(t, w.things)
	require.Empty(t, w.calls)
}

// TestAPassLeavesTheStatusThatItWasGivenAlone: the write of a status compares with it.
func TestAPassLeavesTheStatusThatItWasGivenAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, err := w.run(t.Context())
	require.NoError(t, err)
	given := slices.Clone(w.status)
	w.policy, w.names = "Retain", []string{"www"}
	p := w.pass()
	require.NoError(t, p.Plan(func() ([]external.Thing, error) { return p.Merge(given), nil }))
	p.Make(t.Context())
	p.Prune(t.Context(), free)
	require.Equal(t, given, w.status)
	require.Equal(t, "Retain", p.Recorded[0].Policy)
	require.Len(t, p.Recorded, 3)
}

func TestAServiceThatIsNotSetUpRecordsNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	unset := errors.New("zone: is not set up")
	p := w.pass()
	named(p, "zone").Unset = unset
	require.NoError(t, p.Plan(w.record(p)))
	p.Make(t.Context())
	require.ErrorIs(t, named(p, "zone").Err, unset)
	require.Equal(t, readiness.Lasting, external.CauseOf(named(p, "zone").Err).Outlook)
	require.NotContains(t, w.status, external.Thing{Kind: "Zone", ID: "example"})
	require.Equal(t, []string{"Mailbox/post"}, w.ours())

	_, err := w.run(t.Context())
	require.NoError(t, err)
	w.checks.Forget(w.uid)
	p = w.pass()
	named(p, "zone").Unset = unset
	require.NoError(t, p.Plan(w.record(p)))
	p.Make(t.Context())
	p.Prune(t.Context(), free)
	require.Len(t, w.ours(), 4, "what was made before stays")
	require.True(t, p.Usable(named(p, "zone")))
}

func TestAPartIsLookedAtWhenACheckIsDue(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	now := time.Unix(1000, 0)
	w.checks.Now = func() time.Time { return now }
	looked := func(change func(*external.Pass)) (names []string, again time.Duration) {
		p := w.pass()
		if change != nil {
			change(p)
		}
		require.NoError(t, p.Plan(w.record(p)))
		again = p.Make(t.Context())
		require.NoError(t, w.write(p))
		for _, part := range p.Parts {
			if part.Checked {
				names = append(names, part.Name)
			}
		}
		return names, again
	}
	all := []string{"zone", "records", "mail"}
	for _, step := range []struct {
		what   string
		after  time.Duration
		change func(*external.Pass)
		looked []string
		again  time.Duration
	}{
		{"the first", 0, nil, all, 5 * time.Minute},
		{"too early", time.Minute, nil, nil, 4 * time.Minute},
		{"a part is lost", 0, func(p *external.Pass) { named(p, "mail").Lost = func() bool { return true } }, []string{"mail"}, 4 * time.Minute},
		{"the others are due before", 4*time.Minute - 1, nil, nil, 1},
		{"in time", 1, nil, []string{"zone", "records"}, time.Minute},
		{"another version", 0, func(p *external.Pass) { p.Version = "2" }, all, 5 * time.Minute},
		{"this version again", 0, nil, all, 5 * time.Minute},
		{"a part fails", 0, func(p *external.Pass) {
			mail := named(p, "mail")
			mail.Lost = func() bool { return true }
			mail.Make = func(context.Context) error { return reconcile.Terminal(errAway) }
		}, []string{"mail"}, 5 * time.Minute},
		{"it is looked at again, and the others are not", 0, nil, []string{"mail"}, 5 * time.Minute},
		{"forgotten", 0, func(*external.Pass) { w.checks.Forget(w.uid) }, all, 5 * time.Minute},
		{"another object", 0, func(*external.Pass) { w.checks.Forget("u2") }, nil, 5 * time.Minute},
		{
			"not wanted", 10 * time.Minute, func(p *external.Pass) { named(p, "mail").Wanted = false },
			[]string{"zone", "records"},
			5 * time.Minute,
		},
	} {
		now = now.Add(step.after)
		names, again := looked(step.change)
		require.Equal(t, step.looked, names, step.what)
		require.Equal(t, step.again, again, step.what)
	}
}

func TestAStatusOfALaterStateIsKept(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, err := w.run(t.Context())
	require.NoError(t, err)
	w.mail = false
	p := w.pass()
	require.NoError(t, p.Plan(w.record(p)))
	p.Prune(t.Context(), free)
	later := append(slices.Clone(w.status), external.Thing{Kind: "Record", ID: "later"})
	merged := p.Merge(later)
	require.Contains(t, merged, external.Thing{Kind: "Record", ID: "later"})
	require.NotContains(t, merged, external.Thing{Kind: "Mailbox", ID: "post", Made: true}, "what the pass has removed")
	require.Equal(t, merged, p.Recorded)
}

func TestAPassEndsWithItsContext(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, cancel := context.WithCancel(t.Context())
	p := w.pass()
	require.NoError(t, p.Plan(w.record(p)))
	named(p, "zone").Make = func(context.Context) error { cancel(); return errAway }
	named(p, "zone").Early = func(context.Context) { t.Error("the process ends: it can report nothing") }
	p.Make(ctx)
	require.Empty(t, w.things)
	require.False(t, named(p, "zone").Checked)
	require.False(t, p.Usable(named(p, "mail")), "it is not known")
}
