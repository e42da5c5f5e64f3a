package agents

import (
	"context"
	"sync"
)

// Door lets a few streams open at a time: when another replica has died, all of its agents come at
// once, and what opens their streams must leave connections of the database to writes and to
// streams that are open. Make one with [NewDoor]. It is safe for concurrent use.
type Door struct{ free chan struct{} }

// opening is how many streams open at a time: a quarter of the connections of a database.
const opening = 4

// NewDoor returns a Door that is free.
func NewDoor() Door { return Door{make(chan struct{}, opening)} }

// Enter waits for its turn, or for the end of ctx, whose error it then returns. The caller must
// call leave, once or more often, and must not wait for its agent in between.
func (d Door) Enter(ctx context.Context) (leave func(), err error) {
	select {
	case d.free <- struct{}{}:
		return sync.OnceFunc(func() { <-d.free }), nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
