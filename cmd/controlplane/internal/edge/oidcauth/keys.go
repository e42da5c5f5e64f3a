package oidcauth

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/go-jose/go-jose/v4"
)

const (
	// pause is the time between two fetches from the issuer.
	pause = 10 * time.Second
	// fetchTimeout bounds one fetch.
	fetchTimeout = 5 * time.Second
	// keysAge is the age from which keys are fetched again: the issuer may have withdrawn one.
	keysAge = time.Hour
	// maxAnswer is the size in bytes above which an answer of the issuer is refused.
	maxAnswer = 1 << 20
)

// errUnavailable is an issuer that cannot be asked now.
var errUnavailable = errors.New("the issuer cannot be reached")

// errSignature is a token that no key of the issuer has signed.
var errSignature = errors.New("no key of the issuer has signed the token")

// errKind is a token that says of itself that it is none for a sign-in.
var errKind = errors.New("the token is no ID token")

// issuer keeps the configuration and the keys of an issuer. It is safe for concurrent use.
type issuer struct {
	url    string
	client *http.Client
	logger *slog.Logger
	// turn is held by the one that fetches.
	turn chan struct{}

	mu       sync.Mutex
	provider *oidc.Provider
	keys     []jose.JSONWebKey
	fetched  time.Time // the last success
	tried    time.Time // the last attempt
	failed   error     // of the last attempt
}

func newIssuer(url string, client *http.Client, logger *slog.Logger) *issuer {
	return &issuer{url: url, client: client, logger: logger, turn: make(chan struct{}, 1)}
}

// known returns what was fetched last.
func (i *issuer) known() (provider *oidc.Provider, keys []jose.JSONWebKey, age time.Duration) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.provider, i.keys, time.Since(i.fetched)
}

// endpoints returns the configuration of the issuer, or an error that wraps errUnavailable.
func (i *issuer) endpoints(ctx context.Context) (*oidc.Provider, error) {
	provider, _, _ := i.known()
	if provider != nil {
		return provider, nil
	}
	if err := i.refresh(ctx); err != nil {
		return nil, err
	}
	provider, _, _ = i.known()
	return provider, nil
}

// refresh fetches the configuration, unless it is known, and the keys. Soon after another fetch
// it fetches nothing, and returns the error of that one. An error wraps errUnavailable.
func (i *issuer) refresh(ctx context.Context) error {
	select {
	case i.turn <- struct{}{}:
		defer func() { <-i.turn }()
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", errUnavailable, ctx.Err())
	}
	i.mu.Lock()
	provider, tried, failed := i.provider, i.tried, i.failed
	i.mu.Unlock()
	if !tried.IsZero() && time.Since(tried) < pause {
		return failed
	}
	// A client that goes away must not end the fetch that others wait for.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), fetchTimeout)
	defer cancel()
	provider, keys, err := i.fetch(ctx, provider)
	if err != nil {
		err = fmt.Errorf("%w: %w", errUnavailable, err)
		if failed == nil || failed.Error() != err.Error() {
			i.logger.WarnContext(ctx, "keys of the issuer not fetched", slog.String("issuer", i.url), slog.Any("error", err))
		}
	} else if failed != nil {
		i.logger.InfoContext(ctx, "keys of the issuer fetched", slog.String("issuer", i.url))
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.tried, i.failed = time.Now(), err
	if err == nil {
		i.provider, i.keys, i.fetched = provider, keys, i.tried
	}
	return err
}

func (i *issuer) fetch(ctx context.Context, provider *oidc.Provider) (_ *oidc.Provider, _ []jose.JSONWebKey, err error) {
	if provider == nil {
		if provider, err = oidc.NewProvider(oidc.ClientContext(ctx, i.client), i.url); err != nil {
			return nil, nil, err
		}
		if err := CheckEndpoints(i.url, provider); err != nil {
			return nil, nil, err
		}
	}
	var configuration struct {
		Keys string `json:"jwks_uri"`
	}
	if err := provider.Claims(&configuration); err != nil {
		return nil, nil, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, configuration.Keys, http.NoBody)
	if err != nil {
		return nil, nil, err
	}
	response, err := i.client.Do(r)
	if err != nil {
		return nil, nil, err
	}
	defer response.Body.Close() //nolint:errcheck // it was only read
	text, err := io.ReadAll(response.Body)
	switch {
	case err != nil:
		return nil, nil, err
	case response.StatusCode != http.StatusOK:
		return nil, nil, fmt.Errorf("GET %s: %s", configuration.Keys, response.Status)
	}
	var set jose.JSONWebKeySet
	if err := json.Unmarshal(text, &set); err != nil {
		return nil, nil, fmt.Errorf("GET %s: %w", configuration.Keys, err)
	}
	// Keys for encryption sign nothing.
	keys := slices.DeleteFunc(set.Keys, func(k jose.JSONWebKey) bool { return !k.IsPublic() || k.Use != "" && k.Use != "sig" })
	return provider, keys, nil
}

// isIDToken reports whether a header has a type that an ID token may have: none, or JWT. What else
// issuers sign with the same keys names itself, such as at+jwt (RFC 9068) and logout+jwt.
func isIDToken(header jose.Header) bool {
	kind, ok := header.ExtraHeaders[jose.HeaderType]
	text, _ := kind.(string)
	return !ok || strings.EqualFold(text, "JWT")
}

// verify returns the payload of an ID token that a key of the issuer has signed. Its error wraps
// errSignature, errKind or errUnavailable.
func (i *issuer) verify(ctx context.Context, token string) ([]byte, error) {
	signed, err := jose.ParseSigned(token, algorithms)
	if err != nil || len(signed.Signatures) != 1 {
		return nil, errSignature
	}
	if !isIDToken(signed.Signatures[0].Protected) {
		return nil, errKind
	}
	_, keys, age := i.known()
	payload, found := match(signed, keys)
	if age < keysAge && (payload != nil || found) {
		return payload, signature(payload)
	}
	err = i.refresh(ctx)
	if err != nil && payload != nil {
		return payload, nil
	}
	if err != nil {
		return nil, err
	}
	_, keys, _ = i.known()
	payload, _ = match(signed, keys)
	return payload, signature(payload)
}

func signature(payload []byte) error {
	if payload == nil {
		return errSignature
	}
	return nil
}

// match returns the payload if one of the keys has signed it; found is true if one has the id
// that the token names.
func match(signed *jose.JSONWebSignature, keys []jose.JSONWebKey) (payload []byte, found bool) {
	header := signed.Signatures[0].Protected
	for n := range keys {
		if header.KeyID != "" && keys[n].KeyID != header.KeyID || keys[n].Algorithm != "" && keys[n].Algorithm != header.Algorithm {
			continue
		}
		found = found || header.KeyID != ""
		if text, err := signed.Verify(keys[n].Key); err == nil {
			return text, true
		}
	}
	return nil, found
}
