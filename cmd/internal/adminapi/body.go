package adminapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/seed-9e1ffd66/trueup/cmd/internal/starbase"
)

// MaxBody is the size in bytes above which a request gets 413.
const MaxBody = 8 << 20

// readBody returns the body of the request, whose type must be JSON.
func readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	mediaType, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	charset := params["charset"]
	if err != nil || mediaType != "application/json" || (charset != "" && !strings.EqualFold(charset, "utf-8")) {
		return nil, &Error{Status: http.StatusUnsupportedMediaType, Code: "unsupported_media_type", Message: "the body must be application/json"}
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, MaxBody))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return nil, &Error{Status: http.StatusRequestEntityTooLarge, Code: "too_large", Message: fmt.Sprintf("the body has more than %d bytes", tooLarge.Limit)}
	case err != nil:
		return nil, &Error{Status: http.StatusBadRequest, Code: "malformed", Message: "the body ended too early"}
	}
	return body, nil
}

// Decode reads the request's body into target. With strict, members that
// target does not have are refused by name.
func Decode(w http.ResponseWriter, r *http.Request, target any, strict bool) error {
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

// DecodeOptional is a strict [Decode] for a body that may be absent.
func DecodeOptional(w http.ResponseWriter, r *http.Request, target any) error {
	if r.ContentLength == 0 {
		return nil
	}
	return Decode(w, r, target, true)
}

func malformed(message string) *Error {
	return &Error{Status: http.StatusBadRequest, Code: "malformed", Message: message}
}

// describeJSON returns the fault of a body, without repeating its values.
func describeJSON(err error) error {
	var wrongType *json.UnmarshalTypeError
	if errors.As(err, &wrongType) {
		kind, _, _ := strings.Cut(wrongType.Value, " ")
		return Invalid(starbase.FieldError{Field: wrongType.Field, Value: "a JSON " + kind, Want: "a JSON value of type " + wrongType.Type.Kind().String()})
	}
	// encoding/json has no type for this error.
	if name, ok := strings.CutPrefix(err.Error(), "json: unknown field "); ok {
		return &Error{
			Status: http.StatusBadRequest, Code: "unknown_field", Message: "there is no field " + name,
			Fields: []starbase.FieldError{{Field: strings.Trim(name, `"`), Want: "no such field"}},
		}
	}
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		return malformed(fmt.Sprintf("the body is not valid JSON at byte %d", syntax.Offset))
	}
	return malformed("the body is not valid JSON: it ends too early")
}

// PathUUID returns a path value that must be a UUID.
func PathUUID(r *http.Request, name string) (string, error) {
	id := r.PathValue(name)
	if !starbase.ValidUUID(id) {
		return "", Invalid(starbase.FieldError{Field: name, Value: fmt.Sprintf("%.80q", id), Want: "a UUID in lower case in the path"})
	}
	return id, nil
}

// PathName returns a path value that must match.
func PathName(r *http.Request, name string, pattern *regexp.Regexp) (string, error) {
	value := r.PathValue(name)
	if !pattern.MatchString(value) {
		return "", Invalid(starbase.FieldError{Field: name, Value: fmt.Sprintf("%.80q", value), Want: "a name in the path like " + pattern.String()})
	}
	return value, nil
}

// MaxOverlap is how long an old token may stay valid at most.
const MaxOverlap = 7 * 24 * time.Hour

// DecodeOverlap returns the overlap_seconds of an optional body that rotates a
// token: zero to [MaxOverlap].
func DecodeOverlap(w http.ResponseWriter, r *http.Request) (time.Duration, error) {
	var body struct {
		OverlapSeconds int64 `json:"overlap_seconds"`
	}
	if err := DecodeOptional(w, r, &body); err != nil {
		return 0, err
	}
	if body.OverlapSeconds < 0 || body.OverlapSeconds > int64(MaxOverlap/time.Second) {
		return 0, Invalid(starbase.FieldError{Field: "overlap_seconds", Value: fmt.Sprint(body.OverlapSeconds), Want: "0 to 604800"})
	}
	return time.Duration(body.OverlapSeconds) * time.Second, nil
}
