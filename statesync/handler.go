package statesync

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Limits of a Handler's requests.
const (
	maxPage      = 1000
	maxWait      = 60 * time.Second
	minHeartbeat = time.Second
	maxHeartbeat = 60 * time.Second
	maxReport    = MaxValue + 4<<10
)

// Handler serves a [Server] over HTTP:
//
//	GET  /scopes/{scope}/items          a page of the state
//	GET  /scopes/{scope}/items?watch    a stream of frames, one JSON a line
//	POST /scopes/{scope}/reports        a [Report]
//
// Parameters of GET are after, epoch, floor and mark (the cursor), limit (of a page,
// 1 to 1000, default 500), wait (how long to wait for a page with items, as 30s, at
// most 60s), heartbeat (the max time between two frames of a stream, as 15s, from 1s to
// 60s, default the Server's) and collection (any number of them; default all). The
// field more of a page is true if another page follows. Its request has after, epoch,
// floor and mark set to the version, epoch, floor and mark of this one.
//
// An answer other than 200 has a body {"error":{"code","message"}}, and a stream
// that the server ends has it as its last line. Codes are invalid (400),
// unauthenticated (401), unknown_scope (404), resync_required (410: start again without
// a cursor), end and unavailable (503: come back with the cursor), and internal (500).
//
// Its fields must not change once it serves.
type Handler struct {
	// Server is the server of the streams. Required; the caller starts it.
	Server *Server
	// Authorize returns the identity of the reader that asks for scope. Required. It
	// returns ErrUnauthenticated for a credential that is missing or wrong, and
	// ErrUnknownScope for a scope that the reader may not read. Any other error is
	// answered with 500 and logged.
	Authorize func(r *http.Request, scope string) (reader string, err error)
	// Readers stores the reports. Default nil: a report is answered with 404.
	Readers Readers
	// Logger gets internal errors. Default nil: no log.
	Logger *slog.Logger

	once    sync.Once
	mux     *http.ServeMux
	buffers sync.Pool
}

// ServeHTTP serves one request. To mount the Handler elsewhere than at the root, use
// http.StripPrefix.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.once.Do(func() {
		h.mux = http.NewServeMux()
		h.mux.HandleFunc("GET /scopes/{scope}/items", h.items)
		if h.Readers != nil {
			h.mux.HandleFunc("POST /scopes/{scope}/reports", h.report)
		}
	})
	h.mux.ServeHTTP(w, r)
}

func (h *Handler) items(w http.ResponseWriter, r *http.Request) {
	scope := r.PathValue("scope")
	if _, err := h.Authorize(r, scope); err != nil {
		h.refuse(w, r, err)
		return
	}
	ask, err := parseAsk(scope, r.URL.Query())
	if err != nil {
		h.refuse(w, r, err)
		return
	}
	if ask.stream {
		h.stream(w, r, ask)
		return
	}
	page, err := h.Server.page(r.Context(), ask.Watch, ask.limit, ask.wait)
	if err != nil {
		h.refuse(w, r, err)
		return
	}
	h.answer(w, http.StatusOK, page.appendJSON(nil))
}

// stream writes frames until the stream ends or the reader stops reading.
func (h *Handler) stream(w http.ResponseWriter, r *http.Request, ask ask) {
	control := http.NewResponseController(w)
	var patience time.Duration
	write := func(text []byte) error {
		// A reader that reads nothing for that long is given up. Recorders and the like
		// have no deadlines.
		if err := control.SetWriteDeadline(time.Now().Add(patience)); err != nil && !errors.Is(err, http.ErrNotSupported) {
			return err
		}
		if _, err := w.Write(text); err != nil {
			return err
		}
		return control.Flush()
	}
	err := h.Server.watch(r.Context(), ask.Watch, ask.heartbeat, func(b batch) error {
		if b.Type == FrameHeader {
			patience = silence(b.Heartbeat)
			w.Header().Set("Content-Type", "application/x-ndjson")
			w.Header().Set("Cache-Control", "no-store")
			// Buffering proxies would hold frames back.
			w.Header().Set("X-Accel-Buffering", "no")
		}
		// An idle stream must not keep the buffer of a frame.
		buffer, _ := h.buffers.Get().(*[]byte)
		if buffer == nil {
			buffer = new([]byte)
		}
		defer h.buffers.Put(buffer)
		*buffer = append(b.appendJSON((*buffer)[:0]), '\n')
		return write(*buffer)
	})
	switch {
	case r.Context().Err() != nil:
	case patience == 0:
		h.refuse(w, r, err)
	default:
		detail, _ := h.describe(r, err)
		text, marshalErr := json.Marshal(failure{Type: "end", Error: detail})
		if marshalErr == nil {
			// A reader that ignores the reason sees a stream that was cut.
			_ = write(append(text, '\n'))
		}
	}
}

