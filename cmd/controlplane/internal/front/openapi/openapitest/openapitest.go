// Package openapitest holds the exchanges of tests against the API reference.
package openapitest

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/gorillamux"

	"github.com/seed-9e1ffd66/trueup/cmd/api/starbase"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/front/openapi"
)

// load returns the document and what finds its operations.
var load = sync.OnceValues(func() (routers.Router, error) { //nolint:gochecknoglobals // read once
	document, err := openapi3.NewLoader().LoadFromData(openapi.Document)
	if err != nil {
		return nil, err
	}
	if err := document.Validate(context.Background()); err != nil { //nolint:forbidigo // once for all tests
		return nil, err
	}
	return gorillamux.NewRouter(document)
})

// Handler fails the test for each exchange with next that the reference does not describe:
// a request that is answered with success and should not be, an answer with another status
// or body, an error with a code that the operation does not list. Streams and what is below
// no path of the reference are let through.
func Handler(tb testing.TB, next http.Handler) http.Handler {
	tb.Helper()
	router, err := load()
	if err != nil {
		tb.Fatalf("openapi.json: %v", err)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		route, params, err := router.FindRoute(r)
		if err != nil || r.URL.Query().Has("watch") || r.Header.Get("Content-Type") != "application/json" && r.Method == http.MethodPost {
			next.ServeHTTP(w, r)
			return
		}
		body, err := io.ReadAll(r.Body)
		var rest io.Reader = bytes.NewReader(body)
		if err != nil { // too large, broken
			rest = io.MultiReader(rest, failing{err})
		}
		r.Body = io.NopCloser(rest)
		answer := httptest.NewRecorder()
		next.ServeHTTP(answer, r)
		r.Body = io.NopCloser(bytes.NewReader(body))
		check(tb, r, route, params, answer)
		maps.Copy(w.Header(), answer.Header())
		w.WriteHeader(answer.Code)
		_, _ = w.Write(answer.Body.Bytes()) // a client that went away is no error
	})
}

type failing struct{ err error }

// Read implements [io.Reader].
func (f failing) Read([]byte) (int, error) { return 0, f.err }

func check(tb testing.TB, r *http.Request, route *routers.Route, params map[string]string, answer *httptest.ResponseRecorder) {
	tb.Helper()
	at := r.Method + " " + r.URL.String()
	options := &openapi3filter.Options{
		AuthenticationFunc: openapi3filter.NoopAuthenticationFunc, IncludeResponseStatus: true,
		RejectWhenRequestBodyNotSpecified: true, SkipSettingDefaults: true, MultiError: true,
	}
	request := &openapi3filter.RequestValidationInput{Request: r, PathParams: params, Route: route, Options: options}
	if answer.Code < http.StatusBadRequest {
		if err := openapi3filter.ValidateRequest(r.Context(), request); err != nil {
			tb.Errorf("openapi.json: %s was answered with %d: %v", at, answer.Code, err)
		}
	}
	if err := openapi3filter.ValidateResponse(r.Context(), (&openapi3filter.ResponseValidationInput{
		RequestValidationInput: request, Status: answer.Code, Header: answer.Header(), Options: options,
	}).SetBodyBytes(answer.Body.Bytes())); err != nil {
		tb.Errorf("openapi.json: answer to %s: %d %s: %v", at, answer.Code, answer.Body, err)
	}
	if answer.Code < http.StatusBadRequest || !strings.HasPrefix(r.URL.Path, "/api/") {
		return
	}
	var refusal starbase.ErrorBody
	if err := json.Unmarshal(answer.Body.Bytes(), &refusal); err != nil {
		tb.Errorf("openapi.json: answer to %s: %d %s: %v", at, answer.Code, answer.Body, err)
		return
	}
	described := route.Operation.Responses.Status(answer.Code)
	if described == nil || described.Value.Extensions["x-codes"] == nil {
		return
	}
	var codes []string
	all, _ := described.Value.Extensions["x-codes"].([]any)
	for _, code := range all {
		text, _ := code.(string)
		codes = append(codes, text)
	}
	if !slices.Contains(codes, refusal.Error.Code) {
		tb.Errorf("openapi.json: %s: %d has the code %s, and lists %v", at, answer.Code, refusal.Error.Code, codes)
	}
}
