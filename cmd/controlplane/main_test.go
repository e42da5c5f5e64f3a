package main_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/internal/test/programs"
)

const (
	adminToken = "the-admin-token-of-the-tests"
	clusterID  = "aaaaaaaa-0000-4000-8000-000000000001"
	otherID    = "aaaaaaaa-0000-4000-8000-000000000002"
)

// binary returns the path of the program.
func binary(tb testing.TB) string {
	tb.Helper()
	return programs.Path(tb, "controlplane")
}

// outcome is how a process ended.
type outcome struct {
	code           int
	stdout, stderr string
}

func execute(t *testing.T, binary string, env []string, args ...string) outcome {
	t.Helper()
	var stdout, stderr bytes.Buffer
	command := exec.CommandContext(t.Context(), binary, args...)
	command.Env, command.Dir = env, t.TempDir()
	command.Stdout, command.Stderr = &stdout, &stderr
	err := command.Run()
	var exit *exec.ExitError
	if err != nil {
		require.True(t, errors.As(err, &exit), "%v", err)
	}
	return outcome{command.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

// process is the program while it serves.
type process struct {
	command *exec.Cmd
	address string
	metrics string
	ended   chan outcome
}

func serveProcess(tb testing.TB, binary string, args ...string) *process {
	tb.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	tb.Cleanup(cancel)
	command := exec.CommandContext(ctx, binary, args...)
	command.Env, command.Dir = []string{}, tb.TempDir()
	out, err := command.StdoutPipe()
	require.NoError(tb, err)
	command.Stderr = command.Stdout
	require.NoError(tb, command.Start())
	p := &process{command: command, ended: make(chan outcome, 1)}
	found := make(chan struct{})
	go func() {
		var log strings.Builder
		told := false
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			log.WriteString(lines.Text() + "\n")
			var line struct{ Msg, For, Address string }
			if json.Unmarshal(lines.Bytes(), &line) != nil || line.Msg != "listening" {
				continue
			}
			switch line.For {
			case "api":
				p.address = line.Address
			case "metrics":
				p.metrics = line.Address
			}
			if p.address != "" && p.metrics != "" && !told {
				told = true
				close(found)
			}
		}
		_ = command.Wait()
		p.ended <- outcome{code: command.ProcessState.ExitCode(), stderr: log.String()}
	}()
	select {
	case <-found:
		return p
	case end := <-p.ended:
		tb.Fatalf("ended with %d: %s", end.code, end.stderr)
	case <-time.After(30 * time.Second):
		tb.Fatal("does not listen")
	}
	return nil
}

func request(tb testing.TB, client *http.Client, method, url, token, body string) (int, string) {
	tb.Helper()
	r, err := http.NewRequestWithContext(tb.Context(), method, url, strings.NewReader(body))
	require.NoError(tb, err)
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set("Content-Type", "application/json")
	response, err := client.Do(r)
	require.NoError(tb, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	require.NoError(tb, err)
	return response.StatusCode, string(text)
}

func writeFile(tb testing.TB, content string) string {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), "file")
	require.NoError(tb, os.WriteFile(path, []byte(content), 0o600))
	return path
}

func TestTheProgramSaysWhatItIs(t *testing.T) {
	program := binary(t)
	help := execute(t, program, nil, "--help")
	require.Zero(t, help.code)
	for _, flag := range []string{"--listen", "--metrics-bind-address", "--database", "--admin-token-file", "--tls-cert-file", "--tls-private-key-file", "--log-level", "--snapshot-retention", "--usage-retention", "version", "manifests"} {
		require.Contains(t, help.stdout, flag)
	}
	version := execute(t, program, nil, "version")
	require.Zero(t, version.code)
	require.Contains(t, version.stdout, "go1.")

	printed := execute(t, program, nil, "manifests", "--namespace", "elsewhere", "--image", "registry.example.com/cp:1")
	require.Zero(t, printed.code, printed.stderr)
	var kinds []string
	for document := range strings.SplitSeq(printed.stdout, "\n---\n") {
		require.YAMLEq(t, document, document)
		for line := range strings.Lines(document) {
			if kind, ok := strings.CutPrefix(line, "kind: "); ok {
				kinds = append(kinds, strings.TrimSpace(kind))
			}
		}
	}
	require.Equal(t, []string{"Namespace", "ServiceAccount", "PersistentVolumeClaim", "Deployment", "Service", "NetworkPolicy"}, kinds)
	for _, part := range []string{"runAsNonRoot: true", "readinessProbe:", "livenessProbe:", "image: registry.example.com/cp:1", "namespace: elsewhere"} {
		require.Contains(t, printed.stdout, part)
	}
}

