package simtest

// Expire forgets the history of a server.
func (s *Server) Expire() { s.expire() }
