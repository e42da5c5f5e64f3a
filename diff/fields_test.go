package diff_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/seed-9e1ffd66/trueup/diff"
)

// object reads YAML or JSON as Kubernetes clients hold it.
func object(tb testing.TB, text string) map[string]any {
	tb.Helper()
	var found map[string]any
	require.NoError(tb, yaml.Unmarshal([]byte(text), &found))
	return found
}

// owned returns text with managedFields of "me" (operation Apply) and, if there
// are any, of "other" (Update).
func owned(tb testing.TB, text, mine, other string) map[string]any {
	tb.Helper()
	found := object(tb, text)
	entries := []any{}
	for _, e := range []struct{ manager, operation, at, fields string }{
		{"me", "Apply", "2026-11-20T09:00:00Z", mine}, {"other", "Update", "2026-11-20T10:00:00Z", other},
	} {
		if e.fields == "" {
			continue
		}
		var fields any
		require.NoError(tb, json.Unmarshal([]byte(e.fields), &fields))
		entries = append(entries, map[string]any{
			"manager": e.manager, "operation": e.operation, "time": e.at, "apiVersion": "v1",
			"fieldsType": "FieldsV1", "fieldsV1": fields,
		})
	}
	metadata, _ := found["metadata"].(map[string]any)
	if metadata == nil {
		metadata = map[string]any{}
		found["metadata"] = metadata
	}
	metadata["managedFields"] = entries
	return found
}

// lines returns the fields as people see them.
func lines(fields []diff.Field) []string {
	found := []string{}
	for _, f := range fields {
		found = append(found, string(f.Difference)+" "+f.String())
	}
	return found
}

