package apply_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/seed-9e1ffd66/trueup/apply"
	"github.com/seed-9e1ffd66/trueup/internal/test/await"
)

func TestPruneReleasesInsteadOfDeletingWhenAskedSo(t *testing.T) {
	t.Parallel()
	b := serverBench(t)
	a := b.start(t)
	apply1(t, a, b.set(t, configMap("a", "1"), configMap("b", "1"), configMap("c", "1")))
	options := complete
	options.Orphan = func(o apply.Observed) bool { return o.ID.Name == "b" }
	keep := b.set(t, configMap("a", "1"))
	report, err := a.Prune(t.Context(), keep, options)
	require.NoError(t, err)
	require.ElementsMatch(t, []apply.Result{
		{ID: apply.ID{Kind: "ConfigMap", Namespace: b.ns, Name: "b"}, Action: apply.Released},
		{ID: apply.ID{Kind: "ConfigMap", Namespace: b.ns, Name: "c"}, Action: apply.Deleted},
	}, report.Results)
	require.Equal(t, "a b", b.names(t))
	require.Equal(
		t,
		"map[key:1]  ",
		b.kubectl(
			t,
			"get",
			"-n",
			b.ns,
			"configmap",
			"b",
			"-o",
			`go-template={{.data}} {{with .metadata.labels}}{{.}}{{end}} {{with .metadata.annotations}}{{.}}{{end}}`,
		),
	)

	// It stays so, after a restart, too.
	options.Orphan = nil
	for _, each := range []*agent{a, b.start(t)} {
		each.net.Reset()
		report, err = each.Prune(t.Context(), keep, options)
		require.NoError(t, err)
		require.Empty(t, report.Results)
		each.net.NoWrites(t)
	}
	require.Equal(t, "a b", b.names(t))
}

func TestPruneSparesANamespaceInWhichSomethingStays(t *testing.T) {
	t.Parallel()
	b := serverBench(t)
	a := b.start(t)
	more := "{apiVersion: v1, kind: Namespace, metadata: {name: NAMESPACE-more}}"
	inside := func(name string) string {
		return "{apiVersion: v1, kind: ConfigMap, metadata: {name: " + name + ", namespace: NAMESPACE-more}}"
	}
	apply1(t, a, b.set(t, more, inside("wanted"), inside("kept"), configMap("a", "1"), configMap("b", "1")))
	namespace := apply.ID{Kind: "Namespace", Name: b.ns + "-more"}
	options := complete
	options.Gone = func(o apply.Observed) bool { return o.ID == namespace }

	// The set contradicts itself: the namespace is not in it, what lives there is.
	report, err := a.Prune(t.Context(), b.set(t, inside("wanted"), configMap("a", "1")), options)
	require.ErrorIs(t, err, apply.ErrNeeded)
	require.ErrorContains(t, err, "Namespace/"+b.ns+"-more: is still needed: ConfigMap/"+b.ns+"-more/wanted must stay")
	require.Equal(t, 1, Report(report).Count(apply.Refused))
	require.Equal(t, 2, Report(report).Count(apply.Deleted), "the rest goes on")
	require.Equal(t, "a", b.names(t))

	// Something kept, or still in its grace, needs it as well.
	again := b.set(t, more, inside("wanted"), inside("kept"), configMap("a", "1"))
	await.Eventually(t, "what was deleted is applied again, once the watch has shown that it is gone", func() bool {
		_, err := a.Apply(t.Context(), again)
		return err == nil
	})
	options.Keep = func(o apply.Observed) bool { return o.ID.Name == "kept" }
	_, err = a.Prune(t.Context(), b.set(t, configMap("a", "1")), options)
	require.ErrorContains(t, err, "ConfigMap/"+b.ns+"-more/kept must stay")
	options.Keep = nil
	options.Grace = func(schema.GroupKind) apply.Grace { return apply.Grace{Age: time.Hour} }
	_, err = a.Prune(t.Context(), b.set(t, configMap("a", "1")), options)
	require.ErrorContains(t, err, "ConfigMap/"+b.ns+"-more/kept must stay")
	b.kubectl(t, "get", "-n", b.ns+"-more", "configmap", "kept")

	options.Grace = nil
	report, err = a.Prune(t.Context(), b.set(t, configMap("a", "1")), options)
	require.NoError(t, err)
	require.Equal(t, namespace, report.Results[len(report.Results)-1].ID, "the namespace goes last")
}

