package diff_test

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/diff"
)

func somePlan(t *testing.T) diff.Plan {
	t.Helper()
	at := time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)
	return diff.Plan{Changes: []diff.Change{
		{Action: diff.Create, APIVersion: "apps/v1", Kind: "Deployment", Namespace: "shop", Name: "web", Desired: hash(t, 1)},
		{
			Action:          diff.Update,
			APIVersion:      "v1",
			Kind:            "Service",
			Namespace:       "shop",
			Name:            "web",
			UID:             "u",
			ResourceVersion: "7",
			Desired:         hash(t, 2),
			Fields: []diff.Field{
				{
					Path:       ".spec.replicas",
					Difference: diff.Changed,
					Desired:    "5",
					Live:       "3",
					By:         []diff.Writer{{Manager: "kubectl-edit", Operation: "Update", Subresource: "scale", Time: at}, {Manager: "b"}},
				},
				{Path: ".spec.a", Difference: diff.Missing, Desired: "null"},
				{Path: ".spec.html", Difference: diff.Changed, Desired: `"<a>&\u001b"`, Live: `{"a":[1,2.5]}`, Structural: true},
			},
		},
		{Action: diff.Recreate, APIVersion: "batch/v1", Kind: "Job", Namespace: "shop", Name: "j", UID: "u", Note: "spec.template is immutable"},
		{Action: diff.Delete, APIVersion: "v1", Kind: "Namespace", Name: "old", UID: "u"},
		{Action: diff.Release, APIVersion: "v1", Kind: "ConfigMap", Namespace: "shop", Name: "c\x1b[31m", UID: "u"},
		{Action: diff.Keep, APIVersion: "v1", Kind: "Pod", Namespace: "shop", Name: "p", UID: "u"},
	}}
}

func TestAPlanReadsLikeADiff(t *testing.T) {
	t.Parallel()
	require.Equal(t, `+ create Deployment.apps/shop/web
~ update Service/shop/web
    .spec.replicas: 3 -> 5 (by "kubectl-edit" on scale 2026-11-20T10:00:00Z, "b")
    .spec.a: (absent) -> null
    .spec.html: {"a":[1,2.5]} -> "<a>&\u001b" (by content)
-+ recreate Job.batch/shop/j (spec.template is immutable)
- delete Namespace/old
o release ConfigMap/shop/c\u001b[31m
= keep Pod/shop/p
1 to create, 1 to update, 1 to recreate, 1 to delete, 1 to release, 1 to keep
`, somePlan(t).String())
	require.Equal(t, "nothing to do\n", diff.Plan{}.String())
}

func TestAPlanComesBackFromJSONAsItWas(t *testing.T) {
	t.Parallel()
	for _, plan := range []diff.Plan{somePlan(t), {}} {
		for _, indent := range []string{"", "  "} {
			data, err := json.MarshalIndent(plan, "", indent)
			require.NoError(t, err)
			var again diff.Plan
			require.NoError(t, json.Unmarshal(data, &again))
			require.Empty(t, cmp.Diff(plan, again))
			require.Equal(t, plan.Hash(), again.Hash())
		}
	}
	require.NotZero(t, diff.Plan{}.Hash())
}

// TestEveryPartOfAPlanCounts changes each field of each struct in turn.
func TestEveryPartOfAPlanCounts(t *testing.T) {
	t.Parallel()
	base := somePlan(t)
	base.Changes = base.Changes[1:]
	seen := map[diff.Sum]string{base.Hash(): "nothing"}
	var visit func(at string, find func(*diff.Plan) reflect.Value)
	visit = func(at string, find func(*diff.Plan) reflect.Value) {
		plan := somePlan(t)
		switch v := find(&plan); v.Interface().(type) {
		case time.Time, diff.Sum, string, diff.Value, diff.Action, diff.Difference, bool:
			switch v.Kind() {
			case reflect.String:
				v.SetString(v.String() + "1")
			case reflect.Bool:
				v.SetBool(!v.Bool())
			default:
				require.False(t, v.IsZero(), at)
				v.SetZero()
			}
			sum := plan.Hash()
			require.NotContains(t, seen, sum, "%s and %s", at, seen[sum])
			seen[sum] = at
		default:
			if v.Kind() == reflect.Slice {
				visit(at+"[0]", func(p *diff.Plan) reflect.Value { return find(p).Index(0) })
				return
			}
			for i := range v.NumField() {
				visit(at+"."+v.Type().Field(i).Name, func(p *diff.Plan) reflect.Value { return find(p).Field(i) })
			}
		}
	}
	visit("change", func(p *diff.Plan) reflect.Value {
		p.Changes = p.Changes[1:]
		return reflect.ValueOf(&p.Changes[0]).Elem()
	})
	require.Len(t, seen, 1+9+5+4)
}

func TestALongValueIsCutOnALine(t *testing.T) {
	t.Parallel()
	long := diff.Value(
		`"` + string(make([]byte, 0, 1)) + "äääääääääääääääääääääääääääääääääääääääääääääääääääääääääääääääääääääääääääääääääääääääääääää" + `"`,
	)
	text := long.String()
	require.Less(t, len(text), 170)
	require.Contains(t, text, "ä…")
	require.NotContains(t, text, "\ufffd")
}

func TestAValueMovesNoCursor(t *testing.T) {
	t.Parallel()
	require.Equal(t, `"\u202e\u009b"`, diff.Value("\"\u202e\u009b\"").String())
	require.Equal(t, `"\udb40\udc01"`, diff.Value("\"\U000e0001\"").String())
	require.Equal(t, `"ä😀"`, diff.Value(`"ä😀"`).String())
}

func TestASumThatIsNoneIsRefused(t *testing.T) {
	t.Parallel()
	var plan diff.Plan
	require.ErrorContains(t, json.Unmarshal([]byte(`{"changes":[{"desired":"x"}]}`), &plan), `sum "x": want 32 hexadecimal digits`)
	require.Error(t, json.Unmarshal([]byte(`{"changes":[{"fields":[{"live":]}]}`), &plan))
}
