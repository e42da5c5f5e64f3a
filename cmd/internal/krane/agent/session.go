package agent

import (
	"sync/atomic"

	"github.com/seed-9e1ffd66/trueup/cmd/internal/krane/stream"
)

// session numbers the reports of this start of the agent. The control plane gives it an
// epoch at the first heartbeat, and another one once that is not valid any more. The
// clock of a node gives none: on a node that is behind, an epoch would be older than
// that of the start before.
type session struct {
	// renew asks for a heartbeat at once. Required.
	renew func()

	given    atomic.Uint64
	valid    atomic.Bool
	sequence atomic.Uint64
}

// claimed reports whether there is an epoch to report with.
func (s *session) claimed() bool { return s.valid.Load() }

// epoch returns the epoch, 0 if the control plane gives none.
func (s *session) epoch() uint64 { return s.given.Load() }

// next returns the number of the next report.
func (s *session) next() uint64 { return s.sequence.Add(1) }

// claim takes an epoch.
func (s *session) claim(epoch uint64) {
	s.given.Store(epoch)
	s.valid.Store(true)
}

// refused gives the epoch up if the error states that it is not valid, so that the next
// heartbeat claims another.
func (s *session) refused(err error) {
	if stream.Reason(err) == "stale-epoch" && s.valid.CompareAndSwap(true, false) {
		s.renew()
	}
}
