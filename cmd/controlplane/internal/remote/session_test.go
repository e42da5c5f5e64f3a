package remote_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/controlplanetest"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/edge/oidcauth"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/edge/oidcauth/issuertest"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/edge/tokens"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/remote/signin"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/program"
)

// people returns those of an issuer whose members of staff have the role.
func people(t *testing.T, issuer *issuertest.Issuer, role string) *oidcauth.People {
	t.Helper()
	groups := &tokens.GroupFile{Path: filepath.Join(t.TempDir(), "groups")}
	require.NoError(t, os.WriteFile(groups.Path, []byte(role+" staff\n"), 0o600))
	require.NoError(t, groups.Read(t.Context()))
	found, err := oidcauth.New(oidcauth.Config{Issuer: issuer.URL, ClientID: issuertest.ClientID, ClientSecret: issuer.Secret, Groups: groups})
	require.NoError(t, err)
	return found
}

// signedOut returns the commands of a user who has no token, and the file of the sign-ins.
func signedOut(t *testing.T, of *oidcauth.People) (s *shell, cache string) {
	t.Helper()
	plane := controlplanetest.Start(t, controlplanetest.Options{Source: filepath.Join(t.TempDir(), "db"), People: of})
	cache = filepath.Join(t.TempDir(), "settings", "sign-ins.json")
	return &shell{t, map[string]string{
		"TRUEUP_CONTROLPLANE_SERVER": "http://" + plane.Address, "TRUEUP_CONTROLPLANE_TOKEN_CACHE": cache,
	}}, cache
}

// login runs the command login, with a browser that opens the address it prints.
func (s *shell) login() (code int, out, errs string) {
	s.t.Helper()
	return s.loginAt(func(address string) string { return address })
}

// loginAt is login with a browser that opens another address.
func (s *shell) loginAt(other func(address string) string) (code int, out, errs string) {
	s.t.Helper()
	reader, writer := io.Pipe()
	var stdout, stderr bytes.Buffer
	var browser sync.WaitGroup
	browser.Go(func() {
		lines := bufio.NewScanner(io.TeeReader(reader, &stderr))
		for lines.Scan() {
			if !strings.HasPrefix(lines.Text(), "http") {
				continue
			}
			response, err := http.Get(other(lines.Text())) //nolint:noctx // a test
			if assert.NoError(s.t, err) {
				_, _ = io.Copy(io.Discard, response.Body)
				assert.NoError(s.t, response.Body.Close())
				assert.Equal(s.t, 200, response.StatusCode)
			}
		}
	})
	code = program.Run(s.t.Context(), s.command(), []string{"login"}, &stdout, writer)
	require.NoError(s.t, writer.Close())
	browser.Wait()
	return code, stdout.String(), stderr.String()
}

func TestAUserSignsInOnTheCommandLine(t *testing.T) {
	t.Parallel()
	issuer := issuertest.Start(t)
	issuer.SetPerson("1", "alice", "staff")
	s, cache := signedOut(t, people(t, issuer, "role=operator regions=eu"))
	code, _, errs := s.run("", "whoami")
	require.Equal(t, 2, code)
	require.Contains(t, errs, "must be a file with the token of an administrator; or sign in to http://127.0.0.1:")

	for _, login := range []func() (int, string, string){s.login, func() (int, string, string) { return s.run("", "login --device") }} {
		code, out, errs := login()
		require.Zero(t, code, errs)
		require.Contains(t, out, " as oidc/alice, with the role operator, which may change the regions eu.\n")
		info, err := os.Stat(cache)
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o600), info.Mode())
		code, out, errs = s.run("", "whoami -o json")
		require.Zero(t, code, errs)
		var who map[string]any
		require.NoError(t, json.Unmarshal([]byte(out), &who))
		require.Equal(t, "oidc/alice", who["actor"])
		require.Equal(t, []any{"eu"}, who["regions"])
		require.NotEmpty(t, who["expires_at"])
		code, _, errs = s.run("", "list clusters")
		require.Zero(t, code, errs)
		code, _, errs = s.run("region: eu", "put cluster "+cluster+" -f -")
		require.Equal(t, 1, code)
		require.Contains(t, errs, "oidc/alice has the role operator and may change the regions eu")
		text, err := os.ReadFile(cache)
		require.NoError(t, err)
		require.NotContains(t, out+errs, string(text[100:150]))
	}
	code, out, _ := s.run("", "logout")
	require.Zero(t, code)
	require.Contains(t, out, "Signed out of http://127.0.0.1:")
	code, _, errs = s.run("", "logout")
	require.Equal(t, 1, code)
	require.Contains(t, errs, "there is no sign-in to http://127.0.0.1:")
	code, _, _ = s.run("", "whoami")
	require.Equal(t, 2, code)
}

