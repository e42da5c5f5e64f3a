package pgtest

// Dir is where the server's files are.
func (s *Server) Dir() string { return s.dir }
