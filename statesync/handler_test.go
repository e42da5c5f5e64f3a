package statesync_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/statesync"
)

// served is a log behind a Handler on a real socket.
func served(t *testing.T) (*statesync.Memory, *httptest.Server) {
	t.Helper()
	log, server := world(t)
	web := httptest.NewServer(&statesync.Handler{Server: server, Authorize: owner, Readers: log})
	t.Cleanup(web.Close)
	return log, web
}

// owner knows one credential, and one scope that is another's.
func owner(r *http.Request, scope string) (string, error) {
	switch {
	case r.Header.Get("Authorization") != "Bearer good":
		return "", fmt.Errorf("%w: no or another token", statesync.ErrUnauthenticated)
	case scope == "us":
		return "", fmt.Errorf("%w: %q is not yours", statesync.ErrUnknownScope, scope)
	case scope == "broken":
		return "", errors.New("the table of tokens is on fire")
	}
	return "agent-1", nil
}

func send(t *testing.T, method, url, body string) (int, http.Header, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	require.NoError(t, err)
	request.Header.Set("Authorization", "Bearer good")
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	text, err := io.ReadAll(response.Body)
	require.NoError(t, errors.Join(err, response.Body.Close()))
	return response.StatusCode, response.Header, string(text)
}

func TestARequestThatCannotBeServedIsToldWhy(t *testing.T) {
	log, web := served(t)
	require.NoError(t, log.Commit(put("a", 1)))
	page, err := log.Read(t.Context(), "eu", 0, 1)
	require.NoError(t, err)
	for _, c := range []struct {
		method, path, body string
		status             int
		code, says         string
	}{
		{"GET", "/scopes/eu/items?after=-1", "", 400, "invalid", `after: is "-1"`},
		{"GET", "/scopes/eu/items?after=1", "", 400, "invalid", "epoch: is required"},
		{"GET", "/scopes/eu/items?after=99999999999999999999", "", 400, "invalid", "after"},
		{"GET", "/scopes/eu/items?floor=x", "", 400, "invalid", `floor: is "x"`},
		{"GET", "/scopes/eu/items?limit=0", "", 400, "invalid", "from 1 to 1000"},
		{"GET", "/scopes/eu/items?limit=-5", "", 400, "invalid", `limit: is "-5"`},
		{"GET", "/scopes/eu/items?limit=1001", "", 400, "invalid", "limit"},
		{"GET", "/scopes/eu/items?wait=2m", "", 400, "invalid", `wait: is "2m"`},
		{"GET", "/scopes/eu/items?wait=soon", "", 400, "invalid", "wait"},
		{"GET", "/scopes/eu/items?watch=maybe", "", 400, "invalid", "watch"},
		{"GET", "/scopes/eu/items?watch&limit=5", "", 400, "invalid", "neither limit nor wait"},
		{"GET", "/scopes/eu/items?watch&heartbeat=15000000000", "", 400, "invalid", `heartbeat: is "15000000000", must be a duration from 1s to 1m0s, as 15s`},
		{"GET", "/scopes/eu/items?watch&heartbeat=", "", 400, "invalid", `heartbeat: is ""`},
		{"GET", "/scopes/eu/items?watch&heartbeat=2m", "", 400, "invalid", "from 1s to 1m0s"},
		{"GET", "/scopes/eu/items?heartbeat=15s", "", 400, "invalid", "heartbeat: is a parameter of watch alone"},
		{"GET", "/scopes/eu/items?sort=asc", "", 400, "invalid", "sort: is no parameter"},
		{"GET", "/scopes/eu/items?limit=1&limit=2", "", 400, "invalid", "limit: appears 2 times"},
		{"GET", "/scopes/eu/items?collection=", "", 400, "invalid", "collections: must not be empty"},
		{"GET", "/scopes/us/items", "", 404, "unknown_scope", "says nothing about what it should contain"},
		{"GET", "/scopes/asia/items", "", 404, "unknown_scope", "does not exist"},
		{"GET", "/scopes/broken/items", "", 500, "internal", "its log says why"},
		{"GET", "/scopes/eu/items?after=1&epoch=other", "", 410, "resync_required", "other-epoch"},
		{"GET", "/scopes/eu/items?after=7&epoch=" + page.Epoch, "", 410, "resync_required", "cursor-ahead"},
		{"POST", "/scopes/eu/reports", `{`, 400, "invalid", "body"},
		{"POST", "/scopes/eu/reports", `{"session":1} {}`, 400, "invalid", "more than one"},
		{"POST", "/scopes/eu/reports", `{"session":1,"speed":3}`, 400, "invalid", `unknown field "speed"`},
		{"POST", "/scopes/eu/reports", `{"session":-1}`, 400, "invalid", "session"},
		{"POST", "/scopes/eu/reports", `{"sequence":1}`, 400, "invalid", "session: must be above 0"},
		{"POST", "/scopes/eu/reports", `{"session":1,"reader":"agent-2"}`, 400, "invalid", `the credential belongs to "agent-1"`},
		{"POST", "/scopes/eu/reports", `{"session":1,"body":"` + strings.Repeat("x", statesync.MaxValue+8<<10) + `"}`, 400, "invalid", "too large"},
		{"POST", "/scopes/asia/reports", `{"session":1}`, 404, "unknown_scope", ""},
	} {
		status, _, body := send(t, c.method, web.URL+c.path, c.body)
		var told struct {
			Error struct{ Code, Message string }
		}
		require.NoError(t, json.Unmarshal([]byte(body), &told), "%s: %s", c.path, body)
		require.Equal(t, c.status, status, c.path)
		require.Equal(t, c.code, told.Error.Code, c.path)
		require.Contains(t, told.Error.Message, c.says, c.path)
	}
	readers, err := log.Readers(t.Context(), "eu")
	require.NoError(t, err)
	require.Empty(t, readers, "a refused report is stored")
}

