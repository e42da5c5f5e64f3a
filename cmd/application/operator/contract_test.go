package operator_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	application "github.com/seed-9e1ffd66/trueup/cmd/application/operator"
)

// peace is C14: what others set on the children stays, over passes that write.
func peace(b *bench) {
	b.app("peace", ", imageRef: 'app:0'")
	b.phase("peace", "Running")
	b.in("annotate", "serviceaccount", "peace", "example.com/theirs=1")
	b.in("annotate", "ingress", "peace", "nginx.ingress.kubernetes.io/proxy-body-size=8m")
	b.in("label", "service", "peace", "example.com/theirs=1")
	b.in("scale", "deployment", "peace", "--replicas=3")
	for n := range 20 {
		b.in("patch", "app", "peace", "--type=merge", "-p", fmt.Sprintf(`{"spec":{"imageRef":"app:%d","scaling":{"max":%d}}}`, n+1, 10+n))
		b.eventually("it is applied", func() bool {
			return b.get("deployment", "peace", ".spec.template.spec.containers[0].image") == fmt.Sprint("app:", n+1) &&
				b.get("hpa", "peace", ".spec.maxReplicas") == fmt.Sprint(10+n)
		})
	}
	require.Equal(b, "1", b.get("serviceaccount", "peace", `.metadata.annotations.example\.com/theirs`))
	require.Equal(b, "8m", b.get("ingress", "peace", `.metadata.annotations.nginx\.ingress\.kubernetes\.io/proxy-body-size`))
	require.Equal(b, "1", b.get("service", "peace", `.metadata.labels.example\.com/theirs`))
	require.Equal(b, "3", b.get("deployment", "peace", ".spec.replicas"))
}

// edits is C15: of ten edits without a pause the last one is what runs.
func edits(b *bench) {
	b.app("edits", withDatabase)
	for n := range 10 {
		b.in("patch", "app", "edits", "--type=merge", "-p", fmt.Sprintf(`{"spec":{"imageRef":"app:%d","database":{"anonRead":%t}}}`, n, n%2 == 0))
	}
	b.phase("edits", "Running")
	b.eventually("the last one is observed", func() bool {
		return b.get("app", "edits", ".status.observedGeneration") == b.get("app", "edits", ".metadata.generation")
	})
	require.Equal(b, "app:9", b.get("deployment", "edits", ".spec.template.spec.containers[0].image"))
	require.Empty(
		b,
		b.rows(
			`SELECT d.defaclacl::text FROM pg_default_acl d JOIN pg_namespace n ON n.oid = d.defaclnamespace WHERE n.nspname = 'prod_edits' AND d.defaclacl::text LIKE '%prod_edits_anon=%'`,
		),
		"the last edit has no anonymous readers",
	)
}

// truth is C16: the phase follows the pods in both directions, and a condition keeps its
// time while it stays.
func truth(b *bench) {
	b.app("truth", withDatabase)
	b.phase("truth", "Running")
	since := b.condition("truth", "DatabaseReady", "lastTransitionTime")
	ready := func(status, waits string) {
		for pod := range strings.FieldsSeq(b.in("get", "pods", "-l", "platform.internal/app=truth", "-o", "name")) {
			b.in(
				"patch",
				pod,
				"--subresource=status",
				"--type=strategic",
				"-p",
				`{"status":{"conditions":[{"type":"Ready","status":"`+status+`"}],"containerStatuses":[`+waits+`]}}`,
			)
		}
	}
	ready("False", `{"name":"app","image":"app:1","imageID":"","ready":false,"restartCount":0,`+
		`"state":{"waiting":{"reason":"ImagePullBackOff","message":"back-off pulling"}}}`)
	b.phase("truth", "Provisioning")
	b.eventually("the cause is named", func() bool {
		message := b.condition("truth", "DeploymentReady", "message")
		return strings.Contains(message, "; ImagePull: ") && strings.Contains(message, "back-off pulling")
	})
	require.Equal(b, "ImagePull ImagePull", b.condition("truth", "DeploymentReady", "reason")+" "+b.condition("truth", "Ready", "reason"))
	require.Equal(b, "False", b.condition("truth", "Ready", "status"))
	ready("True", "")
	b.phase("truth", "Running")
	require.Equal(b, since, b.condition("truth", "DatabaseReady", "lastTransitionTime"))
}

