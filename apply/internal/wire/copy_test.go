package wire_test

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/seed-9e1ffd66/trueup/apply/internal/wire"
)

// asJSON is what Copy stands for.
func asJSON(object map[string]any) (copied map[string]any, err error) {
	data, err := json.Marshal(object)
	if err == nil {
		err = utiljson.Unmarshal(data, &copied)
	}
	return copied, err
}

// leaves are values of all kinds, those that JSON changes or refuses included.
var leaves = []any{
	nil, true, false, "", "text", "é<&>\u2028\x00", "\xff\xfe", int64(0), int64(math.MaxInt64), int64(math.MinInt64), 7, int32(-7), uint8(3),
	uint64(math.MaxUint64), 0.5, 1.0, math.Copysign(0, -1), 1e15, 1e21, 1e300, 5e-324, float32(0.1), math.Inf(1), math.NaN(),
	json.Number("12"), json.Number("1.50"), json.Number("nonsense"),
	[]string{"a"},
	[]string(nil),
	map[string]string{"a": "b"},
	map[string]string(nil),
	map[string]any(nil), []any(nil),
	map[string]any{},
	[]any{},
	struct{ A int }{1},
	[]byte("bytes"), func() {}, make(chan int),
	json.RawMessage(`{"a": 1.0}`), (*int)(nil),
}

func TestACopyIsWhatJSONMakesOfTheObject(t *testing.T) {
	t.Parallel()
	check := func(object map[string]any) {
		t.Helper()
		want, wrong := asJSON(object)
		have, err := wire.Copy(object)
		require.Equal(t, wrong == nil, err == nil, "%v: %v, %v", object, wrong, err)
		if wrong == nil {
			require.Equal(t, want, have, "%v", object)
		}
	}
	check(nil)
	check(map[string]any{})
	check(map[string]any{"\xff": 1})
	check(map[string]any{"in": map[string]any{"a\xff": []any{1}}})
	for i, leaf := range leaves {
		check(map[string]any{"leaf": leaf})
		check(map[string]any{"in": []any{map[string]any{"a": leaf}}, "n": i})
	}
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // a test
	for range 5000 {
		check(grown(random, 4).(map[string]any))
	}
}

// grown returns a random object.
func grown(random *rand.Rand, depth int) any {
	object := map[string]any{}
	for range random.IntN(4) {
		key := string(rune('a' + random.IntN(26)))
		switch {
		case depth > 0 && random.IntN(2) == 0:
			object[key] = grown(random, depth-1)
		case depth > 0 && random.IntN(3) == 0:
			object[key] = []any{grown(random, depth-1), leaves[random.IntN(len(leaves))]}
		default:
			object[key] = leaves[random.IntN(16)] // those that JSON holds
		}
	}
	return object
}

// TestACopySharesNothing, because the caller may change the object afterwards.
func TestACopySharesNothing(t *testing.T) {
	t.Parallel()
	list, inner := []any{"a", map[string]any{"b": "c"}}, map[string]any{"k": "v"}
	object := map[string]any{"list": list, "map": inner}
	have, err := wire.Copy(object)
	require.NoError(t, err)
	list[0], inner["k"] = "other", "other"
	list[1].(map[string]any)["b"] = "other"
	delete(object, "map")
	require.Equal(t, map[string]any{"list": []any{"a", map[string]any{"b": "c"}}, "map": map[string]any{"k": "v"}}, have)
}

// workload is an object of usual size.
func workload() map[string]any {
	var environment []any
	for i := range 12 {
		environment = append(environment, map[string]any{"name": fmt.Sprint("VARIABLE_", i), "value": strings.Repeat("v", 20)})
	}
	return map[string]any{
		"apiVersion": "apps/v1", "kind": "Deployment", "metadata": map[string]any{"name": "web", "labels": map[string]any{"app": "web"}},
		"spec": map[string]any{"replicas": int64(3), "template": map[string]any{"spec": map[string]any{"containers": []any{
			map[string]any{"name": "web", "image": "example.com/web:1", "env": environment},
		}}}},
	}
}

// TestACopyAllocatesLessThanJSON measures the process: it runs alone.
func TestACopyAllocatesLessThanJSON(t *testing.T) { //nolint:paralleltest // as above
	object := workload()
	direct := testing.AllocsPerRun(100, func() { _, _ = wire.Copy(object) })
	through := testing.AllocsPerRun(100, func() { _, _ = asJSON(object) })
	t.Logf("allocations: %.0f, through JSON %.0f", direct, through)
	require.Less(t, direct, through/3)
}

func BenchmarkCopy(b *testing.B) {
	object := workload()
	for name, of := range map[string]func(map[string]any) (map[string]any, error){"direct": wire.Copy, "json": asJSON} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for range b.N {
				_, _ = of(object)
			}
		})
	}
}
