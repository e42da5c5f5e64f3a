package operator_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
)

// TestScenarios runs the operator, with its own rights, on a Kubernetes whose controllers
// run pods on simulated nodes, with a
// real PostgreSQL, S3 and Keycloak.
func TestScenarios(t *testing.T) {
	t.Parallel()
	c := newWholeCell(t)
	c.start(t)
	t.Run("all", func(t *testing.T) {
		for name, scenario := range map[string]func(*bench){
			"full":     full,
			"prefixes": prefixes,
			"image":    image,
			"drift":    drift,
			"replicas": replicas,
			"disable":  disable,
			"rotate":   rotate,
			"foreign":  foreign,
			"plain":    plain,
			"unset":    unset,
			"buckets":  buckets,
			"realms":   realms,
			"peace":    peace,
			"edits":    edits,
			"truth":    truth,
			"secure":   secure,
			"order":    order,
			"causes":   causes,
			"shaped":   shaped,
			"idle":     idle,
			"migrates": migrated,

			"preview":            preview,
			"preview-variables":  previewVariables,
			"preview-parent":     previewParent,
			"preview-namespaces": previewNamespaces,
			"preview-realm":      previewRealm,
		} {
			t.Run(name, func(t *testing.T) {
				if testing.Short() && name != "full" && name != "realms" {
					t.Skip("long: one scenario of many")
				}
				t.Parallel()
				scenario(c.bench(t, "s-"+name))
			})
		}
	})
}

const withDatabase = ", imageRef: 'app:1', database: {enabled: true}"

// full is D1, D13 and D16 as far as the database and the workload go.
func full(b *bench) {
	b.app("full", withDatabase+", envVars: [{name: A, value: a}], redis: {enabled: true}")
	b.phase("full", "Running")
	require.Equal(b, "https://full.example.com", b.get("app", "full", ".status.url"))
	for _, kind := range []string{"DatabaseReady", "RedisReady", "DeploymentReady", "IngressReady", "Ready"} {
		require.Equal(b, "True", b.condition("full", kind, "status"), kind)
	}
	conn, err := b.login("full")
	require.NoError(b, err)
	var path string
	require.NoError(b, conn.QueryRow(b.Context(), "SHOW search_path").Scan(&path))
	require.Equal(b, "prod_full", path)
	require.NoError(b, b.pg.SQL(b.Context(), b.secret("full-db", "POSTGREST_DB_URI"), "SET ROLE prod_full_anon"))
	require.Equal(
		b,
		[]string{"DATABASE_URL", "DB_HOST", "DB_MIGRATIONS_PATH", "DB_NAME", "DB_PASSWORD", "DB_SCHEMA", "DB_USER", "POSTGREST_DB_URI"},
		keys(b, b.get("secret", "full-db", ".data")),
	)
	require.JSONEq(
		b,
		`{"REDIS_HOST":"redis.internal","REDIS_PORT":"6379","REDIS_URL":"redis://redis.internal:6379"}`,
		b.get("cm", "full-redis", ".data"),
	)
	require.Equal(b, "app postgrest", b.get("deployment", "full", ".spec.template.spec.containers[*].name"))
	require.Equal(b, "prod_full", b.get("deployment", "full", `.spec.template.spec.containers[1].env[?(@.name=="PGRST_DB_SCHEMAS")].value`))
	require.Equal(b, "/api/rest(/|$)(.*)", b.get("ingress", "full-api", ".spec.rules[0].http.paths[0].path"))
	require.Equal(b, "full.example.com", b.get("ingress", "full", ".spec.rules[0].host"))
	require.Equal(b, "2 20", b.get("hpa", "full", ".spec.minReplicas")+" "+b.get("hpa", "full", ".spec.maxReplicas"))
	require.Equal(b, "80 3001", b.get("svc", "full", ".spec.ports[*].port"))
	require.JSONEq(
		b,
		`[{"kind":"Schema","id":"prod_full","policy":"Delete","made":true},{"kind":"Role","id":"prod_full_app","policy":"Delete","made":true},{"kind":"Role","id":"prod_full_anon","policy":"Delete","made":true}]`,
		b.get("app", "full", ".status.external"),
	)
	b.in("delete", "app", "full", "--timeout=120s")
	require.Empty(b, b.left("prod_full"))
	require.Empty(b, strings.Fields(b.in("get", "deploy,svc,ingress,hpa,secret,networkpolicy", "-o", "name")))
}

