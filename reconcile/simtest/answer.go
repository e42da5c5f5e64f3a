package simtest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
)

// answer is the code and the body of a response. cure is set where a real server
// serves what this one does not, and says what a test can do about it.
type answer struct {
	code int
	body Object
	form string // the media type, application/json if empty
	text string // instead of a body
	cure string
	gone bool // the object was deleted
}

func (a *answer) failed() bool { return a.code >= http.StatusBadRequest }

// message is the message of a failure.
func (a *answer) message() string { return a.body.text("message") }

// errorStatus is a failure as a metav1.Status.
func errorStatus(code int, reason, message string, c call) *answer {
	return &answer{
		code: code,
		body: Object{
			"kind":       "Status",
			"apiVersion": "v1",
			"metadata":   map[string]any{},
			"status":     "Failure",
			"code":       code,
			"reason":     reason,
			"message":    message,
			"details":    details(c),
		},
	}
}

// details names what a failure is about.
func details(c call) map[string]any {
	all := map[string]any{"kind": c.Resource}
	if c.Name != "" {
		all["name"] = c.Name
	}
	if c.Group != "" {
		all["group"] = c.Group
	}
	return all
}

// unserved is the failure of a request that a real server serves and this one does
// not. It fails the test of a scenario.
func unserved(code int, reason, message, cure string, c call) *answer {
	a := errorStatus(code, reason, message, c)
	a.cure = cure
	return a
}

// about replaces the details of a failure. nil is none.
func (a *answer) about(details Object) *answer {
	delete(a.body, "details")
	if details != nil {
		a.body["details"] = map[string]any(details)
	}
	return a
}

func notFound(c call) *answer {
	return errorStatus(http.StatusNotFound, "NotFound", fmt.Sprintf("%s %q not found", c.kind.resource(), c.Name), c)
}

func conflict(c call, why string) *answer {
	return errorStatus(
		http.StatusConflict, "Conflict", fmt.Sprintf("Operation cannot be fulfilled on %s %q: %s", c.kind.resource(), c.Name, why), c,
	)
}

func invalid(c call, why string) *answer {
	a := errorStatus(
		http.StatusUnprocessableEntity, "Invalid", fmt.Sprintf("%s %q is invalid: %s", qualified(c.kind.Kind, c.Group), c.Name, why), c,
	)
	a.body.Set(c.kind.Kind, "details", "kind")
	return a
}

func badRequest(c call, why string) *answer {
	return errorStatus(http.StatusBadRequest, "BadRequest", why, c).about(nil)
}

// failure is an error without a reason.
func failure(c call, code int, why string) *answer {
	a := errorStatus(code, "", why, c).about(nil)
	delete(a.body, "reason")
	return a
}

// done is the answer of a call that leaves no object.
func done(code int, details Object) *answer {
	body := Object{"kind": "Status", "apiVersion": "v1", "metadata": map[string]any{}, "status": "Success"}
	if details != nil {
		body["details"] = map[string]any(details)
	} else {
		body["code"] = code
	}
	return &answer{code: code, body: body}
}

// success answers with an object, or with what the client wants of it.
func success(c call, code int, o Object) *answer {
	return &answer{code: code, body: c.shape(o)}
}

// shape cuts an object down to its metadata if the client wants no more.
func (c call) shape(o Object) Object {
	o = c.kind.fromStored(o)
	switch {
	case c.as("Table"):
		return c.table([]Object{o}, map[string]any{"resourceVersion": o.ResourceVersion()})
	case !c.as("PartialObjectMetadata"):
		return o
	}
	return Object{"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": o["metadata"]}
}

func respond(r *http.Request, a *answer) *http.Response {
	form, data := cmp.Or(a.form, "application/json"), []byte(a.text)
	if a.text != "" {
		form = "text/plain"
	} else {
		var err error
		if data, err = json.Marshal(a.body); err != nil {
			data = nil // of what JSON has decoded: it cannot fail
		}
	}
	answer := response(r, a.code, io.NopCloser(bytes.NewReader(data)), int64(len(data)))
	answer.Header.Set("Content-Type", form)
	if seconds := a.body.number("details", "retryAfterSeconds"); seconds > 0 {
		answer.Header.Set("Retry-After", fmt.Sprint(seconds))
	}
	return answer
}

func response(r *http.Request, code int, body io.ReadCloser, length int64) *http.Response {
	return &http.Response{
		Status: http.StatusText(code), StatusCode: code, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: body, ContentLength: length, Request: r,
	}
}
