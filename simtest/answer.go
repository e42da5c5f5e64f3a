package simtest

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
)

// answer is the code and the body of a response.
type answer struct {
	code int
	body Object
}

func (a *answer) failed() bool { return a.code >= http.StatusBadRequest }

// message is the message of a failure.
func (a *answer) message() string { return a.body.text("message") }

// errorStatus is a failure as a metav1.Status.
func errorStatus(code int, reason, message string, c call) *answer {
	return &answer{
		code,
		Object{
			"kind":       "Status",
			"apiVersion": "v1",
			"metadata":   map[string]any{},
			"status":     "Failure",
			"code":       code,
			"reason":     reason,
			"message":    message,
			"details":    map[string]any{"name": c.Name, "group": c.Group, "kind": c.Resource},
		},
	}
}

func notFound(c call) *answer {
	return errorStatus(http.StatusNotFound, "NotFound", c.key().resource+" \""+c.Name+"\" not found", c)
}

func conflict(c call, why string) *answer {
	return errorStatus(http.StatusConflict, "Conflict", "Operation cannot be fulfilled on "+c.key().String()+": "+why, c)
}

func invalid(c call, why string) *answer {
	return errorStatus(http.StatusUnprocessableEntity, "Invalid", c.key().String()+" is invalid: "+why, c)
}

func badRequest(c call, why string) *answer {
	return errorStatus(http.StatusBadRequest, "BadRequest", why, c)
}

// success answers with an object, or with what the client wants of it.
func success(c call, code int, o Object) *answer { return &answer{code, c.shape(o)} }

// shape cuts an object down to its metadata if the client wants no more.
func (c call) shape(o Object) Object {
	if !c.metadataOnly() {
		return o
	}
	return Object{"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": o["metadata"]}
}

func respond(r *http.Request, a *answer) *http.Response {
	data, err := json.Marshal(a.body)
	if err != nil {
		data = nil // of what JSON has decoded: it cannot fail
	}
	return response(r, a.code, io.NopCloser(bytes.NewReader(data)), int64(len(data)))
}

func response(r *http.Request, code int, body io.ReadCloser, length int64) *http.Response {
	return &http.Response{
		Status: http.StatusText(code), StatusCode: code, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: body, ContentLength: length, Request: r,
	}
}
