package agent

import (
	"sync/atomic"

	"github.com/seed-9e1ffd66/trueup/cmd/krane/stream"
)

// session numbers the reports of this start of the agent. The control plane gives it an
// epoch at the first heartbeat, and another one once that is not valid any more. The epoch
// does not come from the clock of the node: on a node whose clock is behind, it would be
// older than the epoch of the previous start.
//
// When another agent of the region starts, this one is superseded: it writes and reports
// nothing, and takes over once the other is silent.
type session struct {
	// renew asks for a heartbeat at once. Required.
	renew func()

	given      atomic.Uint64
	valid      atomic.Bool
	superseded atomic.Bool
	sequence   atomic.Uint64
}

// quiet reports whether another agent works for the region.
func (s *session) quiet() bool { return s.superseded.Load() }

// claimed reports whether there is an epoch to report with.
func (s *session) claimed() bool { return s.valid.Load() }

// epoch returns the epoch, 0 if the control plane gives none.
func (s *session) epoch() uint64 { return s.given.Load() }

// next returns the number of the next report.
func (s *session) next() uint64 { return s.sequence.Add(1) }

// claims reports whether the next heartbeat claims an epoch. The control plane may
// give none, or its answer was cut on the way: reports then go without, and each heartbeat asks
// again.
func (s *session) claims() bool { return !s.claimed() || s.epoch() == 0 }

// claim takes an epoch. It reports whether the epoch differs from the last one, or there was none.
func (s *session) claim(epoch uint64) (another bool) {
	before := s.given.Swap(epoch)
	s.superseded.Store(false)
	return !s.valid.Swap(true) || before != epoch
}

// refused gives the epoch up if the error states that it is not valid, so that the next
// heartbeat claims another: at once, unless another agent has one.
func (s *session) refused(err error) {
	switch stream.Reason(err) {
	case reasonSuperseded:
		s.superseded.Store(true)
		s.valid.Store(false)
	case reasonStale:
		if s.valid.CompareAndSwap(true, false) {
			s.renew()
		}
	}
}

// Why the control plane refuses an epoch.
const (
	reasonStale      = "stale-epoch"
	reasonSuperseded = "superseded"
	reasonHeld       = "epoch-held"
)

// aboutEpoch reports whether an error is only about the epoch: a new one must be claimed, or
// another agent holds it.
func aboutEpoch(err error) bool {
	switch stream.Reason(err) {
	case reasonStale, reasonSuperseded, reasonHeld:
		return true
	default:
		return false
	}
}