// The pods of a Deployment end slowly: what isolates them goes after them, by itself or with its namespace.
func TestIsolationIsDeletedAfterThePods(t *testing.T) {
	t.Parallel()
	for name, own := range map[string]bool{"with its namespace": true, "by itself": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := serverBench(t)
			a := b.start(t)
			in, namespace := b.ns, "---"
			if own {
				in, namespace = b.ns+"-more", "{apiVersion: v1, kind: Namespace, metadata: {name: NAMESPACE-more}}\n---\n"
			}
			isolation := "{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: web, namespace: " + in +
				"}, spec: {podSelector: {}, policyTypes: [Ingress, Egress]}}"
			web := "{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, namespace: " + in + "}, " +
				"spec: {selector: {matchLabels: {app: web}}, " +
				"template: {metadata: {labels: {app: web}, finalizers: [example.com/slow]}, spec: {containers: [{name: web, image: web}]}}}}"
			apply1(t, a, b.set(t, strings.TrimPrefix(namespace+isolation, "---"), web, configMap("a", "1")))
			pods := func() string {
				return b.kubectl(t, "get", "pods", "-n", in, "-o", "jsonpath={.items[*].metadata.name}")
			}
			await.Eventually(t, "a pod is there", func() bool { return pods() != "" })

			keep := b.set(t, configMap("a", "1"))
			report, err := a.Prune(t.Context(), keep, complete)
			require.NoError(t, err)
			require.Equal(t, !own, report.Pending == 1)
			await.Eventually(t, "its pod is being deleted", func() bool {
				_, err := a.Prune(t.Context(), keep, complete)
				return err == nil && b.kubectl(t, "get", "pods", "-n", in, "-o", "jsonpath={.items[*].metadata.deletionTimestamp}") != ""
			})
			policies := func() string {
				return b.kubectl(t, "get", "networkpolicy", "-n", in, "-o", "jsonpath={.items[*].metadata.name}{.items[*].metadata.deletionTimestamp}")
			}
			_, err = a.Prune(t.Context(), keep, complete)
			require.NoError(t, err)
			require.Equal(t, "web", policies(), "the pod is isolated for as long as it is there")

			b.kubectl(t, "patch", "pod", pods(), "-n", in, "--type=merge", "-p", `{"metadata":{"finalizers":null}}`)
			await.Eventually(t, "its isolation is gone", func() bool {
				_, err := a.Prune(t.Context(), keep, complete)
				return err == nil && policies() == ""
			})
		})
	}
}

// Report gives the results of a prune the methods of a report.
func Report(r apply.PruneReport) apply.Report { return apply.Report{Results: r.Results} }

func TestPruneIsNotHeldUpByWhatAControllerMade(t *testing.T) {
	t.Parallel()
	b := serverBench(t)
	a := b.startUnsynced(t, schema.GroupVersionKind{Group: "discovery.k8s.io", Version: "v1", Kind: "EndpointSlice"})
	waitSynced(t, a)
	more := "{apiVersion: v1, kind: Namespace, metadata: {name: NAMESPACE-more}}"
	service := "{apiVersion: v1, kind: Service, metadata: {name: web, namespace: NAMESPACE-more}, spec: {selector: {app: web}, ports: [{port: 80}]}}"
	apply1(t, a, b.set(t, more, service, configMap("a", "1")))
	await.Eventually(t, "what it waits for, at ./apply/pruning_test.go", func() bool {
		for o := range a.Live.All() {
			if o.ID.Kind == "EndpointSlice" {
				return true // its controller has given it the labels of the Service
			}
		}
		return false
	})
	report, err := a.Prune(t.Context(), b.set(t, configMap("a", "1")), complete)
	require.NoError(t, err)
	require.Empty(t, report.Unproven)
	require.Equal(t, 2, Report(report).Count(apply.Deleted), "the Service, and the namespace that the slice lives in")
}

