package cluster

// Marshalled returns how many messages are kept marshalled.
func Marshalled(s *Service) (n int) {
	s.codec.bytes.Range(func(any, any) bool {
		n++
		return true
	})
	return n
}
