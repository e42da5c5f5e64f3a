// Package auth makes and removes the Keycloak realm of an application with its public
// OIDC client.
//
// It reads first, and writes what differs: two or three reads at rest, and no write.
// A realm belongs to a cluster, a namespace and a name. It may be shared: several
// environments of an Application, and its copies, log in the same users. Those of other
// namespaces join where the owner lists them, and leave when it lists them no more. Each
// has its mark and its redirect URIs in an attribute of the realm; the client has those of
// all. The realm, with its users, goes with the last of them.
//
// A realm that exists without the mark of any object of that name is never touched.
package auth

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/seed-9e1ffd66/trueup/cmd/application/internal/external"
)

// Options say how Keycloak is reached.
type Options struct {
	// URL is where Keycloak is, without /admin and /realms (KEYCLOAK_ADMIN_URL). Required.
	URL string
	// User and Password belong to an administrator in the realm master who may create
	// realms (KEYCLOAK_ADMIN_USER, KEYCLOAK_ADMIN_PASSWORD). Required.
	User, Password string
	// Timeout bounds each request. Default 30 s: Keycloak makes keys for a new realm.
	Timeout time.Duration
	// Transport sends the requests. Default http.DefaultTransport.
	Transport http.RoundTripper
}

// Server is a Keycloak, as an administrator uses it. Make it with Open. It is safe for
// concurrent use.
type Server struct {
	options Options
	client  http.Client

	// lock is held while it is full, during a login too. A wait for it ends with its context.
	lock    chan struct{}
	token   string
	expires time.Time
	// failure is what the last login failed with, at failed.
	failure error
	failed  time.Time

	mu sync.Mutex
	// turns has a channel for each realm that is full while a pass reads and writes it.
	turns map[string]chan struct{}
}

