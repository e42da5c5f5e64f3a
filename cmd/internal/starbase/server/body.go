package server

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"

	"github.com/seed-9e1ffd66/trueup/cmd/internal/starbase"
)

// readBody returns the body of the request, which must say that it is JSON.
func readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	mediaType, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	charset := params["charset"]
	if err != nil || mediaType != "application/json" || (charset != "" && !strings.EqualFold(charset, "utf-8")) {
		return nil, &apiError{status: http.StatusUnsupportedMediaType, code: "unsupported_media_type", message: "the body must be application/json"}
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxRequestBody))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return nil, &apiError{status: http.StatusRequestEntityTooLarge, code: "too_large", message: fmt.Sprintf("the body has more than %d bytes", tooLarge.Limit)}
	case err != nil:
		return nil, &apiError{status: http.StatusBadRequest, code: "malformed", message: "the body ended too early"}
	}
	return body, nil
}

// decodeBody reads the request's body into target. With strict, members that
// target does not have are refused by name.
func decodeBody(w http.ResponseWriter, r *http.Request, target any, strict bool) error {
	body, err := readBody(w, r)
	if err != nil {
		return err
	}
	decoder := json.NewDecoder(strings.NewReader(string(body)))
	if strict {
		decoder.DisallowUnknownFields()
	}
	if !strings.HasPrefix(strings.TrimLeft(string(body), " \t\r\n"), "{") {
		return malformed("the body is not a JSON object")
	}
	if err := decoder.Decode(target); err != nil {
		return describeJSON(err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return malformed("there is something after the JSON object")
	}
	return nil
}

// decodeOptional is a strict decodeBody for a body that may be left out.
func decodeOptional(w http.ResponseWriter, r *http.Request, target any) error {
	if r.ContentLength == 0 {
		return nil
	}
	return decodeBody(w, r, target, true)
}

func malformed(message string) *apiError {
	return &apiError{status: http.StatusBadRequest, code: "malformed", message: message}
}

// describeJSON says what is wrong with a body, without repeating its values.
func describeJSON(err error) error {
	var wrongType *json.UnmarshalTypeError
	if errors.As(err, &wrongType) {
		kind, _, _ := strings.Cut(wrongType.Value, " ")
		return errInvalid(starbase.FieldError{Field: wrongType.Field, Value: "a JSON " + kind, Want: "a JSON value of type " + wrongType.Type.Kind().String()})
	}
	// encoding/json has no type for this error.
	if name, ok := strings.CutPrefix(err.Error(), "json: unknown field "); ok {
		return &apiError{
			status: http.StatusBadRequest, code: "unknown_field", message: "there is no field " + name,
			fields: []starbase.FieldError{{Field: strings.Trim(name, `"`), Want: "no such field"}},
		}
	}
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		return malformed(fmt.Sprintf("the body is not valid JSON at byte %d", syntax.Offset))
	}
	return malformed("the body is not valid JSON: it ends too early")
}

// pathUUID returns a path value that must be a UUID.
func pathUUID(r *http.Request, name string) (string, error) {
	id := r.PathValue(name)
	if !starbase.ValidUUID(id) {
		return "", errInvalid(starbase.FieldError{Field: name, Value: fmt.Sprintf("%.80q", id), Want: "a UUID in lower case in the path"})
	}
	return id, nil
}