func keys(b *bench, data string) (names []string) {
	b.Helper()
	var all map[string]string
	require.NoError(b, json.Unmarshal([]byte(data), &all))
	for _, name := range []string{"DATABASE_URL", "DB_HOST", "DB_MIGRATIONS_ENGINE", "DB_MIGRATIONS_PATH", "DB_NAME", "DB_PASSWORD", "DB_SCHEMA", "DB_USER", "POSTGREST_DB_URI"} {
		if _, ok := all[name]; ok {
			names = append(names, name)
			delete(all, name)
		}
	}
	require.Empty(b, all)
	return names
}

// prefixes is D2.
func prefixes(b *bench) {
	for environment, schema := range map[string]string{"production": "prod_", "staging": "staging_", "uat": "uat_", "preview": ""} {
		name := "prefix-" + environment
		require.NoError(
			b,
			b.cluster.Apply(
				b.Context(),
				"{apiVersion: platform.internal/v1alpha1, kind: Application, metadata: {name: "+name+", namespace: "+b.name+"}, spec: {repository: r, framework: rails, environment: "+environment+withDatabase+"}}",
			),
		)
		b.phase(name, "Running")
		want := schema + "prefix_" + environment
		require.Equal(b, []string{want, want + "_anon", want + "_app"}, b.left(want))
	}
}

// image is D4: the Deployment alone changes, with one generation.
func image(b *bench) {
	b.app("image", withDatabase)
	b.phase("image", "Running")
	versions := func() map[string]string {
		found := map[string]string{}
		for line := range strings.SplitSeq(strings.TrimSpace(b.in("get", "svc,ingress,hpa,secret,cm,sa,networkpolicy", "-l", "platform.internal/app=image", "-o", `jsonpath={range .items[*]}{.kind}/{.metadata.name} {.metadata.managedFields[?(@.manager=="plattr-operator")].time}{"\n"}{end}`)), "\n") {
			name, version, _ := strings.Cut(line, " ")
			found[name] = version
		}
		return found
	}
	before := versions()
	require.Len(b, before, 7)
	b.in("patch", "app", "image", "--type=merge", "-p", `{"spec":{"imageRef":"app:2"}}`)
	b.eventually(
		"the image changes",
		func() bool { return b.get("deployment", "image", ".spec.template.spec.containers[0].image") == "app:2" },
	)
	b.eventually("the generation is observed", func() bool {
		return b.get("app", "image", ".status.observedGeneration") == b.get("app", "image", ".metadata.generation")
	})
	b.phase("image", "Running")
	require.Equal(b, before, versions())
}

