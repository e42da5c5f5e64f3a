package diff_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/diff"
)

const deployment = `{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, namespace: shop, labels: {app: web}}, spec: {replicas: 3,
  template: {spec: {containers: [{name: a, image: a:1}, {name: b, image: b:1, ports: [{containerPort: 80}]}]}}, sets: [x, y]}}`

func strip(t *testing.T, desired map[string]any, rules ...diff.Rule) map[string]any {
	t.Helper()
	ignore, err := diff.NewIgnore(rules...)
	require.NoError(t, err)
	return ignore.Strip(desired)
}

func TestStripTakesOutWhatMatches(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ name, path, want string }{
		{"a field", `.spec.template`, `{replicas: 3, sets: [x, y]}`},
		{"a map that is empty then", `.spec.template.spec.containers`, `{replicas: 3, sets: [x, y]}`},
		{"a field of one item", `.spec.template.spec.containers[name="b"].image`, `{replicas: 3, sets: [x, y], template: {spec: {containers: [{name: a, image: "a:1"}, {name: b, ports: [{containerPort: 80}]}]}}}`},
		{"a field of every item", `.spec.template.spec.containers[*].image`, `{replicas: 3, sets: [x, y], template: {spec: {containers: [{name: a}, {name: b, ports: [{containerPort: 80}]}]}}}`},
		{"an item", `.spec.template.spec.containers[name="a"]`, `{replicas: 3, sets: [x, y], template: {spec: {containers: [{name: b, image: "b:1", ports: [{containerPort: 80}]}]}}}`},
		{"an element", `.spec.sets[="x"]`, `{replicas: 3, sets: [y], template: {spec: {containers: [{name: a, image: "a:1"}, {name: b, image: "b:1", ports: [{containerPort: 80}]}]}}}`},
		{"an item by index", `.spec.sets[1]`, `{replicas: 3, sets: [x], template: {spec: {containers: [{name: a, image: "a:1"}, {name: b, image: "b:1", ports: [{containerPort: 80}]}]}}}`},
		{"an item by all of its key", `.spec.template.spec.containers[name="b"].ports[containerPort=80,protocol="TCP"]`, `{replicas: 3, sets: [x, y], template: {spec: {containers: [{name: a, image: "a:1"}, {name: b, image: "b:1", ports: []}]}}}`},
		{"every item", `.spec.template.spec.containers[name="b"].ports[*]`, `{replicas: 3, sets: [x, y], template: {spec: {containers: [{name: a, image: "a:1"}, {name: b, image: "b:1", ports: []}]}}}`},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			desired := object(t, deployment)
			got := strip(t, desired, diff.Rule{Paths: []string{test.path}})
			require.Empty(t, cmp.Diff(object(t, test.want), got["spec"]))
			require.Empty(t, cmp.Diff(object(t, deployment), desired), "the given object stays")
		})
	}
}

func TestStripReturnsTheObjectItselfWhereNothingMatches(t *testing.T) {
	t.Parallel()
	replicas := []string{".spec.replicas"}
	for _, rule := range []diff.Rule{
		{Kind: "Deployment", Paths: replicas},
		{Kind: "Deployment.batch", Paths: replicas},
		{Kind: "StatefulSet.apps", Paths: replicas},
		{Namespace: "other", Paths: replicas},
		{Name: "other", Paths: replicas},
		{Selector: "app!=web", Paths: replicas},
		{Paths: []string{".spec.none", ".spec.replicas.x", ".spec[0]", `.spec.template.spec.containers[name="c"].image`, ".kind.x", ".spec.sets.x", `.spec.sets[="z"]`, `.spec.template.spec.containers[name="b"].ports[containerPort=80,protocol="UDP"]`}},
	} {
		desired := object(t, deployment)
		got := strip(t, desired, rule)
		got["same"] = true
		require.Contains(t, desired, "same", "%v", rule)
		require.Contains(t, desired["spec"], "replicas", "%v", rule)
	}
	var none diff.Ignore
	desired := object(t, deployment)
	require.Empty(t, cmp.Diff(desired, none.Strip(desired)))
	fields := []diff.Field{{Path: ".spec.replicas"}}
	require.Equal(t, fields, none.Filter(desired, fields))
}

func TestARuleMatchesOnAllItsConditions(t *testing.T) {
	t.Parallel()
	desired := object(t, deployment)
	got := strip(
		t,
		desired,
		diff.Rule{Kind: "Deployment.apps", Namespace: "shop", Name: "web", Selector: "app in (web, api)", Paths: []string{".spec.replicas"}},
	)
	require.NotContains(t, got["spec"], "replicas")
}

func TestFilterHidesWhatIsLeftToOthersAndNoLoss(t *testing.T) {
	t.Parallel()
	ignore, err := diff.NewIgnore(
		diff.Rule{Paths: []string{".spec.replicas", ".spec.containers[*].image", ".spec.ports[port=53].name", `.metadata.annotations["a/b"]`}},
	)
	require.NoError(t, err)
	field := func(path string, d diff.Difference) diff.Field { return diff.Field{Path: path, Difference: d} }
	fields := []diff.Field{
		field(".spec.replicas", diff.Changed),
		field(".spec.replicas", diff.Removed),
		field(".spec.replicas", diff.Released),
		field(`.spec.containers[name="a"].image`, diff.Taken),
		field(`.spec.containers[name="a"].name`, diff.Taken),
		field(`.metadata.annotations["a/b"]`, diff.Missing),
		field(".spec", diff.Missing),
		field(`.spec.ports[port=53,protocol="UDP"].name`, diff.Changed),
		field(`.spec.ports[port=54,protocol="UDP"].name`, diff.Changed),
		field(".spec.containers.x.image", diff.Changed),
	}
	got := ignore.Filter(object(t, deployment), fields)
	require.Equal(t, []diff.Field{fields[1], fields[2], fields[4], fields[6], fields[8], fields[9]}, got)
	require.Equal(t, ".spec.replicas", fields[0].Path, "the given slice stays")
}

func TestAllMistakesInRulesAreNamed(t *testing.T) {
	t.Parallel()
	_, err := diff.NewIgnore(
		diff.Rule{Paths: []string{".spec.replicas"}},
		diff.Rule{Kind: "apps/v1/Deployment"},
		diff.Rule{Selector: "a b", Paths: []string{"spec", ".metadata.name", ".kind"}},
	)
	require.EqualError(t, err, `ignore rule 1: kind "apps/v1/Deployment": want Kind.group, such as Deployment.apps
ignore rule 1: paths: want at least one, such as .spec.replicas
ignore rule 2: selector "a b": unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt
ignore rule 2: path "spec": at offset 0: want .name or [ here, as in .spec.replicas
ignore rule 2: path ".metadata.name": identifies the object; want a field below .spec, .data, .metadata.labels or the like
ignore rule 2: path ".kind": identifies the object; want a field below .spec, .data, .metadata.labels or the like`)
}

func TestRulesAreJoined(t *testing.T) {
	t.Parallel()
	a, err := diff.NewIgnore(diff.Rule{Paths: []string{".spec.replicas"}})
	require.NoError(t, err)
	b, err := diff.NewIgnore(diff.Rule{Paths: []string{".spec.template"}})
	require.NoError(t, err)
	object := map[string]any{"spec": map[string]any{"replicas": int64(3), "template": map[string]any{}, "paused": true}}
	require.Equal(t, map[string]any{"spec": map[string]any{"paused": true}}, a.Also(b).Strip(object))
	require.Equal(t, a.Strip(object), a.Also(diff.Ignore{}).Strip(object))
}
