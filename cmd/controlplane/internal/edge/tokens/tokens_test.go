package tokens_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/edge/tokens"
)

func TestATokenIsNewEachTimeAndMatchesItsHashAlone(t *testing.T) {
	t.Parallel()
	a, hash := tokens.New()
	b, _ := tokens.New()
	require.NotEqual(t, a, b)
	require.GreaterOrEqual(t, len(a), tokens.MinBytes)
	require.Equal(t, hash, tokens.Hash(a))
	require.True(t, tokens.Same(a, a))
	for _, other := range []string{b, "", a + "x", a[1:]} {
		require.False(t, tokens.Same(a, other))
	}
}

func TestATokenThatCanBeGuessedIsWeak(t *testing.T) {
	t.Parallel()
	for range 1000 {
		token, hash := tokens.New()
		require.NoError(t, tokens.Weak(token))
		require.NoError(t, tokens.Weak(hash))
		require.NoError(t, tokens.Weak(hash[:32]), "128 bits in hexadecimal form")
	}
	for token, why := range map[string]string{
		"":                                  "0 bytes",
		"short":                             "5 bytes",
		"0123456789abcdef":                  "64 bits",
		"12345678901234567890123456":        "alphabet of 10",
		"abcdefghijklmnopqrstuvwxyz":        "122 bits",
		strings.Repeat("a", 1000):           "have 4 bits",
		strings.Repeat("Sesame-0", 100):     "49 bits",
		"0123456789abcdef 0123456789abcdef": "spaces",
		"ä" + strings.Repeat("x", 100):      "ASCII",
	} {
		err := tokens.Weak(token)
		require.ErrorContains(t, err, why)
		if token != "" {
			require.NotContains(t, err.Error(), token)
		}
	}
	require.NoError(t, tokens.Weak("the-admin-token-of-the-tests"))
}

func TestABearerIsTheTokenOfThatScheme(t *testing.T) {
	t.Parallel()
	for header, want := range map[string]string{
		"Bearer sesame": "sesame", "bearer  sesame ": "sesame",
		"": "", "Bearer": "", "Bearer ": "", "Basic sesame": "", "sesame": "",
	} {
		got, ok := tokens.Bearer(http.Header{"Authorization": {header}})
		require.Equal(t, want != "", ok, header)
		if ok {
			require.Equal(t, want, got, header)
		}
	}
}

func TestAFingerprintIsWhatTheRunbookMakes(t *testing.T) {
	t.Parallel()
	// printf 'trueup administrator %s' the-admin-token-of-the-tests | sha256sum | cut -c 1-8
	require.Equal(t, "71fabba0", tokens.Fingerprint("the-admin-token-of-the-tests"))
	token, hash := tokens.New()
	require.NotContains(t, token, tokens.Fingerprint(token))
	require.NotContains(t, hash, tokens.Fingerprint(token), "no part of what the database has")
}