func TestAWrongFlagOrVariableEndsWithCodeTwoAndOneLineNamingIt(t *testing.T) {
	program := binary(t)
	token, short := writeFile(t, adminToken), writeFile(t, "short\n")
	for name, test := range map[string]struct {
		env, args []string
		says      string
	}{
		"no admin token":            {nil, nil, "--admin-token-file: is not set, must be a file"},
		"no token file":             {nil, []string{"--admin-token-file", "/nowhere"}, `--admin-token-file: is "/nowhere", must be a file that can be read: no such file or directory`},
		"a short token":             {nil, []string{"--admin-token-file", short}, "5 bytes"},
		"a weak token":              {nil, []string{"--admin-token-file", writeFile(t, strings.Repeat("0", 40))}, "is weak"},
		"a short token by env":      {[]string{"TRUEUP_CONTROLPLANE_ADMIN_TOKEN_FILE=" + short}, nil, "TRUEUP_CONTROLPLANE_ADMIN_TOKEN_FILE: "},
		"a token of two words":      {nil, []string{"--admin-token-file", writeFile(t, adminToken+" "+adminToken)}, "spaces"},
		"an unknown flag":           {nil, []string{"--colour"}, "--colour"},
		"an unknown command":        {nil, []string{"dance"}, `"dance"`},
		"an argument too many":      {nil, []string{"version", "please"}, `"please"`},
		"a retention of sums":       {nil, []string{"--usage-retention", "71h"}, "--usage-retention: is 71h0m0s, must be at least 72h0m0s"},
		"a retention":               {nil, []string{"--snapshot-retention", "47h"}, "--snapshot-retention: is 47h0m0s, must be at least 48h0m0s"},
		"a log level":               {nil, []string{"--log-level", "loud"}, "--log-level"},
		"a log level by env":        {[]string{"TRUEUP_CONTROLPLANE_LOG_LEVEL=loud"}, nil, "TRUEUP_CONTROLPLANE_LOG_LEVEL"},
		"a URL of PostgreSQL":       {nil, []string{"--database", "postgres://user:pass-word@host:port/db", "--admin-token-file", token}, "the name of the database is not valid"},
		"another database":          {nil, []string{"--database", "mysql://user:pass-word@host/db", "--admin-token-file", token}, "--database"},
		"a database nowhere":        {nil, []string{"--database", "/none/db", "--admin-token-file", token}, `--database: is "/none/db", must be a file, in a folder that exists: no such file or directory`},
		"a folder as database":      {nil, []string{"--database", "/", "--admin-token-file", token}, `--database: is "/", must be a file, in a folder that exists: is a directory`},
		"a database in a file":      {nil, []string{"--database", token + "/db", "--admin-token-file", token}, "must be a file, in a folder that exists: not a directory"},
		"keys nowhere":              {nil, []string{"--var-group-keys-file", "/none", "--admin-token-file", token}, `--var-group-keys-file: is "/none", must be a file that can be read: no such file or directory`},
		"a certificate nowhere":     {nil, []string{"--tls-cert-file", "/none", "--tls-private-key-file", "/none", "--admin-token-file", token}, `--tls-cert-file: is "/none", must be a file that can be read: no such file or directory`},
		"an address twice":          {nil, []string{"--listen", ":8080", "--metrics-bind-address", "[::]:8080"}, `--metrics-bind-address: is "[::]:8080", must be another address`},
		"an address":                {nil, []string{"--listen", "8080"}, "--listen"},
		"a metrics address":         {nil, []string{"--metrics-bind-address", "localhost"}, "--metrics-bind-address"},
		"a certificate alone":       {nil, []string{"--admin-token-file", token, "--tls-cert-file", token}, "--tls-private-key-file"},
		"a key alone":               {nil, []string{"--admin-token-file", token, "--tls-private-key-file", token}, "--tls-cert-file"},
		"a certificate that's no":   {nil, []string{"--admin-token-file", token, "--tls-cert-file", token, "--tls-private-key-file", token}, "--tls-cert-file"},
		"keys that are none":        {nil, []string{"--admin-token-file", token, "--var-group-keys-file", writeFile(t, "one pass-word\n")}, "line 1: the key is not 32 bytes"},
		"keys by env":               {[]string{"TRUEUP_CONTROLPLANE_VAR_GROUP_KEYS=pass-word"}, []string{"--admin-token-file", token}, "TRUEUP_CONTROLPLANE_VAR_GROUP_KEYS: line 1"},
		"keys twice":                {[]string{"TRUEUP_CONTROLPLANE_VAR_GROUP_KEYS=x"}, []string{"--admin-token-file", token, "--var-group-keys-file", token}, "--var-group-keys-file: is set beside TRUEUP_CONTROLPLANE_VAR_GROUP_KEYS"},
		"a role":                    {nil, []string{"--admin-token-file", writeFile(t, "role=boss "+adminToken)}, `line 1 of `},
		"two people of what":        {nil, []string{"--admin-token-file", token, "--second-person", "delete"}, `--second-person: is "delete", must be some of allow-mass-delete, new-epoch, abandon`},
		"two people of one":         {nil, []string{"--admin-token-file", token, "--second-person", "abandon"}, "needs two administrators with names in --admin-token-file, which has 0"},
		"two people, one expired":   {nil, []string{"--admin-token-file", writeFile(t, "name=a "+adminToken+"\nname=b expires=2020-01-01 9b1c6f0e2d7a48538c4e17f6a0d3b592"), "--second-person", "abandon"}, "which has 1"},
		"two people, one reader":    {nil, []string{"--admin-token-file", writeFile(t, "name=a "+adminToken+"\nname=b role=reader 9b1c6f0e2d7a48538c4e17f6a0d3b592"), "--second-person", "abandon"}, "which has 1"},
		"manifests of nonsense":     {nil, []string{"manifests", "--namespace", "a: b"}, "--namespace"},
		"manifests, two on a file":  {nil, []string{"manifests", "--replicas", "2"}, "--replicas: is 2, must be 1 without --database-secret"},
		"manifests, too many":       {nil, []string{"manifests", "--database-secret", "a", "--replicas", "101"}, "--replicas: is 101, must be 1 to 100"},
		"manifests, less than one":  {nil, []string{"manifests", "--database-secret", "a", "--replicas", "-1"}, "--replicas: is -1, must be 1 to 100"},
		"manifests, no hostname":    {nil, []string{"manifests", "--gateway", "a/b"}, "--hostname: is not set, must be set with --gateway"},
		"manifests, no gateway":     {nil, []string{"manifests", "--hostname", "a.b"}, "--gateway: is not set, must be set with --hostname"},
		"manifests, TLS twice":      {nil, []string{"manifests", "--gateway", "a/b", "--hostname", "a.b", "--tls-secret", "c"}, "--tls-secret: is set beside --gateway"},
		"manifests, half a sign-in": {nil, []string{"manifests", "--oidc-issuer", "https://a.b", "--external-url", "https://c.d"}, "--oidc-client-id: is not set"},
		"manifests, no issuer":      {nil, []string{"manifests", "--oidc-client-id", "a"}, `--oidc-client-id: is "a", must be unset without --oidc-issuer`},
		"manifests, plain issuer": {
			nil, []string{"manifests", "--oidc-issuer", "http://127.0.0.1", "--external-url", "https://c.d"}, `--oidc-issuer: is "http://127.0.0.1", must be`,
		},
		"manifests, no sign-in at all": {
			nil, []string{"manifests", "--oidc-issuer", "a"}, `--oidc-issuer: is "a", must be a URL of https such as https://login.example.com; ` +
				"--external-url: is not set, must be set with --oidc-issuer; --oidc-client-id: is not set, must be set with --oidc-issuer",
		},
		"manifests, a path": {
			nil,
			[]string{"manifests", "--oidc-issuer", "https://i", "--oidc-client-id", "a", "--external-url", "https://e/path"},
			`--external-url: is "https://e/path", must have no path, such as https://control.example.com`,
		},
		"manifests, half a gateway": {nil, []string{"manifests", "--gateway", "b", "--hostname", "a.b"}, `--gateway: is "b", must be NAMESPACE/NAME of a Gateway`},
		"manifests, an address":     {nil, []string{"manifests", "--gateway", "a/b", "--hostname", "https://a.b"}, `--hostname: is "https://a.b", must be a host such as`},
		"manifests, an IP address":  {nil, []string{"manifests", "--gateway", "a/b", "--hostname", "10.0.0.1"}, `--hostname: is "10.0.0.1", must be a host such as control.example.com, no address`},
	} {
		t.Run(name, func(t *testing.T) {
			got := execute(t, program, test.env, test.args...)
			require.Equal(t, 2, got.code, got.stderr)
			require.Equal(t, 1, strings.Count(got.stderr, "\n"), got.stderr)
			require.Contains(t, got.stderr, test.says)
			require.NotContains(t, got.stderr, "pass-word")
			require.NotContains(t, got.stderr, adminToken)
			require.Empty(t, got.stdout)
		})
	}
}