func TestALogoutRevokesTheRefreshToken(t *testing.T) {
	t.Parallel()
	issuer := issuertest.Start(t)
	issuer.SetPerson("1", "alice", "staff")
	s, cache := signedOut(t, people(t, issuer, "role=reader"))
	signIn := func(args string) {
		code, _, errs := s.run("", "login --device"+args)
		require.Zero(t, code, errs)
		require.NotEmpty(t, issuer.Refresh())
	}
	signIn("")
	require.Equal(t, "openid profile groups", issuer.Scopes())
	code, out, errs := s.run("", "logout")
	require.Zero(t, code)
	require.Contains(t, out, "Signed out of http://127.0.0.1:")
	require.NotContains(t, errs, "refresh token")
	require.Empty(t, issuer.Refresh())

	signIn(" --offline")
	require.Equal(t, "openid profile groups offline_access", issuer.Scopes())
	token := issuer.Refresh()
	issuer.SetAway(true)
	code, out, errs = s.run("", "logout")
	require.Zero(t, code)
	require.Contains(t, out, "Signed out of http://127.0.0.1:", "here it has ended")
	require.Contains(t, errs, "The refresh token is not revoked: issuer "+issuer.URL+": 502 Bad Gateway")
	text, err := os.ReadFile(cache)
	require.NoError(t, err)
	require.JSONEq(t, "{}", string(text))
	require.NotContains(t, out+errs, token)
}

// TestASignInIsRefreshedOnceByManyCommands has an issuer that takes each refresh token once.
func TestASignInIsRefreshedOnceByManyCommands(t *testing.T) {
	t.Parallel()
	issuer := issuertest.Start(t)
	issuer.SetPerson("1", "alice", "staff")
	issuer.SetAge(5 * time.Second) // too short to be used again
	s, cache := signedOut(t, people(t, issuer, "role=reader"))
	code, _, errs := s.login()
	require.Zero(t, code, errs)
	require.Equal(t, 1, issuer.Issued())
	issuer.SetAge(time.Hour)
	var group sync.WaitGroup
	for range 10 {
		group.Go(func() {
			var stdout, stderr bytes.Buffer
			assert.Zero(t, program.Run(t.Context(), s.command(), []string{"whoami"}, &stdout, &stderr), stderr.String)
			assert.Contains(t, stdout.String(), "actor: oidc/alice")
		})
	}
	group.Wait()
	require.Equal(t, 2, issuer.Issued())

	expire := func() {
		text, err := os.ReadFile(cache)
		require.NoError(t, err)
		var all map[string]map[string]any
		require.NoError(t, json.Unmarshal(text, &all))
		for _, entry := range all {
			entry["expires_at"] = time.Now().Add(-time.Hour)
			entry["refresh_token"] = "used"
		}
		text, err = json.Marshal(all)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(cache, text, 0o600))
	}
	expire()
	code, _, errs = s.run("", "whoami")
	require.Equal(t, 1, code)
	require.Contains(t, errs, " has ended, says the issuer: sign in again with controlplane login\n")
	issuer.SetAway(true)
	code, _, errs = s.run("", "whoami")
	require.Equal(t, 1, code)
	require.Contains(t, errs, "502")
	require.NoError(t, os.WriteFile(cache, []byte("{"), 0o600))
	code, _, errs = s.run("", "whoami")
	require.Equal(t, 2, code)
	require.Contains(t, errs, "has no sign-ins: remove it, and sign in again")
}

func TestASignInIsForOneIssuer(t *testing.T) {
	t.Parallel()
	one, two := issuertest.Start(t), issuertest.Start(t)
	one.SetPerson("1", "alice", "staff")
	s, _ := signedOut(t, people(t, one, "role=reader"))
	code, _, errs := s.login()
	require.Zero(t, code, errs)
	s.environment["TRUEUP_CONTROLPLANE_SERVER"] = moved(t, s, people(t, two, "role=reader"))
	code, _, errs = s.run("", "whoami")
	require.Equal(t, 1, code)
	require.Contains(t, errs, "the server names the client trueup of the issuer "+two.URL+", and the sign-in is of trueup of "+one.URL)
	require.Zero(t, two.Issued())
}

// moved returns the URL of another control plane, to which the sign-in of the first is said to
// belong.
func moved(t *testing.T, s *shell, of *oidcauth.People) string {
	t.Helper()
	plane := controlplanetest.Start(t, controlplanetest.Options{Source: filepath.Join(t.TempDir(), "db"), People: of})
	cache := s.environment["TRUEUP_CONTROLPLANE_TOKEN_CACHE"]
	text, err := os.ReadFile(cache)
	require.NoError(t, err)
	url := "http://" + plane.Address
	require.NoError(t, os.WriteFile(cache, bytes.ReplaceAll(text, []byte(s.environment["TRUEUP_CONTROLPLANE_SERVER"]), []byte(url)), 0o600))
	return url
}

