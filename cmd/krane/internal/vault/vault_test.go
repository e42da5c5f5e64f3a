package vault_test

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/krane/internal/vault"
	"github.com/seed-9e1ffd66/trueup/internal/httpretry"
)

var (
	_ vault.Decrypter = (*vault.Service)(nil)
	_ vault.Decrypter = (*vault.KeyFile)(nil)
	_ vault.Decrypter = vault.None{}
)

func keyFile(t *testing.T, content string) *vault.KeyFile {
	t.Helper()
	f := &vault.KeyFile{Path: filepath.Join(t.TempDir(), "keys")}
	require.NoError(t, os.WriteFile(f.Path, []byte(content), 0o600))
	return f
}

func TestAKeyFileDecryptsWhatItEncrypted(t *testing.T) {
	t.Parallel()
	f := keyFile(t, "# since 2026\n\n"+vault.NewKey())
	for _, plaintext := range []string{"", "hello", string(make([]byte, 1<<20))} {
		sealed, err := f.Encrypt("env_1", []byte(plaintext))
		require.NoError(t, err)
		again, err := f.Encrypt("env_1", []byte(plaintext))
		require.NoError(t, err)
		require.NotEqual(t, sealed, again, "a nonce is used once")
		opened, err := f.Decrypt(t.Context(), "env_1", sealed)
		require.NoError(t, err)
		require.Equal(t, plaintext, string(opened))
	}
}

// written is a ciphertext of the keyring env_1.
const written = "OIAJXXfQTXy6g0d6avGJCn/9AAbrRduDwHWg40+WnNaWqGtajudKaU6yljRKEKBm"

// TestTheFormatStaysReadable decrypts what an earlier version wrote.
func TestTheFormatStaysReadable(t *testing.T) {
	t.Parallel()
	f := keyFile(t, "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\n")
	sealed, err := base64.StdEncoding.DecodeString(written)
	require.NoError(t, err)
	opened, err := f.Decrypt(t.Context(), "env_1", sealed)
	require.NoError(t, err)
	require.JSONEq(t, `{"GREETING":"hello"}`, string(opened))
}

func TestACiphertextIsRefusedUnderAnotherKeyOrKeyringOrWhenChanged(t *testing.T) {
	t.Parallel()
	key := vault.NewKey()
	f := keyFile(t, key)
	sealed, err := f.Encrypt("env_1", []byte("sesame"))
	require.NoError(t, err)
	_, err = f.Decrypt(t.Context(), "env_2", sealed)
	require.ErrorIs(t, err, vault.ErrRefused)
	require.ErrorContains(t, err, "env_2")
	_, err = keyFile(t, vault.NewKey()).Decrypt(t.Context(), "env_1", sealed)
	require.ErrorIs(t, err, vault.ErrRefused)
	for i := range sealed {
		changed := append([]byte(nil), sealed...)
		changed[i] ^= 1
		_, err = f.Decrypt(t.Context(), "env_1", changed)
		require.ErrorIs(t, err, vault.ErrRefused)
	}
	for n := range sealed {
		_, err = f.Decrypt(t.Context(), "env_1", sealed[:n])
		require.ErrorIs(t, err, vault.ErrRefused)
	}
	rotated := keyFile(t, vault.NewKey()+key)
	opened, err := rotated.Decrypt(t.Context(), "env_1", sealed)
	require.NoError(t, err)
	require.Equal(t, "sesame", string(opened))
}

func TestAKeyFileThatIsWrongIsNamedWithoutTheKey(t *testing.T) {
	t.Parallel()
	for content, want := range map[string]string{
		"":                               "holds no key",
		"# none\n":                       "holds no key",
		vault.NewKey() + "c2VzYW1l":      ":2: want 32 bytes in base64",
		"sesame!":                        ":1: want 32 bytes in base64",
		vault.NewKey()[:20] + "\nsesame": ":1: want 32 bytes in base64",
	} {
		_, err := keyFile(t, content).Decrypt(t.Context(), "env_1", nil)
		require.ErrorContains(t, err, want)
		require.NotErrorIs(t, err, vault.ErrRefused, "the ciphertext may be right")
		require.NotContains(t, err.Error(), "sesame")
		require.NotContains(t, err.Error(), "c2VzYW1l")
	}
	_, err := (&vault.KeyFile{Path: "/no/such/file"}).Encrypt("env_1", nil)
	require.ErrorIs(t, err, os.ErrNotExist)
}

// service serves handler as a vault, with short waits between attempts.
func service(t *testing.T, handler http.HandlerFunc) *vault.Service {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	base, err := url.Parse(server.URL + "/base")
	require.NoError(t, err)
	s := vault.NewService(base, "simsim")
	s.Client = httpretry.New(httpretry.Config{Base: time.Millisecond})
	return s
}

