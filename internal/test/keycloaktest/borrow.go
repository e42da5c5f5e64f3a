package keycloaktest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/seed-9e1ffd66/trueup/internal/test/process"
)

// lent is the server that the tests of this process borrow, one at a time.
var lent struct {
	turn   sync.Mutex
	server *Server
}

// Borrow returns the one Keycloak of this process, which on Linux ends with it. It is the
// test's alone until the test ends: the next one waits. Realms and users that the test leaves
// are removed, so that the next one finds it as after a start. Where it cannot be installed it
// does as Start does.
func Borrow(tb testing.TB) *Server {
	tb.Helper()
	lent.turn.Lock()
	tb.Cleanup(lent.turn.Unlock)
	if lent.server == nil {
		s, err := Run(tb.Context())
		process.Started(tb, err, ErrNotInstalled)
		lent.server = s
	}
	s := lent.server
	tb.Cleanup(func() {
		if err := s.Reset(context.WithoutCancel(tb.Context())); err != nil {
			s.Stop()
			lent.server = nil // the next test starts another
			tb.Errorf("keycloak is given back: %v", err)
		}
	})
	return s
}

// Reset removes all realms but master, and all users but the administrator.
func (s *Server) Reset(ctx context.Context) error {
	token, err := s.token(ctx)
	if err != nil {
		return err
	}
	var realms []struct{ Realm string }
	var users []struct{ ID, Username string }
	err = errors.Join(s.ask(ctx, token, http.MethodGet, "", nil, &realms), s.ask(ctx, token, http.MethodGet, "/master/users", nil, &users))
	if err != nil {
		return err
	}
	var failed []error
	for _, r := range realms {
		if r.Realm != "master" {
			failed = append(failed, s.ask(ctx, token, http.MethodDelete, "/"+url.PathEscape(r.Realm), nil, nil))
		}
	}
	for _, u := range users {
		if u.Username != User {
			failed = append(failed, s.ask(ctx, token, http.MethodDelete, "/master/users/"+u.ID, nil, nil))
		}
	}
	return errors.Join(failed...)
}

func (s *Server) token(ctx context.Context) (string, error) {
	form := url.Values{"grant_type": {"password"}, "client_id": {"admin-cli"}, "username": {User}, "password": {Password}}
	login := s.URL + "/realms/master/protocol/openid-connect/token"
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, login, strings.NewReader(form.Encode()))
	if err != nil {
		return "", err
	}
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	var token struct {
		Text string `json:"access_token"`
	}
	return token.Text, send(request, &token)
}

// Ask sends a request of the administrator for what is below /admin/realms, with a body as JSON
// unless it is nil, and decodes the answer into answer, unless that is nil.
func (s *Server) Ask(ctx context.Context, method, path string, body, answer any) error {
	token, err := s.token(ctx)
	if err != nil {
		return err
	}
	return s.ask(ctx, token, method, path, body, answer)
}

func (s *Server) ask(ctx context.Context, token, method, path string, body, answer any) error {
	var text []byte
	if body != nil {
		var err error
		if text, err = json.Marshal(body); err != nil {
			return err
		}
	}
	request, err := http.NewRequestWithContext(ctx, method, s.URL+"/admin/realms"+path, bytes.NewReader(text))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Authorization", "Bearer "+token)
	return send(request, answer)
}

// send sends a request, and decodes the answer if one is wanted.
func send(request *http.Request, answer any) error {
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close() //nolint:errcheck // it was read
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode >= http.StatusBadRequest {
		return fmt.Errorf("%s %s: %s: %s", request.Method, request.URL.Path, response.Status, bytes.TrimSpace(body))
	}
	if answer == nil {
		return nil
	}
	return json.Unmarshal(body, answer)
}
