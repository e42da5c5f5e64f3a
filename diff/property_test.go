package diff_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed-9e1ffd66/trueup/diff"
)

// world makes objects: maps are merged by field; of lists, those named keyed by
// the name of their items, those named set by value, and others as a whole.
type world struct{ *rand.Rand }

func (w world) object(depth int) map[string]any {
	m := map[string]any{}
	for range w.IntN(4) {
		name, kind := string(rune('a'+w.IntN(5))), w.IntN(8)
		switch {
		case depth > 0 && kind < 2:
			m[name] = w.object(depth - 1)
		case depth > 0 && kind == 2:
			m["keyed"] = w.items(func(i int) any {
				item := w.object(depth - 1)
				item["name"] = fmt.Sprint("item", i)
				return item
			})
		case kind == 3:
			m["set"] = w.items(func(i int) any { return fmt.Sprint("value", i) })
		case depth > 0 && kind == 4:
			m["list"] = w.items(func(int) any { return w.object(0) })
		default:
			m[name] = []any{"x", "", true, nil, int64(w.IntN(3)), 1.5}[w.IntN(6)]
		}
	}
	return m
}

func (w world) items(item func(int) any) []any {
	found := []any{}
	for _, i := range w.Perm(3)[:1+w.IntN(3)] {
		found = append(found, item(i))
	}
	return found
}

// applied returns the field set that a server records for an apply: members for
// items of keyed lists and all that is not merged, nothing for structs.
func applied(v any, name string) map[string]any {
	set := map[string]any{}
	switch v := v.(type) {
	case map[string]any:
		for key, child := range v {
			set["f:"+key] = applied(child, key)
		}
	case []any:
		for _, item := range v {
			switch name {
			case "keyed":
				fields := applied(item, "")
				fields["."] = map[string]any{}
				set[fmt.Sprintf("k:{\"name\":%q}", item.(map[string]any)["name"])] = fields
			case "set":
				set[fmt.Sprintf("v:%q", item)] = map[string]any{}
			}
		}
	}
	return set
}

// shuffled returns a copy with the lists that are merged in another order.
func (w world) shuffled(v any, name string) any {
	switch v := v.(type) {
	case map[string]any:
		m := map[string]any{}
		for key, child := range v {
			m[key] = w.shuffled(child, key)
		}
		return m
	case []any:
		if name != "keyed" && name != "set" {
			return v // and all in it
		}
		l := []any{}
		for _, item := range v {
			l = append(l, w.shuffled(item, ""))
		}
		w.Shuffle(len(l), func(i, j int) { l[i], l[j] = l[j], l[i] })
		return l
	}
	return v
}

func live(content, set map[string]any) map[string]any {
	return map[string]any{"spec": content, "metadata": map[string]any{"managedFields": []any{map[string]any{
		"manager": "me", "operation": "Apply", "fieldsV1": map[string]any{"f:spec": set},
	}}}}
}

func FuzzWhatWasAppliedIsNoDifference(f *testing.F) {
	for seed := range uint64(200) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		w := world{rand.New(rand.NewPCG(seed, 1))} //nolint:gosec // a seed is wanted
		content := w.object(3)
		if len(content) == 0 {
			return
		}
		desired := map[string]any{"spec": content}
		set := applied(content, "")
		found := live(content, set)
		for _, known := range []bool{false, true} {
			fields, err := diff.Fields(desired, found, diff.Options{Manager: "me", Applied: known})
			require.NoError(t, err)
			require.Empty(t, lines(fields))
		}
		raw, err := json.Marshal(map[string]any{"f:spec": set})
		require.NoError(t, err)
		sets, err := diff.Owned(&metav1.ManagedFieldsEntry{FieldsV1: &metav1.FieldsV1{Raw: raw}})
		require.NoError(t, err)
		require.True(t, diff.Covers(sets, desired))
		require.True(t, diff.States(found, desired))

		// Nothing but order changes with the order of merged lists.
		other := map[string]any{"spec": w.shuffled(content, "")}
		require.True(t, diff.Covers(sets, other))
		fields, err := diff.Fields(other, found, diff.Options{Manager: "me"})
		require.NoError(t, err)
		for _, line := range fields {
			require.Equal(t, diff.Reordered, line.Difference)
		}
		// What differs is the same whatever order the live lists have.
		wanted := map[string]any{"spec": w.object(3)}
		mixed := live(w.shuffled(content, "").(map[string]any), set)
		require.Empty(t, cmp.Diff(unordered(t, wanted, found), unordered(t, wanted, mixed)))
	})
}

