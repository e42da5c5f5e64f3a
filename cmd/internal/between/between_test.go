package between_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/internal/between"
	"github.com/seed-9e1ffd66/trueup/internal/test/httpfunc"
)

func TestAnAnswerOfAProxyIsAnErrorThatNamesIt(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		status         int
		kind, location string
		want           string // empty: it may be one of the control plane
		body           string
	}{
		{200, "text/html; charset=utf-8", "", "answered 200 OK with text/html: is there a proxy or a login page in between?", "x"},
		{502, "text/html", "", "answered 502 Bad Gateway with text/html: is there a proxy or a login page in between?", "x"},
		{403, "application/xhtml+xml", "", "answered 403 Forbidden with application/xhtml+xml: " + here, "x"},
		{302, "", "https://login.example.com/?state=secret", "answered 302 Found to https://login.example.com: " + elsewhere, "x"},
		{308, "application/json", "https://control.example.com/x", "answered 308 Permanent Redirect to https://control.example.com: " +
			elsewhere, "x"},
		{301, "", "/login?state=secret", "answered 301 Moved Permanently to another place: " + elsewhere, "x"},
		{200, "application/json", "", "", "x"},
		{200, "", "", "", "x"},
		{204, "", "", "", "x"},
		{304, "", "", "", "x"},
		{401, "application/json", "", "", "own"},
		{409, "application/json", "", "answered 409 Conflict with an error that is not of a control plane: is there a proxy in between?", "x"},
		{400, "text/plain", "", "", "x"},
	} {
		closed := false
		client := between.Client{Own: func(body []byte) bool { return string(body) == "own" }, HTTP: &http.Client{
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
			Transport: httpfunc.Transport(func(*http.Request) (*http.Response, error) {
				recorder := httptest.NewRecorder()
				recorder.Header().Set("Content-Type", test.kind)
				if test.location != "" {
					recorder.Header().Set("Location", test.location)
				}
				recorder.WriteHeader(test.status)
				answer := recorder.Result()
				answer.Body = closing{strings.NewReader(test.body), &closed}
				return answer, nil
			}),
		}}
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://user:secret@control.example.com/status", http.NoBody)
		require.NoError(t, err)
		answer, err := client.Do(request)
		if test.want == "" {
			require.NoError(t, err, fmt.Sprint(test))
			require.Equal(t, test.status, answer.StatusCode)
			body, err := io.ReadAll(answer.Body)
			require.NoError(t, err)
			require.Equal(t, test.body, string(body))
			require.Equal(t, test.body == "own", closed)
			continue
		}
		require.EqualError(t, err, "POST https://user:xxxxx@control.example.com/status: "+test.want)
		require.True(t, closed, "its connection is used again")
	}
}

const here = "is there a proxy or a login page in between?"

const elsewhere = "is there a proxy or a login page in between, or has the control plane another URL?"

type closing struct {
	io.Reader
	closed *bool
}

func (c closing) Close() error {
	*c.closed = true
	return nil
}
