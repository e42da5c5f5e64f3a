package main

import (
	"context"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"time"
)

// counter is a proxy that counts the requests that write.
type counter struct {
	url    string
	writes atomic.Int64
}

// counter starts one before the service at target.
func (d *demo) counter(ctx context.Context, target string) (*counter, error) {
	to, err := url.Parse(target)
	if err != nil {
		return nil, err
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	c := &counter{url: "http://" + l.Addr().String()}
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(to)
			r.Out.Host = r.In.Host // it is part of what is signed
			read := r.In.Method == http.MethodGet || r.In.Method == http.MethodHead
			if !read && !strings.HasSuffix(r.In.URL.Path, "/openid-connect/token") {
				c.writes.Add(1)
			}
		},
		// A request that the operator ends early is not logged.
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
	}
	server := &http.Server{Handler: proxy, ReadHeaderTimeout: time.Minute}
	go server.Serve(l)                 //nolint:errcheck // it ends by Close
	d.atEnd(func() { server.Close() }) //nolint:errcheck,gosec // at the end
	return c, nil
}
