package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/seed-9e1ffd66/trueup/cmd/api/starbase"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/between"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/owntoken"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/program"
	"github.com/seed-9e1ffd66/trueup/internal/httpretry"
)

// client speaks to Starbase for one cluster. It is safe for concurrent use.
type client struct {
	base      string // .../api/v1/clusters/{cluster_id}
	clusterID string
	tokens    *owntoken.Source
	http      between.Client
	lasting   between.Client // for answers without an end, which are not repeated
}

// newClient returns a client with these tokens whose requests go through transport, nil for one of its own.
func newClient(
	config *Config, tokens *owntoken.Source, transport http.RoundTripper, observe func(endpoint, code string, duration time.Duration),
) *client {
	calls := httpretry.Config{
		Timeout: config.RequestTimeout, Transport: transport, OnAttempt: func(r *http.Request, status int, duration time.Duration) {
			code := "error"
			if status != 0 {
				code = strconv.Itoa(status)
			}
			observe(r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:], code, duration)
		},
	}
	streams := calls
	streams.Attempts, streams.Timeout = 1, maxStream
	return &client{
		base:      strings.TrimRight(config.StarbaseURL.String(), "/") + "/api/v1/clusters/" + config.ClusterID,
		clusterID: config.ClusterID,
		tokens:    tokens,
		http:      between.Client{HTTP: httpretry.New(calls)},
		lasting:   between.Client{HTTP: httpretry.New(streams)},
	}
}

// StarbaseError is an answer of Starbase that is not the one asked for.
type StarbaseError struct {
	Status  int
	Code    string // of the error body, empty when there was none
	Message string
}

func (e *StarbaseError) Error() string {
	text := fmt.Sprintf("starbase answered %d", e.Status)
	if e.Code != "" {
		text += " " + e.Code
	}
	switch {
	case e.Message != "":
		text += ": " + e.Message
	case e.Code == "":
		text += " without an error of its own: is there a proxy in between?"
	}
	return text
}

// errUnchanged is the answer 304.
var errUnchanged = errors.New("not modified")

const desiredState = "/desired-state"

// desiredState asks for the desired state, unless it still is the one with the
// given version: then it returns errUnchanged. With any other error
// the desired state is unknown.
func (c *client) desiredState(ctx context.Context, version string) (*starbase.DesiredState, error) {
	header := http.Header{}
	if version != "" {
		header.Set("If-None-Match", strconv.Quote(version))
	}
	response, err := c.do(ctx, http.MethodGet, desiredState, header, nil)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close() //nolint:errcheck // it was read to its end, or is of no use
	switch response.StatusCode {
	case http.StatusOK:
		state, err := starbase.Decode(response.Body, c.clusterID)
		return state, c.of(desiredState, err)
	case http.StatusNotModified:
		if version == "" {
			return nil, c.of(desiredState, &StarbaseError{Status: response.StatusCode, Message: "although no version was named"})
		}
		return nil, errUnchanged
	default:
		return nil, c.of(desiredState, refusal(response))
	}
}

// report sends what happened to the services.
func (c *client) report(ctx context.Context, report *starbase.StatusReport) error {
	return c.post(ctx, "/status", report)
}

// reportCapacity sends how many pods there are.
func (c *client) reportCapacity(ctx context.Context, report *starbase.CapacityReport) error {
	return c.post(ctx, "/capacity", report)
}

// post sends a report that is answered with 204.
func (c *client) post(ctx context.Context, path string, report any) error {
	body, err := json.Marshal(report)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	response, err := c.do(ctx, http.MethodPost, path, http.Header{}, body)
	if err != nil {
		return err
	}
	defer response.Body.Close() //nolint:errcheck // only the status counts
	if response.StatusCode != http.StatusNoContent {
		return c.of(path, refusal(response))
	}
	return nil
}

// of adds the endpoint to the error of an answer.
func (c *client) of(path string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", c.base+path, err)
}

// do makes one call.
func (c *client) do(ctx context.Context, method, path string, header http.Header, body []byte) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, method, c.base+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header = header.Clone()
	request.Header.Set("Content-Type", "application/json")
	return c.Do(request)
}

// Do sends the request with the token of now. A refusal of it is tried once more if there is
// another one by then; the body of the request must be one that can be
// read again.
func (c *client) Do(request *http.Request) (*http.Response, error) {
	ctx := request.Context()
	token, err := c.tokens.Token(ctx)
	if err != nil {
		return nil, err
	}
	for again := false; ; again = true {
		request.Header.Set("Authorization", "Bearer "+token)
		response, err := c.http.Do(request)
		if err != nil {
			return nil, err
		}
		if !owntoken.RefusesToken(response) {
			c.tokens.Answered(response.Header)
			return response, nil
		}
		c.tokens.Refused(ctx, token)
		other, err := c.tokens.Token(ctx)
		if err != nil || other == token || again {
			return response, nil //nolint:nilerr // the refusal is the better error
		}
		token = other
		response.Body.Close() //nolint:errcheck,gosec // it is of no use
		request = request.Clone(ctx)
		if request.GetBody != nil {
			if request.Body, err = request.GetBody(); err != nil {
				return nil, err
			}
		}
	}
}

// givenToken returns the token that people gave the agent.
func (c *Config) givenToken() (string, error) {
	token, err := program.ReadToken(c.TokenFile)
	if err != nil {
		return "", fmt.Errorf("STARFORM_AUTH_TOKEN_FILE: %w", err)
	}
	return token, nil
}

// withoutRequest returns the error without the method and the URL of its request.
func withoutRequest(err error) error {
	if request, ok := errors.AsType[*url.Error](err); ok {
		return request.Err
	}
	if answer, ok := errors.AsType[*between.AnswerError](err); ok {
		return answer.Err
	}
	return err
}

// reconnect lets the next request take another connection, which may lead to another Starbase of the same address.
func (c *client) reconnect() {
	for _, of := range []between.Client{c.http, c.lasting} {
		if of.HTTP != nil {
			of.HTTP.CloseIdleConnections()
		}
	}
}

// refusal reads an error answer.
func refusal(response *http.Response) error {
	const maxBody = 64 << 10
	var body starbase.ErrorBody
	data, err := io.ReadAll(io.LimitReader(response.Body, maxBody))
	if err != nil {
		return &StarbaseError{Status: response.StatusCode, Message: err.Error()}
	}
	if json.Unmarshal(data, &body) != nil {
		return &StarbaseError{Status: response.StatusCode}
	}
	return &StarbaseError{Status: response.StatusCode, Code: body.Error.Code, Message: body.Error.Message}
}
