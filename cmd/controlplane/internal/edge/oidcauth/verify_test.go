package oidcauth_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coreos/go-oidc/v3/oidc/oidctest"
	"github.com/go-jose/go-jose/v4"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/edge/guard"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/edge/oidcauth"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/edge/oidcauth/issuertest"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/edge/tokens"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/front/adminapi"
	"github.com/seed-9e1ffd66/trueup/internal/test/logtest"
)

const adminToken = "the-admin-token-of-the-tests"

// world is an issuer, and the control plane that trusts it.
type world struct {
	*testing.T

	issuer *issuertest.Issuer
	people *oidcauth.People
	guard  *guard.Guard
	groups *tokens.GroupFile
	log    *logtest.Log
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{T: t, issuer: issuertest.Start(t), log: &logtest.Log{}}
	w.issuer.SetPerson("1", "alice", "admins")
	w.groups = &tokens.GroupFile{Path: filepath.Join(t.TempDir(), "groups")}
	w.list("role=administrator admins\nrole=reader everybody\n")
	var err error
	w.guard, err = guard.New(guard.Config{Free: 1000})
	require.NoError(t, err)
	w.people, err = oidcauth.New(oidcauth.Config{
		Issuer: w.issuer.URL, ClientID: issuertest.ClientID, Groups: w.groups, ExternalURL: "http://127.0.0.1:1",
		Logger: slog.New(slog.NewTextHandler(w.log, nil)),
	})
	require.NoError(t, err)
	return w
}

func (w *world) list(text string) {
	w.Helper()
	require.NoError(w, os.WriteFile(w.groups.Path, []byte(text), 0o600))
	require.NoError(w, w.groups.Read(w.Context()))
}

func (w *world) ask(token string) (tokens.Admin, *adminapi.Error) {
	w.Helper()
	r := httptest.NewRequestWithContext(w.Context(), http.MethodGet, "/", http.NoBody)
	admin, err := w.people.Authenticate(r, tokens.Only(adminToken), w.guard, "admin", token)
	if err == nil {
		return admin, nil
	}
	refused, ok := errors.AsType[*adminapi.Error](err)
	require.True(w, ok, "%v", err)
	if len(token) > 20 {
		require.NotContains(w, refused.Message+w.log.String(), token[len(token)-20:], "a part of the token")
	}
	return admin, refused
}

// refused asks, and returns the status and the text of the refusal.
func (w *world) refused(token string) (int, string) {
	w.Helper()
	_, err := w.ask(token)
	if err == nil {
		return 0, "it was accepted"
	}
	return err.Status, err.Error()
}

