package aws_test

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cloud"
	"github.com/seed-9e1ffd66/trueup/cloud/aws"
	"github.com/seed-9e1ffd66/trueup/internal/test/ec2test"
)

// proxy stands before the emulator: it records the requests, and may answer in
// its place.
type proxy struct {
	*httptest.Server
	mu       sync.Mutex
	requests []url.Values
	// answer, if it returns a code, answers with that error of EC2.
	answer func(url.Values) (code, message string)
}

func startProxy(t *testing.T, server *ec2test.Server) *proxy {
	t.Helper()
	p := &proxy{}
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		form, err := url.ParseQuery(string(body))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		p.mu.Lock()
		p.requests = append(p.requests, form)
		answer := p.answer
		p.mu.Unlock()
		if answer != nil {
			if code, message := answer(form); code != "" {
				status := http.StatusBadRequest
				if code == "RequestLimitExceeded" || code == "Unavailable" {
					status = http.StatusServiceUnavailable
				}
				w.WriteHeader(status)
				_, _ = fmt.Fprintf(
					w,
					"<Response><Errors><Error><Code>%s</Code><Message>%s</Message></Error></Errors><RequestID>x</RequestID></Response>",
					code,
					message,
				)
				return
			}
		}
		request, err := http.NewRequestWithContext(r.Context(), r.Method, server.URL+r.URL.Path, strings.NewReader(string(body)))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		request.Header = r.Header
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		defer response.Body.Close()
		w.WriteHeader(response.StatusCode)
		_, _ = io.Copy(w, response.Body)
	}))
	t.Cleanup(p.Close)
	return p
}

func (p *proxy) provider(server *ec2test.Server, limiter *cloud.Limiter) *aws.Provider {
	c := config(server)
	c.BaseEndpoint = awssdk.String(p.URL)
	return &aws.Provider{EC2: aws.NewClient(c, limiter)}
}

// take returns the requests since the last call.
func (p *proxy) take() []url.Values {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := p.requests
	p.requests = nil
	return out
}

func (p *proxy) actions() map[string]int {
	out := map[string]int{}
	for _, r := range p.take() {
		out[r.Get("Action")]++
	}
	return out
}

func TestALaunchSendsTheWholeConfig(t *testing.T) {
	server := ec2test.Start(t, ec2test.Options{})
	p := startProxy(t, server)
	provider := p.provider(server, nil)
	_, err := client(server, nil).DescribeInstances(t.Context(), &ec2.DescribeInstancesInput{})
	require.NoError(t, err)
	c := cloud.LaunchConfig{
		Token:        "token-1",
		ImageID:      image,
		InstanceType: "m5.large",
		UserData:     "#!/bin/sh\necho é",
		Tags:         map[string]string{"b": "2", "a": "1"},
		BlockDevices: []cloud.BlockDevice{
			{DeviceName: "/dev/xvda", VolumeSize: 20, VolumeType: "gp3", Encrypted: true, Iops: 4000, Throughput: 200},
		},
		Metadata: cloud.MetadataOptions{HTTPTokens: "required", HTTPPutResponseHopLimit: 2},
	}
	got, err := provider.LaunchInstances(t.Context(), c, 2)
	require.NoError(t, err)
	require.Len(t, got, 2)
	r := p.take()[0]
	for k, v := range map[string]string{
		"Action": "RunInstances", "ClientToken": "token-1", "ImageId": image, "InstanceType": "m5.large", "MinCount": "1", "MaxCount": "2",
		"UserData": base64.StdEncoding.EncodeToString([]byte(c.UserData)), "InstanceInitiatedShutdownBehavior": "stop",
		"BlockDeviceMapping.1.DeviceName": "/dev/xvda", "BlockDeviceMapping.1.Ebs.VolumeSize": "20", "BlockDeviceMapping.1.Ebs.VolumeType": "gp3",
		"BlockDeviceMapping.1.Ebs.Encrypted": "true", "BlockDeviceMapping.1.Ebs.Iops": "4000", "BlockDeviceMapping.1.Ebs.Throughput": "200",
		"MetadataOptions.HttpTokens": "required", "MetadataOptions.HttpPutResponseHopLimit": "2",
		"TagSpecification.1.ResourceType": "instance", "TagSpecification.1.Tag.1.Key": "a", "TagSpecification.1.Tag.2.Key": "b",
		"TagSpecification.2.ResourceType": "volume", "TagSpecification.2.Tag.1.Value": "1",
	} {
		require.Equal(t, v, r.Get(k), k)
	}
	for _, profile := range []struct{ name, field string }{{"nodes", "IamInstanceProfile.Name"}, {"arn:aws:iam::1:instance-profile/nodes", "IamInstanceProfile.Arn"}} {
		c.Token, c.IAMInstanceProfile = "token-"+profile.field, profile.name
		_, _ = provider.LaunchInstance(t.Context(), c) // the emulator does not know the profile
		require.Equal(t, profile.name, p.take()[0].Get(profile.field))
	}
}