// secure is C25, and C18 for the variables: nothing runs with rights that it does not need,
// and no secret is where it does not belong.
func secure(b *bench) {
	b.in("create", "secret", "generic", "theirs", "--from-literal=key=s3cret-value")
	b.app("secure", withDatabase+", envVars: [{name: PLAIN, value: p}, {name: HIDDEN, secretKeyRef: {name: theirs, key: key}}]")
	b.phase("secure", "Running")
	pod := func(path string) string { return b.get("deployment", "secure", ".spec.template.spec."+path) }
	require.Equal(b, "true RuntimeDefault", pod("securityContext.runAsNonRoot")+" "+pod("securityContext.seccompProfile.type"))
	require.Equal(b, "false false", pod("containers[*].securityContext.allowPrivilegeEscalation"))
	require.Equal(b, `["ALL"] ["ALL"]`, pod("containers[*].securityContext.capabilities.drop"))
	require.Equal(b, "true", pod("containers[1].securityContext.readOnlyRootFilesystem"))
	require.Equal(b, "false", pod("automountServiceAccountToken"))
	require.Equal(b, "p", pod(`containers[0].env[?(@.name=="PLAIN")].value`))
	require.Equal(
		b,
		"theirs key",
		pod(
			`containers[0].env[?(@.name=="HIDDEN")].valueFrom.secretKeyRef.name`,
		)+" "+pod(
			`containers[0].env[?(@.name=="HIDDEN")].valueFrom.secretKeyRef.key`,
		),
	)
	require.Equal(b, "secure", b.get("networkpolicy", "secure", `.spec.podSelector.matchLabels.platform\.internal/app`))
	require.Equal(b, "3000 3001", b.get("networkpolicy", "secure", ".spec.ingress[0].ports[*].port"))
	seen := b.in("get", "app,events,deployment,configmap,ingress", "-o", "yaml")
	require.NotContains(b, seen, b.secret("secure-db", "DB_PASSWORD"))
	require.NotContains(b, seen, "s3cret-value")
}

// order is D13: the Ingresses go first, the Secret after the schema and last. As long as there
// is a workload, there is what it uses.
func order(b *bench) {
	b.app("order", withDatabase+", storage: {enabled: true, buckets: [{name: a}]}")
	b.phase("order", "Running")
	b.in("patch", "deployment", "order", "--type=merge", "-p", `{"metadata":{"finalizers":["example.com/hold"]}}`)
	b.in("delete", "app", "order", "--wait=false")
	b.eventually(
		"it waits for the workload",
		func() bool { return b.condition("order", "Ready", "message") == "the workload is being removed" },
	)
	require.Len(b, b.left("prod_order"), 3)
	require.Len(b, b.buckets("plattr-prod-order"), 1)
	b.in("patch", "deployment", "order", "--type=merge", "-p", `{"metadata":{"finalizers":null}}`)
	b.eventually("the Secret is gone", func() bool { return b.get("secret", "order-db", ".metadata.name") == "" })
	require.Empty(b, b.left("prod_order"), "the schema went before")
	b.eventually("all is gone", func() bool { return b.get("app", "order", ".metadata.name") == "" })
	require.Empty(b, b.buckets("plattr-prod-order"))
	var deleted []string
	for _, r := range b.sent(b.T) {
		if r.Verb == "delete" && r.Namespace == b.name && r.Code < 300 {
			deleted = append(deleted, r.Resource)
		}
	}
	require.Equal(b, []string{"ingresses", "ingresses"}, deleted[:2], deleted)
	require.Equal(b, "secrets", deleted[len(deleted)-1], deleted)
	require.Less(b, slices.Index(deleted, "deployments"), slices.Index(deleted, "configmaps"), deleted)
}

