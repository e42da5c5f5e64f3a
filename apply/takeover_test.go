package apply_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/seed-9e1ffd66/trueup/apply"
	"github.com/seed-9e1ffd66/trueup/apply/applytest"
	"github.com/seed-9e1ffd66/trueup/diff"
	"github.com/seed-9e1ffd66/trueup/internal/bench/benchobjects"
)

func TestOwnershipIsMovedAlsoWhileAControllerReportsStatus(t *testing.T) {
	t.Parallel()
	b := serverBench(t)
	b.owner.Supersedes = []string{"kubectl-create"}
	b.kubectl(t, "create", "configmap", "-n", b.ns, "a", "--from-literal=key=1", "--from-literal=dropped=1")
	a := b.start(t)
	a.Adoption = apply.AdoptForeign
	// Twice, between the look at the record of ownership and the patch of it.
	changes := 0
	a.net.Fault = func(r applytest.Request) applytest.Fault {
		if r.Writes() && r.Name == "a" && changes > 0 && changes < 3 {
			b.kubectl(t, "annotate", "-n", b.ns, "configmap", "a", fmt.Sprintf("example.com/seen-%d=yes", changes))
		}
		if r.Writes() && r.Name == "a" {
			changes++
		}
		return applytest.Fault{}
	}
	apply1(t, a, b.set(t, configMap("a", "1")))
	require.Equal(t, "{\"key\":\"1\"}", b.kubectl(t, "get", "-n", b.ns, "configmap", "a", "-o", "jsonpath={.data}"))
	require.Equal(
		t,
		"yes yes",
		b.kubectl(
			t,
			"get",
			"-n",
			b.ns,
			"configmap",
			"a",
			"-o",
			`jsonpath={.metadata.annotations.example\.com/seen-1} {.metadata.annotations.example\.com/seen-2}`,
		),
	)
	require.Len(t, a.net.Writes(), 5, "one that finds the object, two in vain, the move, the apply")
}

func TestWhatASupersededManagerMadeIsAdoptedAndNothingElse(t *testing.T) {
	t.Parallel()
	b := serverBench(t)
	b.owner.Supersedes = []string{"earlier"}
	for name, manager := range map[string]string{"ours": "earlier", "theirs": "another", "both": "another"} {
		b.kubectl(t, "create", "configmap", "-n", b.ns, name, "--from-literal=key=1", "--from-literal=dropped=1", "--field-manager="+manager)
	}
	// A manager of metadata has not made an object, and one of a part of it not all.
	b.kubectl(t, "annotate", "-n", b.ns, "configmap", "ours", "--field-manager=another", "example.com/seen=yes")
	b.kubectl(t, "annotate", "-n", b.ns, "configmap", "theirs", "--field-manager=earlier", "example.com/seen=yes")
	b.kubectl(t, "patch", "-n", b.ns, "configmap", "both", "--field-manager=earlier", "-p", `{"data":{"more":"1"}}`)
	b.kubectl(t, "create", "configmap", "-n", b.ns, "parent")
	uid := b.kubectl(t, "get", "-n", b.ns, "configmap", "parent", "-o", "jsonpath={.metadata.uid}")
	b.kubectl(t, "create", "configmap", "-n", b.ns, "controlled", "--from-literal=key=1", "--field-manager=earlier")
	b.kubectl(t, "patch", "-n", b.ns, "configmap", "controlled", "--field-manager=earlier", "-p",
		fmt.Sprintf(`{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"parent","uid":%q,"controller":true}]}}`, uid))

	a := b.start(t)
	set := b.set(t, configMap("ours", "1"), configMap("theirs", "1"), configMap("both", "1"), configMap("controlled", "1"))
	plan, err := a.Plan(t.Context(), set, apply.PruneOptions{})
	require.ErrorIs(t, err, apply.ErrNotOurs)
	require.Len(t, plan.Changes, 1)
	require.Equal(t, "ours", plan.Changes[0].Name, "the plan knows")
	report, err := a.Apply(t.Context(), set)
	require.ErrorIs(t, err, apply.ErrNotOurs)
	require.Equal(t, 1, report.Count(apply.Updated))
	require.Equal(t, 3, report.Count(apply.Refused))
	require.JSONEq(t, `{"key":"1"}`, b.kubectl(t, "get", "-n", b.ns, "configmap", "ours", "-o", "jsonpath={.data}"))
	require.Equal(t, "yes", b.kubectl(t, "get", "-n", b.ns, "configmap", "ours", "-o", `jsonpath={.metadata.annotations.example\.com/seen}`))
	for _, name := range []string{"theirs", "both", "controlled"} {
		require.Empty(
			t,
			b.kubectl(t, "get", "-n", b.ns, "configmap", name, "-o", `jsonpath={.metadata.annotations.example\.com/desired-hash}`),
			name,
		)
	}
	pruned, err := a.Prune(t.Context(), b.set(t, configMap("kept", "1")), complete)
	require.NoError(t, err)
	require.Len(t, pruned.Results, 1, "what was adopted is ours to prune, and nothing else")
	require.Equal(t, "ours", pruned.Results[0].ID.Name)
}