// Open reads the options. It sends nothing: Keycloak need not be there.
func Open(options Options) (*Server, error) {
	at, err := url.Parse(options.URL)
	if err != nil || at.Scheme != "http" && at.Scheme != "https" || at.Host == "" || at.User != nil || at.RawQuery != "" || at.Fragment != "" {
		return nil, errors.New("KEYCLOAK_ADMIN_URL: must be a URL such as https://auth.example.com, without a user and a query")
	}
	for name, value := range map[string]string{"KEYCLOAK_ADMIN_USER": options.User, "KEYCLOAK_ADMIN_PASSWORD": options.Password} {
		if value == "" {
			return nil, fmt.Errorf("%s: is required with KEYCLOAK_ADMIN_URL", name)
		}
	}
	options.URL = strings.TrimRight(options.URL, "/")
	return &Server{options: options, lock: make(chan struct{}, 1), turns: map[string]chan struct{}{}, client: http.Client{
		Timeout: cmp.Or(options.Timeout, 30*time.Second), Transport: options.Transport,
		// A redirect would take the credential elsewhere.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// turn waits until no other pass uses a realm: its attributes, with the marks of all its owners, are
// written as a whole. done ends the turn.
func (s *Server) turn(ctx context.Context, realm string) (done func(), err error) {
	if _, err := s.login(ctx); err != nil { // where Keycloak hangs, none waits for the time-outs of others
		return nil, err
	}
	s.mu.Lock()
	turn, ok := s.turns[realm]
	if !ok {
		turn = make(chan struct{}, 1)
		s.turns[realm] = turn
	}
	s.mu.Unlock()
	select {
	case turn <- struct{}{}:
		return func() { <-turn }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("realm %s: waits for another pass: %w", realm, ctx.Err())
	}
}

// maxAnswer is the max number of bytes that are read of an answer.
const maxAnswer = 8 << 20

// statusError is an answer of Keycloak that is no success.
type statusError struct {
	status int
	text   string
}

func (e *statusError) Error() string {
	if e.text == "" {
		return fmt.Sprintf("Keycloak answers %d", e.status)
	}
	return fmt.Sprintf("Keycloak answers %d: %s", e.status, e.text)
}

// Is makes the error one of package outside.
func (e *statusError) Is(target error) bool {
	switch e.status {
	case http.StatusUnauthorized, http.StatusForbidden:
		return target == external.ErrDenied
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return target == external.ErrUnreachable
	default:
		return false
	}
}

func hasStatus(err error, status int) bool {
	e, ok := errors.AsType[*statusError](err)
	return ok && e.status == status
}

// call sends a request about the path below /admin/realms, and decodes the answer unless
// into is nil. A token that is refused is replaced once.
func (s *Server) call(ctx context.Context, method, path string, body, into any) error {
	var text []byte
	if body != nil {
		var err error
		if text, err = json.Marshal(body); err != nil {
			return err
		}
	}
	for again := true; ; again = false {
		token, err := s.login(ctx)
		if err != nil {
			return err
		}
		request, err := http.NewRequestWithContext(ctx, method, s.options.URL+"/admin/realms"+path, bytes.NewReader(text))
		if err != nil {
			return err
		}
		request.Header.Set("Authorization", "Bearer "+token)
		if body != nil {
			request.Header.Set("Content-Type", "application/json")
		}
		err = s.send(request, into)
		if again && hasStatus(err, http.StatusUnauthorized) {
			s.forget(token)
			continue
		}
		if err != nil {
			return fmt.Errorf("%s %s: %w", method, request.URL.Path, err)
		}
		return nil
	}
}

// login returns a token, the last one while it is good. Callers that wait for a login which
// fails do not try, one after the other, again: each would wait for the time-outs of all.
func (s *Server) login(ctx context.Context) (string, error) {
	began := time.Now()
	select {
	case s.lock <- struct{}{}:
		defer func() { <-s.lock }()
	case <-ctx.Done():
		return "", ctx.Err()
	}
	if s.token != "" && time.Now().Before(s.expires) {
		return s.token, nil
	}
	if s.failed.After(began) {
		return "", s.failure
	}
	token, err := s.renew(ctx)
	if err != nil && ctx.Err() == nil {
		s.failure, s.failed = err, time.Now()
	}
	return token, err
}

// renew logs in. The lock is held.
func (s *Server) renew(ctx context.Context) (string, error) {
	form := url.Values{"grant_type": {"password"}, "client_id": {"admin-cli"}, "username": {s.options.User}, "password": {s.options.Password}}
	request, err := http.NewRequestWithContext(
		ctx,
		http.MethodPost,
		s.options.URL+"/realms/master/protocol/openid-connect/token",
		strings.NewReader(form.Encode()),
	)
	if err != nil {
		return "", err
	}
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	var answer struct {
		Token   string `json:"access_token"`
		Seconds int    `json:"expires_in"`
	}
	if err := s.send(request, &answer); err != nil {
		if hasStatus(err, http.StatusBadRequest) || hasStatus(err, http.StatusUnauthorized) {
			return "", fmt.Errorf(
				"log in as KEYCLOAK_ADMIN_USER: %w: %w; correct KEYCLOAK_ADMIN_USER or KEYCLOAK_ADMIN_PASSWORD",
				external.ErrDenied,
				err,
			)
		}
		return "", fmt.Errorf("log in as KEYCLOAK_ADMIN_USER: %w", err)
	}
	// With half of its time left it outlives any one request.
	s.token, s.expires = answer.Token, time.Now().Add(time.Duration(answer.Seconds)*time.Second/2)
	return s.token, nil
}

// forget drops a token that was refused, unless there is another already.
func (s *Server) forget(token string) {
	s.lock <- struct{}{}
	defer func() { <-s.lock }()
	if s.token == token {
		s.token = ""
	}
}

func (s *Server) send(request *http.Request, into any) error {
	response, err := s.client.Do(request)
	if err != nil {
		return fmt.Errorf("KEYCLOAK_ADMIN_URL %w: %w", external.ErrUnreachable, err)
	}
	defer response.Body.Close() //nolint:errcheck // it was read
	text, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("KEYCLOAK_ADMIN_URL %w: %w", external.ErrUnreachable, err)
	}
	if response.StatusCode/100 != 2 {
		var answer struct {
			Error       string `json:"error"`
			Message     string `json:"errorMessage"`
			Description string `json:"error_description"`
		}
		_ = json.Unmarshal(text, &answer) // an answer that is no JSON has no text
		return &statusError{response.StatusCode, cmp.Or(answer.Message, answer.Description, answer.Error)}
	}
	if into == nil {
		return nil
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("the answer cannot be read; is KEYCLOAK_ADMIN_URL that of a Keycloak? %w", err)
	}
	return nil
}