// drift is D6: changes in the cluster are reverted at once.
func drift(b *bench) {
	b.app("drift", withDatabase)
	b.phase("drift", "Running")
	password := b.secret("drift-db", "DB_PASSWORD")
	b.in("delete", "ingress", "drift-api")
	b.in("patch", "svc", "drift", "--type=merge", "-p", `{"spec":{"selector":{"platform.internal/app":"other"}}}`)
	b.eventually("both are right", func() bool {
		return b.get("ingress", "drift-api", ".metadata.name") == "drift-api" &&
			b.get("svc", "drift", `.spec.selector.platform\.internal/app`) == "drift"
	})
	require.Equal(b, password, b.secret("drift-db", "DB_PASSWORD"))
	// A Secret that is lost gets another password, and so does the role.
	b.in("delete", "secret", "drift-db")
	b.eventually("login works", func() bool {
		if b.get("secret", "drift-db", ".metadata.name") == "" {
			return false
		}
		conn, err := b.login("drift")
		return err == nil && conn.Close(b.Context()) == nil
	})
	require.NotEqual(b, password, b.secret("drift-db", "DB_PASSWORD"))
	// The password that a person writes into the Secret becomes the role's.
	b.in("patch", "secret", "drift-db", "--type=merge", "-p", `{"stringData":{"DB_PASSWORD":"by-hand"}}`)
	b.eventually("login works with it", func() bool {
		conn, err := b.login("drift")
		return err == nil && conn.Close(b.Context()) == nil && b.secret("drift-db", "DB_PASSWORD") == "by-hand" &&
			strings.Contains(b.secret("drift-db", "DATABASE_URL"), "by-hand")
	})
	// A limit that a person sets on the Deployment is set back, and an Event says so.
	b.in("set", "resources", "deployment", "drift", "-c", "app", "--limits=memory=4Gi")
	notes := func() string {
		return b.in("get", "events.events.k8s.io", "-o",
			`jsonpath={range .items[?(@.reason=="OverrideUndone")]}{.regarding.kind} {.note}{"\n"}{end}`)
	}
	b.eventually("it is said", func() bool {
		return strings.Contains(notes(), "Application Deployment.apps/"+b.name+
			`/drift: .spec.template.spec.containers[name="app"].resources.limits.memory`+" was changed by kubectl-set; set back\n")
	})
	require.Equal(b, "512Mi", b.get("deployment", "drift", ".spec.template.spec.containers[0].resources.limits.memory"))
	require.Contains(b, notes(), "Application Service/"+b.name+`/drift: .spec.selector was changed by kubectl-patch; set back`)
	require.NotContains(b, notes(), "by-hand")
}

// replicas is D8: what the autoscaler sets stays.
func replicas(b *bench) {
	b.app("replicas", ", imageRef: 'app:1'")
	b.phase("replicas", "Running")
	b.in("scale", "deployment", "replicas", "--replicas=7")
	b.in("patch", "app", "replicas", "--type=merge", "-p", `{"spec":{"imageRef":"app:2","scaling":{"min":3}}}`)
	b.eventually("the image changes", func() bool {
		return b.get("deployment", "replicas", ".spec.template.spec.containers[0].image") == "app:2"
	})
	b.phase("replicas", "Running")
	require.Equal(b, "7", b.get("deployment", "replicas", ".spec.replicas"))
}

// disable is C17 and D21: with the policy Retain the schema stays, and nothing else does;
// turned on again, it is adopted. With Delete it goes.
func disable(b *bench) {
	b.app("disable", ", imageRef: 'app:1', database: {enabled: true, deletionPolicy: Retain}, redis: {enabled: true}")
	b.phase("disable", "Running")
	conn, err := b.login("disable")
	require.NoError(b, err)
	_, err = conn.Exec(b.Context(), "CREATE TABLE kept (id int)")
	require.NoError(b, err)
	b.in("patch", "app", "disable", "--type=merge", "-p", `{"spec":{"database":{"enabled":false},"redis":{"enabled":false}}}`)
	b.eventually("all is removed", func() bool {
		return b.get("app", "disable", ".status.external") == "" && b.get("app", "disable", ".status.phase") == "Running" &&
			b.condition("disable", "DatabaseReady", "status") == ""
	})
	require.Equal(b, "app", b.get("deployment", "disable", ".spec.template.spec.containers[*].name"))
	for _, gone := range []string{"secret/disable-db", "ingress/disable-api", "cm/disable-redis"} {
		require.Empty(b, b.in("get", gone, "--ignore-not-found", "-o", "name"))
	}
	require.Equal(b, []string{"prod_disable", "prod_disable_anon", "prod_disable_app"}, b.left("prod_disable"))
	b.in("patch", "app", "disable", "--type=merge", "-p", `{"spec":{"database":{"enabled":true,"deletionPolicy":"Delete"}}}`)
	b.eventually("it is adopted", func() bool { return b.condition("disable", "DatabaseReady", "status") == "True" })
	b.phase("disable", "Running")
	conn, err = b.login("disable")
	require.NoError(b, err)
	_, err = conn.Exec(b.Context(), "SELECT * FROM kept")
	require.NoError(b, err)
	b.in("patch", "app", "disable", "--type=merge", "-p", `{"spec":{"database":{"enabled":false}}}`)
	b.eventually("it is gone", func() bool { return len(b.left("prod_disable")) == 0 })
}

