package regions

import (
	"context"
	"time"
)

// Marshalled returns how many messages are kept marshalled.
func Marshalled(s *Service) (n int) {
	s.codec.bytes.Range(func(any, any) bool {
		n++
		return true
	})
	return n
}

// Tidy does at once what Start does every two seconds, as of now.
func Tidy(ctx context.Context, s *Service, now time.Time) { s.tidy(ctx, now) }

// SetPatience sets how long an agent may take nothing.
func SetPatience(s *Service, patience time.Duration) { s.patience = patience }

// Refusals decides which refusals are logged.
type Refusals struct{ refusals }

// New is isNew.
func (r *Refusals) New(region, what string, now time.Time) bool { return r.isNew(region, what, now) }

// HealthQueries are what [Store.Healths] reads beside the rows of regions, and [Store.Objects].
func HealthQueries() []string { return append([]string{failingQuery}, objectQueries...) }

// Enter takes a place at the door of streams.
func Enter(ctx context.Context, s *Service) (leave func(), err error) { return s.gate.Door.Enter(ctx) }
