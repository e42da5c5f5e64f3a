package statesync_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-9e1ffd66/trueup/statesync"
)

// body answers every request with a text.
type body string

func (b body) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(string(b)))}, nil
}

// FuzzStream lets a reader follow whatever comes. It may end in any error, but
// nothing is handled that is not in the text, and nothing is complete that was
// not proven.
func FuzzStream(f *testing.F) {
	f.Add(header)
	f.Add(
		header + `{"type":"items","epoch":"e","after":0,"version":1,"head":1,"items":[{"version":1,"collection":"a","id":"b","value":1}]}` + "\n",
	)
	f.Add(header + `{"type":"synced","epoch":"e","after":0,"version":0,"head":0}` + "\n")
	f.Add(`{"error":{"code":"resync_required","reason":"below-floor","position":{"epoch":"e"}}}` + "\n")
	f.Fuzz(func(t *testing.T, text string) {
		client := &statesync.Client{URL: "http://server", Transport: body(text)}
		var frames []statesync.Frame
		err := client.Watch(t.Context(), statesync.Watch{Scope: "eu"}, func(f statesync.Frame) error {
			frames = append(frames, f)
			return nil
		})
		if err == nil {
			t.Fatal("a stream ended without a reason")
		}
		if len(frames) > strings.Count(text, "\n")+1 {
			t.Fatalf("%d frames of %q", len(frames), text)
		}
	})
}

// FuzzItems asks for items with any parameters. The answer is one of those that
// the Handler names, and describes the mistake in JSON.
func FuzzItems(f *testing.F) {
	ctx, cancel := context.WithCancel(context.Background())
	log := &statesync.Memory{}
	server := &statesync.Server{Log: log, MaxAge: time.Millisecond}
	ended := make(chan error, 1)
	go func() { ended <- server.Start(ctx) }()
	f.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			f.Error(err)
		}
	})
	if err := log.AddScope("eu"); err != nil {
		f.Fatal(err)
	}
	if err := log.Commit(put("a", 1), put("b", 1), drop("a")); err != nil {
		f.Fatal(err)
	}
	handler := &statesync.Handler{Server: server, Authorize: anybody, Readers: log}
	f.Add("eu", "after=1&epoch=x", "")
	f.Add("eu", "watch", "")
	f.Add("eu", "limit=2&collection=things&collection=others", "")
	f.Add("us", "wait=1ms", `{"session":1,"sequence":1,"applied":{"epoch":"e","version":2}}`)
	f.Add("eu", "floor=1&after=18446744073709551615&epoch=", `{"session":18446744073709551615}`)
	f.Fuzz(func(t *testing.T, scope, query, report string) {
		if strings.Contains(query, "wait") {
			return // it would
		}
		for _, r := range []*http.Request{
			{Method: http.MethodGet, URL: &url.URL{Path: "/scopes/" + scope + "/items", RawQuery: query}},
			{Method: http.MethodPost, URL: &url.URL{Path: "/scopes/" + scope + "/reports"}, Body: io.NopCloser(strings.NewReader(report))},
		} {
			r.Host, r.Header = "server", http.Header{}
			answer := httptest.NewRecorder()
			handler.ServeHTTP(answer, r.WithContext(t.Context()))
			if answer.Code >= 300 && answer.Code < 400 || answer.Code == http.StatusMethodNotAllowed {
				continue // a path that is none
			}
			if !slices.Contains([]int{200, 400, 404, 410}, answer.Code) {
				t.Fatalf("%s %s: %d: %s", r.Method, r.URL, answer.Code, answer.Body)
			}
			if answer.Code != http.StatusNotFound && !json.Valid(answer.Body.Bytes()) && !strings.Contains(query, "watch") {
				t.Fatalf("%s %s: not JSON: %s", r.Method, r.URL, answer.Body)
			}
		}
	})
}
