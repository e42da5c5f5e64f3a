package operator_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// preview applies a PreviewEnvironment. more are fields of its spec.
func (b *bench) preview(name, app string, pullRequest int, more string) {
	b.Helper()
	require.NoError(b, b.cluster.Apply(b.Context(), fmt.Sprintf(
		"{apiVersion: platform.internal/v1alpha1, kind: PreviewEnvironment, metadata: {name: %s, namespace: %s}, spec: {applicationRef: %s, pullRequest: %d, branch: feature%s}}",
		name,
		b.name,
		app,
		pullRequest,
		more,
	)))
}

func (b *bench) previewPhase(name, want string) {
	b.Helper()
	b.eventually(name+" is "+want, func() bool { return b.get("preview", name, ".status.phase") == want })
}

func (b *bench) previewCondition(name, kind, field string) string {
	b.Helper()
	return b.get("preview", name, `.status.conditions[?(@.type=="`+kind+`")].`+field)
}

// beside returns the bench of another namespace, which need not exist.
func (b *bench) beside(namespace string) *bench {
	other := *b
	other.name = namespace
	return &other
}

// preview is D23: the copy has a namespace, names, a schema and a bucket of its own, one or
// two pods, and ends without a trace and without harm to what it is a copy of.
func preview(b *bench) {
	const spec = ", imageRef: 'app:1', database: {enabled: true, deletionPolicy: Retain}, storage: {enabled: true, deletionPolicy: Retain, buckets: [{name: uploads}]}, redis: {enabled: true}, domain: shop.example.org"
	b.app("shop-x", spec)
	b.preview("shop-42", "shop-x", 42, ", imageRef: 'app:pr'")
	b.phase("shop-x", "Running")
	b.previewPhase("shop-42", "Running")
	require.Equal(b, "https://pr-42.shop-x.preview.example.com", b.get("preview", "shop-42", ".status.url"))
	for _, kind := range []string{"NamespaceReady", "DatabaseReady", "StorageReady", "RedisReady", "DeploymentReady", "IngressReady", "Ready"} {
		require.Equal(b, "True", b.previewCondition("shop-42", kind, "status"), kind)
	}
	copied := b.beside(b.copyIn("shop-x", 42))
	require.Equal(b, "app:pr", copied.get("deployment", "shop-x-pr42", ".spec.template.spec.containers[0].image"))
	require.Equal(
		b,
		"shop_x_pr42",
		copied.get("deployment", "shop-x-pr42", `.spec.template.spec.containers[1].env[?(@.name=="PGRST_DB_SCHEMAS")].value`),
	)
	require.Equal(b, "feature", copied.get("deployment", "shop-x-pr42", `.metadata.annotations.platform\.internal/branch`))
	require.Equal(
		b,
		"1 2 80",
		copied.get("hpa", "shop-x-pr42", ".spec.minReplicas")+" "+copied.get("hpa", "shop-x-pr42", ".spec.maxReplicas")+" "+
			copied.get("hpa", "shop-x-pr42", ".spec.metrics[0].resource.target.averageUtilization"),
	)
	require.Equal(b, "80 3001", copied.get("svc", "shop-x-pr42", ".spec.ports[*].port"))
	require.Equal(b, "pr-42.shop-x.preview.example.com", copied.get("ingress", "shop-x-pr42", ".spec.rules[0].host"))
	require.Equal(b, "shop_x_pr42", copied.secret("shop-x-pr42-db", "DB_SCHEMA"))
	conn, err := copied.login("shop-x-pr42")
	require.NoError(b, err)
	require.NoError(b, conn.Close(b.Context()))
	require.Equal(b, []string{"shop_x_pr42", "shop_x_pr42_anon", "shop_x_pr42_app"}, b.left("shop_x_pr42"))
	require.Equal(b, []string{"plattr-preview-shop-x-pr42-uploads"}, b.buckets("plattr-preview-shop-x"))

	// A change of the Application reaches the copy.
	b.in("patch", "app", "shop-x", "--type=merge", "-p", `{"spec":{"envVars":[{"name":"A","value":"a"}]}}`)
	b.eventually("the variable is there", func() bool {
		return copied.get("deployment", "shop-x-pr42", `.spec.template.spec.containers[0].env[?(@.name=="A")].value`) == "a"
	})
	// Drift of its children, which are in another namespace, is repaired while nothing else
	// happens.
	b.phase("shop-x", "Running")
	b.previewPhase("shop-42", "Running")
	uid := copied.get("svc", "shop-x-pr42", ".metadata.uid")
	time.Sleep(2 * time.Second) // what wakes the copy for another reason is over
	copied.in("delete", "svc", "shop-x-pr42")
	b.eventually("the Service is back", func() bool {
		now := copied.get("svc", "shop-x-pr42", ".metadata.uid")
		return now != "" && now != uid
	})

	// Its end depends on its creation and its ttl, and on no edit.
	created, err := time.Parse(time.RFC3339, b.get("preview", "shop-42", ".metadata.creationTimestamp"))
	require.NoError(b, err)
	require.Equal(b, created.Add(72*time.Hour).Format(time.RFC3339), b.get("preview", "shop-42", ".status.expiresAt"))
	b.preview("shop-42", "shop-x", 42, ", imageRef: 'app:pr2', ttl: 3h")
	b.eventually("another ttl counts from the creation", func() bool {
		return b.get("preview", "shop-42", ".status.expiresAt") == created.Add(3*time.Hour).Format(time.RFC3339)
	})

	b.in("delete", "preview", "shop-42", "--timeout=240s")
	require.Empty(b, b.in("get", "namespace", b.copyIn("shop-x", 42), "--ignore-not-found"))
	require.Empty(b, b.left("shop_x_pr42"))
	require.Empty(b, b.buckets("plattr-preview-shop-x"))
	require.Equal(b, []string{"prod_shop_x", "prod_shop_x_anon", "prod_shop_x_app"}, b.left("prod_shop_x"))
	require.Len(b, b.buckets("plattr-prod-shop-x"), 1)
	require.Equal(b, "Running", b.get("app", "shop-x", ".status.phase"))
}

