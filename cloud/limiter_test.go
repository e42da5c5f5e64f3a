package cloud_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cloud"
	"github.com/seed-9e1ffd66/trueup/cloud/cloudtest"
)

func TestALimiterLetsABurstThroughAndThenTheRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &cloud.Limiter{Limits: map[string]cloud.Bucket{"Start": {Size: 10, Refill: 2}}}
		begin := time.Now()
		for range 20 {
			require.NoError(t, l.Wait(t.Context(), "Start"))
		}
		require.Equal(t, 5*time.Second, time.Since(begin))
		for range 100 {
			require.NoError(t, l.Wait(t.Context(), "Other"))
		}
		require.Equal(t, 5*time.Second, time.Since(begin), "an operation without a limit waits for nothing")
	})
}

func TestALimiterRefusesWhatWouldWaitTooLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &cloud.Limiter{Rest: cloud.Bucket{Size: 1, Refill: 0.01}}
		require.NoError(t, l.Wait(t.Context(), "A"))
		err := l.Wait(t.Context(), "B")
		var limited *cloud.RateLimitError
		require.ErrorAs(t, err, &limited, "operations without a limit share one")
		require.ErrorIs(t, err, cloud.ErrThrottled)
		require.Equal(t, 100*time.Second, limited.RetryAfter)
		time.Sleep(95 * time.Second)
		require.NoError(t, l.Wait(t.Context(), "A"), "a refused call took no turn")
	})
}

func TestATurnThatIsNotWaitedForIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &cloud.Limiter{Rest: cloud.Bucket{Size: 1, Refill: 0.2}}
		require.NoError(t, l.Wait(t.Context(), "A"))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, l.Wait(ctx, "A"), context.DeadlineExceeded)
		begin := time.Now()
		require.NoError(t, l.Wait(t.Context(), "A"))
		require.Equal(t, 4*time.Second, time.Since(begin))
	})
}

func TestAPenaltyHoldsAnOperationBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &cloud.Limiter{Limits: map[string]cloud.Bucket{"A": {Size: 5, Refill: 1}, "B": {Size: 5, Refill: 1}}}
		l.Penalize("A", 5*time.Second)
		begin := time.Now()
		require.NoError(t, l.Wait(t.Context(), "B"))
		require.Zero(t, time.Since(begin))
		require.NoError(t, l.Wait(t.Context(), "A"))
		require.Equal(t, 6*time.Second, time.Since(begin), "the burst is used up as well")
	})
}

func TestManyPoolsCostOneList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := &cloudtest.Fake{}
		other := cloud.Scope{Domain: "stratos.sh", Cluster: "c", Pool: "p2", PoolUID: "u2"}
		launch := func(s cloud.Scope, token string) {
			_, err := fake.LaunchInstances(
				t.Context(),
				cloud.LaunchConfig{Token: token, ImageID: "i", InstanceType: "t", Tags: s.LaunchTags(token, nil)},
				2,
			)
			require.NoError(t, err)
		}
		launch(scope, "a")
		launch(other, "b")
		launch(cloud.Scope{Domain: "stratos.sh", Cluster: "c2", Pool: "p", PoolUID: "u"}, "c")
		poller := &cloud.Poller{Inventory: fake, Tags: scope.ClusterTags()}
		for range 50 {
			for _, s := range []cloud.Scope{scope, other} {
				got, _, err := poller.List(t.Context(), s, 30*time.Second)
				require.NoError(t, err)
				require.Len(t, got, 2)
				require.True(t, s.Owns(got[0]))
			}
		}
		require.Equal(t, 1, fake.Calls()["ListInstances"])
		time.Sleep(31 * time.Second)
		_, listed, err := poller.List(t.Context(), scope, 30*time.Second)
		require.NoError(t, err)
		require.Equal(t, time.Now(), listed)
		require.Equal(t, 2, fake.Calls()["ListInstances"])

		time.Sleep(31 * time.Second)
		down := errors.New("503")
		fake.Fault = func(cloudtest.Call) cloudtest.Fault { return cloudtest.Fault{Err: down} }
		got, _, err := poller.List(t.Context(), scope, 30*time.Second)
		require.ErrorIs(t, err, down)
		require.Empty(t, got, "an old list is no answer")
	})
}

func TestWaitEndsWithTheStateTheContextOrTheMachine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := &cloudtest.Fake{Transition: 20 * time.Second}
		i, err := fake.LaunchInstance(t.Context(), cloud.LaunchConfig{Token: "t", ImageID: "i", InstanceType: "t"})
		require.NoError(t, err)
		require.NoError(t, cloud.Wait(t.Context(), fake, i.ID, cloud.InstanceRunning))
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		err = cloud.Wait(ctx, fake, i.ID, cloud.InstanceStopped)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "which is running")
		require.NoError(t, fake.TerminateInstance(t.Context(), i.ID))
		require.ErrorIs(t, cloud.Wait(t.Context(), fake, i.ID, cloud.InstanceStopped), cloud.ErrInvalidState)
		require.ErrorIs(t, cloud.Wait(t.Context(), fake, "none", cloud.InstanceStopped), cloud.ErrNotFound)
	})
}
