package cluster

import "time"

// Marshalled returns how many messages are kept marshalled.
func Marshalled(s *Service) (n int) {
	s.codec.bytes.Range(func(any, any) bool {
		n++
		return true
	})
	return n
}

// SetPatience sets how long an agent may take nothing.
func SetPatience(s *Service, patience time.Duration) { s.patience = patience }
