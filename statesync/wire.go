package statesync

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"time"
)

// appendJSON appends the frame as JSON. The items come last, each as it was
// encoded when the log was read.
func (b batch) appendJSON(text []byte) []byte {
	text = append(text, `{"type":"`...)
	text = append(text, b.Type...)
	text = append(text, `","epoch":`...)
	text = appendString(text, b.Epoch)
	for _, n := range []struct {
		name  string
		value uint64
	}{{"after", b.After}, {"version", b.Version}, {"head", b.Head}} {
		text = append(text, `,"`...)
		text = append(text, n.name...)
		text = append(text, `":`...)
		text = strconv.AppendUint(text, n.value, 10)
	}
	if b.More {
		text = append(text, `,"more":true`...)
	}
	if b.Floor != 0 {
		text = append(text, `,"floor":`...)
		text = strconv.AppendUint(text, b.Floor, 10)
	}
	if b.Heartbeat != 0 {
		text = append(text, `,"heartbeat":`...)
		text = strconv.AppendInt(text, int64(b.Heartbeat), 10)
	}
	if b.Count != 0 {
		text = append(text, `,"count":`...)
		text = strconv.AppendInt(text, int64(b.Count), 10)
	}
	if b.Digest != (Digest{}) {
		text = append(text, `,"digest":"`...)
		text = append(text, b.Digest.String()...)
		text = append(text, '"')
	}
	if b.Mark != (Mark{}) {
		text = append(text, `,"mark":`...)
		text = appendString(text, b.Mark.String())
	}
	if len(b.entries) > 0 {
		text = append(text, `,"items":[`...)
		for n, e := range b.entries {
			if n > 0 {
				text = append(text, ',')
			}
			text = append(text, e.encoded...)
		}
		text = append(text, ']')
	}
	return append(text, '}')
}

// failure is an error on the wire: the body of an answer, and the last line of
// a stream.
type failure struct {
	Type  string        `json:"type,omitempty"`
	Error failureDetail `json:"error"`
}

type failureDetail struct {
	Code    string `json:"code"`
	Message string `json:"message"`
	// Reason is the reason of a ResyncError or an EndError.
	Reason string `json:"reason,omitempty"`
	// Position is the log's position, if the cursor does not fit it.
	Position *Position `json:"position,omitempty"`
	// Cursor is the cursor that does not fit.
	Cursor *Cursor `json:"cursor,omitempty"`
}

// Codes of failures.
const (
	codeInvalid         = "invalid"
	codeUnauthenticated = "unauthenticated"
	codeUnknownScope    = "unknown_scope"
	codeResync          = "resync_required"
	codeEnd             = "end"
	codeUnavailable     = "unavailable"
	codeInternal        = "internal"
)

// describe returns err for the wire, and the status of its answer.
// Internal errors are not described.
func describe(err error) (failureDetail, int) {
	var resync *ResyncError
	var end *EndError
	switch {
	case errors.As(err, &resync):
		return failureDetail{
			Code: codeResync, Message: resync.Error() + "; start again without a cursor",
			Reason: string(resync.Reason), Position: &resync.Position, Cursor: &resync.Cursor,
		}, http.StatusGone
	case errors.As(err, &end) && end.Reason == EndOfLog:
		return failureDetail{
			Code:    codeUnavailable,
			Message: "the log cannot be read at the moment",
			Reason:  string(end.Reason),
		}, http.StatusServiceUnavailable
	case errors.As(err, &end):
		return failureDetail{
			Code:    codeEnd,
			Message: end.Error() + "; come back with your cursor",
			Reason:  string(end.Reason),
		}, http.StatusServiceUnavailable
	case errors.Is(err, ErrUnauthenticated):
		return failureDetail{Code: codeUnauthenticated, Message: "a valid credential is required"}, http.StatusUnauthorized
	case errors.Is(err, ErrUnknownScope):
		return failureDetail{
			Code:    codeUnknownScope,
			Message: "this scope does not exist, which says nothing about what it should contain",
		}, http.StatusNotFound
	case errors.Is(err, ErrInvalid):
		return failureDetail{Code: codeInvalid, Message: err.Error()}, http.StatusBadRequest
	}
	return failureDetail{Code: codeInternal, Message: "the server failed; its log says why"}, http.StatusInternalServerError
}

// remote is an error that a server sent.
type remote struct {
	detail failureDetail
	cause  error
}

func (e *remote) Error() string { return "server: " + e.detail.Message }
func (e *remote) Unwrap() error { return e.cause }

// err turns the server's description back into an error.
func (d failureDetail) err() error {
	switch d.Code {
	case codeResync:
		resync := &ResyncError{Reason: ResyncReason(d.Reason)}
		if d.Position != nil {
			resync.Position = *d.Position
		}
		if d.Cursor != nil {
			resync.Cursor = *d.Cursor
		}
		return resync
	case codeEnd, codeUnavailable:
		return &EndError{Reason: EndReason(d.Reason), Cause: errors.New(d.Message)}
	case codeUnauthenticated:
		return &remote{d, ErrUnauthenticated}
	case codeUnknownScope:
		return &remote{d, ErrUnknownScope}
	case codeInvalid:
		return &remote{d, ErrInvalid}
	}
	return &remote{detail: d}
}

// line is one line of a stream as a client reads it.
type line struct {
	Frame
	Error *failureDetail `json:"error"`
}

func decodeLine(text []byte) (Frame, error) {
	var l line
	if err := json.Unmarshal(text, &l); err != nil {
		return Frame{}, err
	}
	if l.Error != nil {
		return Frame{}, l.Error.err()
	}
	return l.Frame, nil
}

// silence is how long a stream may be silent before it is taken for dead.
func silence(heartbeat time.Duration) time.Duration { return 2 * heartbeat }