func (h *Handler) report(w http.ResponseWriter, r *http.Request) {
	scope := r.PathValue("scope")
	reader, err := h.Authorize(r, scope)
	if err != nil {
		h.refuse(w, r, err)
		return
	}
	report, err := decodeReport(http.MaxBytesReader(w, r.Body, maxReport))
	if err == nil && report.Reader != "" && report.Reader != reader {
		err = fmt.Errorf("%w: reader: is %q, but the credential belongs to %q", ErrInvalid, report.Reader, reader)
	}
	if err != nil {
		h.refuse(w, r, err)
		return
	}
	report.Reader = reader
	stored, err := h.Readers.Report(r.Context(), scope, report)
	if err != nil {
		h.refuse(w, r, err)
		return
	}
	h.answer(w, http.StatusOK, strconv.AppendBool([]byte(`{"stored":`), stored), '}')
}

func decodeReport(body io.Reader) (r Report, err error) {
	decoder := json.NewDecoder(body)
	decoder.DisallowUnknownFields()
	if err = decoder.Decode(&r); err == nil {
		if _, err = decoder.Token(); errors.Is(err, io.EOF) {
			return r, nil
		}
		err = errors.Join(err, errors.New("more than one JSON value"))
	}
	return r, fmt.Errorf("%w: body: %w", ErrInvalid, err)
}

func (h *Handler) answer(w http.ResponseWriter, status int, body []byte, more ...byte) {
	body = append(append(body, more...), '\n')
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	// A client that has disconnected is no error.
	_, _ = w.Write(body)
}

func (h *Handler) refuse(w http.ResponseWriter, r *http.Request, err error) {
	detail, status := h.describe(r, err)
	switch status {
	case http.StatusUnauthorized:
		w.Header().Set("WWW-Authenticate", "Bearer")
	case http.StatusServiceUnavailable:
		w.Header().Set("Retry-After", "1")
	}
	body, err := json.Marshal(failure{Error: detail})
	if err != nil {
		body = []byte(`{"error":{"code":"internal","message":"the server failed"}}`)
	}
	h.answer(w, status, body)
}

func (h *Handler) describe(r *http.Request, err error) (failureDetail, int) {
	detail, status := describe(err)
	if h.Logger != nil && detail.Code == codeInternal && !errors.Is(err, context.Canceled) {
		h.Logger.LogAttrs(r.Context(), slog.LevelError, "request failed", slog.String("path", r.URL.Path), slog.Any("error", err))
	}
	return detail, status
}

// ask holds the parameters of a GET.
type ask struct {
	Watch
	stream    bool
	limit     int
	wait      time.Duration
	heartbeat time.Duration // zero: the server's
}

//nolint:gochecknoglobals // a table
var parameters = []string{"after", "epoch", "floor", "mark", "limit", "wait", "watch", "heartbeat", "collection"}

func parseAsk(scope string, query url.Values) (ask, error) {
	a := ask{Watch: Watch{Scope: scope, Collections: query["collection"]}, limit: 500}
	var errs []error
	for name, values := range query {
		switch {
		case !slices.Contains(parameters, name):
			errs = append(errs, fmt.Errorf("%s: is no parameter; these are: %s", name, strings.Join(parameters, ", ")))
		case len(values) > 1 && name != "collection":
			errs = append(errs, fmt.Errorf("%s: appears %d times", name, len(values)))
		}
	}
	a.Cursor.Epoch = query.Get("epoch")
	if err := a.Cursor.Mark.UnmarshalText([]byte(query.Get("mark"))); err != nil {
		errs = append(errs, err)
	}
	for name, to := range map[string]*uint64{"after": &a.Cursor.Version, "floor": &a.Cursor.Floor} {
		text := query.Get(name)
		if text == "" {
			continue
		}
		version, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: is %q, must be a version, a number from 0", name, text))
		}
		*to = version
	}
	if text := query.Get("limit"); text != "" {
		limit, err := strconv.Atoi(text)
		if err != nil || limit < 1 || limit > maxPage {
			errs = append(errs, fmt.Errorf("limit: is %q, must be a number from 1 to %d", text, maxPage))
		}
		a.limit = limit
	}
	if text := query.Get("wait"); text != "" {
		wait, err := time.ParseDuration(text)
		if err != nil || wait < 0 || wait > maxWait {
			errs = append(errs, fmt.Errorf("wait: is %q, must be a duration from 0s to %s", text, maxWait))
		}
		a.wait = wait
	}
	if values, ok := query["watch"]; ok {
		on, err := strconv.ParseBool(values[0])
		if values[0] != "" && err != nil {
			errs = append(errs, fmt.Errorf("watch: is %q, must be empty, true or false", values[0]))
		}
		a.stream = values[0] == "" || on
	}
	if text := query.Get("heartbeat"); query.Has("heartbeat") {
		heartbeat, err := time.ParseDuration(text)
		if err != nil || heartbeat < minHeartbeat || heartbeat > maxHeartbeat {
			errs = append(errs, fmt.Errorf("heartbeat: is %q, must be a duration from %s to %s, as 15s", text, minHeartbeat, maxHeartbeat))
		}
		if !a.stream {
			errs = append(errs, errors.New("heartbeat: is a parameter of watch alone"))
		}
		a.heartbeat = heartbeat
	}
	if a.stream && (query.Has("limit") || query.Has("wait")) {
		errs = append(errs, errors.New("watch: takes neither limit nor wait"))
	}
	if err := errors.Join(errs...); err != nil {
		return a, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return a, nil
}
