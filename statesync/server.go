package statesync

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/seed-9e1ffd66/trueup/reconcile"
)

// Server streams a [Log] to any number of readers. Each scope that is read has one
// reader of the log, whose state is kept in memory and shared by all streams: the load
// of the log does not depend on the number of streams. A slow stream costs a position:
// when it comes back, it gets the newest state of the changed keys.
//
// A Server is a [Source], and is served over HTTP by a [Handler]. Its fields must
// not change once Start was called. It must not be copied.
type Server struct {
	// Log is the log to stream. Required.
	Log Log
	// Heartbeat is the max time between two frames of a stream. Default
	// 5 s.
	Heartbeat time.Duration
	// MaxAge is the age at which a stream is ended, 20 % more or less. Default 30
	// minutes.
	MaxAge time.Duration
	// Batch is the max number of items in a frame. Default 500.
	Batch int
	// Linger is how long a scope stays in memory after its last stream. Default
	// one minute.
	Linger time.Duration
	// OnRead is called with each page of changes that were committed after the scope was
	// first read, once in this process, at the moment at which its streams get them: for
	// traces and metrics. It must not block, change the items, or keep them. Default nil: no call.
	OnRead func(scope string, changes Page)
	// Logger gets failures. Default nil: no log.
	Logger *slog.Logger

	mu    sync.Mutex
	feeds map[string]*feed
	// launch runs a feed until its context or that of Start ends. It is nil
	// while Start does not run.
	launch func(*feed)
	// started is closed when Start begins, stopping when it ends.
	started, stopping chan struct{}
}

// frameBytes is about how many bytes of values a frame carries. It keeps frames of
// large items readable, and the memory of many readers small.
const frameBytes = 64 << 10

// Start serves until ctx ends, then ends all streams and returns nil. It is called
// once. Streams that are opened earlier wait for it; those that are opened later end at
// once.
func (s *Server) Start(ctx context.Context) error {
	if err := s.validate(); err != nil {
		return err
	}
	var feeds sync.WaitGroup
	s.mu.Lock()
	if s.feeds != nil {
		s.mu.Unlock()
		return errors.New("statesync: Server: Start was called before")
	}
	s.feeds = map[string]*feed{}
	s.init()
	s.launch = func(f *feed) {
		ctx, stop := context.WithCancel(ctx)
		f.stop = stop
		feeds.Go(func() {
			defer stop()
			s.keep(ctx, f)
		})
	}
	close(s.started)
	s.mu.Unlock()

	<-ctx.Done()
	s.mu.Lock()
	close(s.stopping)
	s.launch = nil
	s.mu.Unlock()
	feeds.Wait()
	return nil
}

// init makes the channels. The mutex is held.
func (s *Server) init() {
	if s.started == nil {
		s.started, s.stopping = make(chan struct{}), make(chan struct{})
	}
}

func (s *Server) validate() error {
	var errs []error
	if s.Log == nil {
		errs = append(errs, wrong("Server.Log", "is required"))
	}
	for name, value := range map[string]time.Duration{"Heartbeat": s.Heartbeat, "MaxAge": s.MaxAge, "Linger": s.Linger} {
		if value < 0 {
			errs = append(errs, wrong("Server."+name, "is %v, must not be negative", value))
		}
	}
	if s.Batch < 0 {
		errs = append(errs, wrong("Server.Batch", "is %d, must not be negative", s.Batch))
	}
	return errors.Join(errs...)
}

// keep runs f, again and again if the log fails, until ctx ends or the scope
// turns out not to exist. A stream that is opened meanwhile waits up to 5 s for the log, which is
// then read again each second.
func (s *Server) keep(ctx context.Context, f *feed) {
	backoff := reconcile.Backoff{Min: 500 * time.Millisecond, Max: 30 * time.Second, Jitter: 0.5}
	for retry := 1; ; retry++ {
		began := time.Now()
		err := f.run(ctx)
		if ctx.Err() != nil {
			return
		}
		unknown := errors.Is(err, ErrUnknownScope)
		if unknown {
			s.drop(f) // first: a stream that ends for it may come again at once
		}
		f.fail(err)
		if unknown {
			return
		}
		if time.Since(began) > backoff.Max {
			retry = 1
		}
		delay, _ := backoff.Next(retry)
		if s.Logger != nil {
			s.Logger.LogAttrs(
				ctx,
				slog.LevelError,
				"log cannot be read",
				slog.String("scope", f.scope),
				slog.Any("error", err),
				slog.Duration("retry_in", delay),
			)
		}
		if !f.rest(ctx, delay) {
			return
		}
	}
}

// hastened is the min time between two reads that streams have hastened.
const hastened = time.Second

// rest waits for limit, or for hastened once a stream waits for the log. It returns
// false if ctx ended.
func (f *feed) rest(ctx context.Context, limit time.Duration) bool {
	soon := time.NewTimer(min(hastened, limit))
	defer soon.Stop()
	late := time.NewTimer(limit)
	defer late.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-soon.C:
	}
	select {
	case <-ctx.Done():
		return false
	case <-late.C:
	case <-f.hasten:
	}
	return true
}

// drop removes f. The next stream reads the log again.
func (s *Server) drop(f *feed) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.feeds[f.scope] == f {
		delete(s.feeds, f.scope)
	}
}

// join returns the feed of scope, which runs until leave was called.
func (s *Server) join(ctx context.Context, scope string) (f *feed, stopping <-chan struct{}, err error) {
	s.mu.Lock()
	s.init()
	started := s.started
	s.mu.Unlock()
	select {
	case <-started:
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.launch == nil {
		return nil, nil, &EndError{Reason: EndOfServer}
	}
	f = s.feeds[scope]
	if f == nil {
		f = &feed{
			log:     s.Log,
			scope:   scope,
			page:    1000,
			changed: make(chan struct{}),
			asking:  make(chan struct{}, 1),
			hasten:  make(chan struct{}, 1),
			onRead:  s.OnRead,
		}
		s.feeds[scope] = f
		s.launch(f)
	}
	f.streams++
	f.joined++
	return f, s.stopping, nil
}

func (s *Server) leave(f *feed) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f.streams--
	if f.streams > 0 {
		return
	}
	joined := f.joined
	time.AfterFunc(cmp.Or(s.Linger, time.Minute), func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if f.joined == joined {
			f.stop()
			if s.feeds[f.scope] == f {
				delete(s.feeds, f.scope)
			}
		}
	})
}

// age returns how long a stream may last.
func (s *Server) age() time.Duration {
	// The jitter keeps streams that began together from ending together.
	return time.Duration((0.8 + 0.4*rand.Float64()) * float64(cmp.Or(s.MaxAge, 30*time.Minute))) //nolint:gosec // no secret
}
