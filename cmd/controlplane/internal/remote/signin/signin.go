package signin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/seed-9e1ffd66/trueup/cmd/api/starbase"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/edge/oidcauth"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/edge/tokens"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/program"
)

const (
	// early is how long before its end an ID token is replaced.
	early = 10 * time.Second
	// patience is how long a person may take to sign in.
	patience = 10 * time.Minute
	// revocation is how long the end of a sign-in may take at its issuer.
	revocation = 10 * time.Second
	// maxAnswer is the size in bytes above which an answer is cut off.
	maxAnswer = 1 << 20
)

// Client signs in to one control plane. It is safe for concurrent use.
type Client struct {
	// Server is the URL of the control plane. Required.
	Server string
	// Store keeps the sign-in.
	Store Store
	// HTTP sends the requests to the control plane and to the issuer. Required.
	HTTP *http.Client
	// Output gets what a person has to do. Required for Login.
	Output io.Writer
	// Offline has Login ask for a refresh token that outlives the person's session at the issuer.
	// Some issuers give none without.
	Offline bool
}

// named returns the issuer and the client that the control plane names.
func (c *Client) named(ctx context.Context) (oidcauth.SignIn, error) {
	to, err := url.Parse(c.Server)
	if err != nil {
		return oidcauth.SignIn{}, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, to.JoinPath(oidcauth.SignInPath).String(), http.NoBody)
	if err != nil {
		return oidcauth.SignIn{}, err
	}
	response, err := c.HTTP.Do(r)
	if err != nil {
		return oidcauth.SignIn{}, err
	}
	defer response.Body.Close() //nolint:errcheck // it was only read
	text, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return oidcauth.SignIn{}, err
	}
	var refused starbase.ErrorBody
	if response.StatusCode == http.StatusNotFound && json.Unmarshal(text, &refused) == nil && refused.Error.Code == "sign_in_not_set" {
		return oidcauth.SignIn{}, errors.New("this control plane has no sign-in with OpenID Connect: use --token-file")
	}
	var found oidcauth.SignIn
	if response.StatusCode != http.StatusOK || json.Unmarshal(text, &found) != nil || found.Issuer == "" || found.ClientID == "" {
		return oidcauth.SignIn{}, fmt.Errorf("the server answered %s, and not how to sign in", response.Status)
	}
	if !program.Encrypted(found.Issuer) {
		return oidcauth.SignIn{}, fmt.Errorf("the server names the issuer %q, which must be a URL of https, or of http on this machine",
			program.Shown(found.Issuer))
	}
	return found, nil
}

// provider returns the configuration of an issuer, and the settings of the client there.
func (c *Client) provider(ctx context.Context, of oidcauth.SignIn) (*oidc.Provider, *oauth2.Config, error) {
	provider, err := oidc.NewProvider(ctx, of.Issuer)
	if err != nil {
		return nil, nil, fmt.Errorf("issuer %s: %.300s", of.Issuer, err) //nolint:errorlint // it has the answer, as long as that is
	}
	if err := oidcauth.CheckEndpoints(of.Issuer, provider); err != nil {
		return nil, nil, fmt.Errorf("issuer %s: %w", of.Issuer, err)
	}
	endpoint := provider.Endpoint()
	endpoint.AuthStyle = oauth2.AuthStyleInParams // there is no secret
	scopes := oidcauth.Scopes(provider)
	if c.Offline {
		scopes = append(scopes, oidc.ScopeOfflineAccess)
	}
	return provider, &oauth2.Config{ClientID: of.ClientID, Endpoint: endpoint, Scopes: scopes}, nil
}

// context returns the context in which the libraries use HTTP.
func (c *Client) context(ctx context.Context) context.Context { return oidc.ClientContext(ctx, c.HTTP) }

// Login has a person sign in, in a browser on this machine, or with device on any other. It
// returns the sign-in, which is not stored.
func (c *Client) Login(ctx context.Context, device bool) (Entry, error) {
	ctx, cancel := context.WithTimeout(c.context(ctx), patience)
	defer cancel()
	of, err := c.named(ctx)
	if err != nil {
		return Entry{}, err
	}
	if !of.PublicClient {
		return Entry{}, fmt.Errorf("the client %s of this control plane has a secret, which a command line cannot keep: use --token-file",
			of.ClientID)
	}
	provider, config, err := c.provider(ctx, of)
	if err != nil {
		return Entry{}, err
	}
	var got *oauth2.Token
	var nonce string
	if device {
		got, err = c.onDevice(ctx, of, config)
	} else {
		nonce, _ = tokens.New()
		got, err = c.inBrowser(ctx, of, config, nonce)
	}
	if err != nil {
		return Entry{}, err
	}
	return c.entry(ctx, provider, of, got, nonce)
}