func TestPruneSparesADefinitionOfWhichObjectsStay(t *testing.T) {
	t.Parallel()
	b := serverBench(t)
	group := strings.ReplaceAll(b.ns, "-", "") + ".example.com"
	definition := definitionOf(group, "v1")
	widget := "{apiVersion: " + group + "/v1, kind: Widget, metadata: {name: a, namespace: NAMESPACE}, spec: {size: 1}}"
	a := b.startUnsynced(t, schema.GroupVersionKind{Group: group, Version: "v1", Kind: "Widget"}, definitionKind)
	all := b.set(t, definition, widget, configMap("a", "1"))
	await.Eventually(t, "err == nil", func() bool { _, err := a.Apply(t.Context(), all); return err == nil })
	_, err := a.Prune(t.Context(), b.set(t, widget, configMap("a", "1")), complete)
	require.ErrorContains(
		t,
		err,
		"CustomResourceDefinition.apiextensions.k8s.io/widgets."+group+": is still needed: Widget."+group+"/"+b.ns+"/a must stay",
	)
	b.kubectl(t, "get", "-n", b.ns, "widgets."+group, "a")
	report, err := a.Prune(t.Context(), b.set(t, configMap("a", "1")), complete)
	require.NoError(t, err)
	require.Equal(t, "Widget", report.Results[0].ID.Kind)
	require.Equal(t, "CustomResourceDefinition", report.Results[1].ID.Kind)
}

var definitionKind = schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}

func definitionOf(group string, versions ...string) string {
	var served []string
	for i, v := range versions {
		storage := "false"
		if i == len(versions)-1 {
			storage = "true"
		}
		served = append(
			served,
			"{name: "+v+", served: true, storage: "+storage+", schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}",
		)
	}
	return "{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: widgets." + group + "}, spec: {group: " + group +
		", names: {kind: Widget, plural: widgets, singular: widget, listKind: WidgetList}, scope: Namespaced, versions: [" + strings.Join(
		served,
		", ",
	) + "]}}"
}

func TestAPartIsRenamedByReleasingItsObjects(t *testing.T) {
	t.Parallel()
	b := serverBench(t)
	b.owner.PartLabel = "example.com/part"
	a := b.start(t)
	part := func(name string, manifests ...string) *apply.Set {
		set, err := apply.NewSet(b.owner, b.objects(t, manifests...), apply.SetOptions{Part: name})
		require.NoError(t, err)
		return set
	}
	uid := func() string {
		return b.kubectl(t, "get", "-n", b.ns, "configmap", "a", "-o", "jsonpath={.metadata.uid}")
	}
	apply1(t, a, part("old", configMap("a", "1")))
	before := uid()
	_, err := a.Apply(t.Context(), part("new", configMap("a", "1")))
	require.ErrorIs(t, err, apply.ErrClaimed)

	report, err := a.DeletePart(t.Context(), "old", apply.DeleteOptions{Orphan: func(apply.Observed) bool { return true }})
	require.NoError(t, err)
	require.Equal(t, apply.Released, report.Results[0].Action)
	await.Eventually(t, "it is in the new part", func() bool {
		_, err := a.Apply(t.Context(), part("new", configMap("a", "1")))
		return err == nil
	})
	require.Equal(t, before, uid())
	require.Equal(t, "new", b.kubectl(t, "get", "-n", b.ns, "configmap", "a", "-o", `jsonpath={.metadata.labels.example\.com/part}`))
}

