package diff_test

import (
	"encoding/json"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed-9e1ffd66/trueup/diff"
)

const serviceOwned = `{"f:metadata":{"f:labels":{"f:app":{}}},"f:spec":{"f:ports":{` +
	`"k:{\"port\":53,\"protocol\":\"TCP\"}":{".":{},"f:name":{},"f:port":{}},` +
	`"k:{\"port\":53,\"protocol\":\"UDP\"}":{".":{},"f:name":{},"f:port":{},"f:protocol":{}}},` +
	`"f:selector":{}}}`

const service = `{"apiVersion":"v1","kind":"Service","metadata":{"name":"dns","namespace":"x","labels":{"app":"dns"}},` +
	`"spec":{"ports":[{"name":"tcp","port":53},{"name":"udp","port":53,"protocol":"UDP"}],"selector":{"app":"dns"}}}`

func covers(t *testing.T, owned, desired string) bool {
	t.Helper()
	var object map[string]any
	require.NoError(t, json.Unmarshal([]byte(desired), &object))
	set, err := diff.Owned(&metav1.ManagedFieldsEntry{FieldsV1: &metav1.FieldsV1{Raw: []byte(owned)}})
	require.NoError(t, err)
	return diff.Covers(set, object)
}

func TestCoversIsTrueForExactlyTheStatedFields(t *testing.T) {
	t.Parallel()
	require.True(t, covers(t, serviceOwned, service))
}

func TestCoversReadsEachKindOfListByTheOwnedSet(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, owned, desired string
		want                 bool
	}{
		{"atomic list", `{"f:spec":{"f:hostnames":{}}}`, `{"spec":{"hostnames":["a","b"]}}`, true},
		{"set of values", `{"f:metadata":{"f:finalizers":{"v:\"a\"":{},"v:\"b\"":{}}}}`, `{"metadata":{"finalizers":["b","a"]}}`, true},
		{"set lacks a value", `{"f:metadata":{"f:finalizers":{"v:\"a\"":{}}}}`, `{"metadata":{"finalizers":["b","a"]}}`, false},
		{"set has another value", `{"f:metadata":{"f:finalizers":{"v:\"a\"":{}}}}`, `{"metadata":{"finalizers":["b"]}}`, false},
		{"whole number in a key", `{"f:l":{"k:{\"p\":80}":{".":{},"f:p":{}}}}`, `{"l":[{"p":80}]}`, true},
		{"other key", `{"f:l":{"k:{\"p\":80}":{".":{},"f:p":{}}}}`, `{"l":[{"p":81}]}`, false},
		{"field of an item taken by others", `{"f:l":{"k:{\"p\":80}":{".":{},"f:p":{}}}}`, `{"l":[{"p":80,"q":1}]}`, false},
		{"atomic item of a keyed list", `{"f:metadata":{"f:ownerReferences":{"k:{\"uid\":\"u\"}":{}}}}`, `{"metadata":{"ownerReferences":[{"uid":"u","kind":"X"}]}}`, true},
		{"item is no object", `{"f:l":{"k:{\"p\":80}":{".":{},"f:p":{}}}}`, `{"l":["p"]}`, false},
		{"two candidates for a left out key field", `{"f:l":{"k:{\"p\":1,\"q\":1}":{".":{}},"k:{\"p\":1,\"q\":2}":{".":{}}}}`, `{"l":[{"p":1},{"p":1}]}`, false},
		{"scalar", `{"f:data":{"f:x":{}}}`, `{"data":{"x":"1"}}`, true},
		{"null is a stated field", `{"f:data":{"f:x":{}}}`, `{"data":{"x":null}}`, true},
		{"field taken by others", `{"f:data":{"f:x":{}}}`, `{"data":{"x":"1","y":"2"}}`, false},
		{"field no longer stated", `{"f:data":{"f:x":{},"f:y":{}}}`, `{"data":{"x":"1"}}`, false},
		{"map of objects, members themselves", `{"f:m":{"f:k":{".":{},"f:v":{}}}}`, `{"m":{"k":{"v":1}}}`, true},
		{"map of objects, no longer members", `{"f:m":{"f:k":{".":{},"f:v":{}}}}`, `{"m":{"k":{}}}`, false},
		{"empty list states nothing", `{"f:data":{"f:x":{}}}`, `{"data":{"x":"1"},"list":[],"o":{"l":[]}}`, true},
		{"empty map is a stated field", `{"f:data":{"f:x":{}}}`, `{"data":{"x":"1"},"o":{}}`, false},
		{"empty map owned", `{"f:spec":{"f:podSelector":{}}}`, `{"spec":{"podSelector":{}}}`, true},
		{"name and namespace are never owned", `{"f:metadata":{"f:labels":{"f:a":{}}}}`, `{"apiVersion":"v1","kind":"X","metadata":{"name":"n","namespace":"s","labels":{"a":"b"}}}`, true},
		{"everything taken", `{}`, `{"metadata":{"name":"n","labels":{"a":"b"}}}`, false},
		{"nothing stated, nothing owned", `{}`, `{"apiVersion":"v1","metadata":{"name":"n"}}`, true},
		{"metadata is no object", `{}`, `{"metadata":"x"}`, false},
		{"scalar where an object is owned", `{"f:a":{"f:b":{}}}`, `{"a":"b"}`, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, test.want, covers(t, test.owned, test.desired))
		})
	}
}

