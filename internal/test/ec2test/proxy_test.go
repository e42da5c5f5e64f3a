package ec2test_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/internal/test/ec2test"
)

// TestTheProxyDoesWhatItsHookSays speaks the protocol by hand to a server that is none of
// AWS.
func TestTheProxyDoesWhatItsHookSays(t *testing.T) {
	t.Parallel()
	var seen []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		require.NoError(t, r.ParseForm())
		seen = append(seen, r.Form.Get("Action")+" "+r.Header.Get("X-Test")+" "+r.URL.Path)
		w.Header().Set("X-Answer", "yes")
		w.WriteHeader(http.StatusTeapot)
		io.WriteString(w, "done") //nolint:errcheck // the client checks
	}))
	defer server.Close()
	proxy := ec2test.StartProxy(t, server.URL+"/")
	post := func(action string) (status int, body string, err error) {
		request, err := http.NewRequestWithContext(
			t.Context(),
			http.MethodPost,
			proxy.URL+"/path",
			strings.NewReader(url.Values{"Action": {action}, "ClientToken": {"t"}}.Encode()),
		)
		require.NoError(t, err)
		request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		request.Header.Set("X-Test", "header")
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			return 0, "", err
		}
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		require.Equal(t, answer.StatusCode == http.StatusTeapot, answer.Header.Get("X-Answer") == "yes", "the header of the server")
		return answer.StatusCode, string(text), nil
	}

	got, body, err := post("A")
	require.NoError(t, err)
	require.Equal(t, http.StatusTeapot, got)
	require.Equal(t, "done", body)
	require.Equal(t, []string{"A header /path"}, seen)

	var numbers []int
	fault := ec2test.Fault{DropRequest: true, DropAnswer: true, Code: "X"}
	proxy.Inject(func(r ec2test.Request) ec2test.Fault {
		require.Equal(t, "t", r.Form.Get("ClientToken"))
		numbers = append(numbers, r.Number)
		return fault
	})
	_, _, err = post("A")
	require.Error(t, err)
	require.Len(t, seen, 1)
	fault.DropRequest = false
	_, _, err = post("A")
	require.Error(t, err)
	require.Len(t, seen, 2)
	for code, status := range map[string]int{"RequestLimitExceeded": 503, "InsufficientInstanceCapacity": 500, "UnauthorizedOperation": 403, "InvalidParameterValue": 400} {
		fault = ec2test.Fault{Code: code, Message: "<&>"}
		got, body, err = post("A")
		require.NoError(t, err)
		require.Equal(t, status, got, code)
		require.Contains(t, body, "<Response><Errors><Error><Code>"+code+"</Code><Message>&lt;&amp;&gt;</Message></Error></Errors><RequestID>")
	}
	fault = ec2test.Fault{Status: 502, Delay: time.Millisecond}
	got, _, err = post("B")
	require.NoError(t, err)
	require.Equal(t, 502, got)
	require.Len(t, seen, 2)
	require.Equal(t, []int{2, 3, 4, 5, 6, 7, 1}, numbers)

	proxy.Allow("B")
	fault = ec2test.Fault{}
	_, body, err = post("A")
	require.NoError(t, err)
	require.Contains(t, body, "UnauthorizedOperation")
	_, body, err = post("B")
	require.NoError(t, err)
	require.Equal(t, "done", body)
	require.Equal(t, map[string]int{"A": 8, "B": 2}, proxy.Calls())
	proxy.Stop()
	_, _, err = post("B")
	require.Error(t, err)
}
