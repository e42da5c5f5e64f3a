package cloudtest_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cloud"
	"github.com/seed-9e1ffd66/trueup/cloud/cloudtest"
)

func launch(token string) cloud.LaunchConfig {
	return cloud.LaunchConfig{Token: token, ImageID: "image", InstanceType: "m5.large"}
}

func TestAListLagsAndOtherReadsDoNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &cloudtest.Fake{ListLag: 30 * time.Second}
		i, err := f.LaunchInstance(t.Context(), launch("a"))
		require.NoError(t, err)
		list, err := f.ListInstances(t.Context(), nil)
		require.NoError(t, err)
		require.Empty(t, list)
		_, err = f.GetInstance(t.Context(), i.ID)
		require.NoError(t, err)
		time.Sleep(30 * time.Second)
		list, err = f.ListInstances(t.Context(), nil)
		require.NoError(t, err)
		require.Equal(t, cloud.InstancePending, list[0].State, "as it was")
	})
}

func TestFaultsLoseAnswersAndRepeatRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		down := errors.New("down")
		var next cloudtest.Fault
		f := &cloudtest.Fake{Fault: func(cloudtest.Call) cloudtest.Fault { return next }}
		for fault, machines := range map[cloudtest.Fault]int{{Err: down}: 0, {Err: down, Lost: true}: 1, {Twice: true}: 1} {
			before := len(f.Instances())
			next = fault
			_, err := f.LaunchInstance(t.Context(), launch(fmt.Sprint(fault)))
			require.ErrorIs(t, err, fault.Err)
			require.Len(t, f.Instances(), before+machines, fault)
		}
	})
}

func TestRatesQuotaAndCapacityAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		place := cloud.Placement{InstanceType: "m5.large", Zone: "zone-a"}
		f := &cloudtest.Fake{
			Quota:    3,
			Capacity: map[cloud.Placement]int{place: 2},
			Limits:   map[string]cloud.Bucket{"ListInstances": {Size: 2, Refill: 0.5}},
		}
		got, err := f.LaunchInstances(t.Context(), launch("a"), 3)
		require.ErrorIs(t, err, cloud.ErrNoCapacity)
		require.Len(t, got, 2, "as many as there are")
		require.Empty(t, f.StopInstances(t.Context(), []string{"x"}, false)["i-fake-000001"])
		time.Sleep(time.Second)
		require.NoError(t, f.StopInstance(t.Context(), got[0].ID, false))
		time.Sleep(time.Second)
		_, err = f.LaunchInstance(t.Context(), launch("b"))
		require.NoError(t, err)
		require.ErrorIs(t, f.StartInstance(t.Context(), got[0].ID), cloud.ErrNoCapacity)
		_, err = f.LaunchInstance(t.Context(), launch("c"))
		require.ErrorIs(t, err, cloud.ErrQuotaExceeded)
		for range 2 {
			_, err = f.ListInstances(t.Context(), nil)
			require.NoError(t, err)
		}
		_, err = f.ListInstances(t.Context(), nil)
		var limited *cloud.RateLimitError
		require.ErrorAs(t, err, &limited)
		require.Equal(t, 2*time.Second, limited.RetryAfter)
	})
}

func TestAnInvoiceHasTheTimeInEachState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &cloudtest.Fake{Transition: time.Minute}
		i, err := f.LaunchInstance(t.Context(), launch("a"))
		require.NoError(t, err)
		time.Sleep(10 * time.Minute)
		require.NoError(t, f.StopInstance(t.Context(), i.ID, false))
		time.Sleep(10 * time.Minute)
		require.NoError(t, f.TerminateInstance(t.Context(), i.ID))
		time.Sleep(time.Hour)
		invoice := f.Invoice()
		require.Equal(t, time.Minute, invoice.Time(cloud.InstancePending))
		require.Equal(t, 9*time.Minute, invoice.Time(cloud.InstanceRunning))
		require.Equal(t, 9*time.Minute, invoice.Time(cloud.InstanceStopped))
		require.Equal(
			t,
			21*time.Minute,
			invoice.Time(cloud.InstancePending, cloud.InstanceRunning, cloud.InstanceStopped, cloud.InstanceStopping, cloud.InstanceShuttingDown),
		)
		require.Contains(t, invoice.String(), "m5.large     running               540 machine-seconds")
	})
}
