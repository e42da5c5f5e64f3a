package program_test

import (
	"bytes"
	"log/slog"
	"net/url"
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