func TestACredentialIsAskedForFirst(t *testing.T) {
	_, web := served(t)
	for _, path := range []string{"/scopes/eu/items?limit=x", "/scopes/asia/items", "/scopes/eu/items?watch"} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, web.URL+path, nil)
		require.NoError(t, err)
		response, err := http.DefaultClient.Do(request)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		require.Equal(t, http.StatusUnauthorized, response.StatusCode, path)
		require.Equal(t, "Bearer", response.Header.Get("WWW-Authenticate"), path)
	}
	client := &statesync.Client{URL: web.URL}
	defer client.Close()
	require.ErrorIs(t, client.Watch(t.Context(), statesync.Watch{Scope: "eu"}, nil), statesync.ErrUnauthenticated)
	_, err := client.Report(t.Context(), "eu", statesync.Report{Reader: "agent-1", Session: 1})
	require.ErrorIs(t, err, statesync.ErrUnauthenticated)
}

// client returns one with the credential.
func client(t *testing.T, web *httptest.Server) *statesync.Client {
	t.Helper()
	c := &statesync.Client{URL: web.URL, Authorize: func(r *http.Request) error {
		r.Header.Set("Authorization", "Bearer good")
		return nil
	}}
	t.Cleanup(c.Close)
	return c
}

func TestPagesGoThroughTheWholeLog(t *testing.T) {
	log, web := served(t)
	require.NoError(t, log.Commit(put("a", 1), put("b", 1), put("c", 1), put("d", 1), drop("c")))
	require.NoError(t, log.Forget("eu", 4))
	client := client(t, web)
	var ids []string
	watch := statesync.Watch{Scope: "eu"}
	for {
		page, err := client.Page(t.Context(), watch, 2, 0)
		require.NoError(t, err)
		require.LessOrEqual(t, len(page.Items), 2)
		for _, i := range page.Items {
			ids = append(ids, i.ID)
		}
		watch.Cursor = page.Next()
		if !page.More {
			require.Equal(t, 3, page.Count)
			break
		}
	}
	require.Equal(t, []string{"a", "b", "d", "c"}, ids)
	require.Equal(t, uint64(5), watch.Cursor.Version)

	// A tombstone forgotten in the middle of a list is a reason to start again.
	page, err := client.Page(t.Context(), statesync.Watch{Scope: "eu"}, 1, 0)
	require.NoError(t, err)
	require.NoError(t, log.Commit(drop("a"), put("e", 1)))
	require.NoError(t, log.Forget("eu", 6))
	require.EventuallyWithT(t, func(c *assertT) {
		_, err = client.Page(t.Context(), statesync.Watch{Scope: "eu", Cursor: page.Next()}, 1, 0)
		require.ErrorIs(c, err, statesync.ErrResync)
	}, 3*time.Minute, time.Millisecond)
}

