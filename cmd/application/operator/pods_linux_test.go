package operator_test

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/internal/test/keycloaktest"
	"github.com/seed-9e1ffd66/trueup/internal/test/podtest"
	"github.com/seed-9e1ffd66/trueup/internal/test/s3test"
)

// live is a cell whose pods run, with an app of ours.
type live struct {
	*bench

	node   *podtest.Node
	logins *http.Client // that reaches the issuer of tokens as pods do
}

// TestAnAppThatRunsUsesWhatItGets runs the program of an app in its pods, with what the
// operator gives it: it writes to its schema, uploads to its bucket, reads by way of the
// anonymous role what PostgREST would show, and checks the token of a user that has logged in.
// PostgREST itself is not here: a program of ours uses its settings.
func TestAnAppThatRunsUsesWhatItGets(t *testing.T) {
	if testing.Short() {
		t.Skip("long: pods that run")
	}
	t.Parallel()
	l := newLive(t)
	l.cloud()
	l.app("live", liveSpec)
	l.phase("live", "Running")
	token := l.login("live")
	for round := 1; round <= 2; round++ {
		require.Equal(t, map[string]string{
			"variables": "hi", "database": "prod_live_app in prod_live: " + strconv.Itoa(round),
			"rest": `[` + strings.Repeat(`"hello",`, round-1) + `"hello"]`, "storage": "5 bytes in plattr-prod-live-files",
			"login": "ann", "root": "user 65532, may write to /etc: false",
		}, l.check(token))
	}

	for name, scenario := range map[string]func(*live){
		"rotates": rotates, "image": imageThatCannotBePulled, "secret": secretThatIsMissing, "crash": appThatCrashes,
		"preview": previewThatRuns, "migrates": migrationsThatRun,
	} {
		t.Run(name, func(t *testing.T) {
			scenario(&live{l.cell.bench(t, "live-"+name), l.node, l.logins})
		})
	}
}

const liveSpec = `, imageRef: 'app:1', scaling: {min: 1}, database: {enabled: true}, storage: {enabled: true,
  buckets: [{name: files}]}, auth: {enabled: true},
  envVars: [{name: AWS_ACCESS_KEY_ID, secretKeyRef: {name: cloud, key: user}}, {name: AWS_SECRET_ACCESS_KEY,
  secretKeyRef: {name: cloud, key: key}}, {name: GREETING, secretKeyRef: {name: cloud, key: greeting}}]`

// cloud makes the Secret that liveSpec names.
func (l *live) cloud() {
	l.Helper()
	l.in("create", "secret", "generic", "cloud", "--from-literal=user="+s3test.AccessKey, "--from-literal=key="+s3test.SecretKey,
		"--from-literal=greeting=hi")
}

func newLive(t *testing.T) *live {
	t.Helper()
	dir := t.TempDir()
	build := exec.CommandContext(t.Context(), "go", "build", "-ldflags=-w", "-o", filepath.Join(dir, "app"), "./testdata/app")
	build.Env = append(os.Environ(), "CGO_ENABLED=0") // it has no libraries in its image
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)

	c := newCellOf(t, 0, keycloaktest.Borrow(t))
	front := httptest.NewUnstartedServer(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		to, err := url.Parse(c.settings.KeycloakURL)
		require.NoError(t, err)
		r.SetURL(to)
		r.SetXForwarded()
		r.Out.Host = r.In.Host
	}})
	certificates := filepath.Join(dir, "certificates.pem")
	app := podtest.Image{
		Files:      map[string]string{"/app": filepath.Join(dir, "app"), "/etc/ssl/certs/ca-certificates.crt": certificates},
		Entrypoint: []string{"/app"}, User: 65532,
	}
	rest := podtest.Image{Files: app.Files, Entrypoint: []string{"/app", "rest"}}
	hosts := map[string]string{}
	node := podtest.Start(t, c.cluster, podtest.Options{
		Images: map[string]podtest.Image{"app:1": app, "app:3": app, "postgrest/postgrest:v12.2.3": rest}, Hosts: hosts,
	})
	hosts["auth.example.com"] = node.Address()
	front.Listener, err = (&net.ListenConfig{}).Listen(t.Context(), "tcp", node.Address()+":443")
	require.NoError(t, err)
	front.StartTLS()
	t.Cleanup(front.Close)
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: front.Certificate().Raw})
	require.NoError(t, os.WriteFile(certificates, authority, 0o600))
	require.NoError(t, os.Chmod(certificates, 0o644))

	// What the operator tells its apps is where pods reach it.
	for _, address := range []*string{&c.settings.DatabaseURL, &c.settings.S3Endpoint} {
		at, err := url.Parse(*address)
		require.NoError(t, err)
		port, err := strconv.Atoi(at.Port())
		require.NoError(t, err)
		node.Forward(t, port)
		*address = strings.Replace(*address, "127.0.0.1", node.Address(), 1)
	}
	c.start(t)
	roots := x509.NewCertPool()
	roots.AddCert(front.Certificate())
	jar, err := cookiejar.New(nil)
	require.NoError(t, err)
	logins := &http.Client{
		Jar:           jar,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			TLSClientConfig: &tls.Config{RootCAs: roots},
			DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
				return (&net.Dialer{}).DialContext(ctx, network, node.Address()+":443")
			},
		},
	}
	return &live{c.bench(t, "live"), node, logins}
}

