package keyring_test

import (
	"encoding/base64"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/internal/keyring"
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
		"one c2VjcmV0":                          "line 1: the key one is not 32 bytes in base64",
		"one c2VjcmV0!":                         "line 1: the key one is not 32 bytes",
		line("one", 'a') + line("one", 'b'):     "line 2: the key one is there twice",
		"a/b " + strings.Fields(line("", 1))[0]: "line 1: want an id",
	} {
		_, err := keyring.Parse(text)
		require.ErrorContains(t, err, want)
		require.NotContains(t, err.Error(), "c2VjcmV0")
	}
}