func TestTheProgramServesUntilSIGTERMAndKeepsItsData(t *testing.T) {
	program, token := binary(t), writeFile(t, "\n  "+adminToken+"\n")
	database := filepath.Join(t.TempDir(), "a b%41?.db")
	flags := []string{
		"--listen",
		"127.0.0.1:0",
		"--metrics-bind-address",
		"127.0.0.1:0",
		"--database",
		"sqlite://" + database,
		"--admin-token-file",
		token,
		"--log-level",
		"debug",
	}
	p := serveProcess(t, program, flags...)
	base := "http://" + p.address
	client := &http.Client{}
	status, body := request(t, client, "PUT", base+"/api/v1/admin/clusters/"+clusterID, adminToken, `{"region":"nyc3"}`)
	require.Equal(t, 201, status, body)
	var created struct{ Token string }
	require.NoError(t, json.Unmarshal([]byte(body), &created))
	status, body = request(t, client, "GET", base+"/api/v1/clusters/"+clusterID+"/desired-state", created.Token, "")
	require.Equal(t, 200, status, body)
	for url, want := range map[string]string{
		base + "/healthz":                  "ok",
		base + "/readyz":                   "database: ok",
		"http://" + p.metrics + "/metrics": `trueup_controlplane_requests_total{code="200",method="GET",route="/api/v1/clusters/{cluster_id}/desired-state"} 1`,
	} {
		// A request is counted when its answer is already on the way.
		require.EventuallyWithT(t, func(c *assert.CollectT) {
			status, body := request(t, client, "GET", url, "", "")
			assert.Equal(c, 200, status, url)
			assert.Contains(c, body, want)
		}, 3*time.Minute, 10*time.Millisecond)
	}
	info, err := os.Stat(database)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm(), "the file holds values of customers")

	begin := time.Now()
	require.NoError(t, p.command.Process.Signal(syscall.SIGTERM))
	end := <-p.ended
	require.Zero(t, end.code, end.stderr)
	require.Less(t, time.Since(begin), 5*time.Second)
	require.NotContains(t, end.stderr, adminToken)
	require.NotContains(t, end.stderr, created.Token)

	p = serveProcess(t, program, flags...)
	status, _ = request(t, client, "GET", "http://"+p.address+"/api/v1/clusters/"+clusterID+"/desired-state", created.Token, "")
	require.Equal(t, 200, status, "the cluster is still known after a restart")
	// Killed without notice, the file is still sound.
	require.NoError(t, p.command.Process.Kill())
	<-p.ended
	p = serveProcess(t, program, flags...)
	status, _ = request(t, client, "GET", "http://"+p.address+"/readyz", "", "")
	require.Equal(t, 200, status)
}