// pod returns the name and the address of the one pod that is ready.
func (l *live) pod() (name, address string) {
	l.Helper()
	pods := func(output string) string {
		return l.in("get", "pods", "-l", "platform.internal/environment", "-o", output)
	}
	l.eventually("one pod is there", func() bool { return len(strings.Fields(pods("name"))) == 1 })
	name, address, _ = strings.Cut(pods("jsonpath={.items[0].metadata.name} {.items[0].status.podIP}"), " ")
	return name, address
}

// check has the app use everything.
func (l *live) check(token string) map[string]string {
	l.Helper()
	_, address := l.pod()
	request, err := http.NewRequestWithContext(l.Context(), http.MethodGet, "http://"+address+":3000/check", http.NoBody)
	require.NoError(l, err)
	request.Header.Set("Authorization", "Bearer "+token)
	response, err := http.DefaultClient.Do(request)
	require.NoError(l, err)
	defer response.Body.Close()
	var seen map[string]string
	require.NoError(l, json.NewDecoder(response.Body).Decode(&seen))
	seen["rest"] = strings.TrimSpace(seen["rest"])
	return seen
}

// login makes a user in the realm of an app, and logs in as a browser does, by a code.
func (l *live) login(app string) (token string) {
	l.Helper()
	require.Equal(l, http.StatusCreated, l.keycloak(http.MethodPost, "/"+app+"/users", map[string]any{
		"username": "ann", "enabled": true, "email": "ann@example.com", "emailVerified": true, "firstName": "Ann", "lastName": "A",
		"credentials": []any{map[string]any{"type": "password", "value": "ann's-password"}},
	}, nil))
	issuer := l.get("cm", app+"-auth", ".data.AUTH_ISSUER_URL")
	client := l.get("cm", app+"-auth", ".data.AUTH_CLIENT_ID")
	var known []struct {
		RedirectURIs []string `json:"redirectUris"`
	}
	require.Equal(l, http.StatusOK, l.keycloak(http.MethodGet, "/"+app+"/clients?clientId="+client, nil, &known))
	require.NotEmpty(l, known[0].RedirectURIs)
	back := strings.TrimSuffix(known[0].RedirectURIs[0], "*")
	const verifier = "a-verifier-of-at-least-forty-three-characters"
	challenge := sha256.Sum256([]byte(verifier))
	page := l.send(http.MethodGet, issuer+"/protocol/openid-connect/auth?"+url.Values{
		"client_id": {client}, "redirect_uri": {back}, "response_type": {"code"}, "scope": {"openid"},
		"code_challenge": {base64.RawURLEncoding.EncodeToString(challenge[:])}, "code_challenge_method": {"S256"},
	}.Encode(), nil, http.StatusOK)
	action := regexp.MustCompile(`action="([^"]+)"`).FindStringSubmatch(page)
	require.NotNil(l, action, "%s", page)
	user := url.Values{"username": {"ann"}, "password": {"ann's-password"}}
	to := l.send(http.MethodPost, strings.ReplaceAll(action[1], "&amp;", "&"), user, http.StatusFound)
	location, err := url.Parse(to)
	require.NoError(l, err)
	require.Contains(l, to, back)
	answer := l.send(http.MethodPost, issuer+"/protocol/openid-connect/token", url.Values{
		"grant_type": {"authorization_code"}, "client_id": {client}, "redirect_uri": {back}, "code": {location.Query().Get("code")},
		"code_verifier": {verifier},
	}, http.StatusOK)
	var tokens struct {
		Access string `json:"access_token"`
	}
	require.NoError(l, json.Unmarshal([]byte(answer), &tokens))
	return tokens.Access
}

