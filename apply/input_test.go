package apply_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/seed-9e1ffd66/trueup/apply"
	"github.com/seed-9e1ffd66/trueup/internal/test/await"
)

func contextWithTimeout(t *testing.T, d time.Duration) (context.Context, context.CancelFunc) {
	t.Helper()
	return context.WithTimeout(t.Context(), d)
}

func TestPeersDefect8AServedVersionIsBumpedWithoutAFight(t *testing.T) {
	t.Parallel()
	b := serverBench(t)
	group := strings.ReplaceAll(b.ns, "-", "") + ".example.com"
	require.NoError(t, b.cluster.Apply(t.Context(), definitionOf(group, "v1alpha1")))
	b.kubectl(t, "wait", "--for=condition=Established", "crd/widgets."+group)
	widget := func(version string) string {
		return "{apiVersion: " + group + "/" + version + ", kind: Widget, metadata: {name: a, namespace: NAMESPACE}, spec: {size: 1, list: [{a: 1}]}}"
	}
	old := b.startUnsynced(t, schema.GroupVersionKind{Group: group, Version: "v1alpha1", Kind: "Widget"})
	waitSynced(t, old)
	apply1(t, old, b.set(t, widget("v1alpha1")))
	require.Equal(t, 1, apply1(t, old, b.set(t, widget("v1alpha1"))).Unchanged)

	// A new version is served and stored, and the program speaks it.
	require.NoError(t, b.cluster.Apply(t.Context(), definitionOf(group, "v1alpha1", "v1")))
	await.Eventually(t, "err == nil", func() bool {
		_, err := b.cluster.Kubectl(t.Context(), "get", "-n", b.ns, "widgets.v1."+group, "a")
		return err == nil
	})
	require.Equal(t, 1, apply1(t, old, b.set(t, widget("v1alpha1"))).Unchanged, "the old one goes on as before")
	old.stop()
	next := b.startUnsynced(t, schema.GroupVersionKind{Group: group, Version: "v1", Kind: "Widget"})
	waitSynced(t, next)
	set := b.set(t, widget("v1"))
	require.Equal(t, 1, apply1(t, next, set).Count(apply.Updated), "the desired state has changed, by its version")
	require.Len(t, next.net.Writes(), 1)
	require.Equal(t, 1, apply1(t, next, set).Unchanged)
	b.kubectl(t, "patch", "-n", b.ns, "widgets.v1alpha1."+group, "a", "--type=merge", "-p", `{"spec":{"size":2}}`)
	next.waitWoken(t, "Widget", "a")
	require.Equal(t, 1, apply1(t, next, set).Count(apply.Updated))
	require.Equal(t, 1, apply1(t, next, set).Unchanged)
}

func waitSynced(t *testing.T, a *agent) {
	t.Helper()
	ctx, cancel := contextWithTimeout(t, 30*time.Second)
	defer cancel()
	require.NoError(t, a.Live.WaitSynced(ctx))
}

func TestAnObjectThatIsTooLargeHoldsBackNoOther(t *testing.T) {
	t.Parallel()
	b := serverBench(t)
	group := strings.ReplaceAll(b.ns, "-", "") + ".example.com"
	require.NoError(t, b.cluster.Apply(t.Context(), definitionOf(group, "v1")))
	b.kubectl(t, "wait", "--for=condition=Established", "crd/widgets."+group)
	a := b.startUnsynced(t, schema.GroupVersionKind{Group: group, Version: "v1", Kind: "Widget"})
	waitSynced(t, a)
	widget := func(name string, size int) string {
		return "{apiVersion: " + group + "/v1, kind: Widget, metadata: {name: " + name + ", namespace: NAMESPACE}, spec: {fill: " + strings.Repeat(
			"x",
			size,
		) + "}}"
	}
	_, err := apply.NewSet(b.owner, b.objects(t, widget("huge", 3<<20), configMap("a", "1")), apply.SetOptions{})
	require.ErrorContains(t, err, "Widget."+group+"/"+b.ns+"/huge: has 3146")
	require.ErrorContains(t, err, "bytes as JSON; an API server reads at most 3145728")

	set := b.set(t, widget("large", 1600<<10), widget("larger", 2<<20), configMap("a", "1"))
	report, err := a.Apply(t.Context(), set)
	require.ErrorContains(t, err, "Widget."+group+"/"+b.ns+"/large: the object has 1638")
	require.ErrorContains(t, err, "Widget."+group+"/"+b.ns+"/larger: the object has 2097")
	require.Equal(t, 1, report.Count(apply.Created))
	sent := len(a.net.Requests())
	_, err = a.Apply(t.Context(), set)
	require.Error(t, err)
	require.Len(t, a.net.Requests(), sent, "they are not sent again at once")
}

func TestTheServersWordsAboutASecretAreNotShown(t *testing.T) {
	t.Parallel()
	b := serverBench(t)
	a := b.start(t)
	secret := "{apiVersion: v1, kind: Secret, metadata: {name: s, namespace: NAMESPACE}, stringData: {pin: [98765432]}}"
	report, err := a.Apply(t.Context(), b.set(t, secret, configMap("a", "1")))
	require.ErrorContains(t, err, "Secret/"+b.ns+"/s: the server answered ")
	require.ErrorContains(t, err, "its words are not shown, because they may quote the Secret's values")
	require.NotContains(t, err.Error(), "98765432")
	require.Equal(t, 1, report.Count(apply.Created), "the other object is applied")

	// The policy is named, whose message may quote values, too.
	require.NoError(t, b.cluster.Apply(t.Context(), `
{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicy, metadata: {name: no-pins-`+b.ns+`}, spec: {
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], resources: [secrets], operations: [CREATE]}]},
  matchConditions: [{name: here, expression: "request.namespace == '`+b.ns+`'"}],
  validations: [{expression: "false", messageExpression: "string(object.data.pin)"}]}}
---
{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicyBinding, metadata: {name: no-pins-`+b.ns+`}, spec: {
  policyName: no-pins-`+b.ns+`, validationActions: [Deny]}}
`))
	n := 0
	await.Eventually(t, "the policy is in force", func() bool {
		n++
		secret := fmt.Sprintf("{apiVersion: v1, kind: Secret, metadata: {name: s%d, namespace: NAMESPACE}, stringData: {pin: '98765432'}}", n)
		_, err = a.Apply(t.Context(), b.set(t, secret))
		return err != nil
	})
	require.ErrorContains(t, err, "the server answered 422, denied by ValidatingAdmissionPolicy 'no-pins-"+b.ns+"'; its words are not shown")
	require.NotContains(t, err.Error(), "OTg3NjU0MzI", "as the server has it")
}
