package issuertest_test

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/stretchr/testify/require"
	"golang.org/x/oauth2"

	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/edge/oidcauth/issuertest"
)

// TestAnIssuerIsOneOfOpenIDConnect has the libraries of clients use it.
func TestAnIssuerIsOneOfOpenIDConnect(t *testing.T) {
	t.Parallel()
	issuer := issuertest.Start(t)
	issuer.SetPerson("7", "carol", "staff")
	provider, err := oidc.NewProvider(t.Context(), issuer.URL)
	require.NoError(t, err)
	verifier := provider.Verifier(&oidc.Config{ClientID: issuertest.ClientID})
	config := &oauth2.Config{ClientID: issuertest.ClientID, Endpoint: provider.Endpoint(), RedirectURL: "http://127.0.0.1:1/back"}
	config.Endpoint.AuthStyle = oauth2.AuthStyleInParams
	proof := oauth2.GenerateVerifier()
	page := func() (*http.Response, string) {
		to := config.AuthCodeURL("state", oidc.Nonce("nonce"), oauth2.S256ChallengeOption(proof))
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, to, http.NoBody)
		require.NoError(t, err)
		response, err := http.DefaultTransport.RoundTrip(r)
		require.NoError(t, err)
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		return response, string(text)
	}
	response, _ := page() //nolint:bodyclose // it is closed
	back, err := url.Parse(response.Header.Get("Location"))
	require.NoError(t, err)
	require.Equal(t, "state", back.Query().Get("state"))
	got, err := config.Exchange(t.Context(), back.Query().Get("code"), oauth2.VerifierOption(proof))
	require.NoError(t, err)
	check := func(got *oauth2.Token) *oidc.IDToken {
		text, _ := got.Extra("id_token").(string)
		token, err := verifier.Verify(t.Context(), text)
		require.NoError(t, err)
		require.Equal(t, "7", token.Subject)
		return token
	}
	require.Equal(t, "nonce", check(got).Nonce)
	_, err = config.Exchange(t.Context(), back.Query().Get("code"), oauth2.VerifierOption(proof))
	require.ErrorContains(t, err, "invalid_grant", "a code is taken once")
	refresh := func(token string) (*oauth2.Token, error) {
		return config.TokenSource(t.Context(), &oauth2.Token{RefreshToken: token}).Token()
	}
	next, err := refresh(got.RefreshToken)
	require.NoError(t, err)
	check(next)
	_, err = refresh(got.RefreshToken)
	require.ErrorContains(t, err, "invalid_grant", "a refresh token is taken once")
	begun, err := config.DeviceAuth(t.Context(), oauth2.S256ChallengeOption(proof))
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	got, err = config.DeviceAccessToken(ctx, begun, oauth2.VerifierOption(proof))
	require.NoError(t, err)
	check(got)
	issuer.SetAsks()
	_, text := page() //nolint:bodyclose // it is closed
	require.Contains(t, text, `">Confirm</a>`)
	issuer.Rotate()
	_, err = verifier.Verify(t.Context(), issuer.Token(nil))
	require.NoError(t, err)
	issuer.SetAway(true)
	_, err = refresh(next.RefreshToken)
	require.ErrorContains(t, err, "502")
}
