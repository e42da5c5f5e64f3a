package oidcauth_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coreos/go-oidc/v3/oidc/oidctest"
	"github.com/go-jose/go-jose/v4"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/edge/guard"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/edge/oidcauth"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/edge/tokens"
)

const issuerURL = "https://login.example.com"

// inMemory is an issuer without a network.
type inMemory struct {
	t   *testing.T
	key *ecdsa.PrivateKey
	// use is what the key is for, and keysStatus the status of the answer with the keys.
	use        string
	keysStatus int
	// status and answer are what a code is exchanged for.
	status int
	answer map[string]any
	// asked is called before each answer.
	asked func(path string)
}

func newInMemory(t *testing.T) (*inMemory, *oidcauth.People) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	i := &inMemory{t: t, key: key, use: "sig", keysStatus: http.StatusOK, status: http.StatusOK, asked: func(string) {}}
	groups := &tokens.GroupFile{Path: filepath.Join(t.TempDir(), "groups")}
	require.NoError(t, os.WriteFile(groups.Path, []byte("role=reader staff\n"), 0o600))
	require.NoError(t, groups.Read(t.Context()))
	people, err := oidcauth.New(oidcauth.Config{
		Issuer: issuerURL, ClientID: "trueup", Groups: groups, ExternalURL: "http://127.0.0.1:1", HTTP: &http.Client{Transport: i},
	})
	require.NoError(t, err)
	return i, people
}

// RoundTrip implements http.RoundTripper.
func (i *inMemory) RoundTrip(r *http.Request) (*http.Response, error) {
	i.asked(r.URL.Path)
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	w := httptest.NewRecorder()
	w.Header().Set("Content-Type", "application/json")
	var body any
	switch r.URL.Path {
	case "/.well-known/openid-configuration":
		body = map[string]string{
			"issuer": issuerURL, "jwks_uri": issuerURL + "/keys",
			"authorization_endpoint": issuerURL + "/authorize", "token_endpoint": issuerURL + "/token",
		}
	case "/keys":
		w.WriteHeader(i.keysStatus)
		body = jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: i.key.Public(), KeyID: "1", Algorithm: "ES256", Use: i.use}}}
	default:
		w.WriteHeader(i.status)
		body = i.answer
	}
	assert.NoError(i.t, json.NewEncoder(w).Encode(body))
	return w.Result(), nil
}

// token returns an ID token that ends after an age.
func (i *inMemory) token(age time.Duration, nonce string) string {
	i.t.Helper()
	text, err := json.Marshal(map[string]any{
		"iss": issuerURL, "aud": "trueup", "sub": "1", "preferred_username": "alice", "groups": "staff", "nonce": nonce,
		"iat": time.Now().Unix(), "exp": time.Now().Add(age).Unix(),
	})
	require.NoError(i.t, err)
	return oidctest.SignIDToken(i.key, "1", "ES256", string(text))
}

// refusedBy returns the status and the text that an error is answered with.
func refusedBy(t *testing.T, people *oidcauth.People, err error) (int, string) {
	t.Helper()
	g, wrong := guard.New(guard.Config{Free: 1000})
	require.NoError(t, wrong)
	refused := people.Refused(httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody), g, "login", "code", err)
	require.NotNil(t, refused)
	return refused.Status, refused.Message
}

