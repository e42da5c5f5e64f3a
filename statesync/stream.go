package statesync

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"
)

// batch is a frame whose items are still entries, already encoded for JSON transports.
type batch struct {
	Frame
	entries []*entry
}

// Watch implements [Source].
func (s *Server) Watch(ctx context.Context, w Watch, receive func(Frame) error) error {
	return s.watch(ctx, w, 0, func(b batch) error {
		b.Items = items(b.entries)
		return receive(b.Frame)
	})
}

// Validate returns an ErrInvalid that names every field of w that no source can
// take.
func (w Watch) Validate() error {
	errs := []error{ValidScope(w.Scope)}
	for _, c := range w.Collections {
		errs = append(errs, validName("collections", c))
	}
	if w.Cursor.Version > 0 && w.Cursor.Epoch == "" {
		errs = append(errs, errors.New("epoch: is required beside a version above 0"))
	}
	if err := w.Cursor.Mark.Validate(); err != nil {
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return nil
}

// watch sends one stream. A zero heartbeat means the server's.
func (s *Server) watch(ctx context.Context, w Watch, heartbeat time.Duration, send func(batch) error) error {
	if err := w.Validate(); err != nil {
		return err
	}
	feed, stopping, err := s.join(ctx, w.Scope)
	if err != nil {
		return err
	}
	defer s.leave(feed)
	stream := stream{
		feed: feed, send: send, want: w.Collections, stopping: stopping,
		version: w.Cursor.Version, bootstrap: w.Cursor.Version == 0,
		heartbeat: cmp.Or(heartbeat, s.Heartbeat, 5*time.Second), limit: cmp.Or(s.Batch, 500),
	}
	age := time.NewTimer(s.age())
	defer age.Stop()
	return stream.run(ctx, w.Cursor, age.C)
}

// stream is one reader of a feed.
type stream struct {
	feed      *feed
	send      func(batch) error
	want      filter
	stopping  <-chan struct{}
	heartbeat time.Duration
	limit     int

	epoch string
	// history is the feed's history when the stream began.
	history uint64
	// version is the position up to which everything was sent. floor is the log's floor
	// when the stream, or its list, began.
	version, floor uint64
	// bootstrap is true until the whole state was sent, for a stream that began at
	// zero.
	bootstrap bool
	// partial is true after a frame that ended inside a commit.
	partial bool
}

func (s *stream) run(ctx context.Context, cursor Cursor, age <-chan time.Time) error {
	v, err := s.open(ctx)
	if err != nil {
		return err
	}
	s.epoch, s.floor, s.history = v.Epoch, v.Floor, v.history
	if err := s.feed.resumable(ctx, v.Position, cursor); err != nil {
		return err
	}
	if err := s.sendFrame(FrameHeader, v, nil); err != nil {
		return err
	}
	ready := make(chan struct{})
	close(ready)
	idle := time.NewTimer(s.heartbeat)
	defer idle.Stop()
	for {
		v := s.look(frameBytes)
		if err := s.broken(v); err != nil {
			return err
		}
		sent, err := s.step(v)
		if err != nil {
			return err
		}
		changed := v.changed
		if sent {
			idle.Reset(s.heartbeat)
			// There may be more, but an end comes before the next frame.
			changed = ready
		}
		if err := s.over(ctx, age); err != nil {
			return err
		}
		select {
		case <-changed:
		case <-idle.C:
			if err := s.sendFrame(FrameBookmark, v, nil); err != nil {
				return err
			}
			idle.Reset(s.heartbeat)
		case <-age:
			return &EndError{Reason: EndOfAge}
		case <-s.stopping:
			return &EndError{Reason: EndOfServer}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// over returns the error with which the stream must end now, if any.
func (s *stream) over(ctx context.Context, age <-chan time.Time) error {
	select {
	case <-age:
		return &EndError{Reason: EndOfAge}
	case <-s.stopping:
		return &EndError{Reason: EndOfServer}
	case <-ctx.Done():
		return ctx.Err()
	default:
		return nil
	}
}

// look returns the next entries, at most about size bytes.
func (s *stream) look(size int) view {
	v := s.feed.look(s.version, s.limit, size, s.want)
	if s.version == 0 {
		// The reader has no state yet that needs a pruned tombstone.
		s.floor = v.Floor
	}
	return v
}

// logPatience is how long a stream that begins waits for a log that cannot be read.
const logPatience = 5 * time.Second

// open waits until the log's position is known. A log that cannot be read is tried
// again soon.
func (s *stream) open(ctx context.Context) (view, error) {
	enough := time.NewTimer(logPatience)
	defer enough.Stop()
	over := false
	for {
		v := s.look(0)
		switch {
		case v.err != nil && (over || errors.Is(v.err, ErrUnknownScope)):
			return v, ended(v.err)
		case v.err == nil && v.Epoch != "":
			return v, nil
		case v.err != nil:
			select {
			case s.feed.hasten <- struct{}{}:
			default:
			}
		}
		select {
		case <-v.changed:
		case <-enough.C:
			over = true
		case <-s.stopping:
			return v, &EndError{Reason: EndOfServer}
		case <-ctx.Done():
			return v, ctx.Err()
		}
	}
}

// broken returns an error if the stream cannot continue.
func (s *stream) broken(v view) error {
	switch at := (Cursor{Epoch: s.epoch, Version: s.version}); {
	case v.err != nil:
		return ended(v.err)
	case v.Epoch != s.epoch:
		return &ResyncError{Reason: OtherEpoch, Cursor: at, Position: v.Position}
	case v.history != s.history:
		return &ResyncError{Reason: OtherHistory, Cursor: at, Position: v.Position}
	case s.version < v.Floor && s.floor < v.Floor:
		// Tombstones that the reader needs were pruned.
		return &ResyncError{Reason: BelowFloor, Cursor: at, Position: v.Position}
	}
	return nil
}

func ended(err error) error {
	if errors.Is(err, ErrUnknownScope) {
		return err
	}
	return &EndError{Reason: EndOfLog, Cause: err}
}

// step sends the entries of v, and reports whether it sent anything.
func (s *stream) step(v view) (sent bool, err error) {
	switch {
	case s.bootstrap:
		return s.load(v)
	case len(v.entries) > 0:
		return true, s.sendFrame(FrameChanges, v, v.entries)
	case v.through > s.version || s.partial && !v.more:
		return true, s.sendFrame(FrameBookmark, v, nil)
	}
	return false, nil
}

// load is step until the whole state was sent.
func (s *stream) load(v view) (sent bool, err error) {
	if len(v.entries) > 0 || v.through > s.version {
		sent = true
		if err := s.sendFrame(FrameItems, v, v.entries); err != nil {
			return sent, err
		}
	}
	if v.more {
		return sent, nil
	}
	s.bootstrap = false
	return true, s.sendFrame(FrameSynced, v, nil)
}

// sendFrame sends one frame and moves to the end of v.
func (s *stream) sendFrame(kind FrameType, v view, entries []*entry) error {
	f := Frame{Type: kind, Epoch: v.Epoch, After: s.version, Version: v.through, Head: v.Head, More: v.more}
	switch kind {
	case FrameHeader:
		f.Version, f.More, f.Heartbeat = s.version, false, s.heartbeat
	case FrameSynced, FrameBookmark, FrameChanges:
		if !v.more {
			f.Count, f.Digest, f.Mark = v.total.count, v.total.digest.sealed(), v.mark
		}
	case FrameItems, FramePage:
	}
	f.Head = max(f.Head, f.Version)
	if err := s.send(batch{Frame: f, entries: entries}); err != nil {
		return err
	}
	s.version, s.partial = f.Version, f.More
	return nil
}

// FramePage is the frame of [Client.Page]: a part of the log as of one moment, without
// a stream.
const FramePage FrameType = "page"

// page returns at most limit items after the cursor of w. If there is none yet, it
// waits that long.
func (s *Server) page(ctx context.Context, w Watch, limit int, wait time.Duration) (batch, error) {
	if err := w.Validate(); err != nil {
		return batch{}, err
	}
	feed, stopping, err := s.join(ctx, w.Scope)
	if err != nil {
		return batch{}, err
	}
	defer s.leave(feed)
	stream := stream{feed: feed, want: w.Collections, stopping: stopping, version: w.Cursor.Version, limit: limit}
	v, err := stream.open(ctx)
	if err != nil {
		return batch{}, err
	}
	stream.epoch, stream.floor, stream.history = v.Epoch, v.Floor, v.history
	if err := feed.resumable(ctx, v.Position, w.Cursor); err != nil {
		return batch{}, err
	}
	deadline := time.NewTimer(wait)
	defer deadline.Stop()
	for {
		v := stream.look(frameBytes)
		if err := stream.broken(v); err != nil {
			return batch{}, err
		}
		b := batch{entries: v.entries, Frame: Frame{
			Type: FramePage, Epoch: v.Epoch, After: stream.version, Version: v.through, Head: v.Head, More: v.more,
		}}
		if v.more {
			b.Floor = v.Floor
		} else {
			b.Count, b.Digest, b.Mark = v.total.count, v.total.digest.sealed(), v.mark
		}
		// During the first read of the log, the end of the entries is not the end of
		// the log.
		loading := v.more && len(v.entries) == 0
		if len(b.entries) > 0 || wait <= 0 && !loading {
			return b, nil
		}
		select {
		case <-v.changed:
		case <-deadline.C:
			if !loading {
				return b, nil
			}
		case <-stopping:
			return batch{}, &EndError{Reason: EndOfServer}
		case <-ctx.Done():
			return batch{}, ctx.Err()
		}
	}
}
