package issuertest_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/edge/oidcauth/issuertest"
)

// TestItsTokensAreValidToGoOIDC has another reader of the protocol judge the issuer.
func TestItsTokensAreValidToGoOIDC(t *testing.T) {
	t.Parallel()
	issuer := issuertest.Start(t)
	issuer.SetPerson("7", "bob", "sre", "dev")
	verify := func(token string) (*oidc.IDToken, error) {
		provider, err := oidc.NewProvider(t.Context(), issuer.URL)
		require.NoError(t, err)
		return provider.Verifier(&oidc.Config{ClientID: issuertest.ClientID}).Verify(t.Context(), token)
	}
	token := issuer.Token(nil)
	found, err := verify(token)
	require.NoError(t, err)
	var claims struct {
		Name   string `json:"preferred_username"`
		Groups []string
	}
	require.NoError(t, found.Claims(&claims))
	require.Equal(t, "7", found.Subject)
	require.Equal(t, "bob", claims.Name)
	require.Equal(t, []string{"sre", "dev"}, claims.Groups)
	require.Equal(t, 1, issuer.Fetched())

	_, err = verify(issuer.Token(issuertest.Claims{"aud": "another"}))
	require.ErrorContains(t, err, "audience")
	issuer.SetAge(-time.Minute)
	_, err = verify(issuer.Token(nil))
	require.ErrorContains(t, err, "expired")
	issuer.Rotate()
	_, err = verify(token)
	require.ErrorContains(t, err, "signature", "its key was withdrawn")

	issuer.SetAway(true)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, issuer.URL+"/keys", http.NoBody)
	require.NoError(t, err)
	answer, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	require.Equal(t, http.StatusBadGateway, answer.StatusCode)
}