func TestADatabaseThatCannotServeEndsWithCodeOneAndOneLine(t *testing.T) {
	program, token := binary(t), writeFile(t, adminToken)
	path := writeFile(t, strings.Repeat("this is a letter, not a database\n", 200))
	got := execute(t, program, nil, "--listen", "127.0.0.1:0", "--database", path, "--admin-token-file", token)
	require.Equal(t, 1, got.code)
	require.Equal(t, 1, strings.Count(got.stderr, "\n"), got.stderr)
	require.Contains(t, got.stderr, path)
	require.Contains(t, got.stderr, "choose another file")
}

func TestAnAddressInUseEndsWithCodeOne(t *testing.T) {
	taken, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	got := execute(
		t,
		binary(t),
		nil,
		"--listen",
		taken.Addr().String(),
		"--metrics-bind-address",
		"127.0.0.1:0",
		"--admin-token-file",
		writeFile(t, adminToken),
	)
	require.Equal(t, 1, got.code)
	require.Contains(t, got.stderr, taken.Addr().String())
}

// selfSigned returns a certificate for 127.0.0.1, which is its own authority, and its key, in PEM.
func selfSigned(t *testing.T) (certPEM, keyPEM string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		NotAfter:     time.Now().Add(time.Hour),
		IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	keyBytes, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert})),
		string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyBytes}))
}