func TestErrorsAreTheConditionsOfPackageCloud(t *testing.T) {
	server := &ec2test.Server{} // every answer is the proxy's
	p := startProxy(t, server)
	provider := p.provider(server, nil)
	launch := func() error {
		_, err := provider.LaunchInstance(t.Context(), cloud.LaunchConfig{Token: "t", ImageID: image, InstanceType: "m5.large"})
		return err
	}
	for code, want := range map[string]error{
		"InvalidInstanceID.NotFound": cloud.ErrNotFound, "InvalidInstanceID.Malformed": cloud.ErrNotFound, "IncorrectInstanceState": cloud.ErrInvalidState,
		"Throttling": cloud.ErrThrottled, "RequestLimitExceeded": cloud.ErrThrottled, "EC2ThrottledException": cloud.ErrThrottled,
		"InsufficientInstanceCapacity": cloud.ErrNoCapacity, "InsufficientFreeAddressesInSubnet": cloud.ErrNoCapacity,
		"InstanceLimitExceeded": cloud.ErrQuotaExceeded, "VcpuLimitExceeded": cloud.ErrQuotaExceeded,
		"IdempotentParameterMismatch": cloud.ErrTokenReused, "IdempotentInstanceTerminated": cloud.ErrTokenSpent,
		"UnauthorizedOperation": cloud.ErrRejected, "InvalidParameterValue": cloud.ErrRejected, "InvalidAMIID.NotFound": cloud.ErrRejected,
	} {
		p.answer = func(url.Values) (string, string) { return code, "the message" }
		err := launch()
		require.ErrorIs(t, err, want, code)
		require.ErrorContains(t, err, "the message", code)
		if errors.Is(want, cloud.ErrNoCapacity) {
			require.ErrorContains(t, err, "insufficient capacity for m5.large: ")
		}
		require.Len(t, p.take(), 1, "%s: not tried again by the client", code)
	}
	p.answer = func(url.Values) (string, string) { return "Unavailable", "" }
	err := launch()
	for _, condition := range []error{cloud.ErrNotFound, cloud.ErrInvalidState, cloud.ErrThrottled, cloud.ErrNoCapacity, cloud.ErrQuotaExceeded, cloud.ErrRejected} {
		require.NotErrorIs(t, err, condition, "what the call did is not known")
	}
	require.Len(t, p.take(), 3, "tried again, with the same token")
}

