package agents

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/db"
)

// Door lets a few streams open at a time: when another replica has died, or a proxy was restarted, all
// agents come at once, and what opens their streams must leave connections of the database to writes and to
// streams that are open. Make one with [NewDoor]. It is safe for concurrent use.
type Door struct {
	free    chan struct{}
	waiting *atomic.Int64
}

const (
	// opening is how many streams open at a time: a quarter of the connections of a database.
	opening = 4
	// most is how many wait. Those of another replica are open again in seconds; if many more come than
	// are opened, they should come back later rather than give up while they wait.
	most = 10_000
	// openingLimit is how long one may wait, and how long it may take: as long as any other request.
	openingLimit = 15 * time.Second
)

// NewDoor returns a Door that is free.
func NewDoor() Door { return Door{make(chan struct{}, opening), &atomic.Int64{}} }

// Enter waits for its turn, or for the end of ctx, whose error it then returns. The error wraps
// [db.ErrBusy] if too many wait, or after 15 s. The caller must call leave, once or more often, and must not
// wait for its agent in between.
func (d Door) Enter(ctx context.Context) (leave func(), err error) {
	if d.free == nil {
		return func() {}, nil
	}
	leave = sync.OnceFunc(func() { <-d.free })
	select {
	case d.free <- struct{}{}:
		return leave, nil
	default:
	}
	defer d.waiting.Add(-1)
	if d.waiting.Add(1) > most {
		return nil, fmt.Errorf("%w: %d streams wait until they can be opened", db.ErrBusy, most)
	}
	limit := time.NewTimer(openingLimit)
	defer limit.Stop()
	select {
	case d.free <- struct{}{}:
		return leave, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-limit.C:
		return nil, fmt.Errorf("%w: the stream could not be opened within %v", db.ErrBusy, openingLimit)
	}
}

// errSlow is the cause of the end of what takes too long to open.
var errSlow = fmt.Errorf("%w: the stream did not begin within %v", db.ErrBusy, openingLimit)

// Open enters for a stream that opens until opened is called, which it must be, once or more often. If that
// takes more than 15 s, the context that it returns ends: [Slow] knows.
func (d Door) Open(ctx context.Context) (within context.Context, opened func(), err error) {
	leave, err := d.Enter(ctx)
	if err != nil {
		return nil, nil, err
	}
	within, cancel := context.WithCancelCause(ctx)
	limit := time.AfterFunc(openingLimit, func() { cancel(errSlow) })
	return within, func() { limit.Stop(); leave() }, nil
}

// Slow returns an error that wraps [db.ErrBusy] if the context of [Door.Open] has ended because the stream did
// not begin in time, nil otherwise.
func Slow(within context.Context) error {
	if cause := context.Cause(within); errors.Is(cause, errSlow) {
		return cause
	}
	return nil
}

// OnWrite returns a writer that calls begun at the first write.
func OnWrite(w http.ResponseWriter, begun func()) http.ResponseWriter { return &beginning{w, begun} }

type beginning struct {
	http.ResponseWriter

	begun func()
}

func (b *beginning) Write(p []byte) (int, error) {
	b.begun()
	return b.ResponseWriter.Write(p)
}

func (b *beginning) WriteHeader(status int) {
	b.begun()
	b.ResponseWriter.WriteHeader(status)
}

// Unwrap is for [http.ResponseController].
func (b *beginning) Unwrap() http.ResponseWriter { return b.ResponseWriter }