func TestAnIDTokenIsAnAdministratorByGroups(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	admin, refused := w.ask(w.issuer.Token(nil))
	require.Nil(t, refused)
	require.Equal(t, "oidc/alice", admin.Actor())
	require.Equal(t, tokens.RoleAdministrator, admin.Role)
	require.WithinDuration(t, time.Now().Add(time.Hour), admin.Expires, time.Minute)
	require.Equal(t, tokens.Person{Issuer: w.issuer.URL, Subject: "1", Groups: []string{"admins"}}, admin.Person)

	admin, refused = w.ask(w.issuer.Token(issuertest.Claims{"groups": "everybody", "azp": issuertest.ClientID}))
	require.Nil(t, refused, "one group, not a list")
	require.Equal(t, tokens.RoleReader, admin.Role)
	w.list("role=reader admins\n")
	admin, refused = w.ask(w.issuer.Token(nil))
	require.Nil(t, refused)
	require.Equal(t, tokens.RoleReader, admin.Role, "the file has changed")
	require.Equal(t, 1, w.issuer.Fetched(), "the keys are kept")

	admin, refused = w.ask(adminToken)
	require.Nil(t, refused)
	require.False(t, admin.Person.Known())
	for _, groups := range []any{nil, []string{}, []string{"others"}, 7, []any{7, nil}, "", map[string]any{"admins": true}} {
		status, text := w.refused(w.issuer.Token(issuertest.Claims{"groups": groups}))
		require.Equal(t, http.StatusForbidden, status, "%v", groups)
		require.Contains(t, text, "no_role: alice has signed in, and has no right here: none of the")
		require.Contains(t, text, "is listed in --oidc-groups-file")
	}
	for others, want := range map[int]int{999: 0, 1000: http.StatusForbidden} {
		status, text := w.refused(w.issuer.Token(issuertest.Claims{"groups": append(slices.Repeat([]string{"g"}, others), "admins")}))
		require.Equal(t, want, status, "a thousand are looked at: %s", text)
	}
	for _, name := range []any{nil, "", "  ", 7} {
		status, text := w.refused(w.issuer.Token(issuertest.Claims{"preferred_username": name}))
		require.Equal(t, http.StatusForbidden, status)
		require.Contains(t, text, "the ID token has no claim preferred_username, which --oidc-username-claim names")
	}
	admin, refused = w.ask(w.issuer.Token(issuertest.Claims{"preferred_username": " a\x1b[2J\u202eb\n" + strings.Repeat("ä", 100)}))
	require.Nil(t, refused)
	require.Equal(t, "oidc/a\uFFFD[2J\uFFFDb\uFFFD"+strings.Repeat("ä", 55), admin.Actor())

	one, _ := w.ask(w.issuer.Token(nil))
	other, _ := w.ask(w.issuer.Token(issuertest.Claims{"sub": "2"}))
	require.Equal(t, one.Actor(), other.Actor())
	require.NotEqual(t, one.Person.Key(), other.Person.Key(), "two people with one name")
	require.NotEqual(t, one.Fingerprint(), other.Fingerprint())
}

