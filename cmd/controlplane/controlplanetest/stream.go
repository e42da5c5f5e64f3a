package controlplanetest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"path"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// stream is an answer that lasts, at both ends: what the handler writes is what the reader of
// the body gets.
type stream struct {
	end    context.CancelFunc // of the request as the handler has it
	wait   time.Duration
	header http.Header
	status int
	// begun is closed with the header, or at the end without one.
	begun chan struct{}
	once  sync.Once

	mu      sync.Mutex
	changed *sync.Cond
	pending []byte
	room    int  // how many bytes come before the stream breaks; 0 for all
	muted   bool // nothing comes any more
	err     error
	due     time.Time // of what is on its way
}

// stream has a request served that lasts. What it brings comes later by wait.
func (p *Simulated) stream(r *http.Request, body []byte, wait time.Duration) *stream {
	ctx, cancel := context.WithCancel(r.Context())
	s := &stream{end: cancel, wait: wait, header: http.Header{}, status: http.StatusOK, begun: make(chan struct{})}
	s.changed = sync.NewCond(&s.mu)
	if !resumes(body) {
		p.Lists[path.Base(r.URL.Path)]++
	}
	context.AfterFunc(r.Context(), func() { s.leave(r.Context().Err()) })
	p.mu.Lock()
	p.streams[s] = true
	p.mu.Unlock()
	handler := p.replica.handler
	p.serving.Go(func() {
		defer cancel()
		defer func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			delete(p.streams, s)
		}()
		handler.ServeHTTP(s, received(ctx, r, body))
		s.WriteHeader(http.StatusOK)
		s.later(func() { s.finish(io.EOF) })
	})
	return s
}

// resumes reports whether the request of a stream has a version to go on from, which is its
// field 2. Without one it asks for the whole list.
func resumes(body []byte) bool {
	const envelope = 5 // before the message: flags and length
	for fields := body[min(envelope, len(body)):]; len(fields) > 0; {
		number, kind, n := protowire.ConsumeTag(fields)
		must(protowire.ParseError(n))
		if number == 2 {
			return true
		}
		n += protowire.ConsumeFieldValue(number, kind, fields[n:])
		fields = fields[n:]
	}
	return false
}

// answer waits for the header, and makes the answer of it.
func (s *stream) answer(ctx context.Context, answer *http.Response) (*http.Response, error) {
	select {
	case <-s.begun:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	answer.StatusCode, answer.Status = s.status, http.StatusText(s.status)
	answer.Header, answer.Proto, answer.ProtoMajor, answer.ContentLength = s.header.Clone(), "HTTP/2.0", 2, -1
	return answer, nil
}

// open returns the streams that last.
func (p *Simulated) open() []*stream {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Collect(maps.Keys(p.streams))
}

// Cut breaks all streams.
func (p *Simulated) Cut() {
	for _, s := range p.open() {
		s.finish(errLink)
		s.end()
	}
}

// noticed is when a server gives a connection up that does not answer.
const noticed = time.Minute

// Silence has all streams bring nothing any more. The server notices it later, the reader does
// not.
func (p *Simulated) Silence() {
	for _, s := range p.open() {
		s.mu.Lock()
		s.muted = true
		s.mu.Unlock()
		time.AfterFunc(noticed, s.end)
	}
}

// later runs do when what was written before has come.
func (s *stream) later(do func()) {
	s.mu.Lock()
	due := time.Now().Add(s.wait)
	if !due.After(s.due) {
		due = s.due.Add(1)
	}
	prompt := s.wait == 0
	s.due = due
	s.mu.Unlock()
	if prompt {
		do()
		return
	}
	time.AfterFunc(time.Until(due), do)
}

// Header implements http.ResponseWriter.
func (s *stream) Header() http.Header { return s.header }

// WriteHeader implements http.ResponseWriter.
func (s *stream) WriteHeader(status int) {
	s.once.Do(func() {
		s.status = status
		close(s.begun)
	})
}

// Flush implements http.Flusher.
func (s *stream) Flush() { s.WriteHeader(http.StatusOK) }

// Write implements http.ResponseWriter.
func (s *stream) Write(p []byte) (int, error) {
	s.WriteHeader(http.StatusOK)
	s.mu.Lock()
	ended := s.err != nil
	s.mu.Unlock()
	if ended {
		return 0, errLink
	}
	chunk := bytes.Clone(p)
	s.later(func() { s.bring(chunk) })
	return len(p), nil
}

// bring gives the reader a chunk.
func (s *stream) bring(chunk []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.muted || s.err != nil {
		return
	}
	if s.room > 0 {
		if s.room -= len(chunk); s.room <= 0 {
			chunk, s.err = chunk[:len(chunk)+s.room], io.ErrUnexpectedEOF
		}
	}
	s.pending = append(s.pending, chunk...)
	s.changed.Broadcast()
}

// finish ends the stream for its reader, unless it is muted. What came before is still read,
// unless it breaks.
func (s *stream) finish(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil || s.muted {
		return
	}
	if s.err = err; !errors.Is(err, io.EOF) {
		s.pending = nil
	}
	s.changed.Broadcast()
}

// Read implements io.Reader.
func (s *stream) Read(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.pending) == 0 {
		if s.err != nil {
			return 0, s.err
		}
		s.changed.Wait()
	}
	n := copy(p, s.pending)
	s.pending = s.pending[n:]
	return n, nil
}

// leave ends the stream since its reader does.
func (s *stream) leave(err error) {
	s.mu.Lock()
	s.muted = false
	s.mu.Unlock()
	s.finish(err)
	s.end()
}

// Close implements io.Closer.
func (s *stream) Close() error {
	s.leave(http.ErrBodyReadAfterClose)
	return nil
}
