package serve

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/seed-9e1ffd66/trueup/reconcile"
)

// Server is one HTTP listener. It answers
//
//	/healthz  200 for as long as the server runs
//	/readyz   200 when every check passes, else 503 with one line a check
//	/metrics  what Metrics answers
//
// and hands every other path to Handler. The zero value listens on a free
// port of 127.0.0.1. The fields must not be changed after Start.
type Server struct {
	// Address is host:port. Empty: 127.0.0.1:0. 0: nothing listens.
	Address string
	// Handler answers the paths that the server does not answer itself. Nil:
	// 404.
	Handler http.Handler
	// Checks decide readiness, in this order. None: ready at once.
	Checks []Check
	// Metrics answers /metrics. Nil: /metrics goes to Handler.
	Metrics http.Handler
	// MetricsAddress is host:port of a listener of its own for /metrics, in plain HTTP.
	// Empty: Address has it. 0: nothing listens.
	MetricsAddress string
	// TLS turns on HTTPS, and the header Strict-Transport-Security. Nil: plain HTTP.
	TLS *tls.Config
	// UnencryptedHTTP2 lets plain HTTP speak HTTP/2 too.
	UnencryptedHTTP2 bool
	// Logger gets "listening" with the address, the complaints of net/http and an overlong
	// stop. Nil: none are logged.
	Logger *slog.Logger
	// Purpose is the attribute "for" of the line "listening". Empty: "health" beside a
	// listener for metrics, else none.
	Purpose string
	// OnListen and OnListenMetrics are called once with the address that is listened on,
	// before the first request is answered. Nil: not called.
	OnListen, OnListenMetrics func(net.Addr)
	// StopTimeout bounds how long requests may continue after ctx ended. Then
	// their connections are closed. Zero: 15 s.
	StopTimeout time.Duration
}

// Check is one condition of readiness.
type Check struct {
	// Name is what /readyz calls the check.
	Name string
	// Func returns nil when the condition holds. Its error is public, so it must
	// carry no secret. It must be safe for
	// concurrent use and return when ctx ends, after 5 s at the latest.
	Func func(ctx context.Context) error
}

const (
	readHeaderTimeout  = 10 * time.Second
	readTimeout        = time.Minute
	writeTimeout       = time.Minute
	idleTimeout        = 2 * time.Minute
	checkTimeout       = 5 * time.Second
	defaultStopTimeout = 15 * time.Second
	maxHeaderBytes     = 64 << 10
	// A connection that died silently is found within two of these.
	pingTimeout = 5 * time.Second
)

// Start listens and answers until ctx ends; then it takes no new connections,
// waits for the requests under way, and returns nil. An address that cannot
// be listened on is an error.
func (s *Server) Start(ctx context.Context) error {
	if s.MetricsAddress == "" {
		return s.listen(ctx)
	}
	main := *s
	main.Metrics, main.Purpose = nil, cmp.Or(s.Purpose, "health")
	metrics := Server{
		Address:     s.MetricsAddress,
		Metrics:     s.Metrics,
		Logger:      s.Logger,
		Purpose:     "metrics",
		OnListen:    s.OnListenMetrics,
		StopTimeout: s.StopTimeout,
	}
	group := reconcile.Group{StopTimeout: cmp.Or(s.StopTimeout, defaultStopTimeout) + time.Second, Members: []reconcile.Member{
		{Name: main.Purpose, Starter: reconcile.StarterFunc(main.listen)},
		{Name: metrics.Purpose, Starter: reconcile.StarterFunc(metrics.listen)},
	}}
	return group.Start(ctx)
}

// listen serves one address.
func (s *Server) listen(ctx context.Context) error {
	if s.Address == "0" {
		<-ctx.Done()
		return nil
	}
	address := cmp.Or(s.Address, "127.0.0.1:0")
	config := listening()
	listener, err := config.Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("listen on %s: %w", address, err)
	}
	logger := cmp.Or(s.Logger, slog.New(slog.DiscardHandler))
	var stopping atomic.Bool
	server := &http.Server{
		Handler:           s.handler(&stopping),
		TLSConfig:         s.TLS,
		ReadHeaderTimeout: readHeaderTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		Protocols:         s.protocols(),
		HTTP2:             &http.HTTP2Config{SendPingTimeout: pingTimeout, PingTimeout: pingTimeout},
		ErrorLog:          slog.NewLogLogger(logger.Handler(), slog.LevelWarn),
	}
	attributes := []slog.Attr{slog.String("address", listener.Addr().String())}
	if s.Purpose != "" {
		attributes = append(attributes, slog.String("for", s.Purpose))
	}
	if s.TLS != nil {
		attributes = append(attributes, slog.Bool("tls", true))
	}
	logger.LogAttrs(ctx, slog.LevelInfo, "listening", attributes...)
	if s.OnListen != nil {
		s.OnListen(listener.Addr())
	}
	ended := make(chan error, 1)
	go func() {
		if s.TLS != nil {
			ended <- server.ServeTLS(listener, "", "")
			return
		}
		ended <- server.Serve(listener)
	}()
	select {
	case err := <-ended:
		return fmt.Errorf("serve on %s: %w", listener.Addr(), err)
	case <-ctx.Done():
	}
	stopping.Store(true)
	stopCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cmp.Or(s.StopTimeout, defaultStopTimeout))
	defer cancel()
	if err := server.Shutdown(stopCtx); err != nil {
		logger.WarnContext(ctx, "requests were cut off at the end of the stop timeout", slog.Any("error", errors.Join(err, server.Close())))
	}
	<-ended
	return nil
}

func (s *Server) protocols() *http.Protocols {
	var p http.Protocols
	p.SetHTTP1(true)
	p.SetHTTP2(true)
	p.SetUnencryptedHTTP2(s.UnencryptedHTTP2)
	return &p
}

func (s *Server) handler(stopping *atomic.Bool) http.Handler {
	mux := http.NewServeMux()
	own := func(path string, handler http.Handler) {
		mux.Handle("GET "+path, handler)
		// Without it, another method would go to Handler.
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Allow", "GET, HEAD")
			writeText(w, http.StatusMethodNotAllowed, "this path takes GET, not "+r.Method+"\n")
		})
	}
	own("/healthz", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { writeText(w, http.StatusOK, "ok\n") }))
	own("/readyz", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.ready(w, r, stopping.Load()) }))
	if s.Metrics != nil {
		own("/metrics", s.Metrics)
	}
	if s.Handler != nil {
		mux.Handle("/", s.Handler)
	}
	if s.TLS == nil {
		return mux
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Strict-Transport-Security", "max-age=31536000")
		mux.ServeHTTP(w, r)
	})
}

func (s *Server) ready(w http.ResponseWriter, r *http.Request, stopping bool) {
	ctx, cancel := context.WithTimeout(r.Context(), checkTimeout)
	defer cancel()
	status, body := http.StatusOK, ""
	if stopping {
		status, body = http.StatusServiceUnavailable, "stopping\n"
	}
	for _, check := range s.Checks {
		if err := check.Func(ctx); err != nil {
			status = http.StatusServiceUnavailable
			body += fmt.Sprintf("%s: not ready: %v\n", check.Name, err)
			continue
		}
		body += check.Name + ": ok\n"
	}
	writeText(w, status, cmp.Or(body, "ok\n"))
}

func writeText(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(text)) // a client that went away is no error
}
