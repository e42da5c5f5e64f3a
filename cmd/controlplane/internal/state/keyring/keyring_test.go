package keyring_test

import (
	"encoding/base64"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/keyring"
)

// line is a key of a file: 32 times that byte.
func line(id string, b byte) string {
	return id + " " + base64.StdEncoding.EncodeToString([]byte(strings.Repeat(string(rune(b)), 32))) + "\n"
}

func TestWhatIsSealedIsOpenedWithTheKeyThatSealedIt(t *testing.T) {
	t.Parallel()
	old, err := keyring.Parse(line("one", 'a'))
	require.NoError(t, err)
	key, sealed, err := old.Seal("hunter2", "group/PASSWORD")
	require.NoError(t, err)
	require.Equal(t, "one", key)
	require.NotContains(t, sealed, "hunter2")
	_, again, err := old.Seal("hunter2", "group/PASSWORD")
	require.NoError(t, err)
	require.NotEqual(t, sealed, again, "equal values do not look equal")

	rotated, err := keyring.Parse("# the new one\n\n" + line("two", 'b') + line("one", 'a'))
	require.NoError(t, err)
	require.Equal(t, "two", rotated.Current())
	value, err := rotated.Open(key, sealed, "group/PASSWORD")
	require.NoError(t, err)
	require.Equal(t, "hunter2", value)

	_, err = rotated.Open(key, sealed, "group/OTHER")
	require.Error(t, err, "a value that was moved to another name")
	_, err = rotated.Open("two", sealed, "group/PASSWORD")
	require.Error(t, err)
	_, err = rotated.Open(key, sealed[:len(sealed)-8]+"AAAAAAA=", "group/PASSWORD")
	require.Error(t, err)
	_, err = rotated.Open("three", sealed, "group/PASSWORD")
	require.ErrorIs(t, err, keyring.ErrUnknownKey)
}

func TestWithoutKeysNothingIsSealed(t *testing.T) {
	t.Parallel()
	for _, r := range []*keyring.Ring{nil, {}} {
		_, _, err := r.Seal("a", "b")
		require.ErrorIs(t, err, keyring.ErrNoKeys)
		_, err = r.Open("one", "a", "b")
		require.ErrorIs(t, err, keyring.ErrNoKeys)
	}
	_, err := keyring.Parse("# none\n")
	require.ErrorIs(t, err, keyring.ErrNoKeys)
}

func TestAWrongLineIsNamedAndNotRepeated(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		line("one", 'a') + "c2VjcmV0":           "line 2: want an id",
		"one c2VjcmV0":                          "line 1: the key is not 32 bytes in base64",
		"one c2VjcmV0!":                         "line 1: the key is not 32 bytes",
		line("one", 'a') + line("one", 'b'):     "line 2: the key one is there twice",
		"a/b " + strings.Fields(line("", 1))[0]: "line 1: want an id",
	} {
		_, err := keyring.Parse(text)
		require.ErrorContains(t, err, want)
		require.NotContains(t, err.Error(), "c2VjcmV0")
	}
}

// TestAMACIsKeyed has the vector of
//
//	KEY=$(printf 'a%.0s' $(seq 32) | xxd -p -c 64)
//	D=$(printf 'trueup mac' | openssl dgst -sha256 -mac HMAC -macopt hexkey:$KEY | sed 's/.*= //')
//	printf '%s\n%s' group '{"A":"1","B":"<&>"}' | openssl dgst -sha256 -mac HMAC -macopt hexkey:$D
func TestAMACIsKeyed(t *testing.T) {
	t.Parallel()
	ring, err := keyring.Parse(line("one", 'a') + line("two", 'b'))
	require.NoError(t, err)
	const text = `{"A":"1","B":"<&>"}`
	sum, err := ring.MAC(text, "group")
	require.NoError(t, err)
	require.Equal(t, "a072a841a7cc26208489d0d4f1a2b707bc81169a44e657b3c281f973aaa88a70", sum)
	rotated, err := keyring.Parse(line("two", 'b') + line("one", 'a'))
	require.NoError(t, err)
	for _, other := range []struct {
		ring        *keyring.Ring
		text, about string
	}{{rotated, text, "group"}, {ring, text, "another"}, {ring, text + " ", "group"}, {ring, "", "group\n" + text}} {
		got, err := other.ring.MAC(other.text, other.about)
		require.NoError(t, err)
		require.NotEqual(t, sum, got)
	}
	require.ElementsMatch(t, []string{"one", "two"}, ring.IDs())
	_, err = (*keyring.Ring)(nil).MAC(text, "group")
	require.ErrorIs(t, err, keyring.ErrNoKeys)
}
