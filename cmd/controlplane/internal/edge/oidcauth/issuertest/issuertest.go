// Package issuertest is an issuer of OpenID Connect for tests: it signs what a test wants, counts
// how often it is asked, and can be away. The person of the test has an open session there, so that
// it asks for no password.
package issuertest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coreos/go-oidc/v3/oidc/oidctest"
	"github.com/go-jose/go-jose/v4"
)

// ClientID is the client of the tests.
const ClientID = "trueup"

// Claims are the claims of a token, by name.
type Claims map[string]any

// Issuer is an issuer with one public client. It is safe for concurrent use.
type Issuer struct {
	// URL is the issuer.
	URL string
	// Secret is the secret of the client. Empty: it is public. It must not change once the issuer
	// is used.
	Secret string

	mu      sync.Mutex
	away    bool
	asks    bool
	fetched int
	key     *ecdsa.PrivateKey
	keyID   int
	person  Claims
	age     time.Duration
	codes   map[string]url.Values
	refresh string // the valid refresh token
	issued  int
	scopes  string
}

// Start returns an issuer that ends with the test.
func Start(tb testing.TB) *Issuer {
	tb.Helper()
	i := &Issuer{codes: map[string]url.Values{}, age: time.Hour, person: Claims{"sub": "1", "preferred_username": "alice"}}
	i.Rotate()
	mux := http.NewServeMux()
	mux.HandleFunc("/.well-known/openid-configuration", i.configuration)
	mux.HandleFunc("/keys", i.keys)
	mux.HandleFunc("/authorize", i.authorize)
	mux.HandleFunc("/device", i.device)
	mux.HandleFunc("/token", i.token)
	mux.HandleFunc("/revoke", i.revoke)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if i.isAway() {
			http.Error(w, "away", http.StatusBadGateway)
			return
		}
		mux.ServeHTTP(w, r)
	}))
	tb.Cleanup(server.Close)
	// Another site than 127.0.0.1, for a browser.
	i.URL = strings.Replace(server.URL, "127.0.0.1", "localhost", 1)
	return i
}

// Rotate replaces the key.
func (i *Issuer) Rotate() {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err) //nolint:forbidigo // there is no randomness
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.key = key
	i.keyID++
}

// SetAway has each request answered with 502, or no longer.
func (i *Issuer) SetAway(away bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.away = away
}

func (i *Issuer) isAway() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.away
}

// SetAsks has the person click on a link, Confirm, before the browser goes back.
func (i *Issuer) SetAsks() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.asks = true
}

// SetPerson has the next tokens identify a person, by the claims sub, preferred_username and
// groups.
func (i *Issuer) SetPerson(subject, name string, groups ...string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.person = Claims{"sub": subject, "preferred_username": name, "groups": groups}
}

// SetAge has the next tokens end after that time, which may be negative.
func (i *Issuer) SetAge(age time.Duration) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.age = age
}

// Fetched returns how often the keys were fetched.
func (i *Issuer) Fetched() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.fetched
}

// Issued returns how many tokens were given for codes and refresh tokens.
func (i *Issuer) Issued() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.issued
}

// Scopes returns what the last sign-in has asked for, separated by spaces.
func (i *Issuer) Scopes() string {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.scopes
}

// Refresh returns the valid refresh token, empty if there is none.
func (i *Issuer) Refresh() string {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.refresh
}

// Key returns the key of now, and its id.
func (i *Issuer) Key() (*ecdsa.PrivateKey, string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.key, fmt.Sprintf("key-%d", i.keyID)
}

// Token returns an ID token of the person, with other claims in place of its own. A nil claim is
// left out.
func (i *Issuer) Token(other Claims) string {
	key, id := i.Key()
	return oidctest.SignIDToken(key, id, string(jose.ES256), i.Claims(other))
}

// Claims returns the claims of a Token as JSON.
func (i *Issuer) Claims(other Claims) string {
	i.mu.Lock()
	all := Claims{"iss": i.URL, "aud": ClientID, "iat": time.Now().Unix(), "exp": time.Now().Add(i.age).Unix()}
	maps.Copy(all, i.person)
	i.mu.Unlock()
	maps.Copy(all, other)
	maps.DeleteFunc(all, func(_ string, value any) bool { return value == nil })
	text, err := json.Marshal(all)
	if err != nil {
		panic(err) //nolint:forbidigo // the test's own claims
	}
	return string(text)
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}