// rotate is C2: another password, the role altered, the pods rolled.
func rotate(b *bench) {
	b.app("rotate", withDatabase)
	b.phase("rotate", "Running")
	password, checksum := b.secret(
		"rotate-db",
		"DB_PASSWORD",
	), b.get(
		"deployment",
		"rotate",
		`.spec.template.metadata.annotations.platform\.internal/config-checksum`,
	)
	require.NotEmpty(b, checksum)
	b.in("annotate", "app", "rotate", "platform.internal/rotate=1")
	b.eventually("the pods are rolled", func() bool {
		return b.get("deployment", "rotate", `.spec.template.metadata.annotations.platform\.internal/config-checksum`) != checksum
	})
	require.NotEqual(b, password, b.secret("rotate-db", "DB_PASSWORD"))
	conn, err := b.login("rotate")
	require.NoError(b, err)
	require.NoError(b, conn.Close(b.Context()))
	second := b.secret("rotate-db", "DB_PASSWORD")
	b.in("annotate", "app", "rotate", "example.com/note=1")
	b.phase("rotate", "Running")
	require.Equal(b, second, b.secret("rotate-db", "DB_PASSWORD"))
}

// foreign is D18 and D19 for the database: objects of another stay as they are, and deleting
// the refused Application does not affect them.
func foreign(b *bench) {
	require.NoError(
		b,
		b.pg.SQL(
			b.Context(),
			"platform",
			"CREATE SCHEMA prod_foreign; CREATE TABLE prod_foreign.kept (id int); COMMENT ON SCHEMA prod_foreign IS 'kept'; GRANT USAGE ON SCHEMA prod_foreign TO PUBLIC",
		),
	)
	// Others run beside this one: only what has the name counts.
	theirs := func() []string { return ofOurs(b.inDatabase(), "foreign") }
	before := theirs()
	b.app("foreign", withDatabase)
	b.phase("foreign", "Failed")
	require.Equal(b, "OwnedByOther", b.condition("foreign", "DatabaseReady", "reason"))
	require.Contains(b, b.condition("foreign", "DatabaseReady", "message"), "schema prod_foreign exists and has no mark of this operator")
	require.Equal(b, "Waiting", b.condition("foreign", "DeploymentReady", "reason"))
	require.Empty(b, b.in("get", "deploy,secret", "-o", "name"))
	b.in("delete", "app", "foreign", "--timeout=60s")
	require.Equal(b, []string{"prod_foreign"}, b.left("prod_foreign"))
	require.Empty(b, cmp.Diff(before, theirs()))

	b.app("twice", withDatabase)
	b.phase("twice", "Running")
	other := b.bench(b.T, b.name+"-2")
	before = ofOurs(b.inDatabase(), "twice")
	other.app("twice", withDatabase)
	other.phase("twice", "Failed")
	require.Contains(b, other.condition("twice", "DatabaseReady", "message"), "belongs to "+b.name+"/twice")
	other.in("delete", "app", "twice", "--timeout=60s")
	conn, err := b.login("twice")
	require.NoError(b, err)
	require.NoError(b, conn.Close(b.Context()))
	require.Len(b, b.left("prod_twice"), 3)
	require.Empty(b, cmp.Diff(before, ofOurs(b.inDatabase(), "twice")))
}

// plain is an app with nothing but a workload, which first has no image.
func plain(b *bench) {
	b.app("plain", "")
	b.phase("plain", "Failed")
	require.Equal(b, "ImageMissing", b.condition("plain", "Ready", "reason"))
	require.Contains(b, b.condition("plain", "Ready", "message"), "spec.imageRef")
	b.in("patch", "app", "plain", "--type=merge", "-p", `{"spec":{"imageRef":"app:1"}}`)
	b.phase("plain", "Running")
	require.Equal(b, "app", b.get("deployment", "plain", ".spec.template.spec.containers[*].name"))
	require.Equal(b, "80", b.get("svc", "plain", ".spec.ports[*].port"))
	require.Empty(b, b.in("get", "ingress", "plain-api", "--ignore-not-found"))
	b.in("delete", "app", "plain", "--timeout=60s")
	require.Empty(b, b.in("get", "deploy,svc,ingress,pods", "-o", "name"))
}