// An operator that replaces its children has written every default of the server. The
// plan of their adoption is compared with what the apply then does, object by object.
func TestThePlanOfAnAdoptionIsWhatTheServerThenChanges(t *testing.T) {
	t.Parallel()
	b := serverBench(t)
	b.owner.Supersedes = []string{"operator"}
	const pod = `metadata: {labels: {app: a}}, spec: {containers: [{name: main, image: "example.com/a:1"%s}]%s}`
	made := []struct{ kind, before, after string }{
		{
			"deployment",
			"{apiVersion: apps/v1, kind: Deployment, metadata: {name: a, namespace: NAMESPACE}, spec: {replicas: 0, selector: {matchLabels: {app: a}}, " +
				"template: {" + fmt.Sprintf(
				pod,
				", env: [{name: OLD, value: x}]",
				", terminationGracePeriodSeconds: 60",
			) + "}}}",
			"{apiVersion: apps/v1, kind: Deployment, metadata: {name: a, namespace: NAMESPACE}, spec: {replicas: 0, selector: {matchLabels: {app: a}}, " +
				"template: {" + fmt.Sprintf(
				pod,
				"",
				"",
			) + "}}}",
		},
		{
			"statefulset",
			"{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: a, namespace: NAMESPACE}, spec: {serviceName: a, replicas: 0, selector: {matchLabels: {app: a}}, " +
				"template: {" + fmt.Sprintf(
				pod,
				"",
				"",
			) + "}}}",
			"",
		},
		{
			"service",
			"{apiVersion: v1, kind: Service, metadata: {name: a, namespace: NAMESPACE}, spec: {selector: {app: a}, ports: [{port: 80}]}}",
			"",
		},
		{
			"configmap",
			configMap("a", "1"),
			"{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: NAMESPACE}, data: {key: '1', more: x}}",
		},
		{
			"poddisruptionbudget",
			"{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {name: a, namespace: NAMESPACE}, spec: {maxUnavailable: 1, selector: {matchLabels: {app: a}}}}",
			"",
		},
		{
			"cronjob",
			"{apiVersion: batch/v1, kind: CronJob, metadata: {name: a, namespace: NAMESPACE}, spec: {schedule: '0 0 1 1 *', suspend: true, " +
				"jobTemplate: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: main, image: 'example.com/a:1'}]}}}}}}",
			"",
		},
	}
	var manifests []string
	for i, m := range made {
		file := filepath.Join(t.TempDir(), m.kind+".yaml")
		require.NoError(t, os.WriteFile(file, []byte(strings.ReplaceAll(m.before, "NAMESPACE", b.ns)), 0o600))
		b.kubectl(t, "create", "-f", file, "--field-manager=operator")
		if m.after == "" {
			made[i].after = m.before
		}
		manifests = append(manifests, made[i].after)
	}
	spec := func(kind string) string {
		return b.kubectl(t, "get", "-n", b.ns, kind, "a", "-o", "go-template={{.spec}}{{.data}}")
	}
	before := map[string]string{}
	for _, m := range made {
		before[m.kind] = spec(m.kind)
	}
	a := b.startUnsynced(t,
		schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "StatefulSet"},
		schema.GroupVersionKind{Group: "policy", Version: "v1", Kind: "PodDisruptionBudget"},
		schema.GroupVersionKind{Group: "batch", Version: "v1", Kind: "CronJob"},
	)
	waitSynced(t, a)
	set := b.set(t, manifests...)
	plan, err := a.Plan(t.Context(), set, apply.PruneOptions{})
	require.NoError(t, err)
	changes := map[string][]string{}
	for _, c := range plan.Changes {
		require.Empty(t, c.Note, c.Kind)
		for _, f := range c.Fields {
			if f.Difference != diff.Taken && f.Difference != diff.Released && !strings.HasPrefix(f.Path, ".metadata") {
				changes[strings.ToLower(c.Kind)] = append(changes[strings.ToLower(c.Kind)], f.String())
			}
		}
	}
	require.Equal(t, map[string][]string{
		"deployment": {
			`.spec.template.spec.containers[name="main"].env: [{"name":"OLD","value":"x"}] -> (absent)`,
			`.spec.template.spec.terminationGracePeriodSeconds: 60 -> 30`,
		},
		"configmap": {`.data.more: (absent) -> "x"`},
	}, changes)
	_, err = a.Apply(t.Context(), set)
	require.NoError(t, err)
	for _, m := range made {
		if changes[m.kind] == nil {
			require.Equal(t, before[m.kind], spec(m.kind), m.kind)
			continue
		}
		require.NotEqual(t, before[m.kind], spec(m.kind), m.kind)
	}
	require.NotContains(t, spec("deployment"), "OLD")
	require.Contains(t, spec("deployment"), "terminationGracePeriodSeconds:30")
}