func TestFieldsNamesWhatAnApplyWouldDo(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, desired, live, mine, other string
		applied                          bool
		want                             []string
	}{
		{
			name: "nothing", desired: `{spec: {a: 1}}`, live: `{spec: {a: 1, b: 2}}`, mine: `{"f:spec":{"f:a":{}}}`,
		},
		{
			name: "a changed field that another took", desired: `{spec: {a: 1}}`, live: `{spec: {a: 2}}`, mine: `{}`, other: `{"f:spec":{"f:a":{}}}`,
			want: []string{`changed .spec.a: 2 -> 1 (by "other" 2026-11-20T10:00:00Z)`},
		},
		{
			name: "a changed wish", desired: `{spec: {a: 1}}`, live: `{spec: {a: 2}}`, mine: `{"f:spec":{"f:a":{}}}`,
			want: []string{`changed .spec.a: 2 -> 1`},
		},
		{
			name: "a missing field", desired: `{spec: {a: {b: 1}}}`, live: `{spec: {}}`, mine: `{}`,
			want: []string{`missing .spec.a: (absent) -> {"b":1}`},
		},
		{
			name: "a field set back to its value by another", desired: `{spec: {a: 1}}`, live: `{spec: {a: 1}}`, mine: `{}`, other: `{"f:spec":{"f:a":{}}}`,
			want: []string{`taken .spec.a: 1, not owned (by "other" 2026-11-20T10:00:00Z)`},
		},
		{
			name: "a field not wanted any more", desired: `{spec: {}}`, live: `{spec: {a: 1}}`, mine: `{"f:spec":{"f:a":{}}}`,
			want: []string{`removed .spec.a: 1 -> (absent)`},
		},
		{
			name: "a field left to another", desired: `{spec: {}}`, live: `{spec: {a: 1}}`, mine: `{"f:spec":{"f:a":{}}}`, other: `{"f:spec":{"f:a":{}}}`,
			want: []string{`released .spec.a: 1, left (to "other" 2026-11-20T10:00:00Z)`},
		},
		{
			name: "a set", desired: `{spec: {s: [a, c, d]}}`, live: `{spec: {s: [c, a, b]}}`, mine: `{"f:spec":{"f:s":{"v:\"a\"":{},"v:\"b\"":{}}}}`,
			want: []string{
				`taken .spec.s[="c"]: "c", not owned`, `missing .spec.s[="d"]: (absent) -> "d"`, `removed .spec.s[="b"]: "b" -> (absent)`,
				`reordered .spec.s: order ["[=\"c\"]","[=\"a\"]","[=\"b\"]"] -> ["[=\"a\"]","[=\"c\"]","[=\"d\"]"]`,
			},
		},
		{
			name: "a list read by another's set", desired: `{spec: {l: [{name: a, v: 1}]}}`, live: `{spec: {l: [{name: b}, {name: a, v: 2}]}}`,
			mine: `{}`, other: `{"f:spec":{"f:l":{"k:{\"name\":\"a\"}":{".":{},"f:name":{},"f:v":{}}}}}`,
			want: []string{
				`taken .spec.l[name="a"].name: "a", not owned (by "other" 2026-11-20T10:00:00Z)`,
				`changed .spec.l[name="a"].v: 2 -> 1 (by "other" 2026-11-20T10:00:00Z)`,
			},
		},
		{
			name: "an empty map that nobody owns", desired: `{spec: {m: {}}}`, live: `{spec: {m: {}}}`, mine: `{}`, want: []string{`taken .spec.m: {}, not owned`},
		},
		{
			name: "an atomic list", desired: `{spec: {l: [a]}}`, live: `{spec: {l: [a, b]}}`, mine: `{}`, other: `{"f:spec":{"f:l":{}}}`,
			want: []string{`changed .spec.l: ["a","b"] -> ["a"] (by "other" 2026-11-20T10:00:00Z)`},
		},
		{
			name: "an item that goes with what others have in it", desired: `{spec: {l: []}}`, live: `{spec: {l: [{name: a, v: 1}]}}`,
			mine: `{"f:spec":{"f:l":{"k:{\"name\":\"a\"}":{".":{},"f:name":{}}}}}`, other: `{"f:spec":{"f:l":{"k:{\"name\":\"a\"}":{"f:v":{}}}}}`,
			want: []string{`removed .spec.l[name="a"]: {"name":"a","v":1} -> (absent) (by "other" 2026-11-20T10:00:00Z)`},
		},
		{
			name: "an item of a map, empty when applied, goes with what others have in it", desired: `{}`, live: `{m: {x: {b: 1}, z: {a: 1}}}`,
			mine: `{"f:m":{"f:x":{},"f:z":{".":{},"f:a":{}}}}`, other: `{"f:m":{".":{},"f:x":{"f:b":{}}}}`,
			want: []string{`removed .m.x: {"b":1} -> (absent) (by "other" 2026-11-20T10:00:00Z)`, `removed .m.z: {"a":1} -> (absent)`},
		},
		{
			name: "a struct, empty when applied, stays with what others have in it", desired: `{}`, live: `{m: {x: {b: 1}}}`,
			mine: `{"f:m":{"f:x":{}}}`, other: `{"f:m":{"f:x":{"f:b":{}}}}`,
			want: []string{`released .m.x: {"b":1}, left (to "other" 2026-11-20T10:00:00Z)`},
		},
		{
			name: "a key's default that is no protocol of IP", desired: `{l: [{port: 1}]}`, live: `{l: [{port: 1, protocol: HTTP}]}`,
			mine: `{"f:l":{"k:{\"port\":1,\"protocol\":\"HTTP\"}":{".":{},"f:port":{}}}}`,
		},
		{
			name: "a key's default that is UDP for once, as applied", desired: `{l: [{port: 1}]}`, live: `{l: [{port: 1, protocol: UDP}]}`,
			mine: `{"f:l":{"k:{\"port\":1,\"protocol\":\"UDP\"}":{".":{},"f:port":{}}}}`, applied: true,
		},
		{
			name: "a key's default that is TCP", desired: `{l: [{port: 1}]}`, live: `{l: [{port: 1, protocol: UDP}]}`,
			mine: `{"f:l":{"k:{\"port\":1,\"protocol\":\"UDP\"}":{".":{},"f:port":{},"f:protocol":{}}}}`,
			want: []string{`missing .l[port=1,protocol="TCP"]: (absent) -> {"port":1}`, `removed .l[port=1,protocol="UDP"]: {"port":1,"protocol":"UDP"} -> (absent)`},
		},
		{
			name: "an item that was taken, not what is in it", desired: `{l: [{name: a}]}`, live: `{l: [{name: a}]}`,
			mine: `{"f:l":{"k:{\"name\":\"a\"}":{"f:name":{}}}}`, other: `{"f:l":{"k:{\"name\":\"a\"}":{".":{}}}}`,
			want: []string{`taken .l[name="a"]: {"name":"a"}, not owned (by "other" 2026-11-20T10:00:00Z)`},
		},
		{
			name: "an empty list that a built-in kind drops", desired: `{apiVersion: v1, spec: {l: []}}`, live: `{apiVersion: v1, spec: {}}`, mine: `{}`,
		},
		{
			name: "an empty list that a custom resource keeps", desired: `{apiVersion: x.io/v1, spec: {l: []}}`, live: `{apiVersion: x.io/v1, spec: {}}`, mine: `{}`,
			want: []string{`missing .spec.l: (absent) -> []`},
		},
		{
			name: "an empty value that a custom resource has lost", desired: `{apiVersion: x.io/v1, spec: {a: {b: ""}}}`, live: `{apiVersion: x.io/v1, spec: {}}`, mine: `{"f:spec":{"f:a":{}}}`,
			want: []string{`missing .spec.a: (absent) -> {"b":""}`},
		},
		{
			name: "a struct of empty lists that another owns as an empty one", desired: `{s: {l: []}}`, live: `{s: {l: []}}`, mine: `{}`, other: `{"f:s":{}}`, applied: true,
		},
		{
			name: "an empty map that a custom resource has lost", desired: `{apiVersion: x.io/v1, spec: {a: {}}}`, live: `{apiVersion: x.io/v1, spec: {}}`, mine: `{"f:spec":{"f:a":{}}}`,
			want: []string{`missing .spec.a: (absent) -> {}`},
		},
		{
			name: "a quantity of a built-in kind", desired: `{apiVersion: v1, spec: {requests: {cpu: "0.1"}}}`, live: `{apiVersion: v1, spec: {requests: {cpu: 100m}}}`,
			mine: `{"f:spec":{"f:requests":{"f:cpu":{}}}}`,
		},
		{
			name: "a number for a quantity", desired: `{apiVersion: v1, spec: {requests: {cpu: 1}}}`, live: `{apiVersion: v1, spec: {requests: {cpu: "1"}}}`,
			mine: `{"f:spec":{"f:requests":{"f:cpu":{}}}}`,
		},
		{
			name: "another quantity", desired: `{apiVersion: v1, spec: {requests: {cpu: "0.2"}}}`, live: `{apiVersion: v1, spec: {requests: {cpu: 100m}}}`,
			mine: `{"f:spec":{"f:requests":{"f:cpu":{}}}}`, want: []string{`changed .spec.requests.cpu: "100m" -> "0.2"`},
		},
		{
			name: "what only looks like a quantity", desired: `{apiVersion: v1, data: {cpu: "0.1"}}`, live: `{apiVersion: v1, data: {cpu: 100m}}`,
			mine: `{"f:data":{"f:cpu":{}}}`, want: []string{`changed .data.cpu: "100m" -> "0.1"`},
		},
		{
			name: "a quantity in a group of Kubernetes", desired: `{apiVersion: node.k8s.io/v1, overhead: {podFixed: {cpu: "0.1"}}}`, live: `{apiVersion: node.k8s.io/v1, overhead: {podFixed: {cpu: 100m}}}`,
			mine: `{"f:overhead":{"f:podFixed":{"f:cpu":{}}}}`,
		},
		{
			name: "a custom resource below k8s.io", desired: `{apiVersion: gateway.networking.k8s.io/v1, spec: {limits: {cpu: "0.1"}}}`, live: `{apiVersion: gateway.networking.k8s.io/v1, spec: {limits: {cpu: 100m}}}`,
			mine: `{"f:spec":{"f:limits":{"f:cpu":{}}}}`, want: []string{`changed .spec.limits.cpu: "100m" -> "0.1"`},
		},
		{
			name: "a quantity of a custom resource is text", desired: `{apiVersion: x.io/v1, spec: {requests: {cpu: "0.1"}}}`, live: `{apiVersion: x.io/v1, spec: {requests: {cpu: 100m}}}`,
			mine: `{"f:spec":{"f:requests":{"f:cpu":{}}}}`, want: []string{`changed .spec.requests.cpu: "100m" -> "0.1"`},
		},
		{
			name: "what the server wrote its own way", desired: `{spec: {timeout: 60m, gone: ""}}`, live: `{spec: {timeout: 1h0m0s}}`,
			mine: `{"f:spec":{"f:timeout":{},"f:gone":{}}}`, applied: true,
		},
		{
			name: "the same without knowing that it was applied", desired: `{spec: {timeout: 60m, gone: ""}}`, live: `{spec: {timeout: 1h0m0s}}`,
			mine: `{"f:spec":{"f:timeout":{},"f:gone":{}}}`, want: []string{`changed .spec.timeout: "1h0m0s" -> "60m"`},
		},
		{
			name: "nothing that identifies the object", desired: `{apiVersion: v1, kind: X, metadata: {name: a, uid: b}}`, live: `{apiVersion: v2, kind: Y, metadata: {name: c}}`, mine: `{}`,
		},
		{
			name: "the copy that kubectl keeps of a Secret", mine: `{}`,
			desired: `{apiVersion: v1, kind: Secret, metadata: {annotations: {a: b, kubectl.kubernetes.io/last-applied-configuration: hunter2}}}`,
			live:    `{apiVersion: v1, kind: Secret, metadata: {}}`,
			want:    []string{`missing .metadata.annotations: (absent) -> {"a":"b","kubectl.kubernetes.io/last-applied-configuration":"(masked)"}`},
		},
		{
			name: "that copy alone", mine: `{}`,
			desired: `{apiVersion: v1, kind: Secret, metadata: {annotations: {kubectl.kubernetes.io/last-applied-configuration: hunter2}}}`,
			live:    `{apiVersion: v1, kind: Secret, metadata: {annotations: {}}}`,
			want:    []string{`missing .metadata.annotations["kubectl.kubernetes.io/last-applied-configuration"]: (absent) -> "(masked)"`},
		},
		{
			name: "the hash of a Secret", mine: `{}`,
			desired: `{apiVersion: v1, kind: Secret, metadata: {annotations: {example.com/desired-hash: bb68}}}`,
			live:    `{apiVersion: v1, kind: Secret, metadata: {annotations: {example.com/desired-hash: a793}}}`,
			want:    []string{`changed .metadata.annotations["example.com/desired-hash"]: "(masked)" -> "(masked)"`},
		},
		{
			name: "the hash of a Secret among all its annotations", mine: `{}`,
			desired: `{apiVersion: v1, kind: Secret, metadata: {annotations: {a: b, example.com/desired-hash: bb68}}}`,
			live:    `{apiVersion: v1, kind: Secret, metadata: {}}`,
			want:    []string{`missing .metadata.annotations: (absent) -> {"a":"b","example.com/desired-hash":"(masked)"}`},
		},
		{
			name: "the data of a Secret", mine: `{}`, desired: `{apiVersion: v1, kind: Secret, data: {a: aHVudGVyMg==}}`, live: `{apiVersion: v1, kind: Secret}`,
			want: []string{`missing .data: (absent) -> "(masked)"`},
		},
		{
			name: "the stringData of a Secret", mine: `{"f:stringData":{"f:c":{}}}`,
			desired: `{apiVersion: v1, kind: Secret, stringData: {a: hunter2, b: hunter2, c: hunter2, d: hunter2}}`,
			live:    `{apiVersion: v1, kind: Secret, data: {b: eA==, c: aHVudGVyMg==, d: aHVudGVyMg==}}`,
			want: []string{
				`missing .stringData.a: (absent) -> "(masked)"`, `changed .stringData.b: "(masked)" -> "(masked)"`, `taken .stringData.d: "(masked)", not owned`,
			},
		},
		{
			name: "null is not absent", desired: `{spec: {a: 1}}`, live: `{spec: {a: null}}`, mine: `{}`,
			want: []string{`changed .spec.a: null -> 1`},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			fields, err := diff.Fields(object(t, test.desired), owned(t, test.live, test.mine, test.other),
				diff.Options{Manager: "me", Applied: test.applied})
			require.NoError(t, err)
			if test.want == nil {
				test.want = []string{}
			}
			require.Empty(t, cmp.Diff(test.want, lines(fields)))
		})
	}
}