func TestALongPollEndsWithTheChange(t *testing.T) {
	log, web := served(t)
	require.NoError(t, log.Commit(put("a", 1)))
	client := client(t, web)
	first, err := client.Page(t.Context(), statesync.Watch{Scope: "eu"}, 10, 0)
	require.NoError(t, err)
	watch := statesync.Watch{Scope: "eu", Cursor: first.Next()}
	empty, err := client.Page(t.Context(), watch, 10, 10*time.Millisecond)
	require.NoError(t, err)
	require.Empty(t, empty.Items)
	require.Equal(t, first.Next(), empty.Next())
	answer := make(chan statesync.Frame, 1)
	failed := make(chan error, 1)
	go func() {
		page, err := client.Page(t.Context(), watch, 10, time.Minute)
		answer <- page
		failed <- err
	}()
	require.NoError(t, log.Commit(put("b", 1)))
	page := <-answer
	require.NoError(t, <-failed)
	require.Len(t, page.Items, 1)
	require.Equal(t, "b", page.Items[0].ID)
}

func TestAReportIsStoredOnceAndInOrder(t *testing.T) {
	log, web := served(t)
	client := client(t, web)
	send := func(session, sequence uint64) bool {
		stored, err := client.Report(
			t.Context(),
			"eu",
			statesync.Report{Reader: "agent-1", Session: session, Sequence: sequence, Body: json.RawMessage(`{"pods":3}`)},
		)
		require.NoError(t, err)
		return stored
	}
	require.True(t, send(1, 1))
	require.True(t, send(1, 3))
	require.False(t, send(1, 2), "late")
	require.False(t, send(1, 3), "twice")
	require.True(t, send(2, 1), "after a restart")
	require.False(t, send(1, 9), "of the time before the restart")
	readers, err := log.Readers(t.Context(), "eu")
	require.NoError(t, err)
	require.Len(t, readers, 1)
	require.Equal(t, uint64(2), readers[0].Session)
	require.JSONEq(t, `{"pods":3}`, string(readers[0].Body))
}

// TestAStreamKeepsTheHeartbeatThatWasAskedFor has an idle stream for a while.
func TestAStreamKeepsTheHeartbeatThatWasAskedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &statesync.Memory{}
		require.NoError(t, log.AddScope("eu"))
		server := &statesync.Server{Log: log, MaxAge: time.Hour}
		run(t, server.Start)
		handler := &statesync.Handler{Server: server, Authorize: anybody}
		ctx, cancel := context.WithTimeout(t.Context(), 65*time.Second)
		defer cancel()
		answer := httptest.NewRecorder()
		handler.ServeHTTP(answer, httptest.NewRequestWithContext(ctx, http.MethodGet, "/scopes/eu/items?watch&heartbeat=20s", nil))
		require.Contains(t, answer.Body.String(), `"heartbeat":20000000000`)
		require.Equal(t, 3, strings.Count(answer.Body.String(), `"type":"bookmark"`), answer.Body.String())
	})
}

func TestAStreamSaysWhyItEnds(t *testing.T) {
	log := &statesync.Memory{}
	require.NoError(t, log.AddScope("eu"))
	server := &statesync.Server{Log: log, MaxAge: time.Millisecond}
	run(t, server.Start)
	web := httptest.NewServer(&statesync.Handler{Server: server, Authorize: anybody})
	t.Cleanup(web.Close)
	status, header, body := send(t, http.MethodGet, web.URL+"/scopes/eu/items?watch", "")
	require.Equal(t, http.StatusOK, status)
	require.Equal(t, "application/x-ndjson", header.Get("Content-Type"))
	lines := strings.Split(strings.TrimSpace(body), "\n")
	require.JSONEq(
		t,
		`{"type":"end","error":{"code":"end","message":"stream ended: age; come back with your cursor","reason":"age"}}`,
		lines[len(lines)-1],
	)

	c := &statesync.Client{URL: web.URL}
	defer c.Close()
	var end *statesync.EndError
	require.ErrorAs(t, c.Watch(t.Context(), statesync.Watch{Scope: "eu"}, func(statesync.Frame) error { return nil }), &end)
	require.Equal(t, statesync.EndOfAge, end.Reason)
}