// TestAnyFieldLessOrMoreIsNoticed takes single members out of the owned set, and
// single fields out of the desired object: Covers must see each.
func TestAnyFieldLessOrMoreIsNoticed(t *testing.T) {
	t.Parallel()
	var owned, object map[string]any
	require.NoError(t, json.Unmarshal([]byte(serviceOwned), &owned))
	require.NoError(t, json.Unmarshal([]byte(service), &object))
	check := func(owned, desired any) bool {
		o, err := json.Marshal(owned)
		require.NoError(t, err)
		d, err := json.Marshal(desired)
		require.NoError(t, err)
		return covers(t, string(o), string(d))
	}
	removed := 0
	eachField(owned, func() { require.False(t, check(owned, object)); removed++ })
	require.Equal(t, 13, removed)
	eachField(object["spec"].(map[string]any), func() { require.False(t, check(owned, object)); removed++ })
	require.Equal(t, 13+7, removed)
}

// eachField calls f once for each field below m, with that field taken out.
func eachField(m map[string]any, f func()) {
	for _, key := range slices.Sorted(maps.Keys(m)) {
		v := m[key]
		if len(m) > 1 { // an empty rest would be an atomic value
			delete(m, key)
			f()
			m[key] = v
		}
		switch v := v.(type) {
		case map[string]any:
			eachField(v, f)
		case []any:
			for _, item := range v {
				eachField(item.(map[string]any), f)
			}
		}
	}
}

func TestOwnedRefusesWhatIsNoFieldSet(t *testing.T) {
	t.Parallel()
	for _, raw := range []string{``, `{`, `[]`, `{"k:{":{}}`} {
		_, err := diff.Owned(&metav1.ManagedFieldsEntry{Manager: "me", FieldsV1: &metav1.FieldsV1{Raw: []byte(raw)}})
		require.ErrorContains(t, err, `managedFields of "me"`, raw)
	}
}

func FuzzCoversNeverPanics(f *testing.F) {
	f.Add([]byte(serviceOwned), []byte(service))
	f.Add([]byte(`{"f:l":{"i:1":{}}}`), []byte(`{"l":[1,2]}`))
	f.Fuzz(func(_ *testing.T, owned, desired []byte) {
		set, err := diff.Owned(&metav1.ManagedFieldsEntry{FieldsV1: &metav1.FieldsV1{Raw: owned}})
		var object map[string]any
		if err != nil || json.Unmarshal(desired, &object) != nil {
			return
		}
		before := set.String()
		diff.Covers(set, object)
		if set.String() != before {
			panic("Covers changed the set that it was given")
		}
	})
}

func TestListOrderNeverMatters(t *testing.T) {
	t.Parallel()
	var object map[string]any
	require.NoError(t, json.Unmarshal([]byte(service), &object))
	ports := object["spec"].(map[string]any)["ports"].([]any)
	for range 10 {
		rand.Shuffle(len(ports), func(i, j int) { ports[i], ports[j] = ports[j], ports[i] })
		shuffled, err := json.Marshal(object)
		require.NoError(t, err)
		require.True(t, covers(t, serviceOwned, string(shuffled)))
	}
}
