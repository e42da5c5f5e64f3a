package server

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"strconv"

	"github.com/seed-9e1ffd66/trueup/cmd/internal/cluster"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/db"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/starbase"
)

// retryAfterSeconds is what a client is asked to wait when the database is
// busy.
const retryAfterSeconds = 5

// apiError is an error that the client is told.
type apiError struct {
	status        int
	code, message string
	fields        []starbase.FieldError
}

func (e *apiError) Error() string { return e.code + ": " + e.message }

func errInvalid(fields ...starbase.FieldError) *apiError {
	return &apiError{status: http.StatusBadRequest, code: "invalid", message: fields[0].Error(), fields: fields}
}

// storeErrors says how the conditions of the store are answered.
var storeErrors = []struct { //nolint:gochecknoglobals // a table, never written to
	condition error
	answer    apiError
}{
	{ErrUnknownCluster, apiError{status: http.StatusNotFound, code: "unknown_cluster", message: "this cluster is not registered"}},
	{ErrUnknownProject, apiError{status: http.StatusNotFound, code: "unknown_project", message: "this project does not exist"}},
	{ErrUnknownService, apiError{status: http.StatusNotFound, code: "unknown_service", message: "this service does not exist"}},
	{ErrProjectMoved, apiError{status: http.StatusConflict, code: "project_moved", message: "the project lives on another cluster and stays there"}},
	{ErrProjectDeleted, apiError{status: http.StatusConflict, code: "project_deleted", message: "the project is deleted; put it again first"}},
	{ErrGenerationMoved, apiError{status: http.StatusConflict, code: "generation_moved", message: "the generation is no longer the one that was looked at"}},
	{ErrGenerationAhead, apiError{status: http.StatusBadRequest, code: "generation_ahead", message: "the report is about a generation that does not exist; if the database was restored, start a new epoch"}},
	{ErrTooManyStatuses, apiError{status: http.StatusRequestEntityTooLarge, code: "too_large", message: "more services reported than are kept for a cluster"}},
	{cluster.ErrUnknownRegion, apiError{status: http.StatusNotFound, code: "unknown_region", message: "this region is not registered, or its name belongs to another"}},
	{cluster.ErrUnknownResource, apiError{status: http.StatusNotFound, code: "unknown_resource", message: "the region has no such resource"}},
	{cluster.ErrRegistered, apiError{status: http.StatusConflict, code: "name_taken", message: "another region is registered with this name, and cannot be replaced"}},
	{cluster.ErrNameTaken, apiError{status: http.StatusConflict, code: "name_taken", message: "the name belongs to another region; put it with replace to give it to this one"}},
	{db.ErrBusy, apiError{status: http.StatusServiceUnavailable, code: "busy", message: "the database is busy"}},
	{context.DeadlineExceeded, apiError{status: http.StatusServiceUnavailable, code: "busy", message: "the database is busy"}},
}

// answer runs the handler and answers with its error, if it returns one.
func (s *Server) answer(handle handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		err := handle(w, r)
		if err == nil {
			return
		}
		failure := s.translate(r, err)
		if failure.status == http.StatusServiceUnavailable {
			w.Header().Set("Retry-After", strconv.Itoa(retryAfterSeconds))
		}
		w.Header().Del("ETag")
		s.writeJSON(w, r, failure.status, starbase.ErrorBody{Error: starbase.ErrorDetail{
			Code: failure.code, Message: failure.message, Fields: failure.fields,
		}})
	}
}

// translate returns what the client is told, and logs what it is not told.
func (s *Server) translate(r *http.Request, err error) *apiError {
	var failure *apiError
	if errors.As(err, &failure) {
		return failure
	}
	for i := range storeErrors {
		if !errors.Is(err, storeErrors[i].condition) {
			continue
		}
		failure := &storeErrors[i].answer
		if failure.status >= http.StatusInternalServerError || errors.Is(err, ErrGenerationAhead) {
			s.logger.WarnContext(r.Context(), "request refused", slog.String("path", r.URL.Path), slog.Any("error", err))
		}
		return failure
	}
	if r.Context().Err() == nil {
		s.logger.ErrorContext(r.Context(), "request failed", slog.String("path", r.URL.Path), slog.Any("error", err))
		return &apiError{status: http.StatusInternalServerError, code: "internal", message: "the control plane failed; its log says why"}
	}
	return &apiError{status: http.StatusServiceUnavailable, code: "busy", message: "the request took too long"}
}

// writeJSON answers with the value. The body has a Content-Length and no line
// end, so that no part of it is valid JSON.
func (s *Server) writeJSON(w http.ResponseWriter, r *http.Request, status int, value any) {
	body, err := json.Marshal(value)
	if err != nil {
		s.logger.ErrorContext(r.Context(), "answer cannot be written as JSON", slog.String("path", r.URL.Path), slog.Any("error", err))
		status, body = http.StatusInternalServerError, []byte(`{"error":{"code":"internal","message":"the control plane failed; its log says why"}}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	// A client that went away is nobody's error.
	_, _ = w.Write(body)
}