// unordered returns the differences but those of order, sorted. Live values that
// contain lists differ by their order.
func unordered(t *testing.T, desired, found map[string]any) []string {
	t.Helper()
	fields, err := diff.Fields(desired, found, diff.Options{Manager: "me"})
	require.NoError(t, err)
	names := []string{}
	for _, f := range fields {
		if f.Difference != diff.Reordered {
			names = append(names, string(f.Difference)+" "+f.Path+" "+string(f.Desired))
		}
	}
	slices.Sort(names)
	return names
}

func FuzzFieldsNeverPanicsAndChangesNothing(f *testing.F) {
	f.Add([]byte(`{"metadata":{"managedFields":[{"manager":"me","operation":"Apply","fieldsV1":`+serviceOwned+`}]}}`), []byte(service))
	f.Add([]byte(service), []byte(service))
	f.Add(
		[]byte(
			`{"l":[1,2,{"name":"a"}],"metadata":{"managedFields":[{"manager":"me","operation":"Apply","fieldsV1":{"f:l":{"i:1":{},"v:1":{},"k:{\"name\":\"a\"}":{".":{}}}}},{"fieldsV1":{"f:l":{".":{}}}}]}}`,
		),
		[]byte(`{"l":[{"name":"a"},1]}`),
	)
	f.Add(
		[]byte(`{"apiVersion":"v1","kind":"Secret","data":{"a":1},"metadata":{"annotations":1,"managedFields":[{"fieldsV1":null}]}}`),
		[]byte(`{"stringData":{"a":1},"data":[],"metadata":1}`),
	)
	f.Add(
		[]byte(
			`{"l":[{"port":1}],"metadata":{"managedFields":[{"manager":"me","operation":"Apply","fieldsV1":{"f:l":{"k:{\"port\":1,\"protocol\":2}":{}}}}]}}`,
		),
		[]byte(`{"l":[{"port":1},{},[]]}`),
	)
	f.Fuzz(func(t *testing.T, liveJSON, desiredJSON []byte) {
		var live, desired map[string]any
		if json.Unmarshal(liveJSON, &live) != nil || json.Unmarshal(desiredJSON, &desired) != nil {
			return
		}
		before, err := diff.Hash([]any{live, desired})
		require.NoError(t, err)
		for _, known := range []bool{false, true} {
			fields, err := diff.Fields(desired, live, diff.Options{Manager: "me", Applied: known})
			if err != nil {
				continue
			}
			again, err := diff.Fields(desired, live, diff.Options{Manager: "me", Applied: known})
			require.NoError(t, err)
			require.Empty(t, cmp.Diff(fields, again), "the same each time")
			plan := diff.Plan{Changes: []diff.Change{{Fields: fields}}}
			data, err := json.Marshal(plan)
			require.NoError(t, err)
			var decoded diff.Plan
			require.NoError(t, json.Unmarshal(data, &decoded))
			require.Equal(t, plan.Hash(), decoded.Hash())
			for _, field := range fields {
				_, err := diff.ReformatPath(field.Path)
				require.NoError(t, err, field.Path)
			}
		}
		diff.States(live, desired)
		diff.SecretData(desired)
		after, err := diff.Hash([]any{live, desired})
		require.NoError(t, err)
		require.Equal(t, before, after, "the objects are only read")
	})
}

func TestDeepNestingIsNoTrouble(t *testing.T) {
	t.Parallel()
	text, set := `1`, `{}`
	for range 2000 {
		text, set = `{"a":`+text+`}`, `{"f:a":`+set+`}`
	}
	fields, err := diff.Fields(object(t, text), owned(t, `{}`, set, ""), diff.Options{Manager: "me"})
	require.NoError(t, err)
	require.Len(t, fields, 1)
}
