package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/seed-9e1ffd66/trueup/statesync"
)

const scope = "eu"

// ours is package statesync over HTTP, as lines of JSON.
func ours() peer { return peer{"trueup", serveOurs, connectOurs} }

func serveOurs(ctx context.Context, at string, resources int) (string, func(int) error, error) {
	log := &statesync.Memory{}
	if err := log.AddScope(scope); err != nil {
		return "", nil, err
	}
	version := 0
	change := func(n int) error {
		version++
		return log.Commit(
			statesync.Change{Scope: scope, Key: statesync.Key{Collection: "things", ID: fmt.Sprint(n)}, Value: []byte(value(n, version))},
		)
	}
	for n := range resources {
		if err := change(n); err != nil {
			return "", nil, err
		}
	}
	server := &statesync.Server{Log: log}
	go server.Start(ctx) //nolint:errcheck // it ends with the process
	mux := http.NewServeMux()
	mux.Handle("/scopes/", &statesync.Handler{Server: server, Authorize: func(*http.Request, string) (string, error) { return "client", nil }})
	// The same bytes without anything about them.
	mux.Handle("/file", file(resources))
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", at)
	if err != nil {
		return "", nil, err
	}
	web := &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	go web.Serve(listener) //nolint:errcheck // it ends with the process
	return listener.Addr().String(), change, nil
}

func file(resources int) http.Handler {
	var once sync.Once
	var content []byte
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		once.Do(func() {
			for n := range resources {
				content = append(content, value(n, n)...)
			}
		})
		_, _ = w.Write(content)
	})
}

// connectOurs counts items without decoding them, as the other client does.
func connectOurs(ctx context.Context, address string, got func(int)) error {
	body, err := open(ctx, "http://"+address+"/scopes/"+scope+"/items?watch")
	if err != nil {
		return err
	}
	defer body.Close() //nolint:errcheck // nothing was written
	return count(body, []byte(`"padding":`), got)
}

func open(ctx context.Context, url string) (io.ReadCloser, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	response, err := (&http.Transport{}).RoundTrip(request)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", url, response.Status)
	}
	return response.Body, nil
}

// count counts how often mark comes.
func count(body io.Reader, mark []byte, got func(int)) error {
	buffer := make([]byte, 64<<10)
	kept := 0
	for {
		n, err := body.Read(buffer[kept:])
		text := buffer[:kept+n]
		if found := bytes.Count(text, mark); found > 0 {
			got(found)
		}
		// A mark may be cut by the end of what was read.
		tail := min(len(mark)-1, len(text))
		if at := bytes.LastIndex(text, mark); at >= 0 {
			tail = min(tail, len(text)-at-len(mark))
		}
		kept = copy(buffer, text[len(text)-tail:])
		if err != nil {
			return err
		}
	}
}
