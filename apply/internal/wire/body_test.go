package wire_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

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

// TestAServerReadsABodyWithLessGarbage measures all that this process allocates, so it runs alone.
func TestAServerReadsABodyWithLessGarbage(t *testing.T) {
	container := map[string]any{"name": "web", "env": []any{}, "resources": map[string]any{"requests": map[string]any{"cpu": "1"}}}
	for range 20 {
		container["env"] = append(container["env"].([]any), map[string]any{"name": "KEY", "value": "value"})
	}
	body, err := wire.Encode(map[string]any{
		"apiVersion": "apps/v1", "kind": "Deployment", "metadata": map[string]any{"name": "a"},
		"spec": map[string]any{"template": map[string]any{"spec": map[string]any{"containers": []any{container}}}},
	})
	require.NoError(t, err)
	sent, err := body.Under(wire.Must{})
	require.NoError(t, err)
	require.Equal(t, bytes.Count(sent, []byte("{")), bytes.Count(sent, []byte("{\n")), "no text here has a brace")
	var compact bytes.Buffer
	require.NoError(t, json.Compact(&compact, sent))
	var read, stated map[string]any
	require.NoError(t, errors.Join(yaml.Unmarshal(sent, &read), json.Unmarshal(sent, &stated)))
	require.Equal(t, stated, read, "as YAML it is the same")
	require.Less(t, 10*allocated(t, sent), 6*allocated(t, compact.Bytes()))
}

// allocated is how many bytes a server allocates to read the body of an apply.
func allocated(t *testing.T, body []byte) uint64 {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range 100 {
		require.NoError(t, yaml.Unmarshal(body, &map[string]any{}))
	}
	runtime.ReadMemStats(&after)
	return (after.TotalAlloc - before.TotalAlloc) / 100
}

func FuzzEncode(f *testing.F) {
	f.Add(`{"apiVersion":"v1","kind":"A","metadata":{"name":"a"}}`)
	f.Add(`{"kind":"A","metadata":{"name":"\u2028"},"spec":null}`)
	f.Add(`{"kind":"A{","metadata":{"name":"\"{","a":"\\","b":{}},"spec":[{},[{"c":"}\n{\\\"{"}]]}`)
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
		sent := wire.Body(data).Decode()
		require.NotNil(t, sent, "it is JSON")
		require.Equal(t, "u", sent["metadata"].(map[string]any)["uid"])
		if _, stated := metadata["uid"]; !stated {
			delete(sent["metadata"].(map[string]any), "uid")
			require.Equal(t, object, sent)
		}
	})
}