func TestAnApplySetIsWhatKubectlTakesItFor(t *testing.T) {
	t.Parallel()
	b := serverBench(t)
	// kubectl makes one itself, by which its ID can be told.
	file := filepath.Join(t.TempDir(), "member.yaml")
	require.NoError(t, os.WriteFile(file, []byte("{apiVersion: v1, kind: ConfigMap, metadata: {name: theirs, namespace: "+b.ns+"}}"), 0o600))
	b.kubectl(t, "apply", "-n", b.ns, "--server-side", "--prune", "--applyset=configmap/reference", "-f", file)
	reference := apply.ID{Kind: "ConfigMap", Namespace: b.ns, Name: "reference"}
	require.Equal(t, reference.ApplySetID(),
		b.kubectl(t, "get", "-n", b.ns, "configmap", "reference", "-o", `jsonpath={.metadata.labels.applyset\.kubernetes\.io/id}`))

	b.owner.ApplySet = apply.ID{Kind: "ConfigMap", Namespace: b.ns, Name: "everything"}
	a := b.start(t)
	more := "{apiVersion: v1, kind: Namespace, metadata: {name: NAMESPACE-more}}"
	inside := "{apiVersion: v1, kind: Secret, metadata: {name: s, namespace: NAMESPACE-more}}"
	set := b.set(t, configMap("a", "1"), more, inside)
	require.Equal(t, 4, apply1(t, a, set).Count(apply.Created))
	id := b.owner.ApplySet.ApplySetID()
	require.Equal(
		t,
		"a",
		b.kubectl(t, "get", "-n", b.ns, "configmap", "-l", "applyset.kubernetes.io/part-of="+id, "-o", "jsonpath={.items[*].metadata.name}"),
	)
	require.Equal(t, id+" ConfigMap,Namespace,Secret "+b.ns+"-more bench/v1", b.kubectl(t, "get", "-n", b.ns, "configmap", "everything", "-o",
		`jsonpath={.metadata.labels.applyset\.kubernetes\.io/id} {.metadata.annotations.applyset\.kubernetes\.io/contains-group-kinds} `+
			`{.metadata.annotations.applyset\.kubernetes\.io/additional-namespaces} {.metadata.annotations.applyset\.kubernetes\.io/tooling}`))
	require.Equal(t, 4, apply1(t, a, set).Unchanged)

	// kubectl sees whose it is, and keeps off.
	_, err := b.cluster.Kubectl(t.Context(), "apply", "-n", b.ns, "--server-side", "--prune", "--applyset=configmap/everything", "-f", file)
	require.ErrorContains(t, err, `is managed by tooling "bench" instead of "kubectl"`)

	report, err := a.Prune(t.Context(), b.set(t, configMap("a", "1")), complete)
	require.NoError(t, err)
	require.Equal(t, 2, Report(report).Count(apply.Deleted), "the parent is none of them")

	_, err = a.Prune(t.Context(), b.set(t), complete)
	require.ErrorIs(t, err, apply.ErrKeepNothing, "a set of nothing but its parent is empty")
	b.owner.ApplySet = apply.ID{Group: "example.com", Kind: "Gadget", Name: "x"}
	_, err = apply.NewSet(b.owner, nil, apply.SetOptions{})
	require.ErrorContains(
		t,
		err,
		"Gadget.example.com/x: the ApplySet's parent is not in the set, and only a ConfigMap or Secret can be made for it",
	)
}

func TestAForeignObjectIsSkippedWhenAskedSo(t *testing.T) {
	t.Parallel()
	b := serverBench(t)
	b.kubectl(t, "create", "-n", b.ns, "configmap", "a", "--from-literal=theirs=1")
	a := b.start(t)
	a.Adoption = apply.SkipForeign
	set := b.set(t, configMap("a", "1"), configMap("b", "1"))
	report := apply1(t, a, set)
	require.Equal(t, 1, report.Count(apply.Skipped))
	require.Equal(t, 1, report.Count(apply.Created))
	sent := len(b.requests(t))
	report = apply1(t, a, set)
	require.Equal(t, 1, report.Count(apply.Skipped), "it stays reported")
	require.Len(t, b.requests(t), sent, "and is not asked again at once")
	require.Equal(t, "map[theirs:1]", b.kubectl(t, "get", "-n", b.ns, "configmap", "a", "-o", "go-template={{.data}}"))
}