// previewVariables is about variables from Secrets, which the namespace of a copy lacks.
func previewVariables(b *bench) {
	b.app("vars", ", imageRef: 'app:1', previews: {secrets: true}, envVars: [{name: TOKEN, secretKeyRef: {name: source, key: token}}]")
	b.preview("vars-1", "vars", 1, "")
	b.eventually("it says what is missing", func() bool { return b.previewCondition("vars-1", "Ready", "reason") == "VariablesMissing" })
	require.Contains(
		b,
		b.previewCondition("vars-1", "Ready", "message"),
		"spec.envVars[0] of the Application: there is no Secret "+b.name+"/source",
	)
	copied := b.beside(b.copyIn("vars", 1))
	require.Empty(b, copied.get("deployment", "vars-pr1", ".metadata.name"))
	b.in("create", "secret", "generic", "source", "--from-literal=token=s3cret", "--from-literal=other=x")
	b.in("annotate", "preview", "vars-1", "example.com/look=1")
	b.previewPhase("vars-1", "Running")
	require.Equal(b, "s3cret", copied.secret("vars-pr1-env", "TOKEN"))
	require.NotContains(b, copied.get("secret", "vars-pr1-env", ".data"), "other")
	require.Equal(b, "vars-pr1-env", copied.get("deployment", "vars-pr1", ".spec.template.spec.containers[0].envFrom[-1:].secretRef.name"))
	require.NotContains(b, b.get("preview", "vars-1", ""), "s3cret")
}

// previewParent is D25: a missing parent is said, its creation is enough, and its deletion
// neither removes the copy nor keeps it.
func previewParent(b *bench) {
	b.preview("orphan", "parent", 7, "")
	b.eventually(
		"it says that the parent is missing",
		func() bool { return b.previewCondition("orphan", "Ready", "reason") == "ParentNotFound" },
	)
	require.Contains(b, b.previewCondition("orphan", "Ready", "message"), "there is no Application "+b.name+"/parent")
	require.Equal(b, "Failed", b.get("preview", "orphan", ".status.phase"))
	require.Empty(b, b.in("get", "namespace", b.copyIn("parent", 7), "--ignore-not-found"))
	b.app("parent", ", imageRef: 'app:1', database: {enabled: true, schemaName: own}, storage: {enabled: true, buckets: [{name: a}]}")
	b.previewPhase("orphan", "Running")
	require.Len(b, b.left("own_pr7"), 3)
	b.in("delete", "app", "parent", "--timeout=120s")
	b.eventually("it says that the parent is gone", func() bool { return b.previewCondition("orphan", "Ready", "reason") == "ParentNotFound" })
	require.Equal(b, "Running", b.get("preview", "orphan", ".status.phase"))
	require.Len(b, b.left("own_pr7"), 3)
	b.in("delete", "preview", "orphan", "--timeout=240s")
	require.Empty(b, b.left("own_pr7"))
	require.Empty(b, b.buckets("plattr-preview-parent"))
	require.Empty(b, b.in("get", "namespace", b.copyIn("parent", 7), "--ignore-not-found"))
}

