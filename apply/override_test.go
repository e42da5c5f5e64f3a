package apply_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/apply"
	"github.com/seed-9e1ffd66/trueup/diff"
)

// TestAnOverrideThatIsUndoneIsReported: which fields of which object, and which field manager, on a
// real server, also after a restart. A change of the desired state undoes nothing.
func TestAnOverrideThatIsUndoneIsReported(t *testing.T) {
	if testing.Short() {
		t.Skip("long: a real server")
	}
	t.Parallel()
	b := serverBench(t)
	const deployment = `{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, namespace: NAMESPACE}, spec: {
		replicas: 0, selector: {matchLabels: {app: web}}, template: {metadata: {labels: {app: web}}, spec: {containers: [
		{name: app, image: 'app:1', resources: {limits: {cpu: "1"}}}]}}}}`
	const secret = `{apiVersion: v1, kind: Secret, metadata: {name: login, namespace: NAMESPACE}, stringData: {password: sesame}}`
	set := b.set(t, deployment, secret, configMap("a", "1"))
	a := b.start(t)
	a.Overrides = true
	require.Empty(t, apply1(t, a, set).Overrides)
	undone := func(a *agent, set *apply.Set) (texts []string) {
		t.Helper()
		report := apply1(t, a, set)
		require.Equal(t, 1, report.Count(apply.Updated), "%+v", report)
		for _, o := range report.Overrides {
			texts = append(texts, o.String())
		}
		return texts
	}
	edit := func(kind, name, patch string) {
		t.Helper()
		b.kubectl(t, "patch", kind, name, "-n", b.ns, "--field-manager=person", "-p", patch)
	}
	limits := `{"spec":{"template":{"spec":{"containers":[{"name":"app","resources":{"limits":{"cpu":"2"}}}]}}}}`
	edit("deployment", "web", limits)
	a.waitWoken(t, "Deployment", "web")
	const want = `.spec.template.spec.containers[name="app"].resources.limits.cpu was changed by person; set back`
	require.Equal(t, []string{"Deployment.apps/" + b.ns + "/web: " + want}, undone(a, set))

	edit("configmap", "a", `{"data":{"key":null}}`)
	a.waitWoken(t, "ConfigMap", "a")
	require.Equal(t, []string{"ConfigMap/" + b.ns + "/a: .data was removed; set back"}, undone(a, set))

	edit("secret", "login", `{"stringData":{"password":"guess"}}`)
	a.waitWoken(t, "Secret", "login")
	report := apply1(t, a, set)
	require.Len(t, report.Overrides, 1)
	require.Equal(t, "Secret/"+b.ns+"/login: .data.password was changed by person; set back", report.Overrides[0].String())
	for _, f := range report.Overrides[0].Fields {
		require.NotRegexp(t, "sesame|guess|c2VzYW1l|Z3Vlc3M", f.String())
	}

	edit("configmap", "a", `{"data":{"key":"mine"}}`)
	a.waitWoken(t, "ConfigMap", "a")
	require.Empty(t, undone(a, b.set(t, deployment, secret, configMap("a", "2"))), "the desired state has changed, too")

	a.stop()
	edit("deployment", "web", limits)
	restarted := b.start(t)
	restarted.Overrides = true
	set = b.set(t, deployment, secret, configMap("a", "2"))
	require.Equal(t, []string{"Deployment.apps/" + b.ns + "/web: " + want}, undone(restarted, set))
	edit("deployment", "web", limits)
	restarted.waitWoken(t, "Deployment", "web")
	restarted.Overrides = false
	restarted.net.Reset()
	require.Empty(t, undone(restarted, set))
	require.Len(t, restarted.net.Requests(), 1, "without it, a repair is one request")
}

// TestAnOverrideNamesSomeFields: an Event has room for a kilobyte.
func TestAnOverrideNamesSomeFields(t *testing.T) {
	t.Parallel()
	o := apply.Override{ID: apply.ID{Kind: "ConfigMap", Namespace: "shop", Name: "a"}}
	for _, path := range []string{".a", ".b", ".c", ".d", ".e", ".f", ".g"} {
		o.Fields = append(o.Fields, diff.Field{Path: path, Difference: diff.Changed, By: []diff.Writer{{Manager: "m"}, {Manager: "older"}}})
	}
	o.Fields[1].Difference, o.Fields[1].By = diff.Reordered, nil
	require.Equal(t, "ConfigMap/shop/a: .a was changed by m; .b was reordered; .c was changed by m; .d was changed by m; "+
		".e was changed by m; and 2 more; set back", o.String())
}
