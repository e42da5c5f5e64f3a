package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/internal/program"
	"github.com/seed-9e1ffd66/trueup/internal/test/await"
)

// policyStory is an object that is only created, and one that another program writes.
func policyStory(b *bench) {
	policy := func(name, policy, value string) {
		b.file(name+".yaml", fmt.Sprintf(
			"{apiVersion: v1, kind: ConfigMap, metadata: {name: %s, annotations: {trueup.dev/policy: %s}}, data: {key: %q}}", name, policy, value))
	}
	policy("seed", "create-only", "1")
	policy("theirs", "leave-out", "1")
	b.settings("a", "1")
	text := b.on(0, "apply")
	require.Contains(b, text, "+ create ConfigMap/"+b.ns+"/seed\n")
	require.NotContains(b, text, "/theirs")
	require.Equal(b, "11", b.value("seed")+b.value("theirs")+b.value("a"))
	policy("seed", "create-only", "2")
	b.kubectl("create", "configmap", "theirs", "--from-literal=key=3")
	require.Equal(b, "shop: nothing differs, 2 objects\n", b.on(0, "apply"))
	require.Equal(b, "13", b.value("seed")+b.value("theirs"))
	require.Equal(b, "shop: nothing to prune\n", b.on(0, "prune"))
	require.Contains(b, b.on(0, "delete", "--yes"), "shop: 2 deleted\n", "what others write is not deleted")
	require.Equal(b, "3", b.value("theirs"))
	b.kubectl("create", "configmap", "seed", "--from-literal=key=1")
	b.file("mistyped.yaml", "{apiVersion: v1, kind: ConfigMap, metadata: {name: m, annotations: {trueup.dev/polcy: create-only}}}")
	b.file("label.yaml", "{apiVersion: v1, kind: ConfigMap, metadata: {name: l, labels: {trueup.dev/policy: create-only}}}")
	policy("none", `""`, "1")
	text = b.on(program.ExitUsage, "diff")
	for _, want := range []string{
		"trueup.dev/polcy is not known, must be trueup.dev/policy or trueup.dev/depends-on",
		"metadata.labels: trueup.dev/policy is no label, must be an annotation", `trueup.dev/policy is "", must be create-only or leave-out`,
	} {
		require.Contains(b, text, want)
	}
	require.Contains(b, b.on(program.ExitUsage, "plan", "--out", filepath.Join(b.TempDir(), "plan")),
		"is not written, because not all of the plan is known")
	for _, name := range []string{"mistyped", "label", "none"} {
		require.NoError(b, os.Remove(filepath.Join(b.shop, name+".yaml")))
	}
	policy("seed", "create_only", "2")
	text = b.on(program.ExitUsage, "apply")
	require.Contains(b, text,
		`seed.yaml:1: ConfigMap seed: metadata.annotations: trueup.dev/policy is "create_only", must be create-only or leave-out`)
	require.Equal(b, "1", b.value("seed"))
}

// writesStory has conflicts that are reported, an immutable field, and a kind that is replaced.
func writesStory(b *bench) {
	job := func(image string) {
		b.file("job.yaml", `
apiVersion: batch/v1
kind: Job
metadata: {name: once}
spec: {suspend: true, template: {spec: {restartPolicy: Never, containers: [{name: main, image: `+image+`}]}}}
`)
	}
	job("example.com/one")
	b.settings("a", "1")
	b.on(0, "apply")

	b.kubectl("patch", "configmap", "a", "--type=merge", "-p", `{"data":{"key":"theirs"}}`, "--field-manager=alice")
	text := b.on(statusCluster, "apply", "--report-conflicts")
	require.Contains(b, text, "ConfigMap/"+b.ns+"/a: ")
	require.Contains(b, text, "alice")
	require.Equal(b, "theirs", b.value("a"))
	b.on(0, "apply")
	require.Equal(b, "1", b.value("a"))

	job("example.com/two")
	image := func() string {
		return b.kubectl("get", "job", "once", "-o", "jsonpath={.spec.template.spec.containers[0].image}")
	}
	b.settings("a", "3")
	text = b.on(statusCluster, "diff")
	require.Regexp(b, `job.yaml:2: Job.batch/`+b.ns+`/once: the server refuses it: spec.template.*: .{0,160}: field is immutable; `+
		"to delete it and create it again: --recreate\n", text)
	require.Contains(b, text, "ConfigMap/"+b.ns+"/a", "the others are shown")
	require.NotContains(b, text, "update Job")
	require.Contains(b, b.on(statusCluster, "apply"), "Job.batch/"+b.ns+"/once: ")
	require.Equal(b, "example.com/one", image())
	require.Contains(b, b.on(program.ExitUsage, "apply", "--recreate", "jobz"),
		`--recreate: is "jobz", must be a kind that the cluster serves`)
	require.Contains(b, b.on(statusDiffers, "diff", "--recreate", "job"), "recreate Job.batch/"+b.ns+"/once")
	file := filepath.Join(b.TempDir(), "plan")
	b.on(statusDiffers, "plan", "--out", file, "--recreate", "jobs.batch")
	require.Equal(b, "example.com/one", image())
	require.Contains(b, b.on(0, "apply", "--plan", file), "shop: 1 recreated\n", "a plan remembers how it writes")
	require.Equal(b, "example.com/two", image())

	b.settings("a", "2")
	b.file("account.yaml", "{apiVersion: v1, kind: ServiceAccount, metadata: {name: worker}}")
	before := len(b.sent())
	b.on(0, "apply", "--replace", "cm")
	require.Equal(b, "2", b.value("a"))
	sent := strings.Join(b.sent()[before:], "\n")
	require.Contains(b, sent, "update /api/v1/namespaces/"+b.ns+"/configmaps/a")
	require.NotRegexp(b, "patch .*/configmaps/", sent)
	require.Contains(b, sent, "patch /api/v1/namespaces/"+b.ns+"/serviceaccounts/worker", "of another kind")
}

