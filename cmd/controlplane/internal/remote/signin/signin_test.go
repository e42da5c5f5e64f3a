package signin_test

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/edge/oidcauth"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/edge/oidcauth/issuertest"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/remote/signin"
)

// plane is a control plane that names an issuer, and a client that has signed in.
type plane struct {
	issuer *issuertest.Issuer
	names  oidcauth.SignIn
	client *signin.Client
}

// newPlane returns one with a sign-in that ends after left, and has a refresh token or none.
func newPlane(t *testing.T, left time.Duration, refresh string) *plane {
	t.Helper()
	p := &plane{issuer: issuertest.Start(t)}
	p.names = oidcauth.SignIn{Issuer: p.issuer.URL, ClientID: issuertest.ClientID, PublicClient: true}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		assert.Equal(t, oidcauth.SignInPath, r.URL.Path)
		assert.NoError(t, json.NewEncoder(w).Encode(p.names))
	}))
	t.Cleanup(server.Close)
	p.client = &signin.Client{
		Server: server.URL, Store: signin.Store{Path: filepath.Join(t.TempDir(), "sign-ins.json")}, HTTP: server.Client(), Output: io.Discard,
	}
	require.NoError(t, p.client.Store.Put(t.Context(), server.URL, signin.Entry{
		Issuer: p.issuer.URL, ClientID: issuertest.ClientID, IDToken: "of before", RefreshToken: refresh, ExpiresAt: time.Now().Add(left),
	}))
	return p
}

func TestATokenIsUsedUntilSoonBeforeItsEnd(t *testing.T) {
	t.Parallel()
	token, err := newPlane(t, time.Hour, "").client.Token(t.Context())
	require.NoError(t, err)
	require.Equal(t, "of before", token)

	p := newPlane(t, 9*time.Second, "not the last one")
	_, err = p.client.Token(t.Context())
	require.ErrorContains(t, err, "has ended, says the issuer: sign in again", "it would end on the way")
	entry, err := p.client.Login(t.Context(), true)
	require.NoError(t, err)
	valid := entry.IDToken
	entry.ExpiresAt, entry.IDToken = time.Now().Add(9*time.Second), "of before"
	require.NoError(t, p.client.Store.Put(t.Context(), p.client.Server, entry))
	token, err = p.client.Token(t.Context())
	require.NoError(t, err)
	require.NotEqual(t, "of before", token)
	require.Len(t, strings.Split(token, "."), len(strings.Split(valid, ".")))
	again, err := p.client.Token(t.Context())
	require.NoError(t, err)
	require.Equal(t, token, again, "it is kept")
	require.Equal(t, 2, p.issuer.Issued())

	p = newPlane(t, -time.Second, "")
	p.issuer.SetAway(true)
	_, err = p.client.Token(t.Context())
	require.ErrorContains(t, err, "has ended, at ", "there is nothing to ask the issuer with")
}

func TestATokenIsForOneClientOfOneIssuer(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(*oidcauth.SignIn)
		want   string
	}{
		"another client": {func(s *oidcauth.SignIn) { s.ClientID = "another" }, "the server names the client another of the issuer "},
		"another issuer": {func(s *oidcauth.SignIn) { s.Issuer += "/another" }, "/another, and the sign-in is of trueup of "},
		"less than HTTPS": {
			func(s *oidcauth.SignIn) { s.Issuer = "http://login.example.com" },
			`the server names the issuer "http://login.example.com", which must be a URL of https`,
		},
		"no client": {func(s *oidcauth.SignIn) { s.ClientID = "" }, "and not how to sign in"},
	} {
		for _, left := range []time.Duration{time.Hour, -time.Hour} {
			p := newPlane(t, left, "refresh")
			test.change(&p.names)
			_, err := p.client.Token(t.Context())
			require.ErrorContains(t, err, test.want, name)
			require.Zero(t, p.issuer.Issued(), name)
		}
	}
}

// TestABrowserBringsTheAnswerToThisSignIn has another page of the browser call the port first.
func TestABrowserBringsTheAnswerToThisSignIn(t *testing.T) {
	t.Parallel()
	p := newPlane(t, time.Hour, "")
	reader, writer := io.Pipe()
	p.client.Output = writer
	get := func(address string) int {
		response, err := http.Get(address) //nolint:noctx // a test
		if !assert.NoError(t, err) {
			return 0
		}
		assert.NoError(t, response.Body.Close())
		return response.StatusCode
	}
	browsed := make(chan struct{})
	go func() {
		defer close(browsed)
		lines := bufio.NewScanner(reader)
		for lines.Scan() {
			address, err := url.Parse(lines.Text())
			if err != nil || address.Scheme == "" {
				continue
			}
			back := address.Query().Get("redirect_uri")
			assert.Equal(t, http.StatusBadRequest, get(back+"?code=of-a-stranger&state=another"))
			assert.Equal(t, http.StatusBadRequest, get(back+"?code=of-a-stranger"))
			assert.Equal(t, http.StatusBadRequest, get(back+"/more?state="+address.Query().Get("state")))
			assert.Equal(t, http.StatusOK, get(lines.Text()))
		}
	}()
	entry, err := p.client.Login(t.Context(), false)
	require.NoError(t, writer.Close())
	<-browsed
	require.NoError(t, err)
	require.NotEmpty(t, entry.IDToken)
	require.NotEmpty(t, entry.RefreshToken)
	require.Equal(t, 1, p.issuer.Issued())
}
