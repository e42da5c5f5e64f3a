package operator_test

import (
	"strings"

	"github.com/stretchr/testify/require"
)

const withMigrations = ", database: {enabled: true, migrations: {engine: knex}}, scaling: {min: 1}"

// migrated is D37: migrations run before the rollout of an image, with what the app has. Until they
// have succeeded the image before runs on, and a failure is named and not repeated.
func migrated(b *bench) {
	image := func() string { return b.get("deployment", "migrates", ".spec.template.spec.containers[0].image") }
	jobs := func() []string { return strings.Fields(b.in("get", "jobs", "-o", "name")) }
	reason := func() string { return b.condition("migrates", "MigrationsReady", "reason") }
	b.app("migrates", withMigrations+", imageRef: 'app:1'")
	b.phase("migrates", "Running")
	require.Equal(b, "app:1", image())
	require.Len(b, jobs(), 1)
	job := func(path string) string {
		return b.in("get", "jobs", "-o", "jsonpath={.items[0].spec.template.spec."+path+"}")
	}
	require.JSONEq(b, `["npx","--no-install","knex","migrate:latest","--migrations-directory","./migrations"]`, job("containers[0].command"))
	require.Equal(b, "app:1 migrates-db migrates true", job("containers[0].image")+" "+job("containers[0].envFrom[*].secretRef.name")+" "+
		job("serviceAccountName")+" "+job("securityContext.runAsNonRoot"))
	require.Equal(b, "migrates", b.get("endpoints", "migrates", ".metadata.name"))
	pods := strings.Fields(b.get("endpoints", "migrates", ".subsets[*].addresses[*].targetRef.name"))
	require.Len(b, pods, 1, "the Service has no pod of the Job")

	b.preview("migrates-7", "migrates", 7, ", imageRef: 'app:pr'")
	b.previewPhase("migrates-7", "Running")
	require.Equal(b, "True", b.previewCondition("migrates-7", "MigrationsReady", "status"))
	copied := b.beside(b.copyIn("migrates", 7))
	require.Equal(b, "app:pr migrates-pr7-db", copied.in("get", "jobs", "-o",
		"jsonpath={.items[*].spec.template.spec.containers[*].image} {.items[*].spec.template.spec.containers[*].envFrom[*].secretRef.name}"))
	b.in("delete", "preview", "migrates-7", "--timeout=120s")

	b.app("migrates", withMigrations+", imageRef: 'app:bad'")
	b.phase("migrates", "Failed")
	require.Equal(b, "MigrationFailed", b.condition("migrates", "Ready", "reason"))
	message := b.condition("migrates", "Ready", "message")
	require.Contains(b, message, "container migrations ended with exit code 3: relation users exists")
	require.Contains(b, message, "the annotation platform.internal/migrate")
	require.Equal(b, "app:1", image())
	require.Equal(b, "True", b.condition("migrates", "DeploymentReady", "status"))
	require.Contains(b, b.in("get", "events.events.k8s.io", "-o", "jsonpath={.items[*].reason}"), "MigrationFailed")
	b.in("delete", "jobs", "--all")
	b.app("migrates", withMigrations+", imageRef: 'app:bad', envVars: [{name: A, value: a}]")
	b.eventually("another spec is observed", func() bool {
		return b.get("app", "migrates", ".status.observedGeneration") == b.get("app", "migrates", ".metadata.generation")
	})
	require.Empty(b, jobs(), "what has failed is not repeated")
	require.Equal(b, message, b.condition("migrates", "Ready", "message"))
	b.in("annotate", "app", "migrates", "platform.internal/migrate=1")
	b.eventually("it is asked for again", func() bool { return len(jobs()) == 1 })
	b.eventually("it has failed again", func() bool { return b.get("app", "migrates", ".status.migrations.asked") != "" })
	require.Equal(b, "app:1", image())

	b.app("migrates", withMigrations+", imageRef: 'app:2'")
	b.phase("migrates", "Running")
	require.Equal(b, "app:2 Reconciled", image()+" "+reason())
	b.eventually("the Jobs before are removed", func() bool { return len(jobs()) == 1 })

	b.in("create", "quota", "few", "--hard=count/pods=0")
	b.eventually("the quota counts", func() bool { return b.get("quota", "few", ".status.used") != "" })
	b.app("migrates", withMigrations+", imageRef: 'app:3'")
	b.eventually("the quota is named", func() bool { return b.condition("migrates", "Ready", "reason") == "Quota" })
	require.Contains(b, b.condition("migrates", "MigrationsReady", "message"), "exceeded quota: few")
	require.Equal(b, "app:2", image())
	b.in("delete", "quota", "few")
	b.phase("migrates", "Running")

	b.app("migrates", withMigrations+", imageRef: 'app:slow'")
	b.eventually("they run", func() bool {
		return b.get("app", "migrates", ".status.phase") == "Provisioning" && reason() == "Migrating"
	})
	require.Equal(b, "app:3", image())
	b.in("delete", "app", "migrates", "--timeout=120s")
	require.Empty(b, jobs())
	require.Empty(b, b.left("prod_migrates"))
}
