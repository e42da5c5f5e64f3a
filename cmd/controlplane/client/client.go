// Package client asks the API of a control plane: one request, or a list of which the
// server answers a part at a time. The routes, their bodies and answers are in the OpenAPI
// document of the server, /openapi.json.
//
//	c := &client.Client{Server: "https://control.example.com", Token: token}
//	err := c.Do(ctx, http.MethodPut, "clusters/"+id, client.Request{Body: map[string]string{"region": "nyc3"}}, &created)
package client

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/seed-9e1ffd66/trueup/cmd/api/starbase"
)

const (
	// prefix is where the paths of the administration begin.
	prefix = "/api/v1/admin/"
	// maxAnswer is the size in bytes above which an answer is an error.
	maxAnswer = 64 << 20
	timeout   = 30 * time.Second
)

// Client asks one control plane. Its fields must not change once it is used. It is safe
// for concurrent use.
type Client struct {
	// Server is the URL of the control plane, such as https://control.example.com:8443,
	// without a path. Required.
	Server string
	// Token returns the token of an administrator. It is called for each request, so that a
	// token that was replaced is used at once. Required.
	Token func() (string, error)
	// HTTP sends the requests. Nil: a client that gives up after 30 seconds. Redirects are
	// not followed, whatever it is: they would get the token.
	HTTP *http.Client
}

// Request is what a request has beside its method and path. The zero value is an empty one.
type Request struct {
	// Query are the parameters of the URL.
	Query url.Values
	// Body is sent as JSON. Nil: there is none. A [json.RawMessage] is sent as it is.
	Body any
	// Status gets the HTTP status of a success, 202 of a request that waits for a second person. Nil: it is not wanted.
	Status *int
}

// Error is an answer that is not a success, or not one of a control plane.
type Error struct {
	// Status is the HTTP status of the answer.
	Status int
	// Detail is the body of the answer. Its Code is empty if something else than a control
	// plane has answered, such as a proxy.
	Detail starbase.ErrorDetail
	// RetryAfter is how long to wait before the request can be sent again. Zero: the server
	// does not say.
	RetryAfter time.Duration
}

// Error implements error. It has the wrong fields, the code, and the id of the request for
// the log of the server.
func (e *Error) Error() string {
	if e.Detail.Code == "" {
		return fmt.Sprintf("the server answered %d %s, and not as a control plane does", e.Status, http.StatusText(e.Status))
	}
	text := e.Detail.Message
	if len(e.Detail.Fields) > 0 {
		text = ""
		for i, field := range e.Detail.Fields {
			if i > 0 {
				text += "; "
			}
			text += field.Error()
		}
	}
	text += fmt.Sprintf(" (%d %s", e.Status, e.Detail.Code)
	if e.Detail.RequestID != "" {
		text += ", request " + e.Detail.RequestID
	}
	// Another server may have answered; a terminal must not obey it.
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return unicode.ReplacementChar
		}
		return r
	}, text+")")
}

// Do sends a request to a path below /api/v1/admin/, and decodes the answer into answer,
// which may be nil, and stays as it is after 204. An answer that is no success is an [*Error].
func (c *Client) Do(ctx context.Context, method, path string, request Request, answer any) error {
	text, err := c.send(ctx, method, path, request)
	if err != nil || answer == nil || text == nil {
		return err
	}
	if err := json.Unmarshal(text, answer); err != nil {
		return fmt.Errorf("answer to %s %s: %w", method, path, err)
	}
	return nil
}

func (c *Client) send(ctx context.Context, method, path string, request Request) ([]byte, error) {
	to, err := url.Parse(c.Server)
	if err != nil || to.Scheme != "http" && to.Scheme != "https" || to.Host == "" {
		return nil, fmt.Errorf("client.Client: Server is %q, must be a URL such as https://control.example.com", c.Server)
	}
	if c.Token == nil {
		return nil, errors.New("client.Client: Token is required")
	}
	token, err := c.Token()
	if err != nil {
		return nil, err
	}
	to = to.JoinPath(prefix, path)
	to.RawQuery = request.Query.Encode()
	var body io.Reader
	if request.Body != nil {
		text, err := json.Marshal(request.Body)
		if err != nil {
			return nil, fmt.Errorf("body of %s %s: %w", method, path, err)
		}
		body = bytes.NewReader(text)
	}
	r, err := http.NewRequestWithContext(ctx, method, to.String(), body)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Authorization", "Bearer "+token)
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	sender := *cmp.Or(c.HTTP, &http.Client{Timeout: timeout})
	sender.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	response, err := sender.Do(r)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close() //nolint:errcheck // it was only read
	text, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer+1))
	switch {
	case response.StatusCode >= http.StatusMultipleChoices:
		return nil, refusal(response, text)
	case err != nil:
		return nil, fmt.Errorf("answer to %s %s: %w", method, path, err)
	case response.Header.Get("X-Request-Id") == "" || response.StatusCode != http.StatusNoContent && !isJSON(response):
		return nil, &Error{Status: response.StatusCode}
	case len(text) > maxAnswer:
		return nil, fmt.Errorf("answer to %s %s: has more than %d bytes", method, path, maxAnswer)
	}
	if request.Status != nil {
		*request.Status = response.StatusCode
	}
	if response.StatusCode == http.StatusNoContent {
		return nil, nil
	}
	return text, nil
}

func isJSON(response *http.Response) bool {
	kind, _, err := mime.ParseMediaType(response.Header.Get("Content-Type"))
	return err == nil && kind == "application/json"
}

func refusal(response *http.Response, text []byte) *Error {
	e := &Error{Status: response.StatusCode}
	if isJSON(response) {
		var body starbase.ErrorBody
		if json.Unmarshal(text, &body) == nil { // else it is of no control plane
			e.Detail = body.Error
		}
	}
	if seconds, err := strconv.Atoi(response.Header.Get("Retry-After")); err == nil && seconds > 0 {
		e.RetryAfter = time.Duration(seconds) * time.Second
	}
	return e
}

// List yields the items of a list, which stand in the answer's member of this name: all
// parts of it, one after the other. It ends with the first error.
func (c *Client) List(ctx context.Context, path, member string, query url.Values) iter.Seq2[json.RawMessage, error] {
	return func(yield func(json.RawMessage, error) bool) {
		next := url.Values{}
		maps.Copy(next, query)
		for {
			var part map[string]json.RawMessage
			var items []json.RawMessage
			var after string
			err := c.Do(ctx, http.MethodGet, path, Request{Query: next}, &part)
			if err == nil {
				if err = json.Unmarshal(part[member], &items); err != nil {
					err = fmt.Errorf("answer to GET %s: %s: %w", path, member, err)
				}
			}
			if text, ok := part["next"]; ok && err == nil {
				err = json.Unmarshal(text, &after)
			}
			if err != nil {
				yield(nil, err)
				return
			}
			for _, item := range items {
				if !yield(item, nil) {
					return
				}
			}
			if after == "" {
				return
			}
			if after == next.Get(cursor(path)) {
				yield(nil, fmt.Errorf("answer to GET %s: its next is the part that was asked for", path))
				return
			}
			next.Set(cursor(path), after)
		}
	}
}

// cursor is the parameter that has the next of the part before.
func cursor(path string) string {
	if path == "audit" {
		return "before"
	}
	return "after"
}
