package main_test

import (
	"bufio"
	"encoding/json"
	"html"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/edge/oidcauth/issuertest"
	"github.com/seed-9e1ffd66/trueup/internal/test/await"
	"github.com/seed-9e1ffd66/trueup/internal/test/keycloaktest"
	processtest "github.com/seed-9e1ffd66/trueup/internal/test/process"
)

func TestASignInThatIsHalfSetIsAWrongCall(t *testing.T) {
	t.Parallel()
	program := binary(t)
	groups, token := writeFile(t, "role=reader staff\n"), writeFile(t, adminToken)
	all := map[string]string{
		"--oidc-issuer": "https://login.example.com", "--oidc-client-id": "trueup", "--oidc-groups-file": groups,
		"--external-url": "https://control.example.com",
	}
	for name, test := range map[string]struct {
		other map[string]string
		want  string
	}{
		"a client with a line feed": {
			map[string]string{"--oidc-client-id": "true up\n"},
			`--oidc-client-id: is "true up\n", must be the id of the client at the issuer, without spaces`,
		},
		"no client": {
			map[string]string{"--oidc-client-id": ""},
			"--oidc-client-id: is not set, must be the id of the client at the issuer with --oidc-issuer",
		},
		"no groups": {
			map[string]string{"--oidc-groups-file": ""},
			"--oidc-groups-file: is not set, must be a file with the roles of groups with --oidc-issuer",
		},
		"no address": {
			map[string]string{"--external-url": ""},
			"--external-url: is not set, must be the URL where browsers reach this program",
		},
		"no issuer": {map[string]string{"--oidc-issuer": ""}, ", must be unset without --oidc-issuer"},
		"plain issuer": {
			map[string]string{"--oidc-issuer": "http://login.example.com"},
			`--oidc-issuer: is "http://login.example.com", must be a URL of https, or of http on this machine`,
		},
		"no URL":        {map[string]string{"--oidc-issuer": "login.example.com"}, "--oidc-issuer: is"},
		"plain address": {map[string]string{"--external-url": "http://control.example.com"}, "--external-url: is"},
		"a path":        {map[string]string{"--external-url": "https://control.example.com/status"}, "--external-url: is"},
		"groups, wrong": {map[string]string{"--oidc-groups-file": token}, "--oidc-groups-file: line 1 of " + token + ": it has no role"},
		"groups, missing": {
			map[string]string{"--oidc-groups-file": "/none"},
			"--oidc-groups-file: is \"/none\", must be a file that can be read",
		},
		"no secret":    {map[string]string{"--oidc-client-secret-file": "/none"}, "--oidc-client-secret-file: is"},
		"no authority": {map[string]string{"--oidc-ca-file": token}, "--oidc-ca-file: is"},
		"authority, missing": {
			map[string]string{"--oidc-ca-file": "/none"},
			"--oidc-ca-file: is \"/none\", must be a file that can be read: no such file",
		},
		"no claim": {map[string]string{"--oidc-username-claim": ""}, `--oidc-username-claim: is "", must be the name of a claim`},
	} {
		args := []string{
			"--listen", "127.0.0.1:0", "--metrics-bind-address", "", "--admin-token-file", token,
			"--database", filepath.Join(t.TempDir(), "db"),
		}
		for flag, value := range all {
			if other, ok := test.other[flag]; ok {
				value = other
			}
			if value != "" {
				args = append(args, flag, value)
			}
		}
		for flag, value := range test.other {
			if _, ok := all[flag]; !ok {
				args = append(args, flag, value)
			}
		}
		got := execute(t, program, nil, args...)
		require.Equal(t, 2, got.code, "%s: %s", name, got.stderr)
		require.Contains(t, got.stderr, test.want, name)
	}
}

// TestAnIssuerThatIsAwayAtTheStartStopsNothing starts the program without the issuer.
func TestAnIssuerThatIsAwayAtTheStartStopsNothing(t *testing.T) {
	t.Parallel()
	issuer := issuertest.Start(t)
	issuer.SetPerson("1", "alice", "staff")
	issuer.SetAway(true)
	p := serveProcess(t, binary(t), "--listen", "127.0.0.1:0", "--metrics-bind-address", "127.0.0.1:0",
		"--database", filepath.Join(t.TempDir(), "db"), "--admin-token-file", writeFile(t, adminToken), "--second-person", "new-epoch",
		"--oidc-issuer", issuer.URL, "--oidc-client-id", issuertest.ClientID, "--oidc-groups-file", writeFile(t, "role=reader staff\n"),
		"--external-url", "http://127.0.0.1:1")
	me := "http://" + p.address + "/api/v1/admin/me"
	status, _ := request(t, http.DefaultClient, http.MethodGet, me, adminToken, "")
	require.Equal(t, http.StatusOK, status)
	token := issuer.Token(nil)
	status, body := request(t, http.DefaultClient, http.MethodGet, me, token, "")
	require.Equal(t, http.StatusServiceUnavailable, status)
	require.Contains(t, body, "issuer_unavailable")
	issuer.SetAway(false)
	await.Eventually(t, "the issuer is asked again", func() bool {
		status, body = request(t, http.DefaultClient, http.MethodGet, me, token, "")
		return status == http.StatusOK
	})
	require.Contains(t, body, `"actor":"oidc/alice"`)
	require.NoError(t, p.command.Process.Kill())
	log := (<-p.ended).stderr
	require.Contains(t, log, "keys of the issuer not fetched")
	require.NotContains(t, log, token)
}

