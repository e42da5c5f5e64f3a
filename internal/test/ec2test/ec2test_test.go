package ec2test_test

import (
	"context"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/internal/test/ec2test"
)

// TestTheEmulatorDoesWhatMotoLeavesOut speaks the protocol by hand.
func TestTheEmulatorDoesWhatMotoLeavesOut(t *testing.T) {
	s := ec2test.Start(t, ec2test.Options{Transition: 50 * time.Millisecond})
	run := url.Values{
		"Action":       {"RunInstances"},
		"ImageId":      {"ami-12c6146b"},
		"InstanceType": {"m5.large"},
		"MinCount":     {"1"},
		"MaxCount":     {"2"},
		"ClientToken":  {"a"},
	}
	first := call(t, s, run)
	require.Equal(t, 2, strings.Count(first, "<instanceId>"), "as many as it can")
	require.Equal(t, ids(first), ids(call(t, s, run)), "a token is one launch")
	other := maps.Clone(run)
	other.Set("InstanceType", "m5.xlarge")
	require.Contains(t, call(t, s, other), "IdempotentParameterMismatch")

	id := ids(first)[0]
	require.Contains(
		t,
		call(t, s, url.Values{"Action": {"CreateTags"}, "ResourceId.1": {"i-0123456789abcdef0"}, "Tag.1.Key": {"a"}, "Tag.1.Value": {"b"}}),
		"InvalidInstanceID.NotFound",
	)
	terminate := url.Values{"Action": {"TerminateInstances"}, "InstanceId.1": {id}, "InstanceId.2": {ids(first)[1]}}
	require.Contains(t, call(t, s, terminate), "shutting-down")
	require.Contains(t, call(t, s, run), "IdempotentInstanceTerminated")
	require.Contains(t, call(t, s, url.Values{"Action": {"StartInstances"}, "InstanceId.1": {id}}), "IncorrectInstanceState")
}

// TestAMachineIsPendingBeforeItRuns looks in the middle of launches.
func TestAMachineIsPendingBeforeItRuns(t *testing.T) {
	s := ec2test.Start(t, ec2test.Options{Transition: time.Hour})
	launched := make(chan struct{})
	go func() {
		defer close(launched)
		for range 5 {
			call(
				t,
				s,
				url.Values{
					"Action":       {"RunInstances"},
					"ImageId":      {"ami-12c6146b"},
					"InstanceType": {"m5.large"},
					"MinCount":     {"1"},
					"MaxCount":     {"20"},
				},
			)
		}
	}()
	for done := false; !done; {
		select {
		case <-launched:
			done = true
		default:
		}
		answer := call(t, s, url.Values{"Action": {"DescribeInstances"}})
		require.NotContains(t, answer, "<name>running</name>")
		if done {
			require.Equal(t, 100, strings.Count(answer, "<name>pending</name>"))
		}
	}
}

func call(t *testing.T, s *ec2test.Server, form url.Values) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	form.Set("Version", "2016-11-15")
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL, strings.NewReader(form.Encode()))
	require.NoError(t, err)
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	request.Header.Set(
		"Authorization",
		"AWS4-HMAC-SHA256 Credential=test/20260101/us-east-1/ec2/aws4_request, SignedHeaders=host, Signature=0",
	)
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return string(body)
}

func ids(answer string) []string {
	var out []string
	for part := range strings.SplitSeq(answer, "<instanceId>") {
		if id, _, ok := strings.Cut(part, "</instanceId>"); ok {
			out = append(out, id)
		}
	}
	return out
}
