package regions

import (
	"bytes"
	"context"
	"net/http"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/front/adminapi"
)

// defaultPatience is how long a write may be blocked before the agent counts as
// dead.
const defaultPatience = 30 * time.Second

// patientWriter gives each write a deadline of its own, because a stream has no
// end. While it is held, it gathers what is written and sends it as one: net/http
// would cut it into pieces of 4 KiB. It is used by the goroutine of its request
// alone.
type patientWriter struct {
	http.ResponseWriter

	control  *http.ResponseController
	patience time.Duration
	held     *bytes.Buffer
}

type writerKey struct{}

// gathered is the size from which a held writer sends.
const gathered = 64 << 10

var buffers = sync.Pool{New: func() any { return new(bytes.Buffer) }} //nolint:gochecknoglobals // of all streams

// hold keeps the messages of a stream back until release is called, which sends
// them as one and returns the error of that.
func hold(ctx context.Context) (release func() error) {
	w, ok := ctx.Value(writerKey{}).(*patientWriter)
	buffer, isBuffer := buffers.Get().(*bytes.Buffer)
	if !ok || !isBuffer {
		return func() error { return nil }
	}
	w.held = buffer
	return func() error {
		err := w.send()
		w.held = nil
		buffers.Put(buffer)
		w.Flush()
		return err
	}
}

// Write implements [io.Writer].
func (w *patientWriter) Write(p []byte) (int, error) {
	if w.held == nil {
		w.allow(time.Now().Add(w.patience))
		return w.ResponseWriter.Write(p)
	}
	w.held.Write(p) // never fails
	if w.held.Len() < gathered {
		return len(p), nil
	}
	return len(p), w.send()
}

// send writes the gathered bytes.
func (w *patientWriter) send() error {
	w.allow(time.Now().Add(w.patience))
	_, err := w.ResponseWriter.Write(w.held.Bytes())
	w.held.Reset()
	return err
}

// WriteHeader implements [http.ResponseWriter]. It adds the body that Connect leaves out
// where a request is none of its own.
func (w *patientWriter) WriteHeader(status int) {
	var message string
	switch {
	case w.Header().Get("Content-Type") != "":
	case status == http.StatusMethodNotAllowed:
		message = "this method takes " + w.Header().Get("Allow")
	case status == http.StatusUnsupportedMediaType:
		message = "the Content-Type must be application/json, or another that the header Accept-Post has"
	case status == http.StatusHTTPVersionNotSupported:
		message = "this method needs HTTP/2"
	}
	if message == "" {
		w.ResponseWriter.WriteHeader(status)
		return
	}
	// A map of texts can always be marshalled.
	_ = adminapi.WriteJSON(w.ResponseWriter, status, map[string]string{"code": connect.CodeUnimplemented.String(), "message": message})
}

// Flush implements [http.Flusher]. What flushes may then wait for long.
func (w *patientWriter) Flush() {
	if w.held != nil {
		return
	}
	w.allow(time.Now().Add(w.patience))
	_ = w.control.Flush()
	w.allow(time.Time{})
}

// allow sets until when a write may take. Recorders and the like know no
// deadline.
func (w *patientWriter) allow(until time.Time) {
	_ = w.control.SetWriteDeadline(until)
	if until.IsZero() {
		_ = w.control.SetReadDeadline(until)
	}
}

// Unwrap lets [http.ResponseController] reach the connection.
func (w *patientWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
