package oidcauth

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/edge/tokens"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/front/adminapi"
)

const (
	// CallbackPath is where the issuer sends browsers back to, below [Config.ExternalURL].
	CallbackPath = "/status/sso/callback"
	// SignInPath is the path of the route that says how to sign in.
	SignInPath = "/api/v1/sign-in"

	// Exchanges of codes are bounded for all together: a stranger can make up any number of
	// codes, and each is a request to the issuer.
	exchangesPerSecond = 5
	exchangesAtOnce    = 20
)

// ErrBusy is a sign-in that cannot be finished because very many are at the same time.
var ErrBusy = errors.New("too many people sign in at the same time")

// Attempt is a sign-in on the page that has begun. Only the browser that began it may have it.
type Attempt struct {
	// State comes back with the answer of the issuer, and Nonce in the token. Verifier proves to
	// the issuer that the same browser began it.
	State, Nonce, Verifier string
}

// String returns the attempt as the value of a cookie.
func (a Attempt) String() string { return a.State + "." + a.Nonce + "." + a.Verifier }

// ParseAttempt returns the attempt in the value of a cookie, which a client may have made up; ok
// is false if it has none.
func ParseAttempt(text string) (a Attempt, ok bool) {
	const parts, longest = 3, 200
	words := strings.Split(text, ".")
	if len(words) != parts || len(text) > longest || slices.Contains(words, "") {
		return Attempt{}, false
	}
	return Attempt{words[0], words[1], words[2]}, true
}

// OnPage reports whether people can sign in on the page.
func (p *People) OnPage() bool { return p != nil && p.config.ExternalURL != "" }

// Secure reports whether browsers reach the page by HTTPS.
func (p *People) Secure() bool {
	return p.OnPage() && strings.HasPrefix(p.config.ExternalURL, "https:")
}

// Begin begins a sign-in on the page, which goes on at the URL. An error is an issuer that cannot
// be reached.
func (p *People) Begin(ctx context.Context) (url string, a Attempt, err error) {
	provider, err := p.issuer.endpoints(ctx)
	if err != nil {
		return "", Attempt{}, err
	}
	a.State, _ = tokens.New()
	a.Nonce, _ = tokens.New()
	a.Verifier = oauth2.GenerateVerifier()
	return p.client(provider).AuthCodeURL(a.State, oidc.Nonce(a.Nonce), oauth2.S256ChallengeOption(a.Verifier)), a, nil
}

// client returns the settings of the client on the page.
func (p *People) client(provider *oidc.Provider) *oauth2.Config {
	endpoint := provider.Endpoint()
	if p.config.ClientSecret == "" {
		endpoint.AuthStyle = oauth2.AuthStyleInParams
	}
	return &oauth2.Config{
		ClientID: p.config.ClientID, ClientSecret: p.config.ClientSecret, Endpoint: endpoint,
		RedirectURL: p.config.ExternalURL + CallbackPath, Scopes: Scopes(provider),
	}
}

// Scopes are what a client asks an issuer for: the name, and the groups if the issuer has a scope
// for them.
func Scopes(provider *oidc.Provider) []string {
	var configuration struct {
		Scopes []string `json:"scopes_supported"`
	}
	scopes := []string{oidc.ScopeOpenID, "profile"}
	if provider.Claims(&configuration) == nil && slices.Contains(configuration.Scopes, "groups") {
		scopes = append(scopes, "groups")
	}
	return scopes
}

// Finish exchanges the code that the issuer has given the browser, and returns the administrator.
// failed is the error that came in place of a code. [People.Refused] has the answer to an error.
func (p *People) Finish(ctx context.Context, a Attempt, state, code, failed string) (tokens.Admin, error) {
	if failed != "" && tokens.Same(a.State, state) && state != "" {
		return tokens.Admin{}, &unlisted{fmt.Sprintf("the issuer has answered %q to this sign-in", clean(failed, maxName))}
	}
	if a.State == "" || !tokens.Same(a.State, state) || code == "" {
		return tokens.Admin{}, &refusal{"this browser has not begun this sign-in, or too long ago"}
	}
	provider, err := p.issuer.endpoints(ctx)
	if err != nil {
		return tokens.Admin{}, err
	}
	if !p.exchange.Allow() {
		return tokens.Admin{}, ErrBusy
	}
	got, err := p.client(provider).Exchange(context.WithValue(ctx, oauth2.HTTPClient, p.config.HTTP), code, oauth2.VerifierOption(a.Verifier))
	if refused, ok := errors.AsType[*oauth2.RetrieveError](err); ok && refused.Response.StatusCode < http.StatusInternalServerError {
		// Its text is the issuer's answer, which may say what is wrong with the client.
		p.config.Logger.WarnContext(ctx, "code not taken by the issuer", slog.String("error", clean(refused.ErrorCode, maxName)),
			slog.String("description", clean(refused.ErrorDescription, 4*maxName)), slog.Int("status", refused.Response.StatusCode))
		return tokens.Admin{}, &refusal{"the issuer does not take the code of this sign-in; the log of the control plane has more"}
	}
	if err != nil {
		return tokens.Admin{}, fmt.Errorf("%w: %w", errUnavailable, err)
	}
	token, ok := got.Extra("id_token").(string)
	if !ok {
		return tokens.Admin{}, &refusal{"the issuer has answered without an ID token"}
	}
	admin, err := p.verify(ctx, token, a.Nonce)
	if _, ok := errors.AsType[*expiry](err); ok {
		err = &refusal{"the ID token had expired when it came: the clock of the control plane or of the issuer may be off"}
	}
	return admin, err
}

// SignIn is how to sign in on another device than the page.
type SignIn struct {
	// Issuer is the URL of the issuer, and ClientID the client's id there, which ID tokens are for.
	Issuer   string `json:"issuer"`
	ClientID string `json:"client_id"`
	// PublicClient is whether the client has no secret: a command line can use no other.
	PublicClient bool `json:"public_client"`
}

// Routes returns the endpoint that says how to sign in. It needs no credential.
func Routes(p *People) []adminapi.Route {
	route := adminapi.Get(SignInPath, adminapi.Everything, func(context.Context, struct{}) (SignIn, error) {
		if p == nil {
			return SignIn{}, &adminapi.Error{
				Status: http.StatusNotFound, Code: "sign_in_not_set",
				Message: "this control plane has no --oidc-issuer: administrators need a token",
			}
		}
		return SignIn{Issuer: p.config.Issuer, ClientID: p.config.ClientID, PublicClient: p.config.ClientSecret == ""}, nil
	}).Named("getSignIn", "Show where people sign in with OpenID Connect.")
	return []adminapi.Route{route.Refuses(http.StatusNotFound, "sign_in_not_set")}
}
