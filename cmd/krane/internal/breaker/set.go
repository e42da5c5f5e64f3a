package breaker

import (
	"context"
	"sync"
	"time"

	"connectrpc.com/connect"
)

// Set has a breaker with the usual limits for each RPC: one that fails does not
// stop the others. The zero value is ready. It is safe for concurrent use. Set the
// fields before the first call.
type Set struct {
	// Pause and Failed are the fields of each Breaker.
	Pause  time.Duration
	Failed func(error) bool
	// OnChange is called, if set, with each new state of an RPC's breaker, from
	// several goroutines at once. It must not call the set.
	OnChange func(rpc string, to State)

	mu  sync.Mutex
	rpc map[string]*Breaker
}

// Do makes the call under the breaker of the RPC, or returns [ErrOpen] instead.
func (s *Set) Do(ctx context.Context, rpc string, call func(context.Context) error) error {
	return s.breaker(rpc).Do(ctx, call)
}

func (s *Set) breaker(rpc string) *Breaker {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.rpc[rpc]
	if b == nil {
		b = &Breaker{Pause: s.Pause, Failed: s.Failed}
		if s.OnChange != nil {
			b.OnChange = func(to State) { s.OnChange(rpc, to) }
		}
		if s.rpc == nil {
			s.rpc = map[string]*Breaker{}
		}
		s.rpc[rpc] = b
	}
	return b
}

// TransportFailure reports whether an error shows that the server cannot be
// reached or cannot work: Unavailable, DeadlineExceeded, Unknown, Internal,
// DataLoss, and what has no code. Every other code is an answer about the
// request, and Canceled is the caller's own doing. Nil is no failure.
func TransportFailure(err error) bool {
	if err == nil {
		return false
	}
	switch connect.CodeOf(err) {
	case connect.CodeUnavailable, connect.CodeDeadlineExceeded, connect.CodeUnknown, connect.CodeInternal, connect.CodeDataLoss:
		return true
	default:
		return false
	}
}

// Unreachable is TransportFailure without Internal, for an RPC whose Internal is
// about a single row.
func Unreachable(err error) bool {
	return TransportFailure(err) && connect.CodeOf(err) != connect.CodeInternal
}
