package program_test

import (
	"bytes"
	"encoding/pem"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/internal/program"
)

func TestAURLHasAHostAndAPortThatThereIs(t *testing.T) {
	t.Parallel()
	for text, has := range map[string]bool{
		"https://a": true, "https://a:65535/b": true, "https://a/$b": true, "https://[::1]:8443": true,
		"https://a:0": false, "https://a:65536": false, "https://": false, "https://:8443": false, "https://a/b c": false, "https://$(A)/": false,
	} {
		u, err := url.Parse(text)
		require.NoError(t, err, text)
		require.Equal(t, has, program.HasHost(u), text)
		require.Equal(t, has, program.Encrypted(text), text)
	}
}

func TestASecretGoesToAURLOfHTTPSOrToThisMachine(t *testing.T) {
	t.Parallel()
	for text, may := range map[string]bool{
		"https://a.example.com/b": true, "http://localhost:8080": true, "http://LOCALHOST./x": true, "http://127.0.0.2": true, "http://[::1]": true,
		"http://a.example.com": false, "http://10.0.0.1": false, "http://localhost.example.com": false, "ftp://localhost": false, "localhost": false, "": false,
		"https://user@a": false, "https://a?b=c": false, "https://a?": false, "https://a#b": false, "https://a#": false, "https://a b": false,
	} {
		require.Equal(t, may, program.Encrypted(text), text)
	}
	require.Contains(t, program.WantEncrypted("ALLOW_IT"), "https, or of http on this machine")
	require.Contains(t, program.WantEncrypted("ALLOW_IT"), "; ALLOW_IT=true allows it")
}

// TestAClientBelievesTheAuthoritiesOfItsFileAndFollowsNoRedirect has a server whose certificate is in the file.
func TestAClientBelievesTheAuthoritiesOfItsFileAndFollowsNoRedirect(t *testing.T) {
	t.Parallel()
	server := httptest.NewTLSServer(http.RedirectHandler("https://elsewhere.example.com", http.StatusFound))
	defer server.Close()
	file := filepath.Join(t.TempDir(), "ca.crt")
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	require.NoError(t, os.WriteFile(file, authority, 0o600))
	ask := func(file string) (int, error) {
		transport, err := program.Transport("ca-file", file)
		require.NoError(t, err)
		defer transport.CloseIdleConnections()
		require.NotNil(t, transport.Proxy, "proxies of the environment are used")
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, nil)
		require.NoError(t, err)
		answer, err := (&http.Client{Transport: transport, CheckRedirect: program.NoRedirect}).Do(request)
		if err != nil {
			return 0, err
		}
		return answer.StatusCode, answer.Body.Close()
	}
	status, err := ask(file)
	require.NoError(t, err)
	require.Equal(t, http.StatusFound, status, "what is secret goes nowhere else")
	_, err = ask("")
	require.ErrorContains(t, err, "certificate", "the system does not know it")

	_, err = program.Transport("ca-file", file+".none")
	require.ErrorContains(t, err, `--ca-file: is "`+file+`.none", must be a file that can be read`)
	require.NoError(t, os.WriteFile(file, []byte("no certificate"), 0o600))
	_, err = program.Transport("ca-file", file)
	require.ErrorContains(t, err, "must be a PEM file with a certificate")
	require.ErrorAs(t, err, new(*program.UsageError))
}

func TestATokenOnPlainHTTPToAnotherMachineIsWarnedOf(t *testing.T) {
	t.Parallel()
	for text, warned := range map[string]bool{
		"https://control.example.com": false, "http://control.example.com": true, "http://10.0.0.1:8080": true, "http://[2001:db8::1]": true,
		"http://localhost:8080": false, "http://127.0.0.1": false, "http://127.9.9.9:1": false, "http://[::1]:8080": false, "http://[::ffff:127.0.0.1]": false,
		"http://localhost.example.com": true, "http://127.0.0.1.example.com": true,
	} {
		to, err := url.Parse(text)
		require.NoError(t, err)
		var out bytes.Buffer
		program.WarnPlain(t.Context(), slog.New(slog.NewTextHandler(&out, nil)), map[string]*url.URL{"THE_URL": to, "UNSET": nil})
		require.Equal(t, warned, strings.Contains(out.String(), "level=WARN") && strings.Contains(out.String(), "setting=THE_URL"), text)
		require.LessOrEqual(t, strings.Count(out.String(), "\n"), 1)
	}
}
