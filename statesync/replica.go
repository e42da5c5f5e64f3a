package statesync

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/seed-9e1ffd66/trueup/reconcile"
)

// Replica keeps a copy of a scope and has each change handled: in order for each key,
// many keys at a time, retried until it succeeds. A key that fails holds back no other.
//
// It begins with a list of everything, checks that list and every later bookmark by
// count and digest, resumes broken streams, and lists everything again every Relist.
// After an unknown scope, an abrupt end, a cut list, a wrong digest, or a server that
// fell behind, it handles nothing that the server did not send, and Complete is false
// until a list was proven again.
//
// Its fields must not change once Start was called. It must not be copied.
type Replica struct {
	// Source is the source of the state. Required.
	Source Source
	// Scope is the scope to read. Required.
	Scope string
	// Collections are the collections to read. None means all.
	Collections []string
	// Handle makes the world match one item: a tombstone means that the key must be
	// absent. Required. It must be idempotent: after a restart, a relist in a new
	// epoch, or an error it is called again. It is called from Workers goroutines,
	// never twice at a time for one key, and always with the newest item of its key.
	Handle func(ctx context.Context, item Item) error
	// Workers is how many keys are handled at a time. Default 8.
	Workers int
	// Retry is the backoff of failed keys. The zero Backoff never gives up; a key that
	// was given up is tried again after each list.
	Retry reconcile.Backoff
	// Relist is how often everything is listed again, 20 % more or less. Default
	// 10 minutes.
	Relist time.Duration
	// OnSynced is called when a list was proven, before its stream goes on.
	// Default nil: no call.
	OnSynced func(Snapshot)
	// OnStream is called at the end of each stream. Default nil: no call.
	OnStream func(Stream)
	// OnHandled is called after each call of Handle. Default nil: no call.
	OnHandled func(reconcile.KeyPass[Key])
	// Logger gets ends of streams and failed keys. Default nil: no log.
	Logger *slog.Logger

	mu     sync.Mutex
	mirror mirror
	// due is when the next list is.
	due time.Time
	// live is set while a stream is open and has not contradicted itself.
	live   bool
	lists  uint64
	listed time.Time
	// interrupt ends the stream in order to list again; relist calls it when that is
	// due. Both are nil without a stream.
	interrupt context.CancelFunc
	relist    *time.Timer
	queue     *reconcile.Queue[Key]
	// again holds at most one call of Reconnect. open is set while a stream is open; no
	// call is stored then.
	again chan struct{}
	open  bool
}

// Snapshot is the newest state after a list was proven.
type Snapshot struct {
	// Cursor is the copy's position.
	Cursor Cursor
	// Lists counts the proven lists, and Listed is the time of the last. A key absent
	// from two of them is not desired.
	Lists  uint64
	Listed time.Time
	// Items are the newest item of each key, tombstones included.
	Items map[Key]Item
}

// Stream describes one stream that has ended.
type Stream struct {
	// List reports that it began with a list.
	List bool
	// Began is when it was opened, and Frames counts its frames.
	Began  time.Time
	Frames uint64
	// Err is why it ended.
	Err error
	// Retry is the pause before the next stream.
	Retry time.Duration
}

// Status is the progress of a Replica.
type Status struct {
	// Cursor is the received position. Applied is the acknowledged cursor: everything
	// up to it was proven complete and handled. An item that a newer one of its key
	// replaced before it was handled counts as handled. Head is the log's newest known
	// version.
	Cursor, Applied Cursor
	Head            uint64
	// Pending counts the keys that are not handled yet, Parked those that were
	// given up.
	Pending, Parked int
	// Complete is the result of Complete.
	Complete bool
}