// The objects of the benchmarks have what keeps others busy: quantities that the server
// writes otherwise, fields left out, two protocols on one port, claim templates.
func TestThePlanOfAnAdoptionNamesNoChangeThatTheServerDoesNotMake(t *testing.T) {
	t.Parallel()
	b := serverBench(t)
	b.owner.Supersedes = []string{"operator"}
	definition := filepath.Join(t.TempDir(), "definition.json")
	data, err := benchobjects.Definition().MarshalJSON()
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(definition, data, 0o600))
	b.kubectl(t, "apply", "-f", definition)
	b.kubectl(t, "wait", "--for=condition=Established", "-f", definition)
	client, err := dynamic.NewForConfig(b.config)
	require.NoError(t, err)
	resources := benchobjects.Resources()
	objects := benchobjects.Mix{Namespace: b.ns, Count: 10}.Objects()
	content := func(o *unstructured.Unstructured) map[string]any {
		live, err := client.Resource(resources[o.GroupVersionKind()]).Namespace(b.ns).Get(t.Context(), o.GetName(), metav1.GetOptions{})
		require.NoError(t, err)
		metadata := []any{live.GetLabels()["app"], live.GetAnnotations()["example.com/note"]}
		return map[string]any{"spec": live.Object["spec"], "data": live.Object["data"], "metadata": metadata}
	}
	before := map[string]map[string]any{}
	for i, o := range objects {
		resource := client.Resource(resources[o.GroupVersionKind()]).Namespace(b.ns)
		_, err := resource.Create(t.Context(), o.DeepCopy(), metav1.CreateOptions{FieldManager: "operator"})
		require.NoError(t, err)
		if i%2 == 0 { // the next program does not state it
			unstructured.RemoveNestedField(o.Object, "metadata", "annotations", "example.com/note")
		}
		before[o.GetName()] = content(o)
	}
	var watched []schema.GroupVersionKind
	for kind := range resources {
		watched = append(watched, kind)
	}
	a := b.startKinds(t, nil, watched...)
	waitSynced(t, a)
	set, err := apply.NewSet(b.owner, objects, apply.SetOptions{})
	require.NoError(t, err)
	plan, err := a.Plan(t.Context(), set, apply.PruneOptions{})
	require.NoError(t, err)
	require.Len(t, plan.Changes, 10)
	changes := map[string][]string{}
	for _, c := range plan.Changes {
		for _, f := range c.Fields {
			own := strings.Contains(f.Path, "example.com/owner") || strings.Contains(f.Path, "desired-hash")
			if f.Difference != diff.Taken && f.Difference != diff.Released && !own {
				changes[c.Name] = append(changes[c.Name], f.Path)
			}
		}
	}
	_, err = a.Apply(t.Context(), set)
	require.NoError(t, err)
	for i, o := range objects {
		if i%2 == 0 {
			require.Equal(t, []string{`.metadata.annotations["example.com/note"]`}, changes[o.GetName()], o.GetName())
			before[o.GetName()]["metadata"] = []any{o.GetLabels()["app"], ""}
		} else {
			require.Empty(t, changes[o.GetName()], o.GetName())
		}
		require.Equal(t, before[o.GetName()], content(o), o.GetName())
	}
}

