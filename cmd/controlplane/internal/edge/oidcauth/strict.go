package oidcauth

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/coreos/go-oidc/v3/oidc"
)

// registered are the claims that decide about a token.
var registered = []string{"iss", "sub", "aud", "azp", "exp", "iat", "nbf", "nonce"} //nolint:gochecknoglobals // a table

// unambiguous refuses claims of which two readers see different values: one that is there twice,
// and one with a registered name in another case, which encoding/json takes for that one.
func unambiguous(token *oidc.IDToken) error {
	var payload json.RawMessage
	if err := token.Claims(&payload); err != nil {
		return &refusal{"the ID token has no claims"}
	}
	read := json.NewDecoder(bytes.NewReader(payload))
	if _, err := read.Token(); err != nil {
		return &refusal{"the ID token has no claims"}
	}
	seen := map[string]bool{}
	for read.More() {
		name, err := read.Token()
		text, ok := name.(string)
		if err != nil || !ok {
			return &refusal{"the ID token cannot be read"}
		}
		if seen[text] {
			return &refusal{fmt.Sprintf("the ID token has the claim %q twice", clean(text, maxName))}
		}
		seen[text] = true
		for _, want := range registered {
			if text != want && strings.EqualFold(text, want) {
				return &refusal{fmt.Sprintf("the ID token has the claim %q, must be %s", clean(text, maxName), want)}
			}
		}
		var value json.RawMessage
		if err := read.Decode(&value); err != nil {
			return &refusal{"the ID token cannot be read"}
		}
	}
	return nil
}

// limited has answers of an issuer fail after maxAnswer bytes, counted once they are not compressed.
type limited struct{ from http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (l limited) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := l.from.RoundTrip(r)
	if err == nil {
		response.Body = &answer{of: response.Body}
	}
	return response, err
}

// answer is the body of an answer.
type answer struct {
	of   io.ReadCloser
	read int
}

// Read implements io.Reader.
func (a *answer) Read(into []byte) (int, error) {
	n, err := a.of.Read(into)
	if a.read += n; a.read > maxAnswer {
		return 0, fmt.Errorf("the answer of the issuer has more than %d bytes", maxAnswer)
	}
	return n, err
}

// Close implements io.Closer.
func (a *answer) Close() error { return a.of.Close() }

// CheckEndpoints returns an error if people or their codes must not be sent where the provider's
// configuration says.
func CheckEndpoints(issuer string, provider *oidc.Provider) error {
	for name, text := range map[string]string{
		"authorization_endpoint": provider.Endpoint().AuthURL, "token_endpoint": provider.Endpoint().TokenURL,
	} {
		if err := CheckURL(issuer, name, text); err != nil {
			return err
		}
	}
	return nil
}

// CheckURL returns an error if a URL that the issuer names is none of https, or of http for an
// issuer of http.
func CheckURL(issuer, name, text string) error {
	to, err := url.Parse(text)
	if err != nil || to.Host == "" || to.Fragment != "" ||
		to.Scheme != "https" && (to.Scheme != "http" || strings.HasPrefix(issuer, "https:")) {
		return fmt.Errorf("%s of the issuer is %q, must be a URL of https without a fragment", name, clean(text, 4*maxName))
	}
	return nil
}
