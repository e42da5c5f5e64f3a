package adminapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/seed-9e1ffd66/trueup/cmd/api/starbase"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/edge/requestid"
	"github.com/seed-9e1ffd66/trueup/internal/serve"
)

// retryAfterSeconds is what a client is asked to wait when the database is
// busy.
const retryAfterSeconds = 5

// Silence is how long after its last contact an agent counts as alive: what it reported
// holds until then, and what it belongs to is not removed.
const Silence = 2 * time.Minute

// Prefix is where the paths of the administration begin.
const Prefix = "/api/v1/admin/"

// Error is an error that the client gets as it is.
type Error struct {
	// Status is the status of the answer.
	Status int
	// Code, Message and Fields are the fields of [starbase.ErrorDetail].
	Code, Message string
	Fields        []starbase.FieldError
	// Wait is how long the client has to wait before it comes back. Zero: the answer has no Retry-After.
	Wait time.Duration
}

func (e *Error) Error() string { return e.Code + ": " + e.Message }

// Invalid returns the error for a body or path with these wrong fields, of which
// there is at least one.
func Invalid(fields ...starbase.FieldError) *Error {
	return &Error{Status: http.StatusBadRequest, Code: "invalid", Message: fields[0].Error(), Fields: fields}
}

// Condition is the answer to an error of a store.
type Condition struct {
	// Err is found with errors.Is.
	Err error
	// Answer is what the client gets.
	Answer Error
	// Log has the error logged as a warning. An answer of 500 or above always is.
	Log bool
}

// On returns the condition that an error has this answer.
func On(err error, status int, code, message string) Condition {
	return Condition{Err: err, Answer: Error{Status: status, Code: code, Message: message}}
}

// Handler answers a request, or returns the error to answer it with.
type Handler func(w http.ResponseWriter, r *http.Request) error

// API answers requests with handlers.
type API struct {
	// Logger gets each error that is not answered as it is. Required.
	Logger *slog.Logger
	// Conditions are tried in this order. May be empty.
	Conditions []Condition
	// Admit returns the request as the route gets it, whose path has matched, or why it may not
	// use the route. Nil: all may.
	Admit func(r *http.Request, route Route) (*http.Request, error)
}

// Mux returns a mux with the routes. Any other method of their paths is answered
// with 405, any other path with 404.
func (a *API) Mux(routes []Route) *http.ServeMux {
	mux := http.NewServeMux()
	methods := map[string][]string{}
	for _, route := range routes {
		mux.HandleFunc(route.Method+" "+route.Path, a.Answer(a.admitted(route)))
		methods[route.Path] = append(methods[route.Path], route.Method)
	}
	for path, allowed := range methods {
		mux.HandleFunc(path, a.Answer(func(w http.ResponseWriter, r *http.Request) error {
			w.Header().Set("Allow", strings.Join(allowed, ", "))
			return &Error{
				Status:  http.StatusMethodNotAllowed,
				Code:    "method_not_allowed",
				Message: "this path takes " + strings.Join(allowed, ", ") + ", not " + r.Method,
			}
		}))
	}
	mux.HandleFunc("/", a.Answer(UnknownPath))
	return mux
}

func (a *API) admitted(route Route) Handler {
	if a.Admit == nil {
		return unconditional(route.Handle)
	}
	return func(w http.ResponseWriter, r *http.Request) error {
		r, err := a.Admit(r, route)
		if err != nil {
			return err
		}
		return unconditional(route.Handle)(w, r)
	}
}

// unconditional refuses a change that must hold only for a version: without a word it would overwrite what
// the client has not seen.
func unconditional(handle Handler) Handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		for _, name := range []string{"If-Match", "If-None-Match", "If-Unmodified-Since"} {
			if value := r.Header.Get(name); value != "" && r.Method != http.MethodGet && r.Method != http.MethodHead {
				return Invalid(starbase.FieldError{Field: name, Value: fmt.Sprintf("%.80q", value), Want: "none: changes have no conditions"})
			}
		}
		return handle(w, r)
	}
}

// UnknownPath is the handler of paths without a route.
func UnknownPath(http.ResponseWriter, *http.Request) error {
	return &Error{Status: http.StatusNotFound, Code: "unknown_path", Message: "there is nothing at this path"}
}

// Answer runs the handler and answers with its error, if it returns one.
func (a *API) Answer(handle Handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		err := handle(w, r)
		if err == nil {
			return
		}
		answer := a.translate(r, err)
		switch {
		case answer.Status == http.StatusUnauthorized:
			w.Header().Set("WWW-Authenticate", "Bearer")
		case answer.Status == http.StatusServiceUnavailable:
			w.Header().Set("Retry-After", strconv.Itoa(retryAfterSeconds))
		case answer.Wait > 0:
			serve.RetryAfter(w.Header(), answer.Wait)
		}
		w.Header().Del("ETag")
		// It has nothing that cannot be marshalled.
		_ = WriteJSON(w, answer.Status, starbase.ErrorBody{Error: starbase.ErrorDetail{
			Code: answer.Code, Message: answer.Message, Fields: answer.Fields, RequestID: requestid.Of(r.Context()),
		}})
	}
}

// translate returns what the client gets, and logs what it does not get.
func (a *API) translate(r *http.Request, err error) *Error {
	if answer, ok := errors.AsType[*Error](err); ok {
		return answer
	}
	for i := range a.Conditions {
		c := &a.Conditions[i]
		if !errors.Is(err, c.Err) {
			continue
		}
		if c.Log || c.Answer.Status >= http.StatusInternalServerError {
			a.Logger.WarnContext(r.Context(), "request refused", slog.String("path", r.URL.Path), slog.Any("error", err))
		}
		return &c.Answer
	}
	if r.Context().Err() == nil {
		a.Logger.ErrorContext(r.Context(), "request failed", slog.String("path", r.URL.Path), slog.Any("error", err))
		return &Error{Status: http.StatusInternalServerError, Code: "internal", Message: "the control plane failed; its log says why"}
	}
	return &Error{Status: http.StatusServiceUnavailable, Code: "busy", Message: "the request took too long"}
}

// WriteJSON answers with the value, or returns why it cannot be JSON and has
// written nothing. The body has a Content-Length and no line end, so that no part
// of it is valid JSON.
func WriteJSON(w http.ResponseWriter, status int, value any) error {
	body, err := json.Marshal(value)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body) // a client that went away is no error
	return nil
}

// CSV is the body of an answer that is a table: lines of cells, the first of titles.
type CSV string

// WriteCSV answers with a table.
func WriteCSV(w http.ResponseWriter, table []byte) {
	w.Header().Set("Content-Type", "text/csv; charset=utf-8; header=present")
	w.Header().Set("Content-Length", strconv.Itoa(len(table)))
	_, _ = w.Write(table) // a client that went away is no error
}