// entry returns the sign-in that the issuer's answer has.
func (c *Client) entry(ctx context.Context, provider *oidc.Provider, of oidcauth.SignIn, got *oauth2.Token, nonce string) (Entry, error) {
	text, _ := got.Extra("id_token").(string)
	if text == "" {
		return Entry{}, fmt.Errorf("issuer %s: it has answered without an ID token", of.Issuer)
	}
	token, err := provider.Verifier(&oidc.Config{ClientID: of.ClientID}).Verify(ctx, text)
	if err != nil {
		return Entry{}, fmt.Errorf("issuer %s: %w", of.Issuer, err)
	}
	if nonce != "" && token.Nonce != nonce {
		return Entry{}, fmt.Errorf("issuer %s: the ID token belongs to another sign-in", of.Issuer)
	}
	return Entry{Issuer: of.Issuer, ClientID: of.ClientID, IDToken: text, RefreshToken: got.RefreshToken, ExpiresAt: token.Expiry.UTC()}, nil
}

func (c *Client) onDevice(ctx context.Context, of oidcauth.SignIn, config *oauth2.Config) (*oauth2.Token, error) {
	if config.Endpoint.DeviceAuthURL == "" {
		return nil, fmt.Errorf("issuer %s: it has no sign-in on another device: leave out --device", of.Issuer)
	}
	if err := oidcauth.CheckURL(of.Issuer, "device_authorization_endpoint", config.Endpoint.DeviceAuthURL); err != nil {
		return nil, fmt.Errorf("issuer %s: %w", of.Issuer, err)
	}
	verifier := oauth2.GenerateVerifier()
	begun, err := config.DeviceAuth(ctx, oauth2.S256ChallengeOption(verifier))
	if err != nil {
		return nil, fmt.Errorf("issuer %s: %w", of.Issuer, short(err))
	}
	if err := oidcauth.CheckURL(of.Issuer, "verification_uri", begun.VerificationURI); err != nil {
		return nil, fmt.Errorf("issuer %s: %w", of.Issuer, err)
	}
	if begun.Interval <= 0 {
		begun.Interval = 5 // seconds, as RFC 8628 has it
	}
	c.say("Open %s on any device, and enter the code %s.", begun.VerificationURI, begun.UserCode)
	if oidcauth.CheckURL(of.Issuer, "", begun.VerificationURIComplete) == nil {
		c.say("This address has the code already: %s", begun.VerificationURIComplete)
	}
	got, err := config.DeviceAccessToken(ctx, begun, oauth2.VerifierOption(verifier))
	if err != nil {
		return nil, fmt.Errorf("issuer %s: %w", of.Issuer, short(err))
	}
	return got, nil
}

// say prints a line without what a terminal obeys.
func (c *Client) say(format string, args ...any) {
	text := strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return -1
		}
		return r
	}, fmt.Sprintf(format, args...))
	_, _ = fmt.Fprintln(c.Output, text)
}

// inBrowser has the person sign in in a browser, which comes back to a port of this machine.
func (c *Client) inBrowser(ctx context.Context, of oidcauth.SignIn, config *oauth2.Config, nonce string) (*oauth2.Token, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	config.RedirectURL = "http://" + listener.Addr().String() + "/callback"
	state, _ := tokens.New()
	verifier := oauth2.GenerateVerifier()
	codes := make(chan url.Values, 1)
	server := &http.Server{ReadHeaderTimeout: early, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		query := r.URL.Query()
		if r.URL.Path != "/callback" || !tokens.Same(query.Get("state"), state) {
			http.Error(w, "this is not the answer to the sign-in that has begun", http.StatusBadRequest)
			return
		}
		select {
		case codes <- query:
		default: // a browser that asks twice
		}
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = io.WriteString(w, "The command line goes on. This window can be closed.\n")
	})}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	defer func() {
		// The answer to the browser is still on its way.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = server.Shutdown(ctx)
		<-ended
	}()
	c.say("Open this address in a browser on this machine to sign in at %s:", of.Issuer)
	c.say("%s", config.AuthCodeURL(state, oidc.Nonce(nonce), oauth2.S256ChallengeOption(verifier)))
	select {
	case <-ctx.Done():
		return nil, fmt.Errorf("nothing came back from the browser: %w", ctx.Err())
	case query := <-codes:
		if failed := query.Get("error"); failed != "" {
			return nil, fmt.Errorf("issuer %s: %.80q", of.Issuer, failed)
		}
		got, err := config.Exchange(ctx, query.Get("code"), oauth2.VerifierOption(verifier))
		if err != nil {
			return nil, fmt.Errorf("issuer %s: %w", of.Issuer, short(err))
		}
		return got, nil
	}
}

