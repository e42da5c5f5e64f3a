package diff_test

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed-9e1ffd66/trueup/diff"
)

func hash(t *testing.T, v any) diff.Sum {
	t.Helper()
	sum, err := diff.Hash(v)
	require.NoError(t, err)
	require.NotZero(t, sum)
	return sum
}

func TestEqualContentHasOneHashHoweverItIsHeld(t *testing.T) {
	t.Parallel()
	type held struct {
		B string  `json:"b"`
		A int32   `json:"a"`
		C []int64 `json:"c"`
	}
	want := hash(t, map[string]any{"a": int64(1), "b": "x", "c": []any{int64(1), int64(2)}})
	for name, v := range map[string]any{
		"floats":   map[string]any{"b": "x", "c": []any{1.0, 2.0}, "a": 1.0},
		"numbers":  map[string]any{"c": []any{json.Number("1"), json.Number("2.0")}, "b": "x", "a": json.Number("1")},
		"ints":     map[string]any{"a": 1, "b": "x", "c": []any{int32(1), 2}},
		"a struct": held{A: 1, B: "x", C: []int64{1, 2}},
		"raw JSON": json.RawMessage(`{"c":[1,2],"b":"x","a":1}`),
	} {
		require.Equal(t, want, hash(t, v), name)
	}
}

func TestDifferentContentHasDifferentHashes(t *testing.T) {
	t.Parallel()
	seen := map[diff.Sum]int{}
	values := []any{
		nil, true, false, "", "1", 1, -1, 1.5,
		[]any{},
		[]any{nil},
		[]any{[]any{}},
		map[string]any{},
		map[string]any{"a": nil},
		map[string]any{"a": "b"},
		map[string]any{"b": "a"},
		[]any{"a", "b"},
		[]any{"b", "a"},
		[]any{"ab"},
		[]any{"a", []any{"b"}},
		map[string]any{"a": map[string]any{"b": "c"}},
		map[string]any{"a": "b", "c": "d"},
		1e300, math.MaxInt64, math.MinInt64,
	}
	for i, v := range values {
		sum := hash(t, v)
		require.NotContains(t, seen, sum, "%v", v)
		seen[sum] = i
	}
}

func TestHashNamesTheValueThatJSONCannotHold(t *testing.T) {
	t.Parallel()
	_, err := diff.Hash(map[string]any{"spec": []any{1, math.NaN()}})
	require.EqualError(t, err, "hash: spec: [1]: NaN is not a JSON number")
	_, err = diff.Hash(map[string]any{"f": func() {}})
	require.ErrorContains(t, err, "hash: f: json: unsupported type")
}

func TestSumsAreReadAsTheyAreWritten(t *testing.T) {
	t.Parallel()
	sum := hash(t, "x")
	parsed, ok := diff.ParseSum(sum.String())
	require.True(t, ok)
	require.Equal(t, sum, parsed)
	for _, bad := range []string{"", "x", sum.String()[1:], sum.String() + "0", "zz" + sum.String()[2:]} {
		_, ok := diff.ParseSum(bad)
		require.False(t, ok, bad)
	}
}

func entry(manager, fields string, at time.Time) metav1.ManagedFieldsEntry {
	when := metav1.NewTime(at)
	return metav1.ManagedFieldsEntry{
		Manager: manager, Operation: metav1.ManagedFieldsOperationApply, Time: &when,
		FieldsType: "FieldsV1", FieldsV1: &metav1.FieldsV1{Raw: []byte(fields)},
	}
}

func TestDigestDependsOnOurApplyEntryAlone(t *testing.T) {
	t.Parallel()
	at := time.Unix(1e9, 0)
	digest := func(entries ...metav1.ManagedFieldsEntry) (diff.Sum, bool) {
		return diff.Digest(&metav1.ObjectMeta{ManagedFields: entries}, "me")
	}
	ours := entry("me", `{"f:a":{}}`, at)
	want, ok := digest(ours)
	require.True(t, ok)

	update, status := ours, ours
	update.Operation, status.Subresource = metav1.ManagedFieldsOperationUpdate, "status"
	same, ok := digest(entry("other", `{"f:b":{}}`, at), update, status, ours)
	require.True(t, ok)
	require.Equal(t, want, same, "what others own does not count")

	for name, changed := range map[string]metav1.ManagedFieldsEntry{
		"fields": entry("me", `{"f:b":{}}`, at), "time": entry("me", `{"f:a":{}}`, at.Add(time.Second)),
	} {
		other, ok := digest(changed)
		require.True(t, ok)
		require.NotEqual(t, want, other, name)
	}
	empty := ours
	empty.FieldsV1 = nil
	for name, entries := range map[string][]metav1.ManagedFieldsEntry{
		"none": nil, "others": {entry("other", `{}`, at)}, "update": {update}, "status": {status}, "no fields": {empty},
	} {
		_, ok := digest(entries...)
		require.False(t, ok, name)
	}
}

// TestAHashOfAnObjectAllocatesLittle measures the process: it runs alone.
func TestAHashOfAnObjectAllocatesLittle(t *testing.T) { //nolint:paralleltest // as above
	var environment []any
	for i := range 12 {
		environment = append(environment, map[string]any{"name": fmt.Sprint("VARIABLE_", i), "value": strings.Repeat("v", 20)})
	}
	object := map[string]any{"apiVersion": "apps/v1", "kind": "Deployment", "spec": map[string]any{"env": environment, "replicas": int64(3)}}
	allocations := testing.AllocsPerRun(100, func() {
		if _, err := diff.Hash(object); err != nil {
			t.Error(err)
		}
	})
	require.Less(t, allocations, 15.0, "there are 14 maps and 28 texts")
}