// previewNamespaces is C23: a namespace of another is refused, and one that is going is
// waited for.
func previewNamespaces(b *bench) {
	b.app("ns", ", imageRef: 'app:1'")
	_, err := b.cluster.Kubectl(b.Context(), "create", "namespace", b.copyIn("ns", 1))
	require.NoError(b, err)
	foreign, going := b.beside(b.copyIn("ns", 1)), b.beside(b.copyIn("ns", 2))
	foreign.in("create", "configmap", "theirs")
	b.preview("ns-1", "ns", 1, "")
	b.previewPhase("ns-1", "Failed")
	require.Equal(b, "OwnedByOther", b.previewCondition("ns-1", "NamespaceReady", "reason"))
	b.in("delete", "preview", "ns-1", "--timeout=120s")
	require.NotEmpty(b, foreign.get("configmap", "theirs", ".metadata.name"))
	require.Empty(b, foreign.in("get", "deploy", "-o", "name"))

	b.preview("ns-2", "ns", 2, "")
	b.previewPhase("ns-2", "Running")
	// The second of one pull request waits for the first, and harms nothing when it goes.
	b.preview("ns-2-again", "ns", 2, "")
	b.previewPhase("ns-2-again", "Failed")
	require.Equal(b, "OwnedByOther", b.previewCondition("ns-2-again", "NamespaceReady", "reason"))
	b.in("delete", "preview", "ns-2-again", "--timeout=120s")
	require.Equal(b, "Running", b.get("preview", "ns-2", ".status.phase"))

	// A person deletes the namespace, and something holds it for a while.
	going.in("create", "configmap", "held")
	going.in("patch", "configmap", "held", "--type=merge", "-p", `{"metadata":{"finalizers":["example.com/held"]}}`)
	uid := b.get("namespace", b.copyIn("ns", 2), ".metadata.uid")
	_, err = b.cluster.Kubectl(b.Context(), "delete", "namespace", b.copyIn("ns", 2), "--wait=false")
	require.NoError(b, err)
	b.eventually("it waits", func() bool { return b.previewCondition("ns-2", "NamespaceReady", "reason") == "Waiting" })
	going.in("patch", "configmap", "held", "--type=merge", "-p", `{"metadata":{"finalizers":null}}`)
	b.eventually("it is made again", func() bool {
		now := b.get("namespace", b.copyIn("ns", 2), ".metadata.uid")
		return now != "" && now != uid && b.get("preview", "ns-2", ".status.phase") == "Running"
	})
}

// previewRealm is a copy that logs in the users of its Application.
func previewRealm(b *bench) {
	b.app("login", ", imageRef: 'app:1', auth: {enabled: true, deletionPolicy: Retain}")
	b.phase("login", "Running")
	b.preview("login-5", "login", 5, "")
	b.previewPhase("login-5", "Running")
	require.JSONEq(
		b,
		`{"AUTH_ISSUER_URL":"https://auth.example.com/realms/login","AUTH_CLIENT_ID":"login"}`,
		b.beside(b.copyIn("login", 5)).get("cm", "login-pr5-auth", ".data"),
	)
	b.in("delete", "preview", "login-5", "--timeout=240s")
	require.Equal(b, 200, b.realm("login"))
	require.Equal(b, "True", b.condition("login", "AuthReady", "status"))
}

// TestPreviewsExpire is D24 and C21: what an operator makes that takes it to be 4 minutes
// and a half later ends half a minute after its creation, whatever happens in between, and
// also when it never was complete.
func TestPreviewsExpire(t *testing.T) {
	if testing.Short() {
		t.Skip("long: a time to live passes")
	}
	t.Parallel()
	c := newCell(t)
	b := c.bench(t, "ends")
	const later, ttl = 4*time.Minute + 30*time.Second, 5 * time.Minute
	first := c.startLater(t, later)
	b.app("ends", withDatabase)
	b.phase("ends", "Running")
	b.preview("whole", "ends", 1, ", ttl: 5m")
	b.preview("half", "ends", 2, ", ttl: 5m, imageRef: 'app:1'")
	b.preview("stays", "ends", 3, ", ttl: 6h")
	_, err := c.cluster.Kubectl(t.Context(), "create", "namespace", b.copyIn("none", 4))
	require.NoError(t, err)
	b.preview("orphan", "none", 4, ", ttl: 5m")
	b.eventually("it is made", func() bool { return b.get("preview", "whole", ".status.phase") == "Running" })
	created, err := time.Parse(time.RFC3339, b.get("preview", "whole", ".metadata.creationTimestamp"))
	require.NoError(t, err)
	// Neither an edit nor a restart pushes it.
	b.in("patch", "preview", "whole", "--type=merge", "-p", `{"spec":{"branch":"other"}}`)
	first.stop()
	c.startLater(t, later)
	require.NotEmpty(t, b.get("preview", "whole", ".metadata.name"))
	require.Equal(t, created.Add(ttl).Format(time.RFC3339), b.get("preview", "whole", ".status.expiresAt"))
	b.eventually("they are gone", func() bool { return len(strings.Fields(b.in("get", "preview", "-o", "name"))) == 1 })
	gone := time.Since(created.Add(ttl - later))
	require.Less(t, gone, 2*time.Minute, "by its time, not by the sweep")
	require.Empty(t, b.left("ends_pr1"))
	require.Empty(t, b.left("ends_pr2"))
	require.Empty(t, b.in("get", "namespace", b.copyIn("ends", 1), b.copyIn("ends", 2), "--ignore-not-found", "-o", "name"))
	require.NotEmpty(t, b.get("namespace", b.copyIn("none", 4), ".metadata.name"), "it was not made for it")
	require.Equal(t, "Running", b.get("preview", "stays", ".status.phase"))
	require.Contains(t, b.in("get", "events", "-o", "jsonpath={.items[*].reason}"), "Expired")
	t.Logf("figure application_preview_gone_s %.1f s after its ttl", gone.Seconds())
}
