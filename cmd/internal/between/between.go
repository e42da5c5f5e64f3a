// Package between recognizes answers that an agent gets from a proxy, or from its login page, in place of
// its control plane.
package between

import (
	"bytes"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
)

// Client sends the requests of an agent to its control plane.
type Client struct {
	// HTTP sends them. It must not follow redirects: the token is for the control plane alone. Required.
	HTTP *http.Client
	// Own reports whether the body of an error in JSON is one of the control plane. Nil: each is.
	Own func(body []byte) bool
}

// maxError is the size in bytes above which no error of a control plane is read.
const maxError = 64 << 10

// Do sends the request. A redirect and a page of HTML, whatever its status, are errors: a control plane
// answers an agent with neither. So is an error that is not its own. What is returned names the request, the
// answer and what may be wrong. No status of a proxy counts as a refusal of the request or of its token.
func (c Client) Do(request *http.Request) (*http.Response, error) {
	answer, err := c.HTTP.Do(request)
	if err != nil {
		return nil, err
	}
	if err := c.strange(answer); err != nil {
		answer.Body.Close() //nolint:errcheck,gosec // it is of no use
		return nil, &AnswerError{Request: request.Method + " " + request.URL.Redacted(), Err: err}
	}
	return answer, nil
}

// AnswerError is an answer that cannot be one of a control plane.
type AnswerError struct {
	// Request is the method and the URL, without a password.
	Request string
	// Err is what is strange, and what may be wrong.
	Err error
}

func (e *AnswerError) Error() string { return e.Request + ": " + e.Err.Error() }

// Unwrap returns what is strange.
func (e *AnswerError) Unwrap() error { return e.Err }

// strange returns an error if the answer cannot be one of a control plane.
func (c Client) strange(answer *http.Response) error {
	status := fmt.Sprint(answer.StatusCode, " ", http.StatusText(answer.StatusCode))
	if answer.StatusCode >= 300 && answer.StatusCode < 400 && answer.StatusCode != http.StatusNotModified {
		return fmt.Errorf("answered %s to %s: is there a proxy or a login page in between, or has the control plane another URL?",
			status, host(answer.Header.Get("Location")))
	}
	kind, _, _ := mime.ParseMediaType(answer.Header.Get("Content-Type")) // empty: it is none of these
	if slices.Contains([]string{"text/html", "application/xhtml+xml"}, kind) {
		return fmt.Errorf("answered %s with %s: is there a proxy or a login page in between?", status, kind)
	}
	if c.Own == nil || answer.StatusCode < 400 || kind != "application/json" {
		return nil
	}
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxError))
	if err != nil || !c.Own(body) {
		return fmt.Errorf("answered %s with an error that is not of a control plane: is there a proxy in between?", status)
	}
	answer.Body.Close() //nolint:errcheck,gosec // it was read
	answer.Body = io.NopCloser(bytes.NewReader(body))
	return nil
}

// host returns scheme and host of a location: what follows may be a secret.
func host(location string) string {
	to, err := url.Parse(location)
	if err != nil || to.Host == "" {
		return "another place"
	}
	return (&url.URL{Scheme: to.Scheme, Host: to.Host}).String()
}