// releaseStory lets objects go that stay in the cluster, and deletes one without what it owns.
func releaseStory(b *bench) {
	for _, name := range []string{"a", "b", "c"} {
		b.settings(name, "1")
	}
	for _, name := range []string{"web", "api"} {
		b.file(name+".yaml", strings.ReplaceAll(`
apiVersion: apps/v1
kind: Deployment
metadata: {name: APP, labels: {app: APP}}
spec:
  replicas: 0
  selector: {matchLabels: {app: APP}}
  template: {metadata: {labels: {app: APP}}, spec: {containers: [{name: main, image: example.com/web}]}}
`, "APP", name))
	}
	b.on(0, "apply", "--wait")
	require.NoError(b, os.Remove(filepath.Join(b.shop, "b.yaml")))
	require.Contains(b, b.on(program.ExitUsage, "prune", "--cascade", "later"),
		`--cascade: is "later", must be background, foreground or orphan`)
	text := b.on(statusHeld, "prune", "--release")
	require.Contains(b, text, "- release ConfigMap/"+b.ns+"/b\n")
	require.Contains(b, text, "to release it: --approve ")
	require.Contains(b, b.on(statusHeld, "prune", "--approve", b.digest),
		"the deletions that are held now have the digest", "to release is not to delete")
	require.Equal(b, "1", b.value("b"))
	b.on(statusHeld, "prune", "--release")
	require.Contains(b, b.on(0, "prune", "--release", "--approve", b.digest), "shop: 1 released\n")
	require.Equal(b, "1", b.value("b"))
	require.NotContains(b, b.kubectl("get", "configmap", "b", "-o", "yaml"), "trueup.dev")

	orphaned := func(app string) {
		await.Eventually(b, app+" is gone", func() bool { return b.kubectl("get", "deployment", "-l", "app="+app, "-o", "name") == "" })
		const each = "jsonpath={range .items[*]}{.metadata.name}{.metadata.ownerReferences}{end}"
		left := b.kubectl("get", "replicaset", "-l", "app="+app, "-o", each)
		require.Regexp(b, "^"+app+"-[0-9a-z]+$", left, "what it owned stays, and has no owner")
	}
	require.NoError(b, os.Remove(filepath.Join(b.shop, "api.yaml")))
	b.on(statusHeld, "prune", "--cascade", "orphan")
	require.Contains(b, b.on(0, "prune", "--cascade", "orphan", "--approve", b.digest), "shop: 1 deleted\n")
	orphaned("api")
	for _, name := range []string{"a", "c"} {
		require.NoError(b, os.Remove(filepath.Join(b.shop, name+".yaml")))
	}
	require.Contains(b, b.on(0, "delete", "--yes", "--cascade", "orphan"), "shop: 1 deleted\n")
	orphaned("web")
	require.Contains(b, b.run(0, "delete", "--whole-part", "--part", "shop", "--yes", "--release"), "2 released")
	require.Equal(b, "11", b.value("a")+b.value("c"))
}
