package kube_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/reconcile"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube"
)

// span is one time that the work ran.
type span struct {
	who         string
	start, stop time.Time // stop is zero while it runs
	cause       error
}

// stage records which elector works when.
type stage struct {
	mu    sync.Mutex
	spans []*span
	turns int
}

// forget drops all spans but the last ones.
func (s *stage) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	drop := max(0, len(s.spans)-20)
	s.turns += drop
	s.spans = s.spans[drop:]
}

// work runs until told to stop, and then takes some time.
func (s *stage) work(who string, stopping time.Duration) reconcile.Starter {
	return reconcile.StarterFunc(func(ctx context.Context) error {
		now := &span{who: who, start: time.Now()}
		s.mu.Lock()
		s.spans = append(s.spans, now)
		s.mu.Unlock()
		<-ctx.Done()
		time.Sleep(stopping)
		s.mu.Lock()
		defer s.mu.Unlock()
		now.stop, now.cause = time.Now(), context.Cause(ctx)
		return nil
	})
}

func (s *stage) all() []span {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []span
	for _, one := range s.spans {
		all = append(all, *one)
	}
	return all
}

// who lists the electors that worked, in order.
func (s *stage) who() string {
	var names []string
	for _, one := range s.all() {
		names = append(names, one.who)
	}
	return strings.Join(names, " ")
}

// overlap is the longest time that two worked at once.
func (s *stage) overlap() time.Duration {
	all := s.all()
	var longest time.Duration
	for i, a := range all {
		for _, b := range all[i+1:] { // b started later
			if a.stop.IsZero() || a.stop.After(b.start) {
				end := time.Now()
				for _, stop := range []time.Time{a.stop, b.stop} {
					if !stop.IsZero() && stop.Before(end) {
						end = stop
					}
				}
				longest = max(longest, end.Sub(b.start))
			}
		}
	}
	return longest
}

// start runs a lease until stop is called, which returns the error of Start.
func start(t *testing.T, lease *kube.Lease) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- lease.Start(ctx) }()
	return func() error {
		cancel()
		err := <-done
		done <- err
		return err
	}
}

func (s *stage) lease(c *client, who string) *kube.Lease {
	return &kube.Lease{Client: c, Namespace: "shop", Name: "boss", Identity: who, Starter: s.work(who, 0)}
}

func TestAStandbyTakesOverAtOnceWhenTheLeaseIsGivenBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, st := newServer(), &stage{}
		stopA := start(t, st.lease(s.client(), "a"))
		time.Sleep(time.Second)
		stopB := start(t, st.lease(s.client(), "b"))
		time.Sleep(100*time.Second + 333*time.Millisecond)
		require.Equal(t, "a", st.who())
		require.NoError(t, stopA())
		synctest.Wait()
		require.Equal(t, "a b", st.who())
		require.Zero(t, st.all()[1].start.Sub(st.all()[0].stop))
		require.Zero(t, st.overlap())
		require.EqualValues(t, 1, s.spec()["leaseTransitions"])
		require.NoError(t, stopB())
		require.Empty(t, s.spec()["holderIdentity"])
	})
}

func TestWithoutWatchAStandbyTakesOverAtItsNextLook(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, st := newServer(), &stage{}
		stopA := start(t, st.lease(s.client(), "a"))
		time.Sleep(time.Second)
		b := s.client()
		b.denied = true
		stopB := start(t, st.lease(b, "b"))
		time.Sleep(100 * time.Second)
		require.NoError(t, stopA())
		time.Sleep(2400 * time.Millisecond)
		synctest.Wait()
		require.Equal(t, "a b", st.who())
		require.NoError(t, stopB())
	})
}

func TestWorkThatCannotReachTheServerIsStoppedBeforeAnotherStarts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, st := newServer(), &stage{}
		a := s.client()
		la := st.lease(a, "a")
		la.Starter = st.work("a", 4900*time.Millisecond)
		stopA := start(t, la)
		time.Sleep(time.Second)
		stopB := start(t, st.lease(s.client(), "b"))
		time.Sleep(60 * time.Second)
		cut := time.Now()
		a.breaks(func(c *client) { c.down = true })
		time.Sleep(60 * time.Second)
		require.Equal(t, "a b", st.who())
		require.Zero(t, st.overlap())
		first, second := st.all()[0], st.all()[1]
		require.ErrorIs(t, first.cause, kube.ErrLeaseLost)
		require.LessOrEqual(t, first.stop.Sub(cut), 15*time.Second)
		require.LessOrEqual(t, second.start.Sub(cut), 15*time.Second+2400*time.Millisecond)
		t.Logf("after the cut: work stopped %v, taken over %v", first.stop.Sub(cut), second.start.Sub(cut))

		a.breaks(func(c *client) { c.down = false })
		time.Sleep(60 * time.Second)
		require.Equal(t, "a b", st.who())
		require.NoError(t, stopB())
		synctest.Wait()
		require.Equal(t, "a b a", st.who())
		require.NoError(t, stopA())
	})
}