func TestSecretDataWritesStringDataAsTheServerDoes(t *testing.T) {
	t.Parallel()
	const text = `{apiVersion: v1, kind: Secret, data: {a: eA==, b: eA==}, stringData: {b: hunter2}}`
	desired := object(t, text)
	require.Empty(t, cmp.Diff(object(t, `{apiVersion: v1, kind: Secret, data: {a: eA==, b: aHVudGVyMg==}}`), diff.SecretData(desired)))
	require.Empty(t, cmp.Diff(object(t, text), desired), "the given object stays")
	for _, other := range []string{
		`{apiVersion: v1, kind: Secret, data: {a: eA==}}`, `{apiVersion: x/v1, kind: Secret, stringData: {a: b}}`, `{apiVersion: v1, kind: Secret, stringData: {a: 1}}`,
	} {
		require.Empty(t, cmp.Diff(object(t, other), diff.SecretData(object(t, other))))
	}
}

func TestAnObjectWithoutManagedFieldsIsComparedByContent(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, desired, live string
		want                []string
	}{
		{"what is beyond", `{spec: {a: 1}}`, `{spec: {a: 1, b: 2}, status: {}}`, nil},
		{"a value", `{spec: {a: 1}}`, `{spec: {a: 2}}`, []string{`changed .spec.a: 2 -> 1 (by content)`}},
		{"a missing one", `{spec: {a: 1}}`, `{spec: {}}`, []string{`missing .spec.a: (absent) -> 1 (by content)`}},
		{"what may be absent", `{spec: {a: 0, b: false, c: "", d: null, e: [], f: {}, g: {h: 0}}}`, `{spec: {}}`, nil},
		{"what is empty in another way", `{spec: {a: null, b: ""}}`, `{spec: {a: "", b: null}}`, nil},
		{"items with names, in any order", `{l: [{name: a, v: 1}, {name: b}]}`, `{l: [{name: c}, {name: b, w: 1}, {name: a, v: 1}]}`, nil},
		{"an item with another value", `{l: [{name: a, v: 1}]}`, `{l: [{name: c}, {name: a, v: 2}]}`, []string{`changed .l[name="a"].v: 2 -> 1 (by content)`}},
		{"a missing item", `{l: [{name: a}]}`, `{l: [{name: c}]}`, []string{`missing .l[name="a"]: (absent) -> {"name":"a"} (by content)`}},
		{"items without names", `{l: [{v: 1}, {v: 2}]}`, `{l: [{v: 1, w: 1}, {v: 3}]}`, []string{`changed .l[1].v: 3 -> 2 (by content)`}},
		{"two items of one name", `{l: [{name: a, v: 1}, {name: a, v: 2}]}`, `{l: [{name: a, v: 1}, {name: a, v: 3}]}`, []string{`changed .l[1].v: 3 -> 2 (by content)`}},
		{"lists of other lengths", `{l: [1, 2]}`, `{l: [1]}`, []string{`changed .l: [1] -> [1,2] (by content)`}},
		{"a quantity", `{apiVersion: v1, spec: {limits: {cpu: 0.5}}}`, `{apiVersion: v1, spec: {limits: {cpu: 500m}}}`, nil},
		{"another type", `{spec: {a: {b: 1}}}`, `{spec: {a: []}}`, []string{`changed .spec.a: [] -> {"b":1} (by content)`}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			desired, live := object(t, test.desired), object(t, test.live)
			require.False(t, diff.Tracked(live))
			fields, err := diff.Fields(desired, live, diff.Options{Manager: "me"})
			require.NoError(t, err)
			require.ElementsMatch(t, test.want, lines(fields))
			require.Equal(t, len(test.want) == 0, diff.States(live, desired))
		})
	}
}