// TestWhatIsOutsideIsLookedAt is D7 and C4 by the operator, which looks each second: a grant
// and a policy that were taken away come back, and nothing else is written.
func TestWhatIsOutsideIsLookedAt(t *testing.T) {
	if testing.Short() {
		t.Skip("long: it needs the S3 server")
	}
	t.Parallel()
	c := newCell(t)
	c.look = time.Second
	b := c.bench(t, "look")
	r := c.start(t)
	b.app("look", withDatabase+", storage: {enabled: true, buckets: [{name: assets, public: true}]}")
	b.phase("look", "Running")
	b.writesNothing(r) // Events are written in the background
	writes := func() (n int) {
		for _, request := range c.sent(t) {
			if isWrite(request.Verb) {
				n++
			}
		}
		return n
	}
	before := writes()
	require.NoError(t, c.pg.SQL(t.Context(), "platform", "REVOKE USAGE ON SCHEMA prod_look FROM prod_look_anon"))
	bucket := aws.String("plattr-prod-look-assets")
	_, err := b.people().DeleteBucketPolicy(t.Context(), &s3.DeleteBucketPolicyInput{Bucket: bucket})
	require.NoError(t, err)
	b.eventually("the grant is back", func() bool {
		return b.rows("SELECT has_schema_privilege('prod_look_anon', 'prod_look', 'USAGE')::text")[0] == "true"
	})
	b.eventually("the policy is back", func() bool {
		policy, err := b.people().GetBucketPolicy(t.Context(), &s3.GetBucketPolicyInput{Bucket: bucket})
		return err == nil && strings.Contains(*policy.Policy, "s3:GetObject")
	})
	require.Equal(t, before, writes(), "to Kubernetes")
}

// TestAnEditOfTheSecretDuringAPassIsKept has a role that cannot be changed for a while: the
// pass waits for it, between the Secret that it made and its children. A password that a
// person writes meanwhile becomes the role's.
func TestAnEditOfTheSecretDuringAPassIsKept(t *testing.T) {
	if testing.Short() {
		t.Skip("long: a Kubernetes of its own")
	}
	t.Parallel()
	c := newCell(t)
	b := c.bench(t, "edit")
	r := c.start(t)
	b.app("edit", withDatabase)
	b.phase("edit", "Running")
	b.rests(r)
	conn, err := pgx.Connect(t.Context(), strings.Replace(c.pg.URL("platform"), "trueup@", "postgres@", 1))
	require.NoError(t, err)
	defer conn.Close(context.WithoutCancel(t.Context()))
	tx, err := conn.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), "ALTER ROLE prod_edit_app CONNECTION LIMIT 7")
	require.NoError(t, err)

	before := b.secret("edit-db", "DB_PASSWORD")
	b.in("delete", "secret", "edit-db")
	b.eventually("the Secret is there again", func() bool {
		return b.get("secret", "edit-db", ".metadata.name") != "" && b.secret("edit-db", "DB_PASSWORD") != before
	})
	b.in("patch", "secret", "edit-db", "--type=merge", "-p", `{"stringData":{"DB_PASSWORD":"by-hand"}}`)
	require.NoError(t, tx.Rollback(t.Context()))
	b.eventually("login works with it", func() bool {
		conn, err := b.login("edit")
		return err == nil && conn.Close(t.Context()) == nil && b.secret("edit-db", "DB_PASSWORD") == "by-hand" &&
			strings.Contains(b.secret("edit-db", "DATABASE_URL"), "by-hand")
	})
}

// TestAnOperatorAloneTakesNoLease has --leader-elect=false.
func TestAnOperatorAloneTakesNoLease(t *testing.T) {
	if testing.Short() {
		t.Skip("long: a Kubernetes of its own")
	}
	t.Parallel()
	c := newCell(t)
	c.alone = true
	b := c.bench(t, "alone")
	r := c.start(t)
	b.app("alone", ", imageRef: 'app:1'")
	b.phase("alone", "Running")
	b.rests(r)
	leases, err := c.cluster.Kubectl(t.Context(), "get", "lease", application.LeaseName, "-n", application.Namespace, "--ignore-not-found")
	require.NoError(t, err)
	require.Empty(t, strings.TrimSpace(leases))
}