func TestOneMachineHoldsBackNoOtherOfABatch(t *testing.T) {
	server := &ec2test.Server{} // every answer is the proxy's
	p := startProxy(t, server)
	provider := p.provider(server, nil)
	var ids []string
	for n := range 40 {
		ids = append(ids, fmt.Sprintf("i-%017x", n))
	}
	sent := func(form url.Values) []string {
		var out []string
		for n := 1; form.Has(fmt.Sprintf("InstanceId.%d", n)); n++ {
			out = append(out, form.Get(fmt.Sprintf("InstanceId.%d", n)))
		}
		return out
	}
	var started []string
	p.answer = func(form url.Values) (string, string) {
		batch := sent(form)
		switch {
		case slices.Contains(batch, ids[7]): // named by the error
			return "IncorrectInstanceState", "The instance '" + ids[7] + "' is not in a state from which it can be started"
		case slices.Contains(batch, ids[30]): // not named
			return "InsufficientInstanceCapacity", "There is no capacity"
		}
		started = append(started, batch...)
		return "Done", ""
	}
	failed := provider.StartInstances(t.Context(), ids)
	require.ErrorIs(t, failed[ids[7]], cloud.ErrInvalidState)
	require.ErrorIs(t, failed[ids[30]], cloud.ErrNoCapacity)
	slices.Sort(started)
	require.Equal(
		t,
		slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return id == ids[7] || id == ids[30] }),
		started,
		"each of the others once",
	)
	require.LessOrEqual(t, len(p.take()), 14, "a batch is divided, not taken apart")
}

func TestOnlyTheSixActionsOfThePlainCaseAreCalled(t *testing.T) {
	server := ec2test.Start(t, ec2test.Options{})
	p := startProxy(t, server)
	provider := p.provider(server, nil)
	ctx := t.Context()
	got, err := provider.LaunchInstances(
		ctx,
		cloud.LaunchConfig{Token: "t", ImageID: image, InstanceType: "m5.large", Tags: map[string]string{"a": "b"}},
		2,
	)
	require.NoError(t, err)
	ids := []string{got[0].ID, got[1].ID}
	require.NoError(t, cloud.Wait(ctx, provider, ids[0], cloud.InstanceRunning))
	require.Empty(t, provider.StopInstances(ctx, ids, false))
	require.NoError(t, cloud.Wait(ctx, provider, ids[0], cloud.InstanceStopped))
	require.Empty(t, provider.StartInstances(ctx, ids))
	require.Empty(t, provider.UpdateInstancesTags(ctx, ids, map[string]string{"a": "c"}))
	list, err := provider.ListInstances(ctx, map[string]string{"a": "c"})
	require.NoError(t, err)
	require.Len(t, list, 2)
	require.Empty(t, provider.TerminateInstances(ctx, ids))
	actions := p.actions()
	delete(actions, "DescribeInstances")
	require.Equal(
		t,
		map[string]int{"RunInstances": 1, "StartInstances": 1, "StopInstances": 1, "CreateTags": 1, "TerminateInstances": 1},
		actions,
	)
}

func TestTheLimiterStandsBeforeEveryAttempt(t *testing.T) {
	server := &ec2test.Server{} // every answer is the proxy's
	p := startProxy(t, server)
	limiter := &cloud.Limiter{Limits: map[string]cloud.Bucket{"StartInstances": {Size: 2, Refill: 0.01}}}
	provider := p.provider(server, limiter)
	p.answer = func(url.Values) (string, string) { return "Unavailable", "" }
	_, err := provider.ListInstances(t.Context(), map[string]string{"name": `a*\`})
	require.Error(t, err)
	require.Equal(t, `a\*\\`, p.take()[0].Get("Filter.1.Value.1"), "a value is no pattern")
	err = provider.StartInstance(t.Context(), "i-0123456789abcdef0")
	require.Len(t, p.take(), 2, "the third attempt has no turn")
	require.ErrorIs(t, err, cloud.ErrThrottled)

	p.answer = func(url.Values) (string, string) { return "RequestLimitExceeded", "" }
	limits, rest := aws.Limits(0, 0)
	limiter = &cloud.Limiter{Limits: limits, Rest: rest, MaxWait: 1}
	provider = p.provider(server, limiter)
	p.take()
	require.ErrorIs(t, provider.StopInstance(t.Context(), "i-0123456789abcdef0", false), cloud.ErrThrottled)
	require.ErrorIs(t, provider.StopInstance(t.Context(), "i-0123456789abcdef0", false), cloud.ErrThrottled)
	require.Len(t, p.take(), 1, "EC2 is left alone for a while")
	require.Equal(t, cloud.Bucket{Size: 200, Refill: 1}, func() cloud.Bucket { l, _ := aws.Limits(0.5, 2); return l["StartInstances"] }())
}
