package view //nolint:testpackage // the packed form is not exported

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed-9e1ffd66/trueup/apply/internal/identity"
)

func FuzzAUIDIsUnpackedAsItWas(f *testing.F) {
	for _, seed := range []string{
		"", "u", "00000000-0000-4000-8000-000000000001", "00000000-0000-4000-8000-00000000000A", "0000000000004000800000000000000b",
		"fifteen-letters", "sixteen--letters", "00000000-0000-4000-8000-0000000000-1", "ffffffff-ffff-ffff-ffff-ffffffffffff",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 0 && text[0] == '~' {
			t.Skip("no server gives such a UID")
		}
		require.Equal(t, text, packUID(types.UID(text)).String())
	})
}

func TestTheUIDsOfServersTakeSixteenBytes(t *testing.T) {
	t.Parallel()
	a, b := packUID("1b4e28ba-2fa1-4d0e-8a3c-0123456789ab"), packUID("1b4e28ba-2fa1-4d0e-8a3c-0123456789ac")
	require.Len(t, a, 16)
	require.NotEqual(t, a, b)
	require.NotEqual(t, packUID("1B4E28BA-2FA1-4D0E-8A3C-0123456789AB"), a, "another text is another UID")
}

func TestLabelsAreUnpackedAsTheyWere(t *testing.T) {
	t.Parallel()
	owners := map[string]string{"o": "me", "p": "x"}
	id := &identity.Identity{Labels: owners, PartLabel: "part"}
	for _, have := range []map[string]string{
		{"o": "me", "p": "x"},
		{"o": "me", "p": "x", "a": "1", "z": "", "m": "3"},
		{"o": "other", "p": "x", "a": "1"},
		{"a": "1"},
		nil,
	} {
		packed := packLabels(have, id)
		for _, key := range []string{"o", "p", "a", "z", "m", "none"} {
			require.Equal(t, have[key], packed.value(key, owners), "%s of %v", key, have)
		}
	}
	require.Equal(t, labelSet{}, packLabels(owners, id), "the owner's own take nothing")
	require.Equal(
		t,
		packLabels(map[string]string{"a": "1"}, &identity.Identity{}).keys,
		packLabels(map[string]string{"a": "2"}, &identity.Identity{}).keys,
		"keys are shared",
	)
}