// short returns the error of an issuer without its whole answer.
func short(err error) error {
	if failed, ok := errors.AsType[*oauth2.RetrieveError](err); ok && failed.ErrorCode != "" {
		return fmt.Errorf("%.80q %.200q", failed.ErrorCode, failed.ErrorDescription)
	}
	return err
}

// Token returns the ID token of the sign-in, a new one if it has ended. It first asks the control
// plane whether it still names the issuer of the sign-in.
func (c *Client) Token(ctx context.Context) (string, error) {
	ctx = c.context(ctx)
	of, err := c.named(ctx)
	if err != nil {
		return "", err
	}
	entry, _, err := c.Store.Get(c.Server)
	if err == nil {
		err = c.same(entry, of)
	}
	if err != nil {
		return "", err
	}
	if time.Until(entry.ExpiresAt) > early {
		return entry.IDToken, nil
	}
	// The issuer may take each refresh token once: the one that another command has got is used.
	err = c.Store.locked(ctx, func() error {
		found, _, err := c.Store.Get(c.Server)
		if err != nil {
			return err
		}
		if entry = found; time.Until(entry.ExpiresAt) > early {
			return c.same(entry, of)
		}
		if entry, err = c.refreshed(ctx, of, entry); err != nil {
			return err
		}
		return c.Store.put(c.Server, entry)
	})
	return entry.IDToken, err
}

// same returns why a sign-in cannot be used with the issuer that the control plane names.
func (c *Client) same(entry Entry, of oidcauth.SignIn) error {
	if entry.Issuer == of.Issuer && entry.ClientID == of.ClientID {
		return nil
	}
	return fmt.Errorf("the server names the client %s of the issuer %s, and the sign-in is of %s of %s: "+
		"if that is right, sign in again with controlplane login", program.Shown(of.ClientID), of.Issuer, entry.ClientID, entry.Issuer)
}

// refreshed returns the sign-in with another ID token.
func (c *Client) refreshed(ctx context.Context, of oidcauth.SignIn, entry Entry) (Entry, error) {
	if err := c.same(entry, of); err != nil {
		return Entry{}, err
	}
	if entry.RefreshToken == "" {
		return Entry{}, fmt.Errorf("the sign-in to %s has ended, at %s: sign in again with controlplane login",
			program.Shown(c.Server), entry.ExpiresAt.Format(time.RFC3339))
	}
	provider, config, err := c.provider(ctx, of)
	if err != nil {
		return Entry{}, err
	}
	got, err := config.TokenSource(ctx, &oauth2.Token{RefreshToken: entry.RefreshToken}).Token()
	if failed, ok := errors.AsType[*oauth2.RetrieveError](err); ok && failed.ErrorCode == "invalid_grant" {
		return Entry{}, fmt.Errorf("the sign-in to %s has ended, says the issuer: sign in again with controlplane login", program.Shown(c.Server))
	}
	if err != nil {
		return Entry{}, fmt.Errorf("issuer %s: %w", of.Issuer, short(err))
	}
	return c.entry(ctx, provider, of, got, "") // without another refresh token it keeps the one of before
}

// Revoke ends the refresh token of a sign-in at its issuer (RFC 7009), if it has one. The ID token
// is valid until its end.
func (c *Client) Revoke(ctx context.Context, entry Entry) error {
	if entry.RefreshToken == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(c.context(ctx), revocation)
	defer cancel()
	provider, _, err := c.provider(ctx, oidcauth.SignIn{Issuer: entry.Issuer, ClientID: entry.ClientID})
	if err != nil {
		return err
	}
	var configuration struct {
		Endpoint string `json:"revocation_endpoint"`
	}
	if err := provider.Claims(&configuration); err != nil || configuration.Endpoint == "" {
		return fmt.Errorf("issuer %s: it has no revocation_endpoint", entry.Issuer)
	}
	if err := oidcauth.CheckURL(entry.Issuer, "revocation_endpoint", configuration.Endpoint); err != nil {
		return fmt.Errorf("issuer %s: %w", entry.Issuer, err)
	}
	form := url.Values{"client_id": {entry.ClientID}, "token": {entry.RefreshToken}, "token_type_hint": {"refresh_token"}}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, configuration.Endpoint, strings.NewReader(form.Encode()))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	response, err := c.HTTP.Do(r)
	if err != nil {
		return fmt.Errorf("issuer %s: %w", entry.Issuer, err)
	}
	defer response.Body.Close() //nolint:errcheck // the status says it all
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("issuer %s: it answered %s to the revocation", entry.Issuer, response.Status)
	}
	return nil
}