// TestATokenThatIsWrongIsRefused has tokens that differ from a valid one in one thing each.
func TestATokenThatIsWrongIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	key, id := w.issuer.Key()
	forger, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	require.NoError(t, err)
	shared, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.HS256, Key: public}, (&jose.SignerOptions{}).WithHeader("kid", id))
	require.NoError(t, err)
	symmetric, err := shared.Sign([]byte(w.issuer.Claims(nil)))
	require.NoError(t, err)
	hs256, err := symmetric.CompactSerialize()
	require.NoError(t, err)
	part := base64.RawURLEncoding.EncodeToString
	valid := strings.Split(w.issuer.Token(nil), ".")
	type claims = issuertest.Claims
	twice := func(claim string) string {
		text := strings.TrimSuffix(strings.TrimSpace(w.issuer.Claims(nil)), "}") + "," + claim + "}"
		return oidctest.SignIDToken(key, id, "ES256", text)
	}
	typed := func(kind any) string {
		header := (&jose.SignerOptions{}).WithHeader("kid", id).WithHeader("typ", kind)
		signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: key}, header)
		require.NoError(t, err)
		signed, err := signer.Sign([]byte(w.issuer.Claims(nil)))
		require.NoError(t, err)
		text, err := signed.CompactSerialize()
		require.NoError(t, err)
		return text
	}
	ahead, past := time.Now().Add(3*time.Minute).Unix(), time.Now().Add(-time.Second).Unix()
	const signature = "the signature of the ID token is not valid"
	for what, test := range map[string]struct {
		token, want string
		status      int
	}{
		"another key":        {oidctest.SignIDToken(forger, id, "ES256", w.issuer.Claims(nil)), signature, 401},
		"another key, no id": {oidctest.SignIDToken(forger, "", "ES256", w.issuer.Claims(nil)), signature, 401},
		"other claims":       {valid[0] + "." + part([]byte(w.issuer.Claims(claims{"sub": "2"}))) + "." + valid[2], signature, 401},
		"alg none":           {part([]byte(`{"alg":"none"}`)) + "." + valid[1] + ".", signature, 401},
		"alg none, signed":   {part([]byte(`{"alg":"none"}`)) + "." + valid[1] + "." + valid[2], signature, 401},
		"HS256 with the key": {hs256, signature, 401},
		"an access token":    {typed("at+jwt"), `the token has the type of another than an ID token in its header, must be JWT or none`, 401},
		"a logout token":     {typed("application/logout+jwt"), "must be JWT or none", 401},
		"a type that is 7":   {typed(7), "must be JWT or none", 401},
		"its own key":        {part([]byte(`{"alg":"ES256","jwk":{"kty":"EC"}}`)) + "." + valid[1] + "." + valid[2], signature, 401},
		"not JSON":           {valid[0] + ".e30x." + valid[2], "unauthorized", 401},
		"another audience": {
			w.issuer.Token(claims{"aud": "grafana"}),
			`the token is for "grafana", must be an ID token for the client trueup alone`, 401,
		},
		"one more audience": {w.issuer.Token(claims{"aud": []string{"trueup", "grafana"}}), `the token is for "grafana"`, 401},
		"another party":     {w.issuer.Token(claims{"azp": "grafana"}), `the token is for "grafana"`, 401},
		"no audience":       {w.issuer.Token(claims{"aud": nil}), "the token is not for one client", 401},
		"another issuer": {
			w.issuer.Token(claims{"iss": "https://evil.example.com"}),
			`the ID token is of the issuer "https://evil.example.com", must be of ` + w.issuer.URL, 401,
		},
		"an end in the past": {w.issuer.Token(claims{"exp": past}), "token_expired: the token has expired, at ", 401},
		"no end":             {w.issuer.Token(claims{"exp": nil}), "the ID token has no end", 401},
		"a clock ahead": {
			w.issuer.Token(claims{"iat": ahead}),
			"is of the future: the clock of the control plane or of the issuer may be off", 401,
		},
		"a beginning ahead":      {w.issuer.Token(claims{"nbf": ahead}), "is of the future", 401},
		"no subject":             {w.issuer.Token(claims{"sub": nil}), "no sub", 401},
		"another type":           {w.issuer.Token(claims{"iat": "today"}), "unauthorized", 401},
		"very long":              {w.issuer.Token(claims{"x": strings.Repeat("x", 20_000)}), "the ID token has more than 16384 bytes", 401},
		"sub in capitals":        {w.issuer.Token(claims{"SUB": "2"}), `the ID token has the claim "SUB", must be sub`, 401},
		"exp in capitals":        {w.issuer.Token(claims{"exp": past, "Exp": ahead}), `the ID token has the claim "Exp", must be exp`, 401},
		"aud in capitals":        {w.issuer.Token(claims{"aud": "trueup", "AUD": "grafana"}), `"AUD"`, 401},
		"a folded letter":        {w.issuer.Token(claims{"\u017fub": "2"}), `must be sub`, 401},
		"a name twice":           {twice(`"preferred_username":"bob"`), `the ID token has the claim "preferred_username" twice`, 401},
		"a subject twice":        {twice(`"sub":"2"`), `the ID token has the claim "sub" twice`, 401},
		"an end far off":         {w.issuer.Token(claims{"exp": 253402300800}), "the ID token ends after the year 9999", 401},
		"an end without it":      {w.issuer.Token(claims{"exp": uint64(1<<63 - 1)}), "the ID token ends after the year 9999", 401},
		"three parts of no JSON": {"a.b.c", "the bearer token is missing or not valid", 401},
		"forged and expired":     {oidctest.SignIDToken(forger, id, "ES256", w.issuer.Claims(claims{"exp": past})), signature, 401},
	} {
		status, text := w.refused(test.token)
		require.Equal(t, test.status, status, what)
		require.Contains(t, text, test.want, what)
		require.False(t, w.people.Valid(t.Context(), tokens.Only(adminToken), test.token), what)
	}
	for _, claim := range []string{"nbf", "iat"} {
		_, refused := w.ask(w.issuer.Token(claims{claim: time.Now().Add(30 * time.Second).Unix()}))
		require.Nil(t, refused, "clocks differ a little")
	}
	for _, kind := range []string{"JWT", "jwt"} {
		_, refused := w.ask(typed(kind))
		require.Nil(t, refused, kind)
	}
	require.True(t, w.people.Valid(t.Context(), tokens.Only(adminToken), adminToken))
}