func TestAServiceIsAskedAndRepeated(t *testing.T) {
	t.Parallel()
	attempts := 0
	s := service(t, func(w http.ResponseWriter, r *http.Request) {
		attempts++
		body, err := io.ReadAll(r.Body)
		if attempts < 3 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		var request map[string]string
		if err != nil || json.Unmarshal(body, &request) != nil || r.Method != http.MethodPost || r.URL.Path != "/base/v1/decrypt" ||
			r.Header.Get("Authorization") != "Bearer simsim" || request["keyring"] != "env_1" || request["ciphertext"] != "AQI=" {
			w.WriteHeader(http.StatusTeapot)
			return
		}
		_, _ = io.WriteString(w, `{"plaintext":"e30="}`)
	})
	plaintext, err := s.Decrypt(t.Context(), "env_1", []byte{1, 2})
	require.NoError(t, err)
	require.Equal(t, "{}", string(plaintext))
	require.Equal(t, 3, attempts)
}

func TestWhatAServiceRefusesIsToldApartAndShowsNothing(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		status  int
		body    string
		refused bool
	}{
		{400, "sesame", true},
		{404, "sesame", true},
		{409, "sesame", true},
		{422, "sesame", true},
		{401, "sesame", false},
		{403, "sesame", false},
		{302, "sesame", false},
		{503, "sesame", false},
		{200, `{"plaintext":"sesame!"}`, false},
		{200, `{"ciphertext":"c2VzYW1l"}`, false},
		{200, `sesame`, false},
		{200, ``, false},
		{200, string(make([]byte, 5<<20)), false},
		{200, `{"plaintext":"` + strings.Repeat("AAAA", 1<<20) + `"}`, false}, // more than a Secret holds
	} {
		s := service(t, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(test.status)
			_, _ = io.WriteString(w, test.body)
		})
		_, err := s.Decrypt(t.Context(), "env_1", []byte("open"))
		require.Error(t, err)
		require.Equal(t, test.refused, errorsIs(err), "%d: %v", test.status, err)
		for _, secret := range []string{"sesame", "c2VzYW1l", "simsim", "open", "b3Blbg"} {
			require.NotContains(t, err.Error(), secret)
		}
	}
	gone := service(t, func(http.ResponseWriter, *http.Request) {})
	gone.URL = &url.URL{Scheme: "http", Host: "127.0.0.1:1"}
	_, err := gone.Decrypt(t.Context(), "env_1", []byte("open"))
	require.Error(t, err)
	require.False(t, errorsIs(err))
	require.NotContains(t, err.Error(), "simsim")
	_, err = vault.None{}.Decrypt(t.Context(), "env_1", nil)
	require.True(t, errorsIs(err))
}

func TestVariablesAreAJSONObjectOfStrings(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]map[string]string{
		"":                         {},
		" ":                        {},
		"null":                     {},
		"{}":                       {},
		`{"A":"1","B":"","C":"é"}`: {"A": "1", "B": "", "C": "é"},
	} {
		got, err := vault.Variables([]byte(text))
		require.NoError(t, err, text)
		require.Equal(t, want, got)
	}
	for _, text := range []string{
		`sesame`, `"sesame"`, `["sesame"]`, `{"A":"sesame"`, `{"A":"sesame",}`, `{"A":"sesame"} {}`, `{"A":"sesame"}x`, `{"A":5}`,
		`{"A":null}`, `{"A":{"B":"sesame"}}`, `{"A":"sesame","A":"sesame"}`, `{sesame:1}`, `{"A" "sesame"}`, `{"A":["sesame"]}`, `{"A":5318}`,
	} {
		_, err := vault.Variables([]byte(text))
		require.ErrorIs(t, err, vault.ErrRefused, text)
		require.NotContains(t, err.Error(), "sesame", text)
		require.NotContains(t, err.Error(), "5318", text)
	}
}

func FuzzVariablesAreWhatTheDecoderReads(f *testing.F) {
	f.Add(`{"A":"1","B":"x"}`)
	f.Add(`{"A":1}`)
	f.Fuzz(func(t *testing.T, text string) {
		got, err := vault.Variables([]byte(text))
		var want map[string]string
		if err != nil {
			return
		}
		if len(text) == 0 {
			return
		}
		if wrong := json.Unmarshal([]byte(text), &want); wrong == nil && want != nil {
			require.Equal(t, want, got)
		} else if len(got) > 0 {
			t.Fatalf("read %d variables of what is not JSON", len(got))
		}
	})
}

func errorsIs(err error) bool { return errors.Is(err, vault.ErrRefused) }