// What a superseded manager stated and the set does not goes with the adoption, or cannot go.
func TestThePlanOfAnAdoptionNamesWhatTheServerRefuses(t *testing.T) {
	t.Parallel()
	b := serverBench(t)
	b.owner.Supersedes = []string{"operator"}
	create := func(manifest string) {
		t.Helper()
		file := filepath.Join(t.TempDir(), "manifest.yaml")
		require.NoError(t, os.WriteFile(file, []byte(strings.ReplaceAll(manifest, "NAMESPACE", b.ns)), 0o600))
		b.kubectl(t, "create", "--field-manager=operator", "-f", file)
	}
	const budget = "{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {name: p, namespace: NAMESPACE}, spec: {%s: 1, selector: {matchLabels: {a: b}}}}"
	const config = "{apiVersion: v1, kind: ConfigMap, metadata: {name: fixed, namespace: NAMESPACE}, data: {key: x}%s}"
	ours := strings.Replace(config, "name: fixed", "name: ours, labels: {example.com/owner: NAMESPACE}", 1)
	create(fmt.Sprintf(budget, "minAvailable"))
	create(fmt.Sprintf(config, ", immutable: true"))
	create(fmt.Sprintf(ours, ", immutable: true"))
	a := b.startUnsynced(t, schema.GroupVersionKind{Group: "policy", Version: "v1", Kind: "PodDisruptionBudget"})
	waitSynced(t, a)
	set := b.set(t, fmt.Sprintf(budget, "maxUnavailable"), fmt.Sprintf(config, ""), fmt.Sprintf(ours, ""))
	plan, err := a.Plan(t.Context(), set, apply.PruneOptions{})
	require.ErrorContains(t, err, "ConfigMap/"+b.ns+"/fixed: ")
	require.ErrorContains(t, err, "field is immutable when `immutable` is set")
	require.ErrorContains(t, err, "ConfigMap/"+b.ns+"/ours: ")
	require.Len(t, plan.Changes, 1, "of the other, one field takes the place of another")
	require.Equal(t, diff.Update, plan.Changes[0].Action)
	report, err := a.Execute(t.Context(), set, apply.PruneOptions{}, plan)
	require.NoError(t, err)
	require.Equal(t, 1, report.Count(apply.Updated))
	require.Equal(t, "1 ", b.kubectl(t, "get", "-n", b.ns, "pdb", "p", "-o", "jsonpath={.spec.maxUnavailable} {.spec.minAvailable}"))

	a.Recreate = []schema.GroupKind{{Kind: "ConfigMap"}}
	plan, err = a.Plan(t.Context(), set, apply.PruneOptions{})
	require.ErrorContains(t, err, "ConfigMap/"+b.ns+"/fixed: ", "it lacks our labels")
	require.Len(t, plan.Changes, 1)
	require.Equal(t, "ours", plan.Changes[0].Name)
	require.Equal(t, diff.Recreate, plan.Changes[0].Action)
	require.Contains(t, plan.Changes[0].Note, "field is immutable when `immutable` is set")
	report, err = a.Execute(t.Context(), set, apply.PruneOptions{}, plan)
	require.NoError(t, err)
	require.Equal(t, 1, report.Count(apply.Recreated))
}

// The other manager's fields are moved before the write, which holds for the object that was
// looked at all the same.
func TestATakeOverGivesWayToAChangeThatComesInBetween(t *testing.T) {
	t.Parallel()
	b := serverBench(t)
	b.owner.Supersedes = []string{"operator"}
	b.kubectl(t, "create", "configmap", "-n", b.ns, "a", "--from-literal=key=0", "--field-manager=operator")
	a := b.start(t)
	set := b.set(t, configMap("a", "1"))
	plan, err := a.Plan(t.Context(), set, apply.PruneOptions{})
	require.NoError(t, err)
	require.Len(t, plan.Changes, 1)
	looks := 0
	a.deaf(once(func(r applytest.Request) bool {
		if r.Verb == "get" && r.Name == "a" {
			looks++
		}
		return looks == 2 // the first one is of the plan that is made again
	}, func() {
		b.kubectl(t, "patch", "-n", b.ns, "configmap", "a", "--type=merge", "-p", `{"data":{"key":"theirs"}}`, "--field-manager=somebody")
	}))
	report, err := a.Execute(t.Context(), set, apply.PruneOptions{}, plan)
	require.ErrorIs(t, err, apply.ErrStalePlan)
	require.Equal(t, 1, report.Count(apply.Refused))
	require.Equal(t, "theirs", b.kubectl(t, "get", "-n", b.ns, "configmap", "a", "-o", "jsonpath={.data.key}"))
}

func TestAnExecutionKeepsTheValueOfAFieldThatIsLeftToOthers(t *testing.T) {
	t.Parallel()
	b := serverBench(t)
	a := b.start(t)
	apply1(t, a, b.set(t, configMap("a", "1")))
	left, err := diff.NewIgnore(diff.Rule{Kind: "ConfigMap", Paths: []string{".data.key"}})
	require.NoError(t, err)
	stated := b.objects(t, "{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: NAMESPACE}, data: {key: '9', more: x}}")
	set, err := apply.NewSet(b.owner, stated, apply.SetOptions{Ignore: left})
	require.NoError(t, err)
	plan, err := a.Plan(t.Context(), set, apply.PruneOptions{})
	require.NoError(t, err)
	report, err := a.Execute(t.Context(), set, apply.PruneOptions{}, plan)
	require.NoError(t, err)
	require.Equal(t, 1, report.Count(apply.Updated))
	require.JSONEq(t, `{"key":"1","more":"x"}`, b.kubectl(t, "get", "-n", b.ns, "configmap", "a", "-o", "jsonpath={.data}"))
}