// TestForgedTokensAreCountedAndExpiredOnesNot has a guard that lets three failures pass.
func TestForgedTokensAreCountedAndExpiredOnesNot(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var err error
	w.guard, err = guard.New(guard.Config{Free: 3})
	require.NoError(t, err)
	for n := range 10 {
		status, _ := w.refused(w.issuer.Token(issuertest.Claims{"exp": time.Now().Add(-time.Hour).Unix(), "jti": n}))
		require.Equal(t, http.StatusUnauthorized, status)
	}
	for n := range 4 {
		status, _ := w.refused(w.issuer.Token(issuertest.Claims{"aud": "other", "jti": n}))
		require.Equal(t, map[bool]int{true: http.StatusUnauthorized, false: http.StatusTooManyRequests}[n < 3], status)
	}
	_, refused := w.ask(w.issuer.Token(nil))
	require.Nil(t, refused, "a valid one is never refused for others")
}

// TestForgedKeyIDsCauseFewFetches has many at a time, and then a real new key.
func TestForgedKeyIDsCauseFewFetches(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	forger, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	var group sync.WaitGroup
	for range 50 {
		group.Go(func() {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody)
			_, err := w.people.Authenticate(r, tokens.Only(adminToken), w.guard, "admin",
				oidctest.SignIDToken(forger, rand.Text(), "ES256", w.issuer.Claims(nil)))
			assert.ErrorContains(t, err, "the signature of the ID token is not valid")
		})
	}
	group.Wait()
	require.Equal(t, 1, w.issuer.Fetched())
	w.issuer.Rotate()
	status, _ := w.refused(w.issuer.Token(nil))
	require.Equal(t, http.StatusUnauthorized, status, "it was asked a moment ago")
	w.people.Forget()
	_, refused := w.ask(w.issuer.Token(nil))
	require.Nil(t, refused, "a new key is fetched")
	require.Equal(t, 2, w.issuer.Fetched())
}

func TestAnIssuerThatIsAwayStopsNoOtherSignIn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.issuer.SetAway(true)
	status, text := w.refused(w.issuer.Token(nil))
	require.Equal(t, http.StatusServiceUnavailable, status)
	require.Contains(t, text, "issuer_unavailable: the sign-in cannot be checked now")
	require.Contains(t, text, "or answers what cannot be used; the log of the control plane says why")
	require.True(t, w.people.Valid(t.Context(), tokens.Only(adminToken), w.issuer.Token(nil)), "nothing ends for it")
	_, refused := w.ask(adminToken)
	require.Nil(t, refused)
	_, _, err := w.people.Begin(t.Context())
	require.ErrorContains(t, err, "the issuer cannot be reached")
	require.Equal(t, 1, strings.Count(w.log.String(), "keys of the issuer not fetched"), w.log.String())

	w.issuer.SetAway(false)
	status, _ = w.refused(w.issuer.Token(nil))
	require.Equal(t, http.StatusServiceUnavailable, status, "it is not asked again at once")
	w.people.Forget()
	_, refused = w.ask(w.issuer.Token(nil))
	require.Nil(t, refused)
	require.Contains(t, w.log.String(), "keys of the issuer fetched")
	w.issuer.SetAway(true)
	w.people.Age()
	_, refused = w.ask(w.issuer.Token(nil))
	require.Nil(t, refused, "what was fetched is used on")

	withdrawn := w.issuer.Token(nil)
	w.issuer.SetAway(false)
	w.issuer.Rotate()
	_, refused = w.ask(withdrawn)
	require.Nil(t, refused, "it was asked a moment ago")
	w.people.Age()
	status, text = w.refused(withdrawn)
	require.Equal(t, http.StatusUnauthorized, status)
	require.Contains(t, text, "the signature of the ID token is not valid", "its key is there no more")
}