func TestTheAPISpeaksTLS(t *testing.T) {
	certPEM, keyPEM := selfSigned(t)
	p := serveProcess(
		t,
		binary(t),
		"--listen",
		"127.0.0.1:0",
		"--metrics-bind-address",
		"127.0.0.1:0",
		"--admin-token-file",
		writeFile(t, adminToken),
		"--tls-cert-file",
		writeFile(t, certPEM),
		"--tls-private-key-file",
		writeFile(t, keyPEM),
	)
	roots := x509.NewCertPool()
	require.True(t, roots.AppendCertsFromPEM([]byte(certPEM)))
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}}
	defer client.CloseIdleConnections()
	status, body := request(t, client, "GET", "https://"+p.address+"/api/v1/admin/clusters", adminToken, "")
	require.Equal(t, 200, status, body)

	health, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+p.address+"/healthz", http.NoBody)
	require.NoError(t, err)
	response, err := client.Do(health)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	require.Equal(t, "max-age=31536000", response.Header.Get("Strict-Transport-Security"))
	connect := func(config *tls.Config) error {
		config.RootCAs = roots
		connection, err := (&tls.Dialer{Config: config}).DialContext(t.Context(), "tcp", p.address)
		if err == nil {
			err = connection.Close()
		}
		return err
	}
	require.NoError(t, connect(&tls.Config{MaxVersion: tls.VersionTLS12}))
	for _, suite := range append(tls.CipherSuites(), tls.InsecureCipherSuites()...) {
		if strings.Contains(suite.Name, "_CBC_") || strings.Contains(suite.Name, "_RC4_") || strings.HasPrefix(suite.Name, "TLS_RSA_") {
			require.Error(t, connect(&tls.Config{MaxVersion: tls.VersionTLS12, CipherSuites: []uint16{suite.ID}}), suite.Name)
		}
	}
	require.Error(t, connect(&tls.Config{MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11})) //nolint:gosec // it is refused
}