func TestASignInThatCannotBeIsSaid(t *testing.T) {
	t.Parallel()
	s, cache := signedOut(t, nil)
	code, _, errs := s.run("", "login")
	require.Equal(t, 1, code)
	require.Contains(t, errs, "this control plane has no sign-in with OpenID Connect: use --token-file")
	issuer := issuertest.Start(t)
	issuer.Secret = "the-secret-of-the-client"
	s, _ = signedOut(t, people(t, issuer, "role=reader"))
	code, _, errs = s.run("", "login")
	require.Equal(t, 1, code)
	require.Contains(t, errs, "the client trueup of this control plane has a secret, which a command line cannot keep: use --token-file")
	require.NoFileExists(t, cache)
	issuer = issuertest.Start(t)
	issuer.SetPerson("1", "bob", "others")
	s, cache = signedOut(t, people(t, issuer, "role=reader"))
	code, _, errs = s.login()
	require.Equal(t, 1, code)
	require.Contains(t, errs, "bob has signed in, and has no right here")
	require.NoFileExists(t, cache)
	issuer.SetPerson("2", "alice", "staff")
	code, _, errs = s.loginAt(func(address string) string {
		return regexp.MustCompile(`nonce=[^&]*`).ReplaceAllString(address, "nonce=another")
	})
	require.Equal(t, 1, code)
	require.Contains(t, errs, "the ID token belongs to another sign-in")
	require.NoFileExists(t, cache)
}

// TestAnIssuerThatMisleadsIsNotFollowed has one whose configuration or answers send a person, a code
// or the command line elsewhere.
func TestAnIssuerThatMisleadsIsNotFollowed(t *testing.T) {
	t.Parallel()
	var server *httptest.Server
	var configuration, device map[string]any
	server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		var answer any
		switch r.URL.Path {
		case "/.well-known/openid-configuration":
			answer = configuration
		case "/device":
			answer = device
		default: // a code that the person has not confirmed, and never will
			w.WriteHeader(http.StatusBadRequest)
			answer = map[string]string{"error": "access_denied"}
		}
		assert.NoError(t, json.NewEncoder(w).Encode(answer))
	}))
	t.Cleanup(server.Close)
	of, err := oidcauth.New(oidcauth.Config{Issuer: server.URL, ClientID: issuertest.ClientID, Groups: &tokens.GroupFile{}})
	require.NoError(t, err)
	s, cache := signedOut(t, of)
	for name, test := range map[string]struct {
		configuration, device map[string]any
		args, want            string // want is what the error says
	}{
		"a script": {
			map[string]any{"authorization_endpoint": "javascript:alert(1)"},
			nil,
			"login", `authorization_endpoint of the issuer is "javascript:alert(1)"`,
		},
		"no address": {
			map[string]any{"authorization_endpoint": ""},
			nil,
			"login", `authorization_endpoint of the issuer is ""`,
		},
		"a file": {
			map[string]any{"token_endpoint": "file:///etc/passwd"},
			nil,
			"login", `token_endpoint of the issuer is "file:///etc/passwd"`,
		},
		"a device's file": {
			map[string]any{"device_authorization_endpoint": "file:///x"},
			nil,
			"login --device", `device_authorization_endpoint of the issuer is "file:///x"`,
		},
		"a device's script": {
			nil,
			map[string]any{"verification_uri": "javascript:x"},
			"login --device", `verification_uri of the issuer is "javascript:x"`,
		},
		"an interval below 0": {
			nil,
			map[string]any{"interval": -5},
			"login --device", "access_denied",
		},
		"a revocation elsewhere": {
			map[string]any{"revocation_endpoint": "file:///x"},
			nil,
			"logout", `revocation_endpoint of the issuer is "file:///x"`,
		},
		"no revocation": {nil, nil, "logout", "it has no revocation_endpoint"},
		"a refusal": {
			map[string]any{"revocation_endpoint": server.URL + "/refuse"},
			nil,
			"logout", "it answered 400 Bad Request to the revocation",
		},
		"a name without an end": {
			map[string]any{"issuer": strings.Repeat("x", 1<<20)},
			nil,
			"login", "xxxx",
		},
	} {
		configuration = map[string]any{
			"issuer": server.URL, "jwks_uri": server.URL + "/keys", "authorization_endpoint": server.URL + "/authorize",
			"token_endpoint": server.URL + "/token", "device_authorization_endpoint": server.URL + "/device",
		}
		device = map[string]any{
			"device_code": "x", "user_code": "ABCD", "verification_uri": server.URL + "/activate", "expires_in": 60, "interval": 1,
			"verification_uri_complete": "javascript:y",
		}
		maps.Copy(configuration, test.configuration)
		maps.Copy(device, test.device)
		want := 1
		if test.args == "logout" {
			want = 0
			require.NoError(t, signin.Store{Path: cache}.Put(t.Context(), s.environment["TRUEUP_CONTROLPLANE_SERVER"], signin.Entry{
				Issuer: server.URL, ClientID: issuertest.ClientID, RefreshToken: "of before",
			}))
		}
		code, out, errs := s.run("", test.args)
		require.Equal(t, want, code, name)
		require.Contains(t, errs, test.want, name)
		require.Less(t, len(errs), 1000, name)
		require.NotContains(t, out+errs, "javascript:y", name)
		require.NotContains(t, out+errs, "Open this address", name)
		if test.args == "logout" {
			require.NoError(t, os.Remove(cache))
		}
		require.NoFileExists(t, cache)
	}
}
