package adminapi

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"

	kjson "sigs.k8s.io/json"

	"github.com/seed-9e1ffd66/trueup/cmd/api/starbase"
)

// MaxBody is the size in bytes above which a request gets 413.
const MaxBody = 8 << 20

// bodyOf returns the body of the request, whose type must be JSON.
func bodyOf(w http.ResponseWriter, r *http.Request) (*bufio.Reader, error) {
	mediaType, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	charset := params["charset"]
	if err != nil || mediaType != "application/json" || (charset != "" && !strings.EqualFold(charset, "utf-8")) {
		return nil, &Error{Status: http.StatusUnsupportedMediaType, Code: "unsupported_media_type", Message: "the body must be application/json"}
	}
	if coding := r.Header.Get("Content-Encoding"); coding != "" && !strings.EqualFold(coding, "identity") {
		return nil, &Error{
			Status:  http.StatusUnsupportedMediaType,
			Code:    "unsupported_media_type",
			Message: "the body must not have a content coding, such as gzip",
		}
	}
	return bufio.NewReader(http.MaxBytesReader(w, r.Body, MaxBody)), nil
}

// Decode reads the request's body into target. With strict, members that target does not
// have are refused by name, and so is text that is not UTF-8 or has half a surrogate pair:
// encoding/json would take another text for it.
func Decode(w http.ResponseWriter, r *http.Request, target any, strict bool) error {
	body, err := bodyOf(w, r)
	if err != nil {
		return err
	}
	first, err := firstByte(body)
	switch {
	case err != nil:
		return Describe(err)
	case first != '{':
		return malformed("the body is not a JSON object")
	}
	var from io.Reader = body
	if strict {
		all, err := io.ReadAll(body)
		if err != nil {
			return Describe(err)
		}
		if err := checkText(all); err != nil {
			return err
		}
		return decodeExactly(all, target)
	}
	decoder := json.NewDecoder(from)
	if err := decoder.Decode(target); err != nil {
		return Describe(err)
	}
	switch _, err := decoder.Token(); {
	case errors.Is(err, io.EOF):
		return nil
	case tooLarge(err) != nil:
		return tooLarge(err)
	default:
		return malformed("there is something after the JSON object")
	}
}

// decodeExactly reads a body whose members target must have, in the same case, each once.
func decodeExactly(body []byte, target any) error {
	strict, err := kjson.UnmarshalStrict(body, target)
	switch {
	case err != nil:
		return Describe(err)
	case len(strict) > 0:
		return inexact(strict[0])
	}
	return nil
}

// inexact returns the answer to a member that does not belong in the body, or is there twice.
func inexact(err error) error {
	path := ""
	if field, ok := errors.AsType[kjson.FieldError](err); ok {
		path = fmt.Sprintf("%.200s", field.FieldPath())
	}
	if strings.HasPrefix(err.Error(), "duplicate") {
		return Invalid(starbase.FieldError{Field: path, Value: "there twice", Want: "each field once"})
	}
	return unknownField(path)
}

func unknownField(path string) *Error {
	return &Error{
		Status: http.StatusBadRequest, Code: "unknown_field", Message: "there is no field " + strconv.Quote(path),
		Fields: []starbase.FieldError{{Field: path, Want: "no such field"}},
	}
}

// firstByte returns the first byte that is no space, and leaves it unread.
func firstByte(body *bufio.Reader) (byte, error) {
	for {
		b, err := body.ReadByte()
		switch {
		case err != nil:
			return 0, err
		case !strings.ContainsRune(" \t\r\n", rune(b)):
			return b, body.UnreadByte()
		}
	}
}

// decodeOptional is a strict [Decode] for a body that may be absent.
func decodeOptional(w http.ResponseWriter, r *http.Request, target any) error {
	if r.ContentLength == 0 {
		return nil
	}
	return Decode(w, r, target, true)
}

func malformed(message string) *Error {
	return &Error{Status: http.StatusBadRequest, Code: "malformed", Message: message}
}

// tooLarge returns the answer to a body beyond a limit, nil for any other fault.
func tooLarge(err error) error {
	var message string
	if limit, ok := errors.AsType[*http.MaxBytesError](err); ok {
		message = fmt.Sprintf("the body has more than %d bytes", limit.Limit)
	} else if many := cmp.Or(is(err, starbase.ErrTooManyServices), is(err, starbase.ErrTooManySnapshots)); many != nil {
		message = many.Error()
	} else {
		return nil
	}
	return &Error{Status: http.StatusRequestEntityTooLarge, Code: "too_large", Message: message}
}

// is returns the target if err is it, nil otherwise.
func is(err, target error) error {
	if errors.Is(err, target) {
		return target
	}
	return nil
}

// Describe returns the answer to an error of encoding/json, without repeating values of
// the body.
func Describe(err error) error {
	if err := tooLarge(err); err != nil {
		return err
	}
	var wrongType *json.UnmarshalTypeError
	if errors.As(err, &wrongType) {
		kind, _, _ := strings.Cut(wrongType.Value, " ")
		return Invalid(
			starbase.FieldError{Field: wrongType.Field, Value: "a JSON " + kind, Want: "a JSON value of type " + wrongType.Type.Kind().String()},
		)
	}
	// encoding/json has no type for this error.
	if name, ok := strings.CutPrefix(err.Error(), "json: unknown field "); ok {
		return unknownField(strings.Trim(name, `"`))
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
		return "", Invalid(
			starbase.FieldError{Field: name, Value: fmt.Sprintf("%.80q", value), Want: "a name in the path like " + pattern.String()},
		)
	}
	return value, nil
}

// MaxOverlap is how long an old token may stay valid at most.
const MaxOverlap = 7 * 24 * time.Hour