// TestAConfigurationThatIsWrongIsRefused has answers of an issuer that it gives in no other test.
func TestAConfigurationThatIsWrongIsRefused(t *testing.T) {
	t.Parallel()
	const good = "https://login.example.com/auth"
	for name, test := range map[string]struct{ authorization, token, more, want string }{
		"less than HTTPS":   {"http://login.example.com/auth", good, "", `is "http://login.example.com/auth", must be a URL of https`},
		"right":             {good, good, "", ""},
		"a script":          {"javascript:alert(1)", good, "", `authorization_endpoint of the issuer is "javascript:alert(1)", must be a URL`},
		"a fragment":        {good + "#f", good, "", "without a fragment"},
		"no host":           {good, "https:///token", "", "token_endpoint of the issuer is"},
		"none":              {good, "", "", `token_endpoint of the issuer is ""`},
		"more than a MiB":   {good, good, strings.Repeat(" ", 1<<20), "the answer of the issuer has more than 1048576 bytes"},
		"less than a MiB":   {good, good, strings.Repeat(" ", 1<<19), ""},
		"a file, unchecked": {"file:///etc/passwd", good, "", "authorization_endpoint"},
	} {
		mux := http.NewServeMux()
		server := httptest.NewTLSServer(mux)
		t.Cleanup(server.Close)
		mux.HandleFunc("/.well-known/openid-configuration", func(out http.ResponseWriter, _ *http.Request) {
			_, err := fmt.Fprintf(out, `{"issuer":%q,"jwks_uri":"%s/keys","authorization_endpoint":%q,"token_endpoint":%q%s}`,
				server.URL, server.URL, test.authorization, test.token, test.more)
			assert.True(t, err == nil || test.more != "", "%v", err)
		})
		mux.HandleFunc("/keys", func(out http.ResponseWriter, _ *http.Request) {
			_, err := out.Write([]byte(`{"keys":[]}`))
			assert.NoError(t, err)
		})
		people, err := oidcauth.New(oidcauth.Config{
			Issuer: server.URL, ClientID: "trueup", Groups: &tokens.GroupFile{}, ExternalURL: "http://127.0.0.1:1", HTTP: server.Client(),
		})
		require.NoError(t, err)
		_, _, err = people.Begin(t.Context())
		if test.want == "" {
			require.NoError(t, err, name)
			continue
		}
		require.ErrorContains(t, err, test.want, name)
	}
}

func TestWhatIsMissingIsNamed(t *testing.T) {
	t.Parallel()
	for field, config := range map[string]oidcauth.Config{
		"Issuer":   {ClientID: "a", Groups: &tokens.GroupFile{}},
		"ClientID": {Issuer: "a", Groups: &tokens.GroupFile{}},
		"Groups":   {Issuer: "a", ClientID: "a"},
	} {
		_, err := oidcauth.New(config)
		require.EqualError(t, err, "oidcauth.Config: "+field+" is required")
	}
	require.False(t, (*oidcauth.People)(nil).OnPage())
	_, err := (*oidcauth.People)(nil).Admin(tokens.Person{Subject: "1"}, "alice")
	require.Error(t, err)
	w := newWorld(t)
	person := tokens.Person{Issuer: w.issuer.URL, Subject: "1", Groups: []string{"admins"}}
	_, err = w.people.Admin(person, "alice")
	require.NoError(t, err)
	person.Issuer += "/another"
	_, err = w.people.Admin(person, "alice")
	require.ErrorContains(t, err, "has no right here", "groups of another issuer are others")
}