// A renewal counts from when it was sent: others may have seen it long before
// its answer comes.
func TestSlowAnswersDoNotMakeALeaseLonger(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, st := newServer(), &stage{}
		a := s.client()
		la := st.lease(a, "a")
		la.Starter = st.work("a", 4900*time.Millisecond)
		stopA := start(t, la)
		time.Sleep(time.Second)
		stopB := start(t, st.lease(s.client(), "b"))
		a.breaks(func(c *client) { c.latency = 2400 * time.Millisecond })
		for range 20 {
			time.Sleep(30*time.Second + 700*time.Millisecond)
			a.breaks(func(c *client) { c.down = true })
			time.Sleep(40 * time.Second)
			a.breaks(func(c *client) { c.down = false })
			require.Zero(t, st.overlap())
			require.NoError(t, stopB())
			stopB = start(t, st.lease(s.client(), "b"))
		}
		require.NoError(t, stopA())
		require.NoError(t, stopB())
		require.Greater(t, len(st.all()), 20)
	})
}

func TestALeaseTakenWhileStoppingIsGivenBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, st := newServer(), &stage{}
		a := s.client()
		a.latency = 1500 * time.Millisecond
		stopA := start(t, st.lease(a, "a"))
		time.Sleep(3500 * time.Millisecond) // the request that takes it is on its way
		require.NoError(t, stopA())
		require.Contains(t, s.spec(), "holderIdentity")
		require.Empty(t, s.spec()["holderIdentity"])
		require.Empty(t, st.who())
	})
}

func TestFailuresShorterThanTheDeadlineDisturbNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, st := newServer(), &stage{}
		a := s.client()
		stopA := start(t, st.lease(a, "a"))
		for range 20 {
			time.Sleep(11 * time.Second)
			a.breaks(func(c *client) { c.down = true })
			time.Sleep(4500 * time.Millisecond)
			a.breaks(func(c *client) { c.down, c.deaf = false, true })
			time.Sleep(600 * time.Millisecond)
			a.breaks(func(c *client) { c.deaf = false })
		}
		require.Equal(t, "a", st.who())
		require.NoError(t, stopA())
	})
}

func TestWorkStartsAnewAfterAnOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, st := newServer(), &stage{}
		a := s.client()
		stopA := start(t, st.lease(a, "a"))
		time.Sleep(time.Minute)
		cut := time.Now()
		a.breaks(func(c *client) { c.down = true })
		time.Sleep(time.Minute)
		require.InDelta(t, 10, st.all()[0].stop.Sub(cut).Seconds(), 2.5)
		a.breaks(func(c *client) { c.down = false })
		time.Sleep(3 * time.Second)
		require.Equal(t, "a a", st.who())
		require.EqualValues(t, 0, s.spec()["leaseTransitions"])
		require.NoError(t, stopA())
	})
}

func TestTheLeaseIsKeptUntilTheWorkHasStopped(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, st := newServer(), &stage{}
		a := st.lease(s.client(), "a")
		a.Starter = st.work("a", 10*time.Minute)
		stopA := start(t, a)
		time.Sleep(time.Second)
		stopB := start(t, st.lease(s.client(), "b"))
		time.Sleep(time.Minute)
		require.NoError(t, stopA())
		synctest.Wait()
		require.Equal(t, "a b", st.who())
		require.Zero(t, st.overlap())
		require.NoError(t, stopB())
	})
}

func TestAStolenLeaseStopsTheWork(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, st := newServer(), &stage{}
		stopA := start(t, st.lease(s.client(), "a"))
		time.Sleep(time.Minute)
		stolen := s.get()
		spec := stolen.Object["spec"].(map[string]any)
		// The thief's clock is years off, which must not matter.
		spec["holderIdentity"], spec["renewTime"] = "thief", "1999-01-01T00:00:00.000000Z"
		spec["leaseDurationSeconds"] = int64(40)
		s.set(stolen)
		at := time.Now()
		time.Sleep(2400 * time.Millisecond)
		synctest.Wait()
		require.LessOrEqual(t, st.all()[0].stop.Sub(at), 2400*time.Millisecond)
		require.ErrorIs(t, st.all()[0].cause, kube.ErrLeaseLost)

		time.Sleep(time.Minute)
		require.Equal(t, "a a", st.who())
		require.GreaterOrEqual(t, st.all()[1].start.Sub(at), 40*time.Second, "the thief's own duration counts")
		require.LessOrEqual(t, st.all()[1].start.Sub(at), 43*time.Second)
		require.NoError(t, stopA())
	})
}

