package diff_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed-9e1ffd66/trueup/diff"
)

func TestStatedIsWhatAnObjectStatesOfASet(t *testing.T) {
	t.Parallel()
	const nothing = "{}"
	for name, test := range map[string]struct{ object, owned, want string }{
		"all":                 {`{data: {a: "1"}}`, `{"f:data":{".":{},"f:a":{}}}`, `{"f:data":{".":{},"f:a":{}}}`},
		"a default beside it": {`{spec: {a: 1}}`, `{"f:spec":{"f:a":{},"f:b":{}}}`, `{"f:spec":{"f:a":{}}}`},
		"another value":       {`{spec: {a: 2}}`, `{"f:spec":{"f:a":{}}}`, `{"f:spec":{"f:a":{}}}`},
		"null":                {`{spec: {a: null}}`, `{"f:spec":{"f:a":{}}}`, nothing},
		"not owned":           {`{spec: {c: 1}}`, `{"f:spec":{"f:a":{}}}`, nothing},
		"nothing":             {`{}`, `{"f:spec":{"f:a":{}}}`, nothing},
		"an atomic value":     {`{spec: {a: {x: 1}}}`, `{"f:spec":{"f:a":{}}}`, `{"f:spec":{"f:a":{}}}`},
		"a value of another form": {
			`{spec: {a: text, b: [x]}}`, `{"f:spec":{"f:a":{"f:x":{}},"f:b":{"f:y":{}}}}`, nothing,
		},
		"an empty map": {`{spec: {a: {}}}`, `{"f:spec":{"f:a":{".":{},"f:x":{}}}}`, `{"f:spec":{"f:a":{}}}`},
		"items by their keys": {
			`{spec: {c: [{name: one, image: x}, {name: three}]}}`,
			`{"f:spec":{"f:c":{"k:{\"name\":\"one\"}":{".":{},"f:image":{},"f:name":{},"f:policy":{}},"k:{\"name\":\"two\"}":{".":{},"f:name":{}}}}}`,
			`{"f:spec":{"f:c":{"k:{\"name\":\"one\"}":{".":{},"f:image":{},"f:name":{}}}}}`,
		},
		"an item without a defaulted key": {
			`{spec: {ports: [{port: 53}, {port: 80, protocol: UDP}]}}`,
			`{"f:spec":{"f:ports":{"k:{\"port\":53,\"protocol\":\"TCP\"}":{".":{},"f:port":{},"f:protocol":{}},"k:{\"port\":80,\"protocol\":\"UDP\"}":{".":{},"f:port":{}}}}}`,
			`{"f:spec":{"f:ports":{"k:{\"port\":53,\"protocol\":\"TCP\"}":{".":{},"f:port":{}},"k:{\"port\":80,\"protocol\":\"UDP\"}":{".":{},"f:port":{}}}}}`,
		},
		"an item beside one that is named in full": {
			`{spec: {ports: [{port: 53}, {port: 53, protocol: UDP}]}}`,
			`{"f:spec":{"f:ports":{"k:{\"port\":53,\"protocol\":\"TCP\"}":{".":{}},"k:{\"port\":53,\"protocol\":\"UDP\"}":{".":{}}}}}`,
			`{"f:spec":{"f:ports":{"k:{\"port\":53,\"protocol\":\"TCP\"}":{},"k:{\"port\":53,\"protocol\":\"UDP\"}":{}}}}`,
		},
		"an item that fits two": {
			`{spec: {ports: [{port: 53}]}}`,
			`{"f:spec":{"f:ports":{"k:{\"port\":53,\"protocol\":\"TCP\"}":{".":{}},"k:{\"port\":53,\"protocol\":\"UDP\"}":{".":{}}}}}`,
			nothing,
		},
		"values of a set": {
			`{metadata: {finalizers: [a, c]}}`, `{"f:metadata":{"f:finalizers":{".":{},"v:\"a\"":{},"v:\"b\"":{}}}}`, `{"f:metadata":{"f:finalizers":{".":{},"v:\"a\"":{}}}}`,
		},
	} {
		owned, err := diff.Owned(&metav1.ManagedFieldsEntry{FieldsV1: &metav1.FieldsV1{Raw: []byte(test.owned)}})
		require.NoError(t, err, name)
		got, err := diff.Stated(object(t, test.object), owned).ToJSON()
		require.NoError(t, err, name)
		require.Equal(t, test.want, string(got), name)
	}
}
