package auth_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/application/internal/auth"
	"github.com/seed-9e1ffd66/trueup/internal/test/httpfunc"
)

// slow is a Keycloak with one realm, which takes a second for each request.
type slow struct {
	mu    sync.Mutex
	realm map[string]any // nil: there is none
}

func (s *slow) RoundTrip(r *http.Request) (*http.Response, error) {
	time.Sleep(time.Second)
	s.mu.Lock()
	defer s.mu.Unlock()
	answer := httptest.NewRecorder()
	show := func(value any) { _ = json.NewEncoder(answer).Encode(value) } // a recorder takes everything
	switch path := strings.TrimPrefix(r.URL.Path, "/admin/realms"); {
	case strings.HasSuffix(path, "/token"):
		show(map[string]any{"access_token": "t", "expires_in": 600})
	case strings.Contains(path, "/clients"):
		show([]any{map[string]any{"id": "1", "clientId": "shop"}})
	case r.Method == http.MethodDelete:
		s.realm = nil
	case r.Method == http.MethodGet && s.realm == nil:
		answer.WriteHeader(http.StatusNotFound)
	case r.Method == http.MethodGet:
		show(s.realm)
	default:
		s.realm = map[string]any{}
		if err := json.NewDecoder(r.Body).Decode(&s.realm); err != nil {
			answer.WriteHeader(http.StatusBadRequest)
		}
	}
	return answer.Result(), nil
}

// TestPassesTakeTurnsAtARealm: a realm is written as a whole. Two passes at once would lose the mark of
// an object, restore the mark of a deleted object, or delete a realm that is in use.
func TestPassesTakeTurnsAtARealm(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := &slow{}
		server, err := auth.Open(auth.Options{URL: "http://keycloak", User: "u", Password: "p", Transport: k})
		require.NoError(t, err)
		one, two, three := want("shop", "production"), want("shop", "staging"), want("shop", "uat")
		_, err = server.Apply(t.Context(), one)
		require.NoError(t, err)
		var passes sync.WaitGroup
		errs := make([]error, 3)
		passes.Go(func() { _, errs[0] = server.Delete(t.Context(), one, false) })
		passes.Go(func() { _, errs[1] = server.Apply(t.Context(), two) })
		passes.Go(func() { _, errs[2] = server.Apply(t.Context(), three) })
		passes.Wait()
		require.NoError(t, errors.Join(errs...))
		marks := fmt.Sprint(k.realm["attributes"])
		require.NotContains(t, marks, one.Redirects[0])
		require.Contains(t, marks, two.Redirects[0])
		require.Contains(t, marks, three.Redirects[0])
	})
}

// TestATurnIsOfOneRealm: a pass of another realm does not wait for it, and one whose context ends waits
// no longer.
func TestATurnIsOfOneRealm(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		keycloak := func(r *http.Request) (*http.Response, error) {
			answer := httptest.NewRecorder()
			switch {
			case strings.HasSuffix(r.URL.Path, "/token"):
				_ = json.NewEncoder(answer).Encode(map[string]any{"access_token": "t", "expires_in": 600}) // a recorder takes everything
			case strings.HasSuffix(r.URL.Path, "/shop"):
				time.Sleep(20 * time.Second)
				fallthrough
			default:
				answer.WriteHeader(http.StatusNotFound)
			}
			return answer.Result(), nil
		}
		server, err := auth.Open(auth.Options{URL: "http://keycloak", User: "u", Password: "p", Transport: httpfunc.Transport(keycloak)})
		require.NoError(t, err)
		var first sync.WaitGroup
		first.Go(func() { _, err = server.Delete(t.Context(), want("shop", "production"), false) })
		synctest.Wait()
		_, other := server.Delete(t.Context(), want("desk", "production"), false)
		require.NoError(t, other)
		require.Zero(t, time.Since(began))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, waited := server.Delete(ctx, want("shop", "staging"), false)
		require.ErrorIs(t, waited, context.DeadlineExceeded)
		require.Equal(t, time.Second, time.Since(began))
		first.Wait()
		require.NoError(t, err)
	})
}