func TestManagedFieldsThatCannotBeReadAreAnErrorThatNamesThem(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{metadata: {managedFields: x}}`:                                                   "managedFields: is a string; want a list",
		`{metadata: {managedFields: [x]}}`:                                                 "managedFields[0]: is a string; want an object",
		`{metadata: {managedFields: [{}, {manager: 1}]}}`:                                  "managedFields[1]: manager: is a float64; want a string",
		`{metadata: {managedFields: [{time: never}]}}`:                                     `managedFields[0]: time: parsing time "never" as "2006-01-02T15:04:05Z07:00": cannot parse "never" as "2006"`,
		`{metadata: {managedFields: [{manager: m, fieldsV1: [1]}]}}`:                       `managedFields[0]: managedFields of "m": `,
		`{metadata: {managedFields: [{manager: m, fieldsV1: {"k:{": {}}}]}}`:               `managedFields[0]: managedFields of "m": `,
		`{metadata: {managedFields: [{manager: m, fieldsV1: {"x:unknown": {}, "q": 1}}]}}`: `managedFields[0]: managedFields of "m": `,
	} {
		_, err := diff.Fields(map[string]any{}, object(t, text), diff.Options{Manager: "me"})
		require.ErrorContains(t, err, want, text)
	}
}

func TestOurEntryOfASubresourceIsAnother(t *testing.T) {
	t.Parallel()
	live := owned(t, `{spec: {a: 1}, status: {a: 1}}`, `{"f:spec":{"f:a":{}}}`, "")
	metadata := live["metadata"].(map[string]any)
	status := map[string]any{
		"manager": "me", "operation": "Apply", "subresource": "status",
		"time": "2026-11-21T00:00:00Z", "fieldsV1": map[string]any{"f:status": map[string]any{"f:a": map[string]any{}}},
	}
	metadata["managedFields"] = append([]any{status}, metadata["managedFields"].([]any)...)
	fields, err := diff.Fields(object(t, `{spec: {a: 1}}`), live, diff.Options{Manager: "me"})
	require.NoError(t, err)
	require.Empty(t, fields)
}

// TestASecretIsMaskedInADifferenceAlone: the object that was compared is applied next.
func TestASecretIsMaskedInADifferenceAlone(t *testing.T) {
	t.Parallel()
	const text = `{apiVersion: v1, kind: Secret, metadata: {annotations: {a: b, example.com/desired-hash: bb68}}, data: {a: eA==}}`
	desired := object(t, text)
	fields, err := diff.Fields(desired, owned(t, `{apiVersion: v1, kind: Secret, metadata: {}}`, `{}`, ""), diff.Options{Manager: "me"})
	require.NoError(t, err)
	require.NotEmpty(t, fields)
	require.Equal(t, object(t, text), desired)
}

func TestFieldsNeedsAManager(t *testing.T) {
	t.Parallel()
	_, err := diff.Fields(nil, nil, diff.Options{})
	require.EqualError(t, err, "diff: Options.Manager: is required")
}

func TestTheLatestOfSeveralOwnersComesFirst(t *testing.T) {
	t.Parallel()
	live := owned(t, `{data: {a: x}}`, "", `{"f:data":{"f:a":{}}}`)
	metadata := live["metadata"].(map[string]any)
	later := map[string]any{
		"manager":     "later",
		"operation":   "Apply",
		"subresource": "s",
		"time":        "2026-11-21T00:00:00Z",
		"fieldsV1":    map[string]any{"f:data": map[string]any{"f:a": map[string]any{}}},
	}
	none := map[string]any{
		"manager":   "none",
		"operation": "Update",
		"fieldsV1":  map[string]any{"f:data": map[string]any{"f:a": map[string]any{}}},
	}
	metadata["managedFields"] = append(metadata["managedFields"].([]any), none, later, map[string]any{"manager": "nothing"})
	fields, err := diff.Fields(object(t, `{data: {a: z}}`), live, diff.Options{Manager: "me"})
	require.NoError(t, err)
	require.Equal(
		t,
		[]string{`changed .data.a: "x" -> "z" (by "later" on s 2026-11-21T00:00:00Z, "other" 2026-11-20T10:00:00Z, "none")`},
		lines(fields),
	)
}
