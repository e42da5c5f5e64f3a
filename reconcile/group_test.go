package reconcile_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-9e1ffd66/trueup/reconcile"
)

// obedient runs until ctx ends, and then for a while.
func obedient(while time.Duration) reconcile.StarterFunc {
	return func(ctx context.Context) error {
		<-ctx.Done()
		time.Sleep(while)
		return nil
	}
}

func returns(err error) reconcile.StarterFunc {
	return func(context.Context) error { return err }
}

func TestGroupRunsUntilCtxEndsAndWaitsForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		stop := start(t, &reconcile.Group{Members: []reconcile.Member{
			{Name: "quick", Starter: obedient(time.Second)},
			{Name: "slow", Starter: obedient(29 * time.Second)},
			{Name: "done early", Starter: returns(nil)},
		}})
		time.Sleep(time.Hour)
		stopped(t, stop)
		same(t, "ran for", time.Since(begun), time.Hour+29*time.Second)
	})
}

func TestTheFirstFailureStopsTheGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		late := errors.New("late")
		group := reconcile.Group{Members: []reconcile.Member{
			{Name: "other", Starter: reconcile.StarterFunc(func(ctx context.Context) error {
				<-ctx.Done()
				return late
			})},
			{Name: "good", Starter: obedient(0)},
			{Name: "bad", Starter: returns(errBoom)},
		}}
		err := group.Start(t.Context())
		says(t, err, "bad: boom\nother: late")
		same(t, "both causes", errors.Is(err, errBoom) && errors.Is(err, late), true)
	})
}

func TestGroupReportsByNameWhoDidNotStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		group := reconcile.Group{Members: []reconcile.Member{
			{Name: "stuck", Starter: obedient(time.Hour)},
			{Name: "good", Starter: obedient(time.Second)},
			{Name: "bad", Starter: returns(errBoom)},
			{Name: "stuck too", Starter: obedient(time.Hour)},
		}, StopTimeout: 5 * time.Second}
		err := group.Start(t.Context())
		same(t, "waited", time.Since(begun), 5*time.Second)
		stuck, ok := errors.AsType[*reconcile.StuckError](err)
		if !ok {
			t.Fatalf("got %v, want a StuckError", err)
		}
		same(t, "names", stuck.Names, []string{"stuck", "stuck too"})
		says(t, err, "bad: boom\ndid not stop within 5s: stuck, stuck too")
		time.Sleep(time.Hour) // those left behind can end without a receiver
	})
}

func TestAPanicInAMemberIsItsError(t *testing.T) {
	group := reconcile.Group{Members: []reconcile.Member{
		{Name: "wild", Starter: reconcile.StarterFunc(func(context.Context) error { panic("boom") })},
		{Name: "good", Starter: obedient(0)},
	}}
	err := group.Start(t.Context())
	says(t, err, "wild: panic: boom")
	_, ok := errors.AsType[*reconcile.PanicError](err)
	same(t, "is a PanicError", ok, true)
}

func TestAGroupWithNothingLeftToRunReturns(t *testing.T) {
	group := reconcile.Group{}
	same(t, "no members", group.Start(t.Context()), nil)
	group.Members = []reconcile.Member{{Name: "once", Starter: returns(nil)}}
	same(t, "all returned", group.Start(t.Context()), nil)
}

func TestGroupNamesTheFieldThatIsWrong(t *testing.T) {
	good := obedient(0)
	for want, group := range map[string]*reconcile.Group{
		"reconcile: Group.Members[1].Name: is required": {
			Members: []reconcile.Member{{Name: "a", Starter: good}, {Starter: good}},
		},
		"reconcile: Group.Members[0].Starter: is required (a)": {Members: []reconcile.Member{{Name: "a"}}},
		"reconcile: Group.StopTimeout: is -1s, must be 0 (30s default) or more": {
			StopTimeout: -time.Second,
		},
	} {
		says(t, group.Start(t.Context()), want)
	}
}
