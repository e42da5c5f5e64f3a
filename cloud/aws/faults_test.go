package aws_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/aws/smithy-go"
	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cloud"
	"github.com/seed-9e1ffd66/trueup/cloud/aws"
	"github.com/seed-9e1ffd66/trueup/internal/test/ec2test"
)

// TestTheProxyMakesTheFaultsOfEC2 shows each fault of the proxy to the client of AWS.
func TestTheProxyMakesTheFaultsOfEC2(t *testing.T) {
	proxy := ec2test.StartProxy(t, ec2test.Start(t, ec2test.Options{Transition: 20 * time.Millisecond}).URL)
	provider := &aws.Provider{EC2: aws.NewClient(config(&ec2test.Server{URL: proxy.URL}), nil)}
	plain := cloud.LaunchConfig{ImageID: image, InstanceType: "m5.large"}
	count := func() int {
		t.Helper()
		all, err := provider.ListInstances(t.Context(), nil)
		require.NoError(t, err)
		return len(all)
	}
	// on sets what happens to the first n requests of an action.
	on := func(action string, n int, fault ec2test.Fault) (tokens *[]string) {
		var mu sync.Mutex
		tokens = new([]string)
		first := proxy.Calls()[action]
		proxy.Inject(func(r ec2test.Request) ec2test.Fault {
			if r.Action != action {
				return ec2test.Fault{}
			}
			mu.Lock()
			defer mu.Unlock()
			*tokens = append(*tokens, r.Form.Get("ClientToken"))
			if r.Number > first+n {
				return ec2test.Fault{}
			}
			return fault
		})
		return tokens
	}

	// A lost answer: the machine is there, and the client's second try, with the same
	// token, makes no other.
	launch := plain
	launch.Token = "lost-answer"
	tokens := on("RunInstances", 1, ec2test.Fault{DropAnswer: true})
	_, err := provider.LaunchInstance(t.Context(), launch)
	require.NoError(t, err)
	require.Equal(t, []string{"lost-answer", "lost-answer"}, *tokens)
	require.Equal(t, 1, count())

	launch.Token = "lost-answers"
	on("RunInstances", 3, ec2test.Fault{DropAnswer: true})
	_, err = provider.LaunchInstance(t.Context(), launch)
	require.Error(t, err)
	require.Equal(t, 2, count(), "it was done all the same")

	launch.Token = "lost-requests"
	on("RunInstances", 3, ec2test.Fault{DropRequest: true})
	_, err = provider.LaunchInstance(t.Context(), launch)
	require.Error(t, err)
	require.Equal(t, 2, count(), "it was not done")

	for code, want := range map[string]error{"RequestLimitExceeded": cloud.ErrThrottled, "InsufficientInstanceCapacity": cloud.ErrNoCapacity, "VcpuLimitExceeded": cloud.ErrQuotaExceeded} {
		on("RunInstances", 9, ec2test.Fault{Code: code, Message: "no: " + code})
		launch.Token = code
		_, err = provider.LaunchInstance(t.Context(), launch)
		require.ErrorIs(t, err, want)
		require.ErrorContains(t, err, "no: "+code)
		require.Equal(t, 2, count())
	}
	on("DescribeInstances", 3, ec2test.Fault{Status: 503})
	_, err = provider.ListInstances(t.Context(), nil)
	require.Error(t, err)
	_, isAPI := errors.AsType[smithy.APIError](err)
	require.True(t, isAPI)
	require.Equal(t, 2, count(), "the outage is over")

	on("DescribeInstances", 1, ec2test.Fault{Delay: time.Hour})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = provider.ListInstances(ctx, nil)
	require.ErrorIs(t, err, context.DeadlineExceeded)

	proxy.Inject(nil)
	proxy.Allow("DescribeInstances", "RunInstances")
	before := proxy.Calls()
	launch.Token = "allowed"
	made, err := provider.LaunchInstance(t.Context(), launch)
	require.NoError(t, err)
	err = provider.TerminateInstance(t.Context(), made.ID)
	require.ErrorIs(t, err, cloud.ErrRejected)
	api, _ := errors.AsType[smithy.APIError](err)
	require.Equal(t, "UnauthorizedOperation", api.ErrorCode())
	require.Equal(t, before["RunInstances"]+1, proxy.Calls()["RunInstances"])
	require.Equal(t, before["TerminateInstances"]+1, proxy.Calls()["TerminateInstances"])
	proxy.Allow()
	require.NoError(t, provider.TerminateInstance(t.Context(), made.ID))
}
