package wire_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/apply/internal/wire"
)

func TestABodyDecodesToWhatWasEncodedAndCarriesItsPrecondition(t *testing.T) {
	t.Parallel()
	object := map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": map[string]any{"name": "a", "labels": map[string]any{"x": `"},{`}},
		"data":     map[string]any{"n": int64(1) << 60},
	}
	body, err := wire.Encode(object)
	require.NoError(t, err)
	require.Equal(t, object, body.Decode())
	for name, test := range map[string]struct {
		must wire.Must
		want map[string]any
	}{
		"it does not exist":      {wire.Must{}, map[string]any{"resourceVersion": "1"}},
		"it went in a version":   {wire.Must{Version: "17"}, map[string]any{"resourceVersion": "17"}},
		"it is one by UID":       {wire.Must{UID: `u"`}, map[string]any{"uid": `u"`}},
		"it is one in a version": {wire.Must{UID: "u", Version: "17"}, map[string]any{"uid": "u", "resourceVersion": "17"}},
	} {
		data, err := body.Under(test.must)
		require.NoError(t, err, name)
		var sent map[string]any
		require.NoError(t, json.Unmarshal(data, &sent), name)
		metadata, ok := sent["metadata"].(map[string]any)
		require.True(t, ok, name)
		for key, want := range test.want {
			require.Equal(t, want, metadata[key], name)
			delete(metadata, key)
		}
		require.Equal(t, object["metadata"], metadata, name)
	}
	require.Equal(t, object, body.Decode(), "the body itself stays")
}

func FuzzEncode(f *testing.F) {
	f.Add(`{"apiVersion":"v1","kind":"A","metadata":{"name":"a"}}`)
	f.Add(`{"kind":"A","metadata":{"name":"\u2028"},"spec":null}`)
	f.Fuzz(func(t *testing.T, text string) {
		object := wire.Body(text).Decode()
		metadata, ok := object["metadata"].(map[string]any)
		if !ok || len(metadata) == 0 || len(object) < 2 {
			t.Skip("no object")
		}
		body, err := wire.Encode(object)
		require.NoError(t, err)
		require.Equal(t, object, body.Decode())
		data, err := body.Under(wire.Must{UID: "u"})
		require.NoError(t, err)
		require.True(t, json.Valid(data))
	})
}
