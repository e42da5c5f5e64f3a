package statuspage_test

import (
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/edge/guard"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/edge/oidcauth"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/edge/oidcauth/issuertest"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/edge/tokens"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/front/statuspage"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/audit"
)

// sso is an issuer, and the file with the roles of its groups.
type sso struct {
	t      *testing.T
	issuer *issuertest.Issuer
	groups *tokens.GroupFile
	people *oidcauth.People
}

func newSSO(t *testing.T, secret string) *sso {
	t.Helper()
	s := &sso{t: t, issuer: issuertest.Start(t), groups: &tokens.GroupFile{Path: filepath.Join(t.TempDir(), "groups")}}
	s.issuer.SetPerson("1", "alice", "staff")
	s.issuer.Secret = secret
	s.list("role=reader staff\n")
	var err error
	s.people, err = oidcauth.New(oidcauth.Config{
		Issuer: s.issuer.URL, ClientID: issuertest.ClientID, ClientSecret: secret, Groups: s.groups, ExternalURL: "http://127.0.0.1:1",
	})
	require.NoError(t, err)
	return s
}

func (s *sso) list(text string) {
	s.t.Helper()
	require.NoError(s.t, os.WriteFile(s.groups.Path, []byte(text), 0o600))
	require.NoError(s.t, s.groups.Read(s.t.Context()))
}

// begin begins a sign-in, and returns the cookie of the browser and where the issuer leads it.
func (w *world) begin() (cookie *http.Cookie, back string) {
	w.t.Helper()
	got := w.get("/status/sso")
	require.Equal(w.t, 303, got.status, got.body)
	require.Len(w.t, got.cookies, 1)
	r, err := http.NewRequestWithContext(w.t.Context(), http.MethodGet, got.header.Get("Location"), http.NoBody)
	require.NoError(w.t, err)
	response, err := http.DefaultTransport.RoundTrip(r)
	require.NoError(w.t, err)
	require.NoError(w.t, response.Body.Close())
	to, err := url.Parse(response.Header.Get("Location"))
	require.NoError(w.t, err)
	require.Equal(w.t, "127.0.0.1:1", to.Host)
	return got.cookies[0], to.RequestURI()
}

func header(cookie *http.Cookie) []string {
	return []string{"Cookie", cookie.Name + "=" + cookie.Value}
}

// signIn signs in, and returns the header of the session.
func (w *world) signIn() []string {
	w.t.Helper()
	cookie, back := w.begin()
	got := w.get(back, header(cookie)...)
	require.Equal(w.t, 200, got.status, got.body)
	for _, set := range got.cookies {
		if set.Name == "trueup_status" {
			return header(set)
		}
	}
	w.t.Fatal("there is no session")
	return nil
}

func TestAPersonSignsInOnThePage(t *testing.T) {
	t.Parallel()
	s := newSSO(t, "")
	each(t, statuspage.Config{People: s.people}, func(w *world) {
		t := w.t
		s.list("role=reader staff\n")
		require.Contains(t, w.get("/status/login").body, `<a href="/status/sso">Sign in with SSO</a>`)
		cookie, back := w.begin()
		require.Equal(t, http.SameSiteLaxMode, cookie.SameSite, "the issuer leads back")
		require.True(t, cookie.HttpOnly)
		require.Equal(t, "/status/sso", cookie.Path)
		require.Equal(t, 600, cookie.MaxAge)
		got := w.get(back, header(cookie)...)
		require.Equal(t, 200, got.status, got.body)
		require.Contains(t, got.body, `<meta http-equiv="refresh" content="0;url=/status">`)
		require.Contains(t, got.body, "Signed in as alice.")
		require.Len(t, got.cookies, 2)
		require.Equal(t, -1, got.cookies[0].MaxAge, "the sign-in is used once")
		session := got.cookies[1]
		require.Equal(t, http.SameSiteStrictMode, session.SameSite)
		require.Equal(t, 12*60*60, session.MaxAge)
		require.Equal(t, 200, w.get("/status", header(session)...).status)
		require.Equal(t, 303, w.get("/status", "Cookie", session.Name+"="+session.Value+"x").status)
		require.Equal(t, 303, w.get("/status", "Cookie", session.Name+"=oidc.").status)
		require.Contains(t, w.log.String(), `"msg":"login","actor":"oidc/alice"`)
		require.NotContains(t, w.log.String(), strings.TrimPrefix(session.Value, "oidc."))
		entries, _, err := (&audit.Log{Database: w.database}).List(t.Context(), audit.Filter{Log: audit.Access, Actor: "oidc/alice"}, 10)
		require.NoError(t, err)
		require.Len(t, entries, 1)
		require.Len(t, entries[0].Name, 8, "it tells two people with one name apart")

		// The role is looked up again for each request.
		s.list("role=reader others\n")
		require.Equal(t, 303, w.get("/status", header(session)...).status)
		stream := w.open(header(session)...)
		require.Equal(t, 401, stream.status)
		stream.close()
		s.list("role=operator regions=* staff\n")
		require.Equal(t, 200, w.get("/status", header(session)...).status)

		require.Equal(t, 303, w.send("POST", "/status/logout", url.Values{}, header(session)...).status)
		require.Equal(t, 303, w.get("/status", header(session)...).status, "the server has forgotten it")

		// Without the issuer its sessions are void.
		header := w.signIn()
		none, err := statuspage.New(statuspage.Config{Database: w.database, Admins: tokens.Only(adminToken)})
		require.NoError(t, err)
		w.url = serveHandler(t, none)
		require.Equal(t, 303, w.get("/status", header...).status)
		require.Equal(t, 404, w.get("/status/sso").status)
		require.Equal(t, 404, w.get("/status/sso/callback").status)
		require.NotContains(t, w.get("/status/login").body, "SSO")
	})
}

