package stream

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"connectrpc.com/connect"

	ctrlv1 "github.com/seed-9e1ffd66/trueup/cmd/api/ctrl/v1"
	"github.com/seed-9e1ffd66/trueup/cmd/api/ctrl/v1/ctrlv1connect"
	"github.com/seed-9e1ffd66/trueup/statesync"
)

// Errors that end a stream. The Replica begins another.
var (
	// ErrSilent is a stream without a message for too long.
	ErrSilent = errors.New("stream is silent")
	// ErrBroken is a stream that contradicts its markers.
	ErrBroken = errors.New("stream breaks the contract")
	// ErrClaimed is a region that the agent of another cell has claimed.
	ErrClaimed = errors.New("region is claimed by an agent of another cell")
)

// Source is one watch RPC as a statesync.Source, for one Replica: it remembers
// what that has. The region is the client's, so the scope of a Watch is a name
// only. Its fields must not change after the first use.
type Source struct {
	// Client calls the control plane. Required.
	Client ctrlv1connect.ClusterServiceClient
	// Collection decides the RPC. Required.
	Collection Collection
	// Silence is the longest time between two messages. Default 45 s, three
	// bookmarks of the server. Without markers it is no end, unless a stream brings nothing
	// from its beginning on, for twice that time.
	Silence time.Duration
	// Patience is how long a stream may be silent that has not shown a marker,
	// until the server counts as one without. Default 10 s.
	Patience time.Duration
	// OnMessage is called, if set, with the version of each message.
	OnMessage func(version uint64)
	// Logger gets a server's violations of the contract. Nil: none is logged.
	Logger *slog.Logger

	mu   sync.Mutex // one stream at a time
	held *contents
	// marked is a server that has shown a marker, unmarked one that seems to have
	// none, of which greatest was seen since its last list began.
	marked, unmarked bool
	greatest         uint64
	// refused is the cursor with a mark that the server would not resume. Zero once
	// a list after it is complete.
	refused statesync.Cursor
}

// heartbeat is the time between messages of a server with markers.
const heartbeat = 15 * time.Second

// Watch implements statesync.Source.
func (s *Source) Watch(ctx context.Context, w statesync.Watch, receive func(statesync.Frame) error) error {
	if err := w.Validate(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r := &reading{source: s, receive: receive, list: w.Cursor.Version == 0, at: w.Cursor.Version, transcript: newTranscript()}
	from := w.Cursor
	switch {
	case r.list && s.unmarked:
		from = statesync.Cursor{Version: s.greatest}
		if err := r.begin(unmarkedEpoch(), s.greatest); err != nil {
			return err
		}
	case r.list:
		r.contents, s.greatest = newContents(), 0
	case s.held == nil || s.held.cursor != (statesync.Cursor{Epoch: from.Epoch, Version: from.Version}):
		// Without the reader's contents no list can be proven.
		return &statesync.ResyncError{Reason: statesync.OtherEpoch, Cursor: from}
	default:
		r.contents = s.held
		if err := r.begin(from.Epoch, from.Version); err != nil {
			return err
		}
	}
	r.last = from.Version
	err := r.run(ctx, from)
	if resync, ok := errors.AsType[*statesync.ResyncError](err); ok && from.Mark != (statesync.Mark{}) {
		s.refused = resync.Cursor
	}
	if s.unmarked && errors.Is(err, statesync.ErrInvalid) {
		// One with markers wants an epoch beside a version: list from it.
		s.unmarked, s.marked = false, true
	}
	return err
}

// run reads the stream to its end.
func (r *reading) run(ctx context.Context, from statesync.Cursor) error {
	ctx, cancel := context.WithCancel(ctx)
	var reader sync.WaitGroup
	defer reader.Wait()
	defer cancel()
	events := make(chan event, 256)
	var ended error // once events is closed
	reader.Go(func() {
		defer close(events)
		ended = r.source.read(ctx, from, events)
	})
	limit := cmp.Or(r.source.Silence, 45*time.Second)
	silence := time.NewTimer(limit)
	defer silence.Stop()
	began, came := time.Now(), false
	patience := time.NewTimer(cmp.Or(r.source.Patience, 10*time.Second))
	defer patience.Stop()
	for {
		select {
		case e, ok := <-events:
			if !ok {
				return ended
			}
			came = true
			silence.Reset(limit)
			patience.Reset(cmp.Or(r.source.Patience, 10*time.Second))
			if r.source.OnMessage != nil {
				r.source.OnMessage(e.version)
			}
			if err := r.take(e); err != nil {
				return err
			}
		case <-patience.C:
			if err := r.giveUpMarkers(ctx); err != nil {
				return err
			}
		case <-silence.C:
			// Without markers a server is silent between changes. What sends nothing at all may
			// also be a proxy before a server that has some.
			if !r.source.unmarked || !came && time.Since(began) > limit {
				return fmt.Errorf("%w: nothing for %v", ErrSilent, limit)
			}
			silence.Reset(limit)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// read puts what comes into events and returns why it ends.
func (s *Source) read(ctx context.Context, from statesync.Cursor, events chan<- event) error {
	stream, err := s.Collection.open(ctx, s.Client, from)
	if err != nil {
		return classify(err, from)
	}
	defer func() { _ = stream.close() }() // it was only read
	for {
		e, ok, err := stream.receive()
		switch {
		case ok && err != nil:
			return fmt.Errorf("%w: %w", ErrBroken, err)
		case err != nil:
			return classify(err, from)
		case !ok:
			return fmt.Errorf("%s: %w", s.Collection, io.ErrUnexpectedEOF)
		}
		select {
		case events <- e:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// classify returns the error of package statesync for one of the RPC.
func classify(err error, from statesync.Cursor) error {
	switch connect.CodeOf(err) {
	case connect.CodeUnauthenticated, connect.CodePermissionDenied:
		return fmt.Errorf("%w: %w", statesync.ErrUnauthenticated, err)
	case connect.CodeInvalidArgument:
		return fmt.Errorf("%w: %w", statesync.ErrInvalid, err)
	case connect.CodeFailedPrecondition:
		switch Reason(err) {
		case "resync-required":
			return &statesync.ResyncError{Reason: statesync.OtherEpoch, Cursor: from}
		case "unknown-region":
			return fmt.Errorf("%w: %w", statesync.ErrUnknownScope, err)
		case "region-claimed":
			return fmt.Errorf("%w: %w", ErrClaimed, err)
		}
	default:
	}
	return err
}

// Reason returns the reason in the ErrorDetail of an error, "" if it has none.
func Reason(err error) string {
	rpc, ok := errors.AsType[*connect.Error](err)
	if !ok {
		return ""
	}
	for _, detail := range rpc.Details() {
		if v, err := detail.Value(); err == nil {
			if d, ok := v.(*ctrlv1.ErrorDetail); ok {
				return d.GetReason()
			}
		}
	}
	return ""
}

// same reports whether what Synced states is what came.
func (t *transcript) same(s *ctrlv1.Synced) error {
	if digest := t.hash.Sum(nil); s.GetCount() != t.count || !bytes.Equal(s.GetDigest(), digest) {
		return fmt.Errorf(
			"%w: %d messages with digest %x came, synced states %d with %x",
			ErrBroken,
			t.count,
			digest,
			s.GetCount(),
			s.GetDigest(),
		)
	}
	return nil
}
