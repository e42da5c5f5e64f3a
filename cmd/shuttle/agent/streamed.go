package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/seed-9e1ffd66/trueup/cmd/api/starbase"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/program"
	"github.com/seed-9e1ffd66/trueup/reconcile"
	"github.com/seed-9e1ffd66/trueup/statesync"
)

// source is where the desired state comes from. Each pass of Reconcile is one look for a newer one, on a
// ticker and when the source triggers it; Start runs until ctx ends what the source has beside that.
type source interface {
	reconcile.Reconciler
	reconcile.Starter
}

var (
	_ source = (*puller)(nil)
	_ source = (*streamed)(nil)
)

// Start implements source: there is the ticker alone.
func (p *puller) Start(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

const (
	// silence is after which time without a frame a stream no longer stands for the answer of a pull.
	silence = 30 * time.Second
	// steady is how long a stream lasts, after one that was cut, until the log says that it is back: a proxy may cut each.
	steady = 15 * time.Second
	// maxStream is longer than Starbase lets a stream last.
	maxStream = 2 * time.Hour
)

// streamed asks for the desired state once a stream of Starbase names another version than the accepted one.
//
// The stream carries the version alone. A body is pulled, so both sources have one way by which a state is
// refused or accepted, and no secret stays in a stream or in the memory of Starbase. At rest
// each heartbeat stands for the answer 304: statesync has proven by count and digest that the version which
// was received last is the one of Starbase, and it is the accepted one. In all other cases the ticker
// pulls as if there were no stream: before the first frame, between two streams, while the stream is silent or
// names another version, with a Starbase that has no streams, and for the first state of another epoch,
// which a later pull has to confirm.
type streamed struct {
	puller  *puller
	from    statesync.Source
	logger  *slog.Logger
	passes  *slog.Logger    // of the passes of streams
	streams *reconcile.Loop // a pass is one stream
	look    func()          // triggers a pass of Reconcile
	cut     bool            // the last stream has ended early: of follow alone

	mu    sync.Mutex
	named string    // version of the last proven frame of an open stream; empty: there is none
	heard time.Time // when that frame came
}

func newStreamed(p *puller, logger *slog.Logger) *streamed {
	s := &streamed{puller: p, logger: logger, passes: program.Changes(logger), from: &statesync.Client{
		URL: p.client.base, Transport: unbounded{p.client}, Logger: logger,
	}}
	s.streams = &reconcile.Loop{
		Name: "stream", Reconciler: reconcile.Func(s.follow), Logger: s.passes,
		Interval: 2 * maxStream, // the end of a stream decides
		Backoff:  reconcile.Backoff{Min: time.Second, Max: time.Minute, Jitter: 0.5},
	}
	return s
}

// Start implements source.
func (s *streamed) Start(ctx context.Context) error { return s.streams.Start(ctx) }

// follow reads one stream to its end. It begins with the version of now, so nothing of a stream before counts, and
// a replica of its own checks it. Streams that end together do not come back together.
func (s *streamed) follow(ctx context.Context) (reconcile.Result, error) {
	began, proven, said := time.Now(), false, false
	defer s.note("")
	reading, stop := context.WithCancel(ctx)
	defer stop()
	var ended error
	replica := &statesync.Replica{
		Scope: starbase.VersionScope, Relist: maxStream,
		Handle:   func(context.Context, statesync.Item) error { return nil }, // its frame is looked at
		OnStream: func(stream statesync.Stream) { ended = stream.Err; stop() },
	}
	replica.Source = watcher(func(ctx context.Context, w statesync.Watch, receive func(statesync.Frame) error) error {
		return s.from.Watch(ctx, w, func(f statesync.Frame) error {
			if err := receive(f); err != nil {
				return err
			}
			if version := s.version(replica); version != "" {
				proven = true
				if !said && (!s.cut || time.Since(began) >= steady) { // the pass ends much later, with the stream
					said, s.cut = true, false
					s.passes.DebugContext(ctx, "pass done", slog.String("loop", "stream"), slog.String("version", version))
				}
				s.note(version)
			}
			return nil
		})
	})
	if err := replica.Start(reading); err != nil || ctx.Err() != nil {
		return reconcile.Result{}, err
	}
	_, told := errors.AsType[*statesync.EndError](ended)
	if proven && (told || time.Since(began) >= time.Minute) {
		s.logger.DebugContext(ctx, "stream ended", slog.Any("reason", ended))
		return reconcile.Result{RequeueAfter: 1 + rand.N(time.Second)}, nil //nolint:gosec // no secret
	}
	s.cut = proven
	return reconcile.Result{}, fmt.Errorf("stream of versions: pulling until there is one: %w", ended)
}

// Reconcile implements source: one question to Starbase, unless the stream has answered it.
func (s *streamed) Reconcile(ctx context.Context) (reconcile.Result, error) {
	s.mu.Lock()
	named, since := s.named, time.Since(s.heard)
	s.mu.Unlock()
	if named != "" && since < silence && s.puller.desired.has(named) {
		return reconcile.Result{}, nil
	}
	return s.puller.Reconcile(ctx)
}

// version returns the version of Starbase, empty if the stream has not proven it.
func (s *streamed) version(replica *statesync.Replica) (version string) {
	snapshot, complete := replica.Complete()
	item := snapshot.Items[statesync.Key{Collection: starbase.VersionCollection, ID: s.puller.cluster}]
	if !complete || json.Unmarshal(item.Value, &version) != nil {
		return ""
	}
	return version
}

// note takes the version that Starbase names now. Another one than before and than the accepted one is a reason to
// look.
func (s *streamed) note(version string) {
	s.mu.Lock()
	other := version != s.named
	s.named, s.heard = version, time.Now()
	s.mu.Unlock()
	if confirmed := s.puller.desired.named(version); other && version != "" && !confirmed {
		s.look()
	}
}

// watcher is a statesync.Source that is a function.
type watcher func(ctx context.Context, w statesync.Watch, receive func(statesync.Frame) error) error

// Watch implements statesync.Source.
func (f watcher) Watch(ctx context.Context, w statesync.Watch, receive func(statesync.Frame) error) error {
	return f(ctx, w, receive)
}

// unbounded sends requests whose answers may last.
type unbounded struct{ client *client }

// RoundTrip implements http.RoundTripper.
func (u unbounded) RoundTrip(request *http.Request) (*http.Response, error) {
	lasting := *u.client
	lasting.http = u.client.lasting
	answer, err := lasting.Do(request.Clone(request.Context()))
	if err != nil {
		err = withoutRequest(err) // the client of the stream names it
	}
	return answer, err
}
