package sqlstore

// Waiting returns how many wait for the scope.
func Waiting(s *Store, scope string) int {
	s.watcher.mu.Lock()
	defer s.watcher.mu.Unlock()
	if e := s.watcher.scopes[scope]; e != nil {
		return e.waiting
	}
	return 0
}