func (i *Issuer) configuration(w http.ResponseWriter, _ *http.Request) {
	answer(w, http.StatusOK, map[string]any{
		"issuer": i.URL, "jwks_uri": i.URL + "/keys", "authorization_endpoint": i.URL + "/authorize", "token_endpoint": i.URL + "/token",
		"device_authorization_endpoint": i.URL + "/device", "revocation_endpoint": i.URL + "/revoke",
		"scopes_supported":                      []string{"openid", "profile", "groups"},
		"id_token_signing_alg_values_supported": []string{"ES256"},
	})
}

func (i *Issuer) keys(w http.ResponseWriter, _ *http.Request) {
	key, id := i.Key()
	i.mu.Lock()
	i.fetched++
	i.mu.Unlock()
	public := jose.JSONWebKey{Key: key.Public(), KeyID: id, Algorithm: string(jose.ES256), Use: "sig"}
	answer(w, http.StatusOK, jose.JSONWebKeySet{Keys: []jose.JSONWebKey{public}})
}

// authorize sends the browser back with a code, at once or after a click.
func (i *Issuer) authorize(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	to, err := url.Parse(query.Get("redirect_uri"))
	if err != nil || query.Get("client_id") != ClientID || query.Get("code_challenge_method") != "S256" {
		http.Error(w, "wrong request", http.StatusBadRequest)
		return
	}
	code := rand.Text()
	i.mu.Lock()
	i.codes[code] = query
	i.scopes = query.Get("scope")
	asks := i.asks
	i.mu.Unlock()
	to.RawQuery = url.Values{"code": {code}, "state": {query.Get("state")}}.Encode()
	if asks {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = fmt.Fprintf(w, `<!DOCTYPE html><title>Issuer</title><link rel="icon" href="data:,"><a href="%s">Confirm</a>`,
			html.EscapeString(to.String()))
		return
	}
	http.Redirect(w, r, to.String(), http.StatusFound)
}

// device gives a code that the person has confirmed already.
func (i *Issuer) device(w http.ResponseWriter, r *http.Request) {
	code := rand.Text()
	i.mu.Lock()
	i.codes[code] = url.Values{"code_challenge": {r.PostFormValue("code_challenge")}}
	i.scopes = r.PostFormValue("scope")
	i.mu.Unlock()
	answer(w, http.StatusOK, map[string]any{
		"device_code": code, "user_code": "ABCD-EFGH", "verification_uri": i.URL + "/activate", "expires_in": 60, "interval": 1,
	})
}

func (i *Issuer) token(w http.ResponseWriter, r *http.Request) {
	nonce, ok := i.granted(r)
	if !ok {
		answer(w, http.StatusBadRequest, map[string]string{"error": "invalid_grant", "error_description": "the grant is not valid"})
		return
	}
	other := Claims{}
	if nonce != "" {
		other["nonce"] = nonce
	}
	token := i.Token(other)
	i.mu.Lock()
	i.refresh = rand.Text()
	i.issued++
	refresh := i.refresh
	i.mu.Unlock()
	answer(w, http.StatusOK, map[string]any{
		"id_token": token, "refresh_token": refresh, "access_token": "access", "token_type": "Bearer", "expires_in": 3600,
	})
}

// revoke ends a refresh token. One that is not valid is no error, as RFC 7009 has it.
func (i *Issuer) revoke(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost || r.PostFormValue("client_id") != ClientID {
		answer(w, http.StatusBadRequest, map[string]string{"error": "invalid_client"})
		return
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if r.PostFormValue("token") == i.refresh {
		i.refresh = ""
	}
}

// granted reports whether a request for a token has a right to it, and its nonce. Codes and
// refresh tokens are valid once.
func (i *Issuer) granted(r *http.Request) (nonce string, ok bool) {
	user, secret, _ := r.BasicAuth()
	if i.Secret != "" && (user != ClientID || secret != i.Secret) {
		return "", false
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if r.PostFormValue("grant_type") == "refresh_token" {
		return "", i.refresh != "" && r.PostFormValue("refresh_token") == i.refresh
	}
	code := r.PostFormValue("code") + r.PostFormValue("device_code")
	begun, ok := i.codes[code]
	delete(i.codes, code)
	sum := sha256.Sum256([]byte(r.PostFormValue("code_verifier")))
	if !ok || begun.Get("code_challenge") != base64.RawURLEncoding.EncodeToString(sum[:]) ||
		!strings.HasPrefix(r.PostFormValue("redirect_uri"), begun.Get("redirect_uri")) {
		return "", false
	}
	return begun.Get("nonce"), true
}