// unset is a service that the operator has no address of.
func unset(b *bench) {
	b.app("unset", ", imageRef: 'app:1', search: {enabled: true}")
	b.phase("unset", "Failed")
	require.Equal(b, "NotConfigured", b.condition("unset", "SearchReady", "reason"))
	require.Contains(b, b.condition("unset", "SearchReady", "message"), "OPENSEARCH_ENDPOINT")
	b.in("patch", "app", "unset", "--type=merge", "-p", `{"spec":{"search":{"enabled":false}}}`)
	b.phase("unset", "Running")
}

// buckets is D1, D13, D18 and C11, as far as the operator itself decides.
func buckets(b *bench) {
	b.app(
		"buckets",
		", imageRef: 'app:1', storage: {enabled: true, buckets: [{name: uploads, maxFileSize: 10MB}, {name: assets, public: true}]}, cors: {origins: ['https://other.example.com']}",
	)
	b.phase("buckets", "Running")
	require.Equal(b, []string{"plattr-prod-buckets-assets", "plattr-prod-buckets-uploads"}, b.buckets("plattr-prod-buckets-"))
	require.JSONEq(
		b,
		`{"S3_ENDPOINT":"`+b.s3.URL+`","S3_REGION":"us-east-1","S3_BUCKET_UPLOADS":"plattr-prod-buckets-uploads","S3_MAX_FILE_SIZE_UPLOADS":"10000000","S3_BUCKET_ASSETS":"plattr-prod-buckets-assets"}`,
		b.get("cm", "buckets-storage", ".data"),
	)
	cors, err := b.people().GetBucketCors(b.Context(), &s3.GetBucketCorsInput{Bucket: aws.String("plattr-prod-buckets-assets")})
	require.NoError(b, err)
	require.Equal(b, []string{"https://buckets.example.com", "https://other.example.com"}, cors.CORSRules[0].AllowedOrigins)
	for bucket, want := range map[string]int{"assets": http.StatusOK, "uploads": http.StatusForbidden} {
		_, err := b.people().
			PutObject(b.Context(), &s3.PutObjectInput{Bucket: aws.String("plattr-prod-buckets-" + bucket), Key: aws.String("a"), Body: strings.NewReader("x")})
		require.NoError(b, err)
		request, err := http.NewRequestWithContext(b.Context(), http.MethodGet, b.s3.URL+"/plattr-prod-buckets-"+bucket+"/a", http.NoBody)
		require.NoError(b, err)
		answer, err := http.DefaultClient.Do(request)
		require.NoError(b, err)
		require.NoError(b, answer.Body.Close())
		require.Equal(b, want, answer.StatusCode)
	}
	// One bucket is no longer wanted.
	b.app("buckets", ", imageRef: 'app:1', storage: {enabled: true, buckets: [{name: assets, public: true}]}")
	b.eventually("the bucket goes", func() bool { return len(b.buckets("plattr-prod-buckets-")) == 1 })
	// A foreign one is not taken, and the app waits.
	_, err = b.people().CreateBucket(b.Context(), &s3.CreateBucketInput{Bucket: aws.String("plattr-prod-buckets-foreign")})
	require.NoError(b, err)
	b.app("buckets", ", imageRef: 'app:1', storage: {enabled: true, buckets: [{name: assets, public: true}, {name: foreign}]}")
	b.eventually("it is refused", func() bool { return b.condition("buckets", "StorageReady", "reason") == "OwnedByOther" })
	b.in("delete", "app", "buckets", "--timeout=120s")
	require.Equal(b, []string{"plattr-prod-buckets-foreign"}, b.buckets("plattr-prod-buckets-"))
}