// TestASignInBelongsToTheBrowserThatBeganIt has answers of the issuer that differ in one thing.
func TestASignInBelongsToTheBrowserThatBeganIt(t *testing.T) {
	t.Parallel()
	s := newSSO(t, "the-secret-of-the-client")
	attempts, err := guard.New(guard.Config{Free: 100})
	require.NoError(t, err)
	w := small(t, statuspage.Config{People: s.people, Guard: attempts})
	cookie, back := w.begin()
	other, _ := w.begin()
	const notHere = "this browser has not begun this sign-in"
	state, _, _ := strings.Cut(cookie.Value, ".")
	for name, test := range map[string]struct {
		path, want string
		header     []string
		status     int
	}{
		"no cookie":             {back, notHere, nil, 401},
		"a cookie of another":   {back, notHere, header(other), 401},
		"an empty cookie":       {"/status/sso/callback?code=x&state=", notHere, []string{"Cookie", cookie.Name + "="}, 401},
		"no code":               {"/status/sso/callback?state=" + state, notHere, header(cookie), 401},
		"a code that is not":    {"/status/sso/callback?code=x&state=" + state, "the issuer does not take the code", header(cookie), 401},
		"an error":              {"/status/sso/callback?error=denied%3Cb%3E&state=" + state, "denied&lt;b&gt;", header(cookie), 403},
		"an error of strangers": {"/status/sso/callback?error=x", notHere, header(cookie), 401},
		"another verifier":      {back, "the issuer does not take the code", []string{"Cookie", cookie.Name + "=" + cookie.Value + "x"}, 401},
	} {
		got := w.get(test.path, test.header...)
		require.Equal(t, test.status, got.status, name)
		require.Contains(t, got.body, test.want, name)
		require.Contains(t, got.body, "Admin token", "one can try again")
		mine := test.header != nil && test.header[1] != header(other)[1] && strings.Contains(test.path, "state="+state)
		require.Len(t, got.cookies, map[bool]int{true: 1}[mine], "%s: what belongs to another sign-in goes on", name)
		require.Empty(t, got.header.Get("Location"), name)
	}
	// The code of a sign-in with another nonce.
	cookie, back = w.begin()
	parts := strings.Split(cookie.Value, ".")
	got := w.get(back, "Cookie", cookie.Name+"="+parts[0]+".other."+parts[2])
	require.Equal(t, 401, got.status)
	require.Contains(t, got.body, "the ID token belongs to another sign-in")

	cookie, back = w.begin()
	second, secondBack := w.begin()
	tabs := []string{"Cookie", cookie.Name + "=" + cookie.Value + "; " + second.Name + "=" + second.Value}
	require.Equal(t, 200, w.get(secondBack, tabs...).status, "a sign-in in two tabs")
	require.Equal(t, 200, w.get(back, tabs...).status)
	require.Equal(t, 401, w.get(back, header(cookie)...).status, "a code is used once")

	s.list("role=reader others\n")
	cookie, back = w.begin()
	got = w.get(back, header(cookie)...)
	require.Equal(t, 403, got.status)
	require.Contains(t, got.body, "alice has signed in, and has no right here")

	s.issuer.SetAway(true)
	cookie, back = w.beginAway()
	got = w.get(back, header(cookie)...)
	require.Equal(t, 503, got.status)
	require.Contains(t, got.body, "the issuer of --oidc-issuer cannot be reached")
	require.NotContains(t, w.log.String(), "the-secret-of-the-client")
}

// beginAway begins a sign-in while the issuer is away.
func (w *world) beginAway() (cookie *http.Cookie, back string) {
	w.t.Helper()
	got := w.get("/status/sso")
	require.Equal(w.t, 303, got.status, got.body)
	state, _, _ := strings.Cut(got.cookies[0].Value, ".")
	return got.cookies[0], "/status/sso/callback?code=x&state=" + state
}

func TestAnIDTokenOpensThePage(t *testing.T) {
	t.Parallel()
	s := newSSO(t, "")
	w := small(t, statuspage.Config{People: s.people})
	require.Equal(t, 200, w.get("/status", "Authorization", "Bearer "+s.issuer.Token(nil)).status)
	got := w.get("/status", "Authorization", "Bearer "+s.issuer.Token(issuertest.Claims{"aud": "other"}))
	require.Equal(t, 401, got.status)
	require.Contains(t, got.body, `the token is for "other"`)
	s.list("role=reader others\n")
	require.Equal(t, 403, w.get("/status", "Authorization", "Bearer "+s.issuer.Token(nil)).status)
}

func TestAnIssuerThatIsAwayLeavesTheTokenForm(t *testing.T) {
	t.Parallel()
	s := newSSO(t, "")
	s.issuer.SetAway(true)
	w := small(t, statuspage.Config{People: s.people})
	got := w.get("/status/sso")
	require.Equal(t, 503, got.status)
	require.Contains(t, got.body, "The issuer cannot be reached just now.")
	require.Equal(t, 503, w.get("/status", "Authorization", "Bearer "+s.issuer.Token(nil)).status)
	require.NotEmpty(t, w.login())
}
