package applytest

import (
	"encoding/binary"
	"io"
	"net/http"
	"strings"
	"sync"
)

// stream is the body of a watch, split into events that can be held back and delivered
// again.
type stream struct {
	owner  *Transport
	source io.ReadCloser
	proto  bool // length-prefixed protobuf frames instead of JSON lines

	mu      sync.Mutex
	changed *sync.Cond
	pending []byte   // delivered next
	held    [][]byte // held back
	seen    [][]byte // all events so far
	err     error    // how the source ended
	closed  bool
}

func (t *Transport) follow(answer *http.Response) io.ReadCloser {
	s := &stream{owner: t, source: answer.Body, proto: strings.Contains(answer.Header.Get("Content-Type"), "protobuf")}
	s.changed = sync.NewCond(&s.mu)
	t.mu.Lock()
	if t.watches == nil {
		t.watches = map[*stream]struct{}{}
	}
	t.watches[s] = struct{}{}
	t.mu.Unlock()
	go s.pump()
	return s
}

// pump reads the source, event by event, until it ends.
func (s *stream) pump() {
	var rest []byte
	buf := make([]byte, 32<<10)
	for {
		n, err := s.source.Read(buf)
		rest = append(rest, buf[:n]...)
		for {
			frame := s.frame(rest)
			if frame == 0 {
				break
			}
			s.arrived(append([]byte(nil), rest[:frame]...))
			rest = rest[frame:]
		}
		if err != nil {
			s.mu.Lock()
			s.err = err
			s.changed.Broadcast()
			s.mu.Unlock()
			return
		}
	}
}

// frame returns the length of the first whole event, 0 for none.
func (s *stream) frame(data []byte) int {
	if s.proto {
		if len(data) < 4 {
			return 0
		}
		n := 4 + int(binary.BigEndian.Uint32(data))
		if len(data) < n {
			return 0
		}
		return n
	}
	for i, c := range data { // a JSON text has no line feed inside
		if c == '\n' {
			return i + 1
		}
	}
	return 0
}

func (s *stream) arrived(event []byte) {
	// The lock is held to the end: a Thaw in between would leave the event behind.
	s.owner.mu.Lock()
	defer s.owner.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.err != nil: // cut
		return
	case s.owner.frozen, len(s.held) > 0:
		s.held = append(s.held, event)
		return
	}
	s.seen = append(s.seen, event)
	s.pending = append(s.pending, event...)
	s.changed.Broadcast()
}

// thaw delivers the events held back.
func (s *stream) thaw() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, event := range s.held {
		s.seen = append(s.seen, event)
		s.pending = append(s.pending, event...)
	}
	s.held = nil
	s.changed.Broadcast()
}

// replay delivers all events again.
func (s *stream) replay() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, event := range s.seen {
		s.pending = append(s.pending, event...)
	}
	s.changed.Broadcast()
}

// cut ends the stream as a lost connection does. The owner's lock is held.
func (s *stream) cut() {
	s.mu.Lock()
	s.err, s.held = io.ErrUnexpectedEOF, nil
	s.changed.Broadcast()
	s.mu.Unlock()
}

// Read implements io.Reader.
func (s *stream) Read(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.pending) == 0 {
		switch {
		case s.closed:
			return 0, io.ErrClosedPipe
		case s.err != nil && len(s.held) == 0:
			return 0, s.err
		}
		s.changed.Wait()
	}
	n := copy(p, s.pending)
	s.pending = s.pending[n:]
	return n, nil
}

// Close implements io.Closer.
func (s *stream) Close() error {
	s.owner.mu.Lock()
	delete(s.owner.watches, s)
	s.owner.mu.Unlock()
	s.mu.Lock()
	s.closed = true
	s.changed.Broadcast()
	s.mu.Unlock()
	return s.source.Close()
}

// Freeze holds back the events of open and later watches. The program keeps seeing the
// world as it is now.
func (t *Transport) Freeze() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.frozen = true
}

// Thaw delivers the events that Freeze has held back, and all later ones.
func (t *Transport) Thaw() {
	t.mu.Lock()
	t.frozen = false
	t.mu.Unlock()
	for _, s := range t.open() {
		s.thaw()
	}
}

// Replay delivers once more every event that the open watches have delivered, as
// a server may do that is behind another one. Events held back stay held back.
func (t *Transport) Replay() {
	for _, s := range t.open() {
		s.replay()
	}
}

// Cut ends the open watches as a lost connection does. Events held back are lost with
// them.
func (t *Transport) Cut() {
	for _, s := range t.open() {
		s.cut()
	}
}

// Expire ends the open watches, and answers their next start with 410 Gone, so that the
// program has to list again.
func (t *Transport) Expire() {
	streams := t.open()
	t.mu.Lock()
	t.expired += len(streams)
	t.mu.Unlock()
	for _, s := range streams {
		s.cut()
	}
}

// stale reports whether this start of a watch gets 410.
func (t *Transport) stale(r Request) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if r.Verb != "watch" || t.expired == 0 {
		return false
	}
	t.expired--
	return true
}

// Watches returns how many watches are open.
func (t *Transport) Watches() int { return len(t.open()) }

func (t *Transport) open() []*stream {
	t.mu.Lock()
	defer t.mu.Unlock()
	open := make([]*stream, 0, len(t.watches))
	for s := range t.watches {
		open = append(open, s)
	}
	return open
}