// TestTheAnswerToACodeNeedsAnIDToken has answers of an issuer that is wrong.
func TestTheAnswerToACodeNeedsAnIDToken(t *testing.T) {
	t.Parallel()
	i, people := newInMemory(t)
	_, attempt, err := people.Begin(t.Context())
	require.NoError(t, err)
	for name, test := range map[string]struct {
		token any
		want  string
	}{
		"none":        {nil, "the issuer has answered without an ID token"},
		"a number":    {7, "the issuer has answered without an ID token"},
		"empty":       {"", "the ID token cannot be read"},
		"one part":    {"x", "the ID token cannot be read"},
		"two parts":   {"e30.e30", "the ID token is of the issuer"},
		"four parts":  {"e30.e30.e30.e30", "the ID token is of the issuer"},
		"expired":     {i.token(-time.Second, attempt.Nonce), "the ID token had expired when it came"},
		"no nonce":    {i.token(time.Hour, ""), "the ID token belongs to another sign-in"},
		"another one": {i.token(time.Hour, "another"), "the ID token belongs to another sign-in"},
	} {
		i.answer = map[string]any{"access_token": "a", "token_type": "Bearer", "id_token": test.token}
		_, err := people.Finish(t.Context(), attempt, attempt.State, "code", "")
		status, text := refusedBy(t, people, err)
		require.Equal(t, http.StatusUnauthorized, status, name)
		require.Contains(t, text, test.want, name)
	}
	i.answer = map[string]any{"access_token": "a", "token_type": "Bearer", "id_token": i.token(time.Hour, attempt.Nonce)}
	admin, err := people.Finish(t.Context(), attempt, attempt.State, "code", "")
	require.NoError(t, err)
	require.Equal(t, "oidc/alice", admin.Actor())
}

func TestTwentyCodesAreExchangedAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		i, people := newInMemory(t)
		i.status, i.answer = http.StatusBadRequest, map[string]any{"error": "invalid_grant"}
		exchanges := 0
		i.asked = func(path string) {
			if path == "/token" {
				exchanges++
			}
		}
		_, attempt, err := people.Begin(t.Context())
		require.NoError(t, err)
		finish := func() error {
			_, err := people.Finish(t.Context(), attempt, attempt.State, "made-up", "")
			return err
		}
		for range 20 {
			status, _ := refusedBy(t, people, finish())
			require.Equal(t, http.StatusUnauthorized, status)
		}
		for range 5 {
			err := finish()
			require.ErrorIs(t, err, oidcauth.ErrBusy)
			status, _ := refusedBy(t, people, err)
			require.Equal(t, http.StatusServiceUnavailable, status)
		}
		require.Equal(t, 20, exchanges)
		_, err = people.Finish(t.Context(), attempt, "another", "made-up", "")
		require.NotErrorIs(t, err, oidcauth.ErrBusy, "no exchange is needed to refuse it")
		time.Sleep(time.Second)
		for range 5 {
			require.NotErrorIs(t, finish(), oidcauth.ErrBusy)
		}
		require.ErrorIs(t, finish(), oidcauth.ErrBusy)
	})
}

func TestKeysAreThoseThatSignInAnAnswerThatIsRight(t *testing.T) {
	t.Parallel()
	ask := func(change func(*inMemory)) (int, string) {
		i, people := newInMemory(t)
		change(i)
		_, attempt, err := people.Begin(t.Context())
		if err == nil {
			i.answer = map[string]any{"access_token": "a", "token_type": "Bearer", "id_token": i.token(time.Hour, attempt.Nonce)}
			_, err = people.Finish(t.Context(), attempt, attempt.State, "code", "")
		}
		return refusedBy(t, people, err)
	}
	status, text := ask(func(i *inMemory) { i.use = "enc" })
	require.Equal(t, http.StatusUnauthorized, status)
	require.Contains(t, text, "the signature of the ID token is not valid", "keys for encryption sign nothing")
	status, _ = ask(func(i *inMemory) { i.keysStatus = http.StatusInternalServerError })
	require.Equal(t, http.StatusServiceUnavailable, status, "its body is no answer")
}

func TestAClientThatGoesAwayEndsNoFetchForOthers(t *testing.T) {
	t.Parallel()
	i, people := newInMemory(t)
	ctx, cancel := context.WithCancel(t.Context())
	i.asked = func(string) { cancel() }
	_, _, err := people.Begin(ctx)
	require.NoError(t, err)
	require.Error(t, ctx.Err())
}