// send sends a form, and returns the answer, or where it leads to.
func (l *live) send(method, to string, form url.Values, want int) string {
	l.Helper()
	request, err := http.NewRequestWithContext(l.Context(), method, to, strings.NewReader(form.Encode()))
	require.NoError(l, err)
	if form != nil {
		request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	response, err := l.logins.Do(request)
	require.NoError(l, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	require.NoError(l, err)
	require.Equal(l, want, response.StatusCode, "%s", text)
	if want == http.StatusFound {
		return response.Header.Get("Location")
	}
	return string(text)
}

// database returns what the app of the namespace has got of its database.
func (l *live) database() string { return l.check("")["database"] }

// because waits until the application says why it is not ready.
func (l *live) because(name, reason, words string) {
	l.Helper()
	l.eventually(name+" says "+reason, func() bool {
		return l.condition(name, "Ready", "reason") == reason && strings.Contains(l.condition(name, "Ready", "message"), words)
	})
}

// rotates is C2 for an app that runs: its new pod logs in with the new password.
func rotates(l *live) {
	l.app("turn", ", imageRef: 'app:1', scaling: {min: 1}, database: {enabled: true}")
	l.phase("turn", "Running")
	require.Equal(l, "prod_turn_app in prod_turn: 1", l.database())
	before, _ := l.pod()
	l.in("annotate", "app", "turn", "platform.internal/rotate=1")
	l.eventually("another pod alone is there", func() bool { name, _ := l.pod(); return name != before })
	l.phase("turn", "Running")
	require.Equal(l, "prod_turn_app in prod_turn: 2", l.database())
}

// imageThatCannotBePulled leaves the pod of before, which serves, and is said.
func imageThatCannotBePulled(l *live) {
	l.app("pull", ", imageRef: 'app:1', scaling: {min: 1}")
	l.phase("pull", "Running")
	old, address := l.pod()
	l.app("pull", ", imageRef: 'app:2', scaling: {min: 1}")
	l.because("pull", "ImagePull", "app:2")
	require.Equal(l, "true", l.get("pod", old, ".status.containerStatuses[0].ready"))
	response, err := http.Get("http://" + address + ":3000/healthz") //nolint:noctx // a test
	require.NoError(l, err)
	require.NoError(l, response.Body.Close())
	l.app("pull", ", imageRef: 'app:1', scaling: {min: 1}")
	l.phase("pull", "Running")
}

// secretThatIsMissing is named until it comes.
func secretThatIsMissing(l *live) {
	l.app("lacks", ", imageRef: 'app:1', scaling: {min: 1}, envVars: [{name: GREETING, secretKeyRef: {name: later, key: k}}]")
	l.because("lacks", "ContainerConfig", `secret "later" not found`)
	l.in("create", "secret", "generic", "later", "--from-literal=k=v")
	l.phase("lacks", "Running")
	require.Equal(l, "v", l.check("")["variables"])
}

// appThatCrashes says so with its own last words.
func appThatCrashes(l *live) {
	l.app("falls", ", imageRef: 'app:1', scaling: {min: 1}, command: [/app, fail]")
	l.because("falls", "CrashLoop", "exit code 1")
}

// previewThatRuns has a schema, a bucket and a copy of the parent's variables of its own.
func previewThatRuns(l *live) {
	l.cloud()
	l.app("paint", liveSpec+", previews: {secrets: true}")
	l.phase("paint", "Running")
	l.preview("paint-7", "paint", 7, "")
	l.eventually("the preview runs", func() bool { return l.get("preview", "paint-7", ".status.phase") == "Running" })
	in := *l.bench
	in.name = l.in("get", "preview", "paint-7", "-o", "jsonpath={.status.namespace}")
	seen := (&live{&in, l.node, l.logins}).check("")
	require.Equal(l, "paint_pr7_app in paint_pr7: 1", seen["database"])
	require.Equal(l, `["hello"]`, seen["rest"])
	require.Equal(l, "hi", seen["variables"])
	require.Equal(l, "5 bytes in plattr-preview-paint-pr7-files", seen["storage"])
}

// migrationsThatRun make the table before the app's pod starts, once. Those of another image fail, for
// the table is there: the pod of before stays.
func migrationsThatRun(l *live) {
	const spec = ", scaling: {min: 1}, database: {enabled: true, migrations: {command: [/app, migrate]}}"
	l.app("moves", ", imageRef: 'app:1'"+spec)
	l.phase("moves", "Running")
	require.Equal(l, "prod_moves_app in prod_moves: 1", l.database())
	l.app("moves", ", imageRef: 'app:3'"+spec)
	l.because("moves", "MigrationFailed", "exit code 1")
	require.Equal(l, "Failed", l.get("app", "moves", ".status.phase"))
	require.Equal(l, "app:1", l.get("deployment", "moves", ".spec.template.spec.containers[0].image"))
	require.Equal(l, "prod_moves_app in prod_moves: 2", l.database())
	l.app("moves", ", imageRef: 'app:1'"+spec)
	l.phase("moves", "Running")
	require.Len(l, strings.Fields(l.in("get", "jobs", "-o", "name")), 1, "what was migrated is not migrated again")
}
