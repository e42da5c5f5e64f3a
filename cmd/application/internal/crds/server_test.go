package crds_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/application/internal/crds"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube/kubetest"
)

const least = "repository: github.com/team/app, framework: nextjs, environment: production"

// TestTheServerTakesTheDefinitions is D26 and what of C18, C21 and C24 the API server
// decides.
func TestTheServerTakesTheDefinitions(t *testing.T) {
	t.Parallel()
	cluster := kubetest.Start(t, kubetest.Options{})
	definitions, err := crds.YAML()
	require.NoError(t, err)
	require.NoError(t, cluster.Apply(t.Context(), string(definitions)))
	_, err = cluster.Kubectl(t.Context(), "wait", "--for=condition=Established", "--timeout=300s", "crd", "--all")
	require.NoError(t, err)
	get := func(kind, name, path string) string {
		t.Helper()
		out, err := cluster.Kubectl(t.Context(), "get", kind, name, "-o", "jsonpath="+path)
		require.NoError(t, err)
		return out
	}

	t.Run("what is left out has its default", func(t *testing.T) {
		t.Parallel()
		require.NoError(t, cluster.Apply(t.Context(), app("least", "{"+least+"}")))
		require.JSONEq(t, `{"repository":"github.com/team/app","branch":"main","framework":"nextjs","environment":"production",
			"database":{"enabled":false,"anonRead":true,"deletionPolicy":"Delete","migrations":{"path":"./migrations"}},
			"storage":{"enabled":false,"deletionPolicy":"Delete"},"auth":{"enabled":false,"deletionPolicy":"Delete"},
			"redis":{"enabled":false},"search":{"enabled":false},"scaling":{"min":2,"max":20,"targetCPU":70},"cors":{},
			"port":3000,"healthPath":"/healthz"}`, get("app", "least", "{.spec}"))
		require.NoError(t, cluster.Apply(t.Context(), preview("least", "{applicationRef: least, pullRequest: 42, branch: feature/x}")))
		require.JSONEq(
			t,
			`{"applicationRef":"least","pullRequest":42,"branch":"feature/x","ttl":"72h"}`,
			get("previewenvironment", "least", "{.spec}"),
		)
		out, err := cluster.Kubectl(t.Context(), "get", "apps.platform.internal", "least")
		require.NoError(t, err)
		columns := strings.Fields(strings.Split(out, "\n")[0])
		require.Equal(t, []string{"NAME", "FRAMEWORK", "ENVIRONMENT", "PHASE", "REASON", "URL", "AGE"}, columns)
		out, err = cluster.Kubectl(t.Context(), "get", "preview", "least")
		require.NoError(t, err)
		require.Equal(t, []string{"NAME", "APP", "PR", "PHASE", "URL", "EXPIRES", "AGE"}, strings.Fields(strings.Split(out, "\n")[0]))
		// The server publishes the schema some time after the definition is established.
		require.EventuallyWithT(t, func(c *assert.CollectT) {
			out, err := cluster.Kubectl(t.Context(), "explain", "application.spec.database.anonRead")
			require.NoError(c, err)
			require.Contains(c, out, "lets anonymous readers select")
		}, 5*time.Minute, 500*time.Millisecond)
	})
	t.Run("all fields", func(t *testing.T) {
		t.Parallel()
		require.NoError(
			t,
			cluster.Apply(
				t.Context(),
				app("all", `{repository: 'https://github.com/team/app.git', branch: release/1.0, framework: docker, environment: uat,
			imageRef: 'registry.example.com:5000/team/app@sha256:`+strings.Repeat("a", 64)+`', domain: app.example.com,
			envVars: [{name: A, value: a}, {name: B, secretKeyRef: {name: s, key: k.txt}}, {name: C}],
			database: {enabled: true, schemaName: my_frontend, migrations: {path: ./prisma/migrations, engine: prisma}, anonRead: false, deletionPolicy: Retain},
			storage: {enabled: true, buckets: [{name: uploads, public: true, maxFileSize: 10MB}, {name: 0-a, maxFileSize: 512Ki}, {name: raw, maxFileSize: '1048576'}, {name: most, maxFileSize: 999999TiB}], roleArn: 'arn:aws:iam::123456789012:role/team/app', deletionPolicy: Retain},
			auth: {enabled: true, providers: [google, github, saml, oidc], deletionPolicy: Retain}, redis: {enabled: true}, search: {enabled: true},
			scaling: {min: 1, max: 1, targetCPU: 100}, cors: {origins: ['https://a.example.com', 'http://localhost:3000']}}`),
			),
		)
		require.NoError(t, cluster.Apply(t.Context(), app(strings.Repeat("a", 63), "{"+least+"}")))
		for n, ttl := range []string{"5m", "43200m", "1h", "720h", "72h", "3d", "30d"} {
			require.NoError(
				t,
				cluster.Apply(
					t.Context(),
					preview(fmt.Sprint("ttl-", n), "{applicationRef: a, pullRequest: 1, branch: b, imageRef: 'app:2', ttl: "+ttl+"}"),
				),
				ttl,
			)
		}
	})
	t.Run("the status", func(t *testing.T) {
		t.Parallel()
		require.NoError(t, cluster.Apply(t.Context(), app("status", "{"+least+"}")))
		patch := func(kind string) error {
			_, err := cluster.Kubectl(t.Context(), "patch", "application", "status", "--subresource=status", "--type=merge", "-p",
				`{"status":{"conditions":[{"type":"`+kind+`","status":"True","reason":"R","message":"","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`)
			return err
		}
		require.NoError(t, patch("DatabaseReady"))
		require.ErrorContains(t, patch("Databaseready"), "must have types of this kind alone")
	})
	t.Run("what cannot be changed", func(t *testing.T) {
		t.Parallel()
		require.NoError(t, cluster.Apply(t.Context(), app("fixed", "{"+least+"}")))
		require.ErrorContains(
			t,
			cluster.Apply(t.Context(), app("fixed", "{repository: r, framework: nextjs, environment: staging}")),
			"make another Application",
		)
		require.ErrorContains(
			t,
			cluster.Apply(t.Context(), app("fixed", "{"+least+", database: {schemaName: other}}")),
			"schemaName cannot be changed",
		)
		require.NoError(t, cluster.Apply(t.Context(), preview("fixed", "{applicationRef: a, pullRequest: 1, branch: b}")))
		require.ErrorContains(
			t,
			cluster.Apply(t.Context(), preview("fixed", "{applicationRef: a, pullRequest: 2, branch: b}")),
			"make another PreviewEnvironment",
		)
		require.NoError(t, cluster.Apply(t.Context(), preview("fixed", "{applicationRef: a, pullRequest: 1, branch: c, ttl: 1h}")))
	})
	for why, c := range map[string]struct{ object, message string }{
		"a long name":               {app(strings.Repeat("a", 70), "{"+least+"}"), "metadata.name must have at most 63 characters"},
		"a quote in the name":       {app(`"a'b"`, "{"+least+"}"), "metadata.name"},
		"a semicolon in the name":   {app(`"a;b"`, "{"+least+"}"), "metadata.name"},
		"a dot in the name":         {app("a.b", "{"+least+"}"), "begin with a letter and not end with -"},
		"a digit first":             {app("1a", "{"+least+"}"), "begin with a letter and not end with -"},
		"no repository":             {app("x", "{framework: nextjs, environment: uat}"), "spec.repository: Required"},
		"no framework":              {app("x", "{repository: r, environment: uat}"), "spec.framework: Required"},
		"no environment":            {app("x", "{repository: r, framework: nextjs}"), "spec.environment: Required"},
		"an unknown framework":      {app("x", "{repository: r, framework: django, environment: uat}"), `spec.framework: Unsupported value: "django": supported values: "nextjs", "rails", "static", "docker"`},
		"an unknown environment":    {app("x", "{repository: r, framework: nextjs, environment: prod}"), `spec.environment: Unsupported value: "prod"`},
		"a repository with spaces":  {app("x", "{repository: 'a b', framework: nextjs, environment: uat}"), "spec.repository: Invalid value"},
		"a branch with a semicolon": {app("x", "{"+least+", branch: 'a;b'}"), "must be the name of a branch"},
		"an image with a space":     {app("x", "{"+least+", imageRef: 'a b'}"), "must be an image such as"},
		"min above max":             {app("x", "{"+least+", scaling: {min: 5, max: 2}}"), "spec.scaling.min: Invalid value"},
		"min above the default max": {app("x", "{"+least+", scaling: {min: 21}}"), "min must be at most max"},
		"no pods":                   {app("x", "{"+least+", scaling: {min: 0}}"), "spec.scaling.min"},
		"port of the REST API":      {app("x", "{"+least+", port: 3001}}"), "spec.port"},
		"relative health path":      {app("x", "{"+least+", healthPath: up}}"), "spec.healthPath"},
		"more than all CPU":         {app("x", "{"+least+", scaling: {targetCPU: 101}}"), "spec.scaling.targetCPU"},
		"a variable of PostgREST":   {app("x", "{"+least+", envVars: [{name: PGRST_DB_URI, value: x}]}"), "must not begin with PGRST_, POSTGREST_ or LD_"},
		"a variable of the linker":  {app("x", "{"+least+", envVars: [{name: LD_PRELOAD, value: x}]}"), "must not begin with PGRST_, POSTGREST_ or LD_"},
		"a variable with a hyphen":  {app("x", "{"+least+", envVars: [{name: A-B, value: x}]}"), "must be letters, digits and _"},
		"a variable twice":          {app("x", "{"+least+", envVars: [{name: A}, {name: A}]}"), "duplicate entries for key"},
		"a variable of two sources": {app("x", "{"+least+", envVars: [{name: A, value: x, secretKeyRef: {name: s, key: k}}]}"), "at most one of value and secretKeyRef"},
		"a quote in the schema":     {app("x", "{"+least+", database: {schemaName: 'a\"b'}}"), "spec.database.schemaName: Invalid value"},
		"a statement as schema":     {app("x", "{"+least+", database: {schemaName: 'a; DROP SCHEMA b'}}"), "must be a-z, 0-9, _ and -"},
		"a schema in upper case":    {app("x", "{"+least+", database: {schemaName: Abc}}"), "must be a-z, 0-9, _ and -"},
		"a long schema":             {app("x", "{"+least+", database: {schemaName: "+strings.Repeat("a", 64)+"}}"), "spec.database.schemaName: Too long"},
		"another engine":            {app("x", "{"+least+", database: {migrations: {engine: flyway}}}"), `spec.database.migrations.engine: Unsupported value: "flyway"`},
		"a path that goes up":       {app("x", "{"+least+", database: {migrations: {path: ../x}}}"), "must be a relative path without .."},
		"no command for raw":        {app("x", "{"+least+", database: {migrations: {engine: raw}}}"), "spec.database.migrations.command: Invalid value"},
		"no folder for prisma": {
			app("x", "{"+least+", database: {migrations: {engine: prisma, path: ./.}}}"), "spec.database.migrations.path: Invalid value",
		},
		"claims of devices":       {app("x", "{"+least+", resources: {claims: [{name: gpu}]}}"), "spec.resources.claims: Invalid value"},
		"an empty command":        {app("x", "{"+least+", database: {migrations: {engine: raw, command: []}}}"), "spec.database.migrations.command"},
		"a size beyond all disks": {app("x", "{"+least+", storage: {buckets: [{name: a, maxFileSize: 9223373TB}]}}"), "must be a number of bytes such as 10MB"},
		"an unknown policy":       {app("x", "{"+least+", database: {deletionPolicy: Keep}}"), `spec.database.deletionPolicy: Unsupported value: "Keep"`},
		"a bucket in upper case":  {app("x", "{"+least+", storage: {buckets: [{name: A}]}}"), "spec.storage.buckets[0].name: Invalid value"},
		"a bucket twice":          {app("x", "{"+least+", storage: {buckets: [{name: a}, {name: a}]}}"), "duplicate entries for key"},
		"a size without a number": {app("x", "{"+least+", storage: {buckets: [{name: a, maxFileSize: MB}]}}"), "must be a number of bytes such as 10MB"},
		"a role that is none":     {app("x", "{"+least+", storage: {roleArn: 'arn:aws:s3:::bucket'}}"), "must be the ARN of an IAM role"},
		"an unknown provider":     {app("x", "{"+least+", auth: {providers: [gitlab]}}"), `Unsupported value: "gitlab"`},
		"a domain with a slash":   {app("x", "{"+least+", domain: 'a.example.com/x'}"), "must be a host name in lower case"},
		"a domain of one label":   {app("x", "{"+least+", domain: localhost}"), "must be a host name in lower case"},
		"an origin with a path":   {app("x", "{"+least+", cors: {origins: ['https://a.example.com/']}}"), "must be an origin such as"},
		"any origin":              {app("x", "{"+least+", cors: {origins: ['*']}}"), "without *"},
		"no application":          {preview("x", "{pullRequest: 1, branch: b}"), "spec.applicationRef: Required"},
		"no number":               {preview("x", "{applicationRef: a, branch: b}"), "spec.pullRequest: Required"},
		"no branch":               {preview("x", "{applicationRef: a, pullRequest: 1}"), "spec.branch: Required"},
		"the number 0":            {preview("x", "{applicationRef: a, pullRequest: 0, branch: b}"), "spec.pullRequest"},
		"another namespace":       {preview("x", "{applicationRef: other/a, pullRequest: 1, branch: b}"), "spec.applicationRef: Invalid value"},
		"a ttl of 90x":            {preview("x", "{applicationRef: a, pullRequest: 1, branch: b, ttl: 90x}"), "from 5m to 30d"},
		"a ttl of 0h":             {preview("x", "{applicationRef: a, pullRequest: 1, branch: b, ttl: 0h}"), "from 5m to 30d"},
		"a ttl of 31d":            {preview("x", "{applicationRef: a, pullRequest: 1, branch: b, ttl: 31d}"), "from 5m to 30d"},
		"a ttl of 4m":             {preview("x", "{applicationRef: a, pullRequest: 1, branch: b, ttl: 4m}"), "from 5m to 30d"},
		"a ttl of 721h":           {preview("x", "{applicationRef: a, pullRequest: 1, branch: b, ttl: 721h}"), "from 5m to 30d"},
	} {
		t.Run(why, func(t *testing.T) {
			t.Parallel()
			require.ErrorContains(t, cluster.Apply(t.Context(), c.object), c.message)
		})
	}
}

func app(name, spec string) string { return object("Application", name, spec) }

func preview(name, spec string) string { return object("PreviewEnvironment", name, spec) }

func object(kind, name, spec string) string {
	return fmt.Sprintf(
		"{apiVersion: platform.internal/v1alpha1, kind: %s, metadata: {name: %s, namespace: default}, spec: %s}\n---\n",
		kind,
		name,
		spec,
	)
}