// Start keeps the copy until ctx ends and every call of Handle has returned, and then
// returns nil. It waits at most 30 s for those calls: then it returns a
// [reconcile.StuckError].
func (r *Replica) Start(ctx context.Context) error {
	if err := r.validate(); err != nil {
		return err
	}
	r.mu.Lock()
	r.queue = &reconcile.Queue[Key]{
		Name: "statesync " + r.Scope, Reconcile: r.handle, Workers: cmp.Or(r.Workers, 8),
		Backoff: r.Retry, Logger: r.Logger, OnPass: r.OnHandled,
	}
	r.again = make(chan struct{}, 1)
	r.mu.Unlock()
	group := reconcile.Group{Members: []reconcile.Member{
		{Name: "handlers", Starter: r.queue},
		{Name: "streams", Starter: reconcile.StarterFunc(func(ctx context.Context) error { r.follow(ctx); return nil })},
	}}
	return group.Start(ctx)
}

func (r *Replica) validate() error {
	errs := []error{}
	if r.Source == nil {
		errs = append(errs, wrong("Replica.Source", "is required"))
	}
	if client, ok := r.Source.(*Client); ok { // else it would try for ever
		errs = append(errs, client.validate())
	}
	if r.Handle == nil {
		errs = append(errs, wrong("Replica.Handle", "is required"))
	}
	if r.Relist < 0 {
		errs = append(errs, wrong("Replica.Relist", "is %v, must not be negative", r.Relist))
	}
	if r.Workers < 0 {
		errs = append(errs, wrong("Replica.Workers", "is %d, must not be negative", r.Workers))
	}
	if err := (Watch{Scope: r.Scope, Collections: r.Collections}).Validate(); err != nil {
		errs = append(errs, fmt.Errorf("statesync: Replica: %w", err))
	}
	return errors.Join(errs...)
}

// Complete returns the state, and whether it is complete: a list was proven, and a
// stream is open that has not contradicted it since. Only then may the caller remove
// what is absent from the state.
func (r *Replica) Complete() (Snapshot, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.snapshot(), r.complete()
}

func (r *Replica) complete() bool {
	return r.live && r.mirror.next == nil && !r.mirror.partial
}

func (r *Replica) snapshot() Snapshot {
	s := Snapshot{Cursor: r.mirror.cursor, Lists: r.lists, Listed: r.listed, Items: make(map[Key]Item, len(r.mirror.items))}
	maps.Copy(s.Items, r.mirror.items)
	return s
}

// Status returns the progress of the Replica.
func (r *Replica) Status() Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := Status{
		Cursor: r.mirror.cursor, Applied: r.mirror.applied(), Head: r.mirror.head,
		Pending: len(r.mirror.pending), Complete: r.complete(),
	}
	if r.queue != nil {
		s.Parked = len(r.queue.Parked())
	}
	return s
}

// List lists everything again, now.
func (r *Replica) List() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.due = time.Time{}
	if r.interrupt != nil {
		r.interrupt()
	}
}

// Reconnect ends the pause between two streams, for a program that knows a reason to
// try again: the network is back, or there is a new credential. A call while the next
// stream is being opened ends the pause after that attempt, if it fails; several calls
// count as one. A call before Start or while a stream is open does nothing. However
// often it is called, the streams that it hastens are a second apart.
func (r *Replica) Reconnect() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.open {
		return
	}
	select {
	case r.again <- struct{}{}:
	default:
	}
}

// begun records that a stream has begun. The mutex is held.
func (r *Replica) begun() {
	if !r.open {
		r.open = true
		r.reconnected()
	}
}

// reconnected drops a call of Reconnect that is fulfilled.
func (r *Replica) reconnected() {
	select {
	case <-r.again:
	default:
	}
}