func TestTwoProcessesWithOneIdentityDoNotWorkAtTheSameTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, st := newServer(), &stage{}
		stop1 := start(t, st.lease(s.client(), "twin"))
		time.Sleep(time.Second)
		stop2 := start(t, st.lease(s.client(), "twin"))
		time.Sleep(time.Hour)
		require.Equal(t, "twin", st.who())
		require.NoError(t, stop1())
		synctest.Wait()
		require.Equal(t, "twin twin", st.who())
		require.Zero(t, st.overlap())
		require.NoError(t, stop2())
	})
}

func TestADeletedLeaseChangesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, st := newServer(), &stage{}
		stopA := start(t, st.lease(s.client(), "a"))
		time.Sleep(time.Second)
		stopB := start(t, st.lease(s.client(), "b"))
		for range 100 {
			time.Sleep(5*time.Second + 300*time.Millisecond)
			s.set(nil)
		}
		time.Sleep(5 * time.Second)
		require.Equal(t, "a", st.who())
		require.Equal(t, "a", s.spec()["holderIdentity"])
		require.NoError(t, stopA())
		require.NoError(t, stopB())
	})
}

func TestAnEditOfTheObjectThatLeavesTheRecordChangesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, st := newServer(), &stage{}
		stopA := start(t, st.lease(s.client(), "a"))
		for range 10 {
			time.Sleep(5 * time.Second)
			touched := s.get()
			touched.SetAnnotations(map[string]string{"note": time.Now().String()})
			s.set(touched)
		}
		time.Sleep(time.Minute)
		require.Equal(t, "a", st.who())
		require.NotEmpty(t, s.get().GetAnnotations())
		require.NoError(t, stopA())
	})
}

func TestAtRestALeaseCostsOneWriteEachPeriod(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, st := newServer(), &stage{}
		a, b := s.client(), s.client()
		stopA := start(t, st.lease(a, "a"))
		time.Sleep(time.Second)
		stopB := start(t, st.lease(b, "b"))
		time.Sleep(1000 * time.Second)
		s.mu.Lock()
		require.InDelta(t, 500, a.writes, 25)
		require.Zero(t, b.writes)
		s.mu.Unlock()
		require.NoError(t, stopB())
		require.NoError(t, stopA())
	})
}

func TestWorkThatEndsGivesTheLeaseBack(t *testing.T) {
	t.Parallel()
	failure := errors.New("disk full")
	for name, row := range map[string]struct {
		work func(context.Context) error
		want func(t *testing.T, err error)
		kept bool
	}{
		"done":   {work: func(context.Context) error { return nil }, want: func(t *testing.T, err error) { t.Helper(); require.NoError(t, err) }},
		"failed": {work: func(context.Context) error { return failure }, want: func(t *testing.T, err error) { t.Helper(); require.ErrorIs(t, err, failure) }},
		"panicked": {work: func(context.Context) error { panic(failure) }, want: func(t *testing.T, err error) {
			t.Helper()
			_, ok := errors.AsType[*reconcile.PanicError](err)
			require.True(t, ok)
			require.ErrorIs(t, err, failure)
		}},
		"cannot be stopped": {work: func(context.Context) error {
			return fmt.Errorf("group: %w", &reconcile.StuckError{Names: []string{"x"}})
		}, want: func(t *testing.T, err error) {
			t.Helper()
			_, ok := errors.AsType[*reconcile.StuckError](err)
			require.True(t, ok)
		}, kept: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newServer()
				lease := &kube.Lease{Client: s.client(), Namespace: "shop", Name: "boss", Identity: "a", Starter: reconcile.StarterFunc(row.work)}
				row.want(t, lease.Start(t.Context()))
				holder := ""
				if row.kept {
					holder = "a"
				}
				require.Equal(t, holder, s.spec()["holderIdentity"])
			})
		})
	}
}

func TestChangesAreReportedInOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, st := newServer(), &stage{}
		stopA := start(t, st.lease(s.client(), "a"))
		time.Sleep(time.Second)
		b := st.lease(s.client(), "b")
		var log bytes.Buffer
		b.Logger = slog.New(slog.NewTextHandler(&log, nil))
		var seen []kube.LeaseState
		b.OnChange = func(state kube.LeaseState) {
			seen = append(seen, state)
			panic("ignored")
		}
		stopB := start(t, b)
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, 1, strings.Count(log.String(), "waiting, another process holds the lease"), log.String())
		require.Regexp(t, `waiting, .* identity=b holder=a`, log.String())
		require.NoError(t, stopA())
		time.Sleep(time.Minute)
		require.NoError(t, stopB())
		require.Equal(t, 1, strings.Count(log.String(), "waiting"), log.String())
		require.Equal(t, []kube.LeaseState{{Holder: "a"}, {Holder: "b", Held: true}, {}}, seen)
	})
}

func TestALeaseOutOfRangeNamesTheField(t *testing.T) {
	t.Parallel()
	c, work := newServer().client(), (&stage{}).work("a", 0)
	for want, lease := range map[string]*kube.Lease{
		"kube: Lease.Client: is required":                        {Namespace: "shop", Name: "boss", Starter: work},
		"kube: Lease.Starter: is required":                       {Client: c, Namespace: "shop", Name: "boss"},
		"kube: Lease.Name: is required":                          {Client: c, Namespace: "shop", Starter: work},
		`kube: Lease.Namespace: is "a.b", must be a DNS label: `: {Client: c, Namespace: "a.b", Name: "boss", Starter: work},
		"kube: Lease.Namespace: is required":                     {Client: c, Name: "boss", Starter: work},
		`kube: Lease.Name: is "Boss", must be a DNS subdomain: `: {Client: c, Namespace: "shop", Name: "Boss", Starter: work},
		"kube: Lease.Duration: is -1ns, must be 0 (15s) or more": {Client: c, Namespace: "shop", Name: "boss", Starter: work, Duration: -1},
		"kube: Lease.RenewDeadline: is 15s, must be 0 (two thirds of Duration) or more, and less than Duration, 15s":                       {Client: c, Namespace: "shop", Name: "boss", Starter: work, RenewDeadline: 15 * time.Second},
		"kube: Lease.RetryPeriod: is 9s, must be 0 (two fifteenths of Duration) or more, and with 20 % added less than RenewDeadline, 10s": {Client: c, Namespace: "shop", Name: "boss", Starter: work, RetryPeriod: 9 * time.Second},
	} {
		require.ErrorContains(t, lease.Start(t.Context()), want)
	}
}

func TestALeaseThatRunsCannotBeStartedTwice(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		lease := (&stage{}).lease(newServer().client(), "a")
		stop := start(t, lease)
		time.Sleep(time.Second)
		require.ErrorContains(t, lease.Start(t.Context()), "running already")
		require.NoError(t, stop())
	})
}

// TestNoTwoWorkAtOnceWhateverFails lets five electors live for eight virtual hours
// among failing, slow and unanswered requests, outages and restarts.
func TestNoTwoWorkAtOnceWhateverFails(t *testing.T) {
	t.Parallel()
	for seed := range uint64(8) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				random := rand.New(rand.NewPCG(seed, 1))
				s, st := newServer(), &stage{}
				var clients []*client
				var stops []func() error
				launch := func(i int) {
					who := fmt.Sprint("e", i)
					lease := st.lease(clients[i], who)
					lease.Starter = st.work(who, time.Duration(random.Int64N(int64(4*time.Second))))
					stops[i] = start(t, lease)
				}
				for i := range 5 {
					c := s.client()
					c.chaos = rand.New(rand.NewPCG(seed, uint64(100+i)))
					clients, stops = append(clients, c), append(stops, nil)
					launch(i)
				}
				for range 1000 {
					time.Sleep(time.Duration(random.Int64N(int64(time.Minute))))
					i := random.IntN(len(clients))
					switch random.IntN(8) {
					case 0, 1:
						clients[i].breaks(func(c *client) { c.down = !c.down })
					case 2, 3:
						clients[i].breaks(func(c *client) { c.deaf = !c.deaf })
					case 4, 5:
						require.NoError(t, stops[i]())
						launch(i)
					}
					require.Zero(t, st.overlap(), "seed %d", seed)
					st.forget()
				}
				for _, c := range clients {
					c.breaks(func(c *client) { c.down, c.deaf, c.chaos = false, false, nil })
				}
				before := st.turns
				time.Sleep(time.Minute)
				running := 0
				for _, one := range st.all() {
					if one.stop.IsZero() {
						running++
					}
				}
				require.Equal(t, 1, running, "somebody works once the faults are over")
				require.Greater(t, before, 50)
				t.Logf("seed %d: %d turns", seed, before)
				for _, stop := range stops {
					require.NoError(t, stop())
				}
				time.Sleep(time.Minute) // requests still on their way to the server
			})
		})
	}
}