// person is a browser of a person with an account at Keycloak.
type person struct {
	t              *testing.T
	name, password string
	client         *http.Client
}

func newPerson(t *testing.T, name string) *person {
	t.Helper()
	jar, err := cookiejar.New(nil)
	require.NoError(t, err)
	return &person{t, name, "the-password-of-" + name, &http.Client{Jar: jar}}
}

func (p *person) read(response *http.Response, err error) (int, string) {
	p.t.Helper()
	require.NoError(p.t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	require.NoError(p.t, err)
	return response.StatusCode, string(text)
}

var (
	actionPattern = regexp.MustCompile(`<form[^>]* action="([^"]+)"`)
	hiddenPattern = regexp.MustCompile(`<input[^>]*type="hidden"[^>]*>`)
	fieldPattern  = regexp.MustCompile(`(name|value)="([^"]*)"`)
)

// visit opens a page, and fills in the forms of Keycloak until there are no more.
func (p *person) visit(address string) (int, string) {
	p.t.Helper()
	status, page := p.read(p.client.Get(address)) //nolint:noctx // a test
	for range 5 {
		form := actionPattern.FindStringSubmatch(page)
		if status != http.StatusOK || form == nil || !strings.Contains(form[1], "/realms/company/") {
			break
		}
		fields := url.Values{"username": {p.name}, "password": {p.password}, "accept": {"Yes"}}
		for _, input := range hiddenPattern.FindAllString(page, -1) {
			field := map[string]string{}
			for _, part := range fieldPattern.FindAllStringSubmatch(input, -1) {
				field[part[1]] = html.UnescapeString(part[2])
			}
			fields.Set(field["name"], field["value"])
		}
		to := html.UnescapeString(form[1])
		if strings.HasPrefix(to, "/") {
			at, err := url.Parse(address)
			require.NoError(p.t, err)
			to = at.Scheme + "://" + at.Host + to
		}
		status, page = p.read(p.client.PostForm(to, fields)) //nolint:noctx // as above
	}
	return status, page
}

// realm makes a realm with two people and a public client, and returns its issuer.
func realm(t *testing.T, k *keycloaktest.Server, redirect string) string {
	t.Helper()
	type object = map[string]any
	user := func(name string, groups ...string) object {
		return object{
			"username": name, "enabled": true, "email": name + "@example.com", "emailVerified": true, "firstName": name, "lastName": "Example",
			"credentials": []object{{"type": "password", "value": "the-password-of-" + name}}, "groups": groups,
		}
	}
	require.NoError(t, k.Ask(t.Context(), http.MethodPost, "", object{
		"realm": "company", "enabled": true, "accessTokenLifespan": 25, "groups": []object{{"name": "on call"}, {"name": "staff"}},
		"users": []object{user("alice", "/on call", "/staff"), user("bob", "/staff"), user("carol")},
		"clients": []object{{
			"clientId": "trueup", "publicClient": true, "standardFlowEnabled": true, "redirectUris": []string{redirect, "http://127.0.0.1/callback"},
			"attributes": object{"oauth2.device.authorization.grant.enabled": "true", "pkce.code.challenge.method": "S256"},
			"protocolMappers": []object{{
				"name": "groups", "protocol": "openid-connect", "protocolMapper": "oidc-group-membership-mapper",
				"config": object{"claim.name": "groups", "full.path": "false", "id.token.claim": "true"},
			}},
		}},
	}, nil))
	return k.URL + "/realms/company"
}

// TestPeopleSignInWithKeycloak signs in with a real issuer by the page, and by both ways of the
// command line.
func TestPeopleSignInWithKeycloak(t *testing.T) {
	if testing.Short() {
		t.Skip("long: half a minute with Keycloak")
	}
	t.Parallel()
	k := keycloaktest.Borrow(t)
	port, err := processtest.Port(t.Context())
	require.NoError(t, err)
	address := "127.0.0.1:" + strconv.Itoa(port)
	base := "http://" + address
	program, groups := binary(t), writeFile(t, "role=administrator on call\nrole=reader staff\n")
	issuer := realm(t, k, base+"/status/sso/callback")
	p := serveProcess(t, program, "--listen", address, "--metrics-bind-address", "127.0.0.1:0",
		"--database", filepath.Join(t.TempDir(), "db"), "--admin-token-file", writeFile(t, adminToken),
		"--oidc-issuer", issuer, "--oidc-client-id", "trueup", "--oidc-groups-file", groups, "--external-url", base)

	// The page.
	alice := newPerson(t, "alice")
	status, page := alice.visit(base + "/status/sso")
	require.Equal(t, http.StatusOK, status, page)
	require.Contains(t, page, "Signed in as alice.")
	status, page = alice.visit(base + "/status")
	require.Equal(t, http.StatusOK, status)
	require.Contains(t, page, "Last changes")
	status, page = newPerson(t, "carol").visit(base + "/status/sso")
	require.Equal(t, http.StatusForbidden, status)
	require.Contains(t, page, "carol has signed in, and has no right here")

	// The command line, in a browser and on another device.
	cache := filepath.Join(t.TempDir(), "sign-ins.json")
	settings := []string{"--server", base, "--token-cache", cache}
	run := func(words ...string) outcome { return execute(t, program, nil, append(words, settings...)...) }
	require.Contains(t, login(t, program, settings, newPerson(t, "alice")),
		"as oidc/alice, with the role administrator, which may change everything.")
	require.Contains(t, run("whoami").stdout, "role: administrator")
	created := run("put", "region", "eu", "-f", writeFile(t, `{"name":"eu-1","platform":"aws"}`))
	require.Zero(t, created.code, created.stderr)
	require.Contains(t, run("list", "audit").stdout, "oidc/alice")
	require.Contains(t, login(t, program, append(settings, "--device"), newPerson(t, "bob")),
		"as oidc/bob, with the role reader, which may change nothing.")
	refused := run("delete", "region", "eu")
	require.Equal(t, 1, refused.code)
	require.Contains(t, refused.stderr, "oidc/bob has the role reader and may change nothing")

	// The token ends, and the command gets another one.
	first := idToken(t, cache)
	await.Eventually(t, "the token has expired", func() bool {
		status, page = request(t, http.DefaultClient, http.MethodGet, base+"/api/v1/admin/me", first, "")
		return status == http.StatusUnauthorized
	})
	require.Contains(t, page, "token_expired")
	shown := run("whoami")
	require.Zero(t, shown.code, shown.stderr)
	require.Contains(t, shown.stdout, "actor: oidc/bob")
	require.NotEqual(t, first, idToken(t, cache))

	// A group that is removed from the file ends the rights.
	require.NoError(t, os.WriteFile(groups, []byte("role=reader on call\n"), 0o600))
	await.Eventually(t, "bob has no right", func() bool { return strings.Contains(run("whoami").stderr, "no_role") })
	status, page = alice.visit(base + "/status")
	require.Equal(t, http.StatusOK, status)
	require.NoError(t, os.WriteFile(groups, []byte("role=reader others\n"), 0o600))
	await.Eventually(t, "alice has no session", func() bool {
		_, page = alice.visit(base + "/status")
		return strings.Contains(page, "Sign in with SSO")
	})
	ended := run("logout")
	require.Zero(t, ended.code)
	require.NotContains(t, ended.stderr, "not revoked")
	require.NoError(t, p.command.Process.Kill())
	log := (<-p.ended).stderr
	require.NotContains(t, log, first)
	require.NotContains(t, log, "the-password-of")
}

// login runs the command login, has the person open the addresses that it prints, and returns
// what it prints in the end.
func login(t *testing.T, program string, settings []string, who *person) string {
	t.Helper()
	command := exec.CommandContext(t.Context(), program, append([]string{"login"}, settings...)...)
	command.Env, command.Dir = []string{}, t.TempDir()
	var out strings.Builder
	command.Stdout = &out
	stderr, err := command.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, command.Start())
	var said strings.Builder
	lines := bufio.NewScanner(stderr)
	for lines.Scan() {
		said.WriteString(lines.Text() + "\n")
		address := strings.TrimPrefix(lines.Text(), "This address has the code already: ")
		if strings.HasPrefix(address, "http") {
			status, page := who.visit(address)
			require.Equal(t, http.StatusOK, status, page)
		}
	}
	require.NoError(t, command.Wait(), said.String())
	return out.String()
}

// idToken returns the token in a file of sign-ins.
func idToken(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	var all map[string]struct {
		IDToken   string    `json:"id_token"`
		ExpiresAt time.Time `json:"expires_at"`
	}
	require.NoError(t, json.Unmarshal(text, &all))
	require.Len(t, all, 1)
	for _, entry := range all {
		require.NotZero(t, entry.ExpiresAt)
		return entry.IDToken
	}
	return ""
}