// handle handles the newest item of key.
func (r *Replica) handle(ctx context.Context, key Key) (reconcile.Result, error) {
	r.mu.Lock()
	next, waits := r.mirror.pending[key]
	r.mu.Unlock()
	if !waits {
		return reconcile.Result{}, nil
	}
	if err := r.Handle(ctx, next.Item); err != nil {
		return reconcile.Result{}, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mirror.handled(key, next.at)
	return reconcile.Result{}, nil
}

// follow opens one stream after another until ctx ends.
func (r *Replica) follow(ctx context.Context) {
	var pause pause
	for ctx.Err() == nil {
		stream := r.stream(ctx)
		if ctx.Err() != nil {
			break
		}
		stream.Retry = pause.after(stream)
		if r.Logger != nil {
			r.Logger.LogAttrs(
				ctx,
				level(stream.Err),
				"stream ended",
				slog.String("scope", r.Scope),
				slog.Any("reason", stream.Err),
				slog.Duration("retry_in", stream.Retry),
			)
		}
		if r.OnStream != nil {
			r.OnStream(stream)
		}
		r.rest(ctx, &pause, stream.Retry)
	}
}

// rest waits for limit, or until Reconnect cuts that short.
func (r *Replica) rest(ctx context.Context, p *pause, limit time.Duration) {
	defer r.reconnected()
	over := time.Now().Add(limit)
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return
	case <-timer.C:
		return
	case <-r.again:
	}
	timer.Reset(p.cut(time.Until(over)))
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// errRelist is a stream that was ended because it is time to list again.
var errRelist = errors.New("time to list again")

func level(err error) slog.Level {
	var end *EndError
	if errors.Is(err, errRelist) || errors.As(err, &end) && end.Reason != EndOfLog {
		return slog.LevelDebug
	}
	return slog.LevelWarn
}

// stream reads one stream to its end.
func (r *Replica) stream(ctx context.Context) Stream {
	ctx, interrupt := context.WithCancel(ctx)
	defer interrupt()
	r.mu.Lock()
	s := Stream{Began: time.Now(), List: !time.Now().Before(r.due)}
	from := r.mirror.begin(s.List)
	s.List = from.Version == 0
	r.interrupt = interrupt
	if !s.List {
		r.relist = time.AfterFunc(time.Until(r.due), interrupt)
	}
	r.mu.Unlock()

	s.Err = r.Source.Watch(ctx, Watch{Scope: r.Scope, Cursor: from, Collections: r.Collections}, func(f Frame) error {
		s.Frames++
		if err := r.receive(f); err != nil {
			return err
		}
		return ctx.Err()
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.relist != nil {
		r.relist.Stop()
	}
	r.interrupt, r.relist, r.live, r.open = nil, nil, false, false
	switch {
	case doubtful(s.Err):
		r.due = time.Time{}
		var resync *ResyncError
		if errors.As(s.Err, &resync) && resync.Reason == OtherHistory {
			r.mirror.disown()
		}
	case errors.Is(s.Err, context.Canceled) && ctx.Err() != nil:
		s.Err = errRelist
	}
	// Discard the unfinished list.
	r.mirror.next = nil
	return s
}

// doubtful reports whether a stream that ended with err leaves the copy in doubt,
// so that only a list can prove it again.
func doubtful(err error) bool {
	return slices.ContainsFunc(
		[]error{ErrUnknownScope, ErrResync, errDigest, errChain, errBehind},
		func(doubt error) bool { return errors.Is(err, doubt) },
	)
}

// receive takes one frame and queues the changed keys.
func (r *Replica) receive(f Frame) error {
	r.mu.Lock()
	changed, err := r.mirror.take(f)
	// The stream ends only after this frame, but a wrong state is incomplete at once.
	r.live = err == nil && (r.live || f.Type != FrameHeader)
	if err == nil {
		r.begun()
	}
	var proven Snapshot
	if err == nil && f.Type == FrameSynced {
		r.lists++
		r.listed = time.Now()
		// The jitter keeps readers that began together from listing together.
		r.due = r.listed.Add(time.Duration((0.8 + 0.4*rand.Float64()) * float64(cmp.Or(r.Relist, 10*time.Minute)))) //nolint:gosec // no secret
		r.relist = time.AfterFunc(time.Until(r.due), r.interrupt)
		if r.OnSynced != nil {
			proven = r.snapshot()
		}
	}
	queue := r.queue
	r.mu.Unlock()
	queue.Add(changed...)
	if proven.Lists > 0 {
		r.OnSynced(proven)
	}
	return err
}
