package apply_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/apply"
)

// An object of ours with a controller outside of its namespace is not created again
// elsewhere, so the namespace stays with it.
func TestHostileNamespaceStaysWithWhatAControllerHas(t *testing.T) {
	t.Parallel()
	b := serverBench(t)
	a := b.start(t)
	b.kubectl(t, "create", "clusterrole", b.ns, "--verb=get", "--resource=pods")
	t.Cleanup(func() { b.cleanup("delete", "clusterrole", b.ns) })
	uid := b.kubectl(t, "get", "clusterrole", b.ns, "-o", "jsonpath={.metadata.uid}")
	inside := b.ns + "-inside"
	t.Cleanup(func() { b.cleanup("delete", "namespace", inside) })
	namespace := fmt.Sprintf("{apiVersion: v1, kind: Namespace, metadata: {name: %s}}", inside)
	child := fmt.Sprintf(
		"{apiVersion: v1, kind: ConfigMap, metadata: {name: child, namespace: %s, ownerReferences: [{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, name: %s, uid: %s, controller: true}]}}",
		inside,
		b.ns,
		uid,
	)
	apply1(t, a, b.set(t, configMap("a", "1"), namespace, child))

	keep := complete
	keep.Keep = func(o apply.Observed) bool { return o.ID.Name == "child" }
	_, err := a.Prune(t.Context(), b.set(t, configMap("a", "1")), keep)
	require.ErrorIs(t, err, apply.ErrNeeded)
	require.ErrorContains(t, err, "ConfigMap/"+inside+"/child must stay")
	require.Empty(t, strings.TrimSpace(b.kubectl(t, "get", "namespace", inside, "-o", "jsonpath={.metadata.deletionTimestamp}")))
}

// What a controller has, it goes on changing, and it deletes it in the end.
func TestHostileAdoptionOfWhatAControllerHas(t *testing.T) {
	t.Parallel()
	b := serverBench(t)
	a := b.start(t)
	a.Adoption = apply.AdoptForeign
	owned := func(name, uid string) string {
		return strings.NewReplacer("OWNER", name, "UID", uid).
			Replace("{apiVersion: v1, kind: ConfigMap, metadata: {name: x, namespace: NAMESPACE, ownerReferences: [{apiVersion: v1, kind: ConfigMap, name: OWNER, uid: UID, controller: true}]}, data: {key: \"1\"}}")
	}
	require.NoError(t, b.cluster.Apply(t.Context(), strings.ReplaceAll(configMap("parent", "1"), "NAMESPACE", b.ns)))
	uid := b.kubectl(t, "get", "-n", b.ns, "configmap", "parent", "-o", "jsonpath={.metadata.uid}")
	require.NoError(t, b.cluster.Apply(t.Context(), strings.ReplaceAll(owned("parent", uid), "NAMESPACE", b.ns)))
	_, err := a.Apply(t.Context(), b.set(t, configMap("x", "2")))
	require.ErrorIs(t, err, apply.ErrNotOurs)
	require.ErrorContains(t, err, "ConfigMap parent controls it")

	report, err := a.Apply(t.Context(), b.set(t, strings.ReplaceAll(owned("parent", uid), "key: \"1\"", "key: \"2\"")))
	require.NoError(t, err, "the parent is ours")
	require.Equal(t, 1, report.Count(apply.Updated), "%v", report.Results)
}

// An earlier operator has made the child: its parent is the same, so that no switch is needed
// that adopts every object of a name.
func TestAChildOfTheSameParentIsTakenOver(t *testing.T) {
	t.Parallel()
	b := serverBench(t)
	a := b.start(t)
	uids := map[string]string{}
	for _, parent := range []string{"parent", "another"} {
		require.NoError(t, b.cluster.Apply(t.Context(), strings.ReplaceAll(configMap(parent, "1"), "NAMESPACE", b.ns)))
		uids[parent] = b.kubectl(t, "get", "-n", b.ns, "configmap", parent, "-o", "jsonpath={.metadata.uid}")
	}
	// Both parents live: the garbage collector deletes the child of one that does not.
	child := func(name, parent, value string) string {
		return strings.NewReplacer("CHILD", name, "PARENT", parent, "UID", uids[parent], "VALUE", value).
			Replace("{apiVersion: v1, kind: ConfigMap, metadata: {name: CHILD, namespace: NAMESPACE, ownerReferences: [{apiVersion: v1, kind: ConfigMap, name: PARENT, uid: UID, controller: true}]}, data: {key: VALUE}}")
	}
	for _, theirs := range []string{child("ours", "parent", "old"), child("anothers", "another", "old"), configMap("strangers", "old")} {
		require.NoError(t, b.cluster.Apply(t.Context(), strings.ReplaceAll(theirs, "NAMESPACE", b.ns)))
	}
	set := b.set(t, child("ours", "parent", "new"), child("anothers", "parent", "new"), child("strangers", "parent", "new"))
	report, err := a.Apply(t.Context(), set)
	require.ErrorContains(t, err, "and is not taken over")
	require.Equal(t, 1, report.Count(apply.Updated), "%v", report.Results)
	require.Equal(t, 2, report.Count(apply.Refused), "of another parent, and of none")
	require.Equal(t, "new", b.kubectl(t, "get", "-n", b.ns, "configmap", "ours", "-o", "jsonpath={.data.key}"))
	for _, name := range []string{"anothers", "strangers"} {
		require.NotEqual(t, "new", b.kubectl(t, "get", "-n", b.ns, "configmap", name, "-o", "jsonpath={.data.key}"))
	}
	_, err = a.Prune(t.Context(), b.set(t, configMap("parent2", "1")), complete)
	require.NoError(t, err)
	b.kubectl(t, "get", "-n", b.ns, "configmap", "strangers")
}
