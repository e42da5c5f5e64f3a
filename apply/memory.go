package apply

import (
	"sync"
	"time"

	"github.com/seed-9e1ffd66/trueup/apply/readiness"
)

// absences remembers for each part which objects are absent from its sets, by UID.
type absences struct {
	mu sync.Mutex
	by map[string]map[string]absence
}

func (a *absences) of(part string) map[string]absence {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.by[part]
}

func (a *absences) set(part string, next map[string]absence) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(next) == 0 {
		delete(a.by, part)
		return
	}
	if a.by == nil {
		a.by = map[string]map[string]absence{}
	}
	a.by[part] = next
}

// absence is how long an object has been absent.
type absence struct {
	since  time.Time
	passes int
}

// statuses remembers the readiness of objects, each as of one version.
type statuses struct {
	mu sync.Mutex
	by map[ID]status
}

type status struct {
	uid     string
	version uint64
	shown   uint64 // the last version that the view had of it
	readiness.Result
}

// get returns what is remembered of an object, if it holds for the version that the view shows.
// Below the version that the view had, it does not: a backup was restored.
func (s *statuses) get(id ID, uid string, shows uint64) (status, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	found, ok := s.by[id]
	if !ok || found.uid != uid || shows < found.shown || shows > found.version {
		return status{}, false
	}
	found.shown = shows
	s.by[id] = found
	return found, true
}

func (s *statuses) set(id ID, found status) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.by == nil {
		s.by = map[ID]status{}
	}
	s.by[id] = found
}

// forget drops the memory of an object.
func (s *statuses) forget(id ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.by, id)
}
