package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/apply"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/program"
	"github.com/seed-9e1ffd66/trueup/diff"
	"github.com/seed-9e1ffd66/trueup/internal/test/await"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube/kubetest"
)

// Each story is one use of the command, as a person sees it.
func TestStories(t *testing.T) {
	t.Parallel()
	cluster := kubetest.Start(t, kubetest.Options{Controllers: true, Scheduler: true, Nodes: 1})
	for _, story := range []struct {
		name, role string
		tell       func(*bench)
	}{
		{"a folder", "cluster-admin", folderStory},
		{"drift", "cluster-admin", driftStory},
		{"beside others", "cluster-admin", keepStory},
		{"a plan", "cluster-admin", planStory},
		{"prune", "cluster-admin", pruneStory},
		{"a limit", "cluster-admin", limitStory},
		{"a folder with a fault", "cluster-admin", faultStory},
		{"adopt", "cluster-admin", adoptStory},
		{"wait", "cluster-admin", waitStory},
		{"watch", "cluster-admin", watchStory},
		{"delete", "cluster-admin", deleteStory},
		{"rights", "view", rightsStory},
		{"no rights", noRole, noRightsStory},
		{"another cluster", "cluster-admin", otherClusterStory},
		{"two parts", "cluster-admin", partsStory},
		{"a context", "cluster-admin", contextStory},
		{"watch a pipe", "cluster-admin", watchPipeStory},
		{"watch and prune", "cluster-admin", watchPruneStory},
		{"a plan with a definition", "cluster-admin", planDefinitionStory},
		{"who", "cluster-admin", whoStory},
		{"policies", "cluster-admin", policyStory},
		{"writes", "cluster-admin", writesStory},
		{"release", "cluster-admin", releaseStory},
	} {
		t.Run(story.name, func(t *testing.T) {
			t.Parallel()
			story.tell(newBench(t, cluster, story.role))
		})
	}
}

func folderStory(b *bench) {
	group := strings.ReplaceAll(b.ns, "-", "") + ".example.com"
	b.file("all.yaml", strings.ReplaceAll(`
apiVersion: GROUP/v1
kind: Widget
metadata: {name: w}
spec: {size: 3}
---
apiVersion: v1
kind: Secret
metadata: {name: password}
stringData: {p: hunter2}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 1
  selector: {matchLabels: {app: web}}
  template: {metadata: {labels: {app: web}}, spec: {containers: [{name: web, image: example.com/web}]}}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.GROUP}
spec:
  group: GROUP
  scope: Namespaced
  names: {kind: Widget, plural: widgets}
  versions:
    - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
`, "GROUP", group))
	text := b.on(statusDiffers, "diff")
	for _, id := range []string{
		"CustomResourceDefinition.apiextensions.k8s.io/widgets." + group, "Secret/" + b.ns + "/password", "Deployment.apps/" + b.ns + "/web",
		"Widget." + group + "/" + b.ns + "/w",
	} {
		require.Contains(b, text, "+ create "+id+"\n")
	}
	require.Equal(b, 4, strings.Count(text, "\n"), "the set's own object is no part of the folder, and no warning comes of a list: %s", text)

	require.Contains(b, b.on(0, "apply", "--wait"), "shop: 4 created\nshop: ready, 4 objects\n")
	require.Equal(b, "shop: nothing differs, 4 objects\n", b.on(0, "diff"))
	before := len(b.sent())
	require.Equal(b, "shop: nothing differs, 4 objects\n", b.on(0, "apply"))
	require.Empty(b, b.sent()[before:], "at rest there are lists and watches only")

	require.NotContains(b, b.run(0, "who", "deployment/web"), "\n.status.")
	require.Contains(b, b.run(0, "who", "deployment/web", "--status"), "\n.status.readyReplicas ")
	for _, format := range []string{"text", "json", "yaml"} {
		args := []string{"who", "secret/password"}
		if format != "text" {
			args = append(args, "-o", format)
		}
		text := b.run(0, args...)
		require.Contains(b, text, ".data.p")
		require.NotContains(b, text, "aHVudGVyMg", format)
		requireNoHash(b, text)
	}

	// A change of a Secret does not show a hash of it either, which has no key.
	b.file("all.yaml", "{apiVersion: v1, kind: Secret, metadata: {name: password}, stringData: {p: hunter3}}")
	for _, args := range [][]string{{"diff"}, {"diff", "--wide"}, {"diff", "-o", "json"}, {"plan", "-o", "yaml"}} {
		text := b.on(statusDiffers, args...)
		require.Contains(b, text, "(masked)")
		requireNoHash(b, text)
	}
}

// requireNoHash fails when a text has a hash as package diff writes one.
func requireNoHash(b *bench, text string) {
	b.Helper()
	require.NotRegexp(b, `\b[0-9a-f]{32}\b`, text)
}

func driftStory(b *bench) {
	b.settings("a", "1")
	b.settings("b", "1")
	b.on(0, "apply")
	b.kubectl("patch", "configmap", "a", "--type=merge", "-p", `{"data":{"key":"theirs"}}`, "--field-manager=alice")
	b.kubectl("delete", "configmap", "b")
	text := b.on(statusDiffers, "diff")
	require.Contains(b, text, "+ create ConfigMap/"+b.ns+"/b\n")
	require.Regexp(b, `\.data\.key: "theirs" -> "1"  by "alice" 20`, text)
	require.Regexp(b, `live: +"theirs"\n +wanted: "1"`, b.on(statusDiffers, "diff", "--wide"))

	var plan diff.Plan
	b.on(statusDiffers, "diff", "-o", "json")
	b.json(&plan)
	require.Len(b, plan.Changes, 2)
	require.Equal(b, "ConfigMap/"+b.ns+"/a\nConfigMap/"+b.ns+"/b\n", b.on(statusDiffers, "diff", "-o", "name"))
	require.Regexp(b, `\.data\.key +"theirs" +alice +Update`, b.run(0, "who", "cm/a"))
	await.Eventually(b, "the object counts as touched, from the next second on", func() bool {
		b.kubectl("patch", "configmap", "a", "--type=merge", "-p", `{"data":{"key":"`+time.Now().String()+`"}}`)
		return regexp.MustCompile(`trueup-default +trueup/v1 +shop +1 +1`).MatchString(b.run(0, "sets"))
	})

	text = b.on(0, "apply")
	require.Contains(b, text, "shop: 1 created, 1 updated\n")
	require.Contains(b, text, "+ create ConfigMap/"+b.ns+"/b\n")
	require.Regexp(b, `~ update ConfigMap/`+b.ns+`/a\n    \.data\.key: "20`, text, "an apply prints what it changes")
	require.Equal(b, "1", b.value("a"))
	require.Regexp(b, `trueup-default +trueup/v1 +shop +2 +0`, b.run(0, "sets"))
}

// keepStory is a container that an injector puts beside ours: it is shown and left alone.
func keepStory(b *bench) {
	b.file("web.yaml", `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  selector: {matchLabels: {app: web}}
  template: {metadata: {labels: {app: web}}, spec: {containers: [{name: web, image: example.com/web}]}}
`)
	b.settings("a", "1")
	b.on(0, "apply")
	b.kubectl("patch", "deployment", "web", "--field-manager=injector", "-p",
		`{"spec":{"template":{"spec":{"containers":[{"name":"mesh","image":"example.com/mesh"}]}}}}`)
	text := b.on(0, "diff")
	require.Regexp(b, `^= keep Deployment\.apps/`+b.ns+`/web\n`+
		`    \.spec\.template\.spec\.containers\[name="mesh"\]: added by another program, stays  by "injector" 20\S+\n`+
		`shop: nothing differs, 2 objects\n$`, text)
	require.Empty(b, func() string { b.on(0, "diff", "-o", "name"); return b.out }(), "nothing differs")
	require.NotContains(b, b.on(0, "plan"), "mesh", "a plan has what an apply does")

	b.settings("a", "2")
	var plan diff.Plan
	b.on(statusDiffers, "diff", "-o", "json")
	b.json(&plan)
	require.Len(b, plan.Changes, 2)
	require.Equal(b, diff.Update, plan.Changes[0].Action)
	require.Equal(b, diff.Keep, plan.Changes[1].Action)
	kept := plan.Changes[1]
	require.Equal(b, "apps/v1 Deployment web", strings.Join([]string{kept.APIVersion, kept.Kind, kept.Name}, " "))
	require.Equal(b, "shop: 1 updated\n", regexp.MustCompile(`(?m)^shop: .*\n`).FindString(b.on(0, "apply")))
	require.Contains(b, b.on(0, "diff"), "mesh", "an apply leaves it there")
}

func planStory(b *bench) {
	b.settings("a", "1")
	b.settings("b", "1")
	b.on(0, "apply")
	b.settings("a", "2")
	require.NoError(b, os.Remove(filepath.Join(b.shop, "b.yaml")))
	file := filepath.Join(b.TempDir(), "plan")
	require.Contains(b, b.on(statusDiffers, "plan", "--out", file), "- delete ConfigMap/"+b.ns+"/b\n")
	require.Equal(b, "1", b.value("a"))
	require.Contains(b, b.on(program.ExitUsage, "plan", "--out", file), "must be a new file")
	info, err := os.Stat(file)
	require.NoError(b, err)
	require.Equal(b, os.FileMode(0o600), info.Mode(), "it has values of the cluster")

	saved, err := os.ReadFile(file)
	require.NoError(b, err)
	foreign := filepath.Join(b.TempDir(), "foreign")
	moved := regexp.MustCompile(`"cluster": "[^"]+"`).ReplaceAll(saved, []byte(`"cluster": "another"`))
	require.NoError(b, os.WriteFile(foreign, moved, 0o600))
	require.Contains(b, b.on(program.ExitUsage, "apply", "--plan", foreign), "is of the cluster another, not of ")
	require.Equal(b, "11", b.value("a")+b.value("b"))

	b.kubectl("patch", "configmap", "a", "--type=merge", "-p", `{"data":{"key":"3"}}`)
	require.Contains(b, b.on(statusCluster, "apply", "--plan", file), "ConfigMap/"+b.ns+"/a: the plan no longer holds")
	require.Equal(b, "3", b.value("a"))
	require.Empty(b, b.value("b"), "that change still held")
	require.Contains(b, b.on(program.ExitUsage, "apply", "--plan", file, "--part", "other"), "is of the part shop of ConfigMap/")
	require.Contains(b, b.on(program.ExitUsage, "apply", "--plan", file, "--set", "other"),
		"is of the part shop of ConfigMap/"+b.ns+"/trueup-default, not of shop of ConfigMap/"+b.ns+"/trueup-other")
}

func pruneStory(b *bench) {
	for _, name := range []string{"a", "b", "c"} {
		b.settings(name, "1")
	}
	b.on(0, "apply")
	require.Equal(b, "shop: nothing to prune\n", b.on(0, "prune"))
	require.NoError(b, os.Remove(filepath.Join(b.shop, "b.yaml")))
	b.kubectl("label", "configmap", "kube-root-ca.crt", "trueup.dev/set=default", "trueup.dev/set-namespace="+b.ns, "trueup.dev/part=shop")
	text := b.on(statusHeld, "prune")
	require.Contains(b, text, "- delete ConfigMap/"+b.ns+"/b\n")
	require.Contains(b, text, "ConfigMap/"+b.ns+"/kube-root-ca.crt carries the labels of the set and was not applied by it: it is left")
	require.Equal(b, "1", b.value("b"))
	b.on(statusHeld, "apply", "--prune")

	require.NoError(b, os.Remove(filepath.Join(b.shop, "c.yaml")))
	older := b.digest
	require.Contains(b, b.on(statusHeld, "prune"), "2 objects held")
	require.NotEqual(b, older, b.digest)
	require.Contains(
		b,
		b.on(statusHeld, "prune", "--approve", older),
		`--approve: is "`+older+`", and the deletions that are held now have the digest `,
	)
	require.Equal(b, "11", b.value("b")+b.value("c"), "the digest names another set")
	b.on(statusHeld, "apply", "--prune", "-o", "json")
	var done outcomes
	b.json(&done)
	require.Equal(b, &held{Digest: b.digest, Objects: []string{"ConfigMap/" + b.ns + "/b", "ConfigMap/" + b.ns + "/c"}}, done.Held)
	require.Empty(b, done.Results)
	require.Contains(b, b.on(0, "prune", "--approve", b.digest), "shop: 2 deleted\n")
	require.Equal(b, "1", b.value("a")+b.value("b")+b.value("c"))
	b.kubectl("get", "configmap", "kube-root-ca.crt")

	// The approval was for those objects, and not for one that is made again.
	b.settings("b", "2")
	b.on(0, "apply")
	require.Equal(b, "2", b.value("b"))
	require.NoError(b, os.Remove(filepath.Join(b.shop, "b.yaml")))
	require.Contains(b, b.on(statusHeld, "prune"), "1 object held")
	require.Equal(b, "2", b.value("b"))
}

func limitStory(b *bench) {
	for _, name := range []string{"a", "b", "c", "d"} {
		b.settings(name, "1")
	}
	b.on(0, "apply")
	for _, name := range []string{"b", "c"} {
		require.NoError(b, os.Remove(filepath.Join(b.shop, name+".yaml")))
	}
	require.Contains(b, b.on(0, "prune", "--limit", "2"), "shop: 2 deleted\n")
	require.NoError(b, os.Remove(filepath.Join(b.shop, "d.yaml")))
	require.Contains(b, b.on(statusHeld, "prune", "--limit", "2"), "1 object held", "those of the last hour count")
	require.Equal(b, "11", b.value("a")+b.value("b")+b.value("c")+b.value("d"))
}

func faultStory(b *bench) {
	b.settings("a", "1")
	b.settings("b", "1")
	b.on(0, "apply")
	require.NoError(b, os.Remove(filepath.Join(b.shop, "b.yaml")))
	b.settings("a", "2")
	b.file("faults.yaml", `kind: ConfigMap
metadata: {name: x}
---
apiVersion: example.org/v1
kind: Unknown
metadata: {name: x}
---
apiVersion: v1
kind: Secret
metadata: {name: s}
data: {p: "%%"}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: a}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: a, namespace: default}
---
apiVersion: v1
kind: Namespace
metadata: {name: x, namespace: default}
`)
	b.file("cut.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: \"y")
	plan := filepath.Join(b.TempDir(), "plan")
	text := b.on(program.ExitUsage, "plan", "--out", plan)
	require.NotContains(b, text, "- delete ", "what a file lacks that was not read is not absent")
	require.NoFileExists(b, plan)
	text = b.on(program.ExitUsage, "apply", "--prune")
	for _, want := range []string{
		"cut.yaml:3: is no YAML", "faults.yaml:1: apiVersion: is missing", "faults.yaml:4: kind Unknown of example.org/v1: is not served by the cluster",
		"faults.yaml:8: data.p of Secret s: must be base64", "faults.yaml:13: ConfigMap a is also in ",
		`faults.yaml:17: ConfigMap a: metadata.namespace: is "default", must be that of --namespace, "` + b.ns + `", or missing`,
		`faults.yaml:21: Namespace x: metadata.namespace: is "default", must be missing: the kind has none`,
		"nothing is pruned, because the files were not read whole",
	} {
		require.Contains(b, text, want)
	}
	require.Equal(b, "1", b.value("b"), "what a file lacks that was not read is not absent")

	for _, name := range []string{"faults.yaml", "cut.yaml"} {
		require.NoError(b, os.Remove(filepath.Join(b.shop, name)))
	}
	b.file("b.yaml", "") // as an editor leaves it before it writes
	require.Contains(b, b.on(program.ExitUsage, "apply", "--prune", "--limit", "9"), "b.yaml: is empty, must be YAML")
	require.Equal(b, "1", b.value("b"))
	require.NoError(b, os.Remove(filepath.Join(b.shop, "b.yaml")))
	require.NoError(b, pipe(filepath.Join(b.shop, "b.yaml")))
	require.Contains(b, b.on(program.ExitUsage, "diff"), "b.yaml: is no regular file")
	require.NoError(b, os.Remove(filepath.Join(b.shop, "b.yaml")))
	b.file("b.yaml", "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData: {pin: 98765432}\n")
	text = b.on(program.ExitUsage, "apply")
	require.Contains(b, text, "b.yaml:1: stringData.pin of Secret s: must be text: put it in quotes")
	require.NotContains(b, text, "98765432")
	b.file("b.yaml", "apiVersion: v1\nkind: Service\nmetadata: {name: s}\nspec: {ports: [{port: 70000}]}\n")
	require.Contains(b, b.on(statusDiffers, "diff"), "+ create Service/"+b.ns+"/s\n", "only the apply asks the server")
	text = b.on(statusCluster, "apply")
	require.Contains(b, text, "Service/"+b.ns+"/s: ")
	require.NotContains(b, text, "+ create", "it was not created")
	require.Contains(
		b,
		b.run(program.ExitUsage, "diff", "-f", b.shop, "--namespace", "nowhere"),
		`--namespace: is "nowhere", must be a namespace that exists`,
	)

	require.Contains(b, b.runIn(program.ExitUsage, "", "diff", "-f", "-", "--part", "x"), "standard input: is empty, must be YAML")
	require.Contains(
		b,
		b.runIn(statusDiffers, "{apiVersion: v1, kind: ConfigMap, metadata: {name: piped}}", "diff", "-f", "-", "--part", "x"),
		"/piped",
	)
	require.Contains(b, b.on(program.ExitUsage, "diff", "--context", "nope"), `--context: is "nope", must be one of the kubeconfig: `)
	require.Contains(b, b.run(program.ExitUsage, "diff"), "--filename: is missing")
	for _, args := range [][]string{{"who"}, {"who", "cm"}, {"who", "cm/a", "cm/b"}} {
		require.Contains(b, b.run(program.ExitUsage, args...), "must have KIND/NAME such as deployment/web")
	}
	require.Contains(b, b.run(program.ExitUsage, "who", "nonsense/a"), `is "nonsense", must be a kind that the cluster serves`)
}

func planDefinitionStory(b *bench) {
	define := func(kind string) {
		b.file(kind+".yaml", strings.NewReplacer("KIND", kind, "GROUP", strings.ReplaceAll(b.ns, "-", "")+".example.com").Replace(`
apiVersion: GROUP/v1
kind: KIND
metadata: {name: one}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: KINDs.GROUP}
spec:
  group: GROUP
  scope: Cluster
  names: {kind: KIND, plural: KINDs, singular: KIND}
  versions:
    - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
`))
	}
	define("planet")
	file := filepath.Join(b.TempDir(), "plan")
	text := b.on(statusDiffers, "plan", "--out", file)
	require.Regexp(b, `(?m)^\+ create planet\.[a-z]+\.example\.com/one$`, text, "its kind has no namespace")
	require.Contains(b, b.on(0, "apply", "--plan", file), "shop: 2 created\n")
	require.Equal(b, "shop: nothing differs, 2 objects\n", b.on(0, "diff"))

	define("star")
	b.settings("a", "1")
	file = filepath.Join(b.TempDir(), "plan")
	b.on(statusDiffers, "plan", "--out", file)
	b.kubectl("create", "configmap", "a")
	text = b.on(statusCluster, "apply", "--plan", file)
	require.Contains(b, text, "ConfigMap/"+b.ns+"/a: the plan no longer holds", "what waits for its definition comes later")
	require.Contains(b, text, "shop: 2 created, 1 refused\n")
}

func whoStory(b *bench) {
	b.settings("a", "1")
	b.kubectl("apply", "-f", b.shop)
	require.NotContains(b, b.run(0, "who", "cm/a"), "differs from")
	b.kubectl("patch", "configmap", "a", "--type=merge", "-p", `{"data":{"key":"theirs","more":"1"}}`, "--field-manager=alice")
	text := b.run(0, "who", "configmap/a")
	require.Regexp(b, `(?m)^\.data\.key +"theirs" +alice +Update +\d+s$`, text)
	require.Regexp(b, `differs from what kubectl applied: \.data\.key: "theirs" -> "1" \(by "alice" 20`, text)
	require.NotContains(b, text, "kubectl applied: .data.more", "kubectl did not apply that one")
	require.Equal(b, "ConfigMap/"+b.ns+"/a\n", b.run(0, "who", "configmaps/a", "-o", "name"))
	b.settings("a", "theirs")
	b.kubectl("apply", "--server-side", "--field-manager=bob", "-f", b.shop)
	require.Regexp(b, `(?m)^\.data\.key +"theirs" +(alice|bob) .*\n +(alice|bob) `, b.run(0, "who", "configmap/a"), "both have it")
	require.Contains(b, b.run(program.ExitUsage, "who", "cm/none"), `cm/none does not exist in the namespace "`+b.ns+`"`)
	require.Regexp(b, `(?m)^\.roleRef`, b.run(0, "who", "clusterrolebinding/"+b.ns+"-person"), "it has no namespace")
}

func contextStory(b *bench) {
	config, err := os.ReadFile(b.config)
	require.NoError(b, err)
	b.config = filepath.Join(b.TempDir(), "config")
	named := strings.Replace(string(config), `"user": "trueup"`, `"user": "trueup", "namespace": "`+b.ns+`"`, 1)
	require.NoError(b, os.WriteFile(b.config, []byte(named), 0o600))
	b.settings("a", "1")
	b.file("b.yaml", "{apiVersion: v1, kind: ConfigMap, metadata: {name: NS, namespace: default}}")
	text := b.on(0, "apply", "--namespace", "")
	require.Contains(b, text, "+ create ConfigMap/"+b.ns+"/a\n", "the namespace is that of the context")
	require.Contains(b, text, "+ create ConfigMap/default/"+b.ns+"\n", "the file names another")
	row := regexp.MustCompile(b.ns + ` +trueup-default +trueup/v1 +shop +2 +0`)
	require.Regexp(b, row, b.run(0, "sets", "--namespace", ""))
	require.NotRegexp(b, row, b.run(0, "sets", "--namespace", "default"))
	require.Regexp(b, row, b.run(0, "sets", "--namespace", "default", "-A"))
}

func adoptStory(b *bench) {
	b.kubectl("create", "configmap", "mine", "--from-literal=key=theirs", "--field-manager=helm")
	b.kubectl("annotate", "configmap", "mine", "meta.helm.sh/release-name=shop", "--field-manager=helm")
	b.settings("old", "1")
	b.on(0, "apply")
	require.NoError(b, os.Remove(filepath.Join(b.shop, "old.yaml")))
	b.settings("mine", "1")
	b.settings("new", "1")
	text := b.on(statusCluster, "apply", "--prune", "--limit", "9")
	require.Equal(b, "1", b.value("old"), "nothing is deleted after an apply that failed")
	require.Contains(b, b.on(statusCluster, "apply", "--wait", "--timeout", "1m"), "is not of this set", "it is not waited for")
	require.Contains(
		b,
		text,
		"ConfigMap/"+b.ns+"/mine: is not of this set: it is of Helm: shop; that tool must let it go, then: trueup adopt --from helm",
	)
	require.Equal(b, []string{"theirs", "1"}, []string{b.value("mine"), b.value("new")}, "the others are applied")
	b.on(statusCluster, "apply", "-o", "json")
	var done outcomes
	b.json(&done)
	require.Len(b, done.Results, 1)
	require.Equal(b, outcome{"ConfigMap/" + b.ns + "/mine", apply.Refused, done.Results[0].Error}, done.Results[0])
	require.NotEmpty(b, done.Results[0].Error)

	// While it waits for another object, one that is refused counts once.
	b.file("slow.yaml", `
apiVersion: apps/v1
kind: Deployment
metadata: {name: slow}
spec:
  selector: {matchLabels: {app: slow}}
  template: {metadata: {labels: {app: slow}}, spec: {containers: [{name: main, image: example.com/slow}]}}
`)
	b.file("late.yaml",
		"{apiVersion: v1, kind: ConfigMap, metadata: {name: late, annotations: {trueup.dev/depends-on: Deployment.apps/NS/slow}}}")
	require.Regexp(b, `shop: \d created, 1 refused\n`, b.on(statusCluster, "apply", "--timeout", "1m"))
	for _, name := range []string{"slow.yaml", "late.yaml"} {
		require.NoError(b, os.Remove(filepath.Join(b.shop, name)))
	}

	require.Contains(b, b.on(statusHeld, "adopt", "--from", "helm"), `.data.key: "theirs" -> "1"`)
	require.Contains(b, b.on(statusHeld, "adopt", "--from", "helm", "-o", "json"), `"name": "mine"`)
	require.Equal(b, "theirs", b.value("mine"))
	require.Contains(b, b.on(statusCluster, "adopt", "--from", "kubectl", "--yes"), "is not of this set")
	require.Contains(
		b,
		b.on(statusCluster, "adopt", "--from", "kubectl"),
		"is not of this set",
		"nothing is asked where nothing can be changed",
	)
	require.Contains(b, b.on(0, "adopt", "--from", "helm", "--yes"), "shop: 1 updated\n")
	require.Equal(b, "1", b.value("mine"))
	require.Equal(b, "shop: nothing differs, 2 objects\n", b.on(0, "diff"))

	b.kubectl("create", "configmap", "hers", "--from-literal=key=theirs", "--field-manager=alice")
	b.settings("hers", "1")
	require.Contains(b, b.on(statusCluster, "apply"), "made by alice; to take it: trueup adopt --from alice\n")
	require.Equal(b, "ConfigMap/"+b.ns+"/hers\n", b.on(0, "adopt", "--from", "alice", "--yes", "-o", "name"))
	require.Equal(b, "1", b.value("hers"))
	for tool, manager := range map[string]string{"flux": "kustomize-controller", "argocd": "argocd-controller"} {
		b.kubectl("create", "configmap", tool, "--from-literal=key=theirs", "--field-manager="+manager)
		b.settings(tool, "1")
		require.Contains(b, b.on(0, "adopt", "--from", tool, "--yes"), "shop: 1 updated\n")
	}
}

func waitStory(b *bench) {
	b.file("web.yaml", `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {nodeSelector: {no: where}, containers: [{name: web, image: example.com/web}]}
`)
	b.on(0, "apply")
	await.Eventually(b, "the scheduler has said why", func() bool {
		return strings.Contains(b.kubectl("get", "pods", "-o", "jsonpath={.items[*].status.conditions[*].reason}"), "Unschedulable")
	})
	text := b.on(statusCluster, "wait", "--timeout", "2s")
	require.Regexp(b, `^Deployment\.apps/`+b.ns+`/web: InProgress: .*\(Unschedulable: `, text)
	b.kubectl("patch", "deployment", "web", "--type=json", "-p", `[{"op":"remove","path":"/spec/template/spec/nodeSelector"}]`)
	require.Equal(b, "shop: ready, 1 object\n", b.on(0, "wait"))
}

func watchStory(b *bench) {
	b.settings("a", "1")
	out, stop := b.watch()
	await.Eventually(b, "it is applied", func() bool { return b.value("a") == "1" })
	b.kubectl("patch", "configmap", "a", "--type=merge", "-p", `{"data":{"key":"theirs"}}`, "--field-manager=alice")
	await.Eventually(b, "the repair names the author", func() bool {
		return b.value("a") == "1" && strings.Contains(out.String(), `.data.key: "theirs" -> "1"  by "alice"`)
	}, out.String)
	b.settings("a", "2")
	await.Eventually(b, "the folder is read again", func() bool { return b.value("a") == "2" })
	b.file("b.yaml", "kind: [")
	await.Eventually(b, "a fault is printed", func() bool { return strings.Contains(out.String(), "b.yaml:1: is no YAML") }, out.String)
	for _, value := range []string{"3", "4"} {
		b.settings("a", value)
		await.Eventually(b, "the other file is applied", func() bool { return b.value("a") == value })
	}
	require.Equal(b, 1, strings.Count(out.String(), "is no YAML"), "once, not in each pass: %s", out)

	b.file("a.yaml", "# nothing")
	b.file("b.yaml", "\nkind: [")
	await.Eventually(b, "no object is left", func() bool { return strings.Contains(out.String(), "b.yaml:2: is no YAML") }, out.String)
	for range 2 {
		b.kubectl("patch", "configmap", "a", "--type=merge", "-p", `{"data":{"key":"theirs"}}`)
		await.Eventually(b, "the last state is kept", func() bool { return b.value("a") == "4" })
	}
	stop()
	require.Equal(b, 2, strings.Count(out.String(), "is no YAML"), "%s", out)
}

func watchPipeStory(b *bench) {
	b.stdin = "{apiVersion: v1, kind: ConfigMap, metadata: {name: piped}, data: {key: one}}"
	b.shop = "-"
	out, stop := b.watch("--part", "shop", "--interval", "1ms")
	await.Eventually(b, "it is applied", func() bool { return b.value("piped") == "one" })
	for range 2 {
		b.kubectl("patch", "configmap", "piped", "--type=merge", "-p", `{"data":{"key":"theirs"}}`)
		await.Eventually(b, "it is repaired", func() bool { return b.value("piped") == "one" })
	}
	stop()
	require.NotContains(b, out.String(), "is empty", "it is read once")
}

func watchPruneStory(b *bench) {
	b.settings("a", "1")
	b.settings("b", "1")
	out, stop := b.watch()
	await.Eventually(b, "they are applied", func() bool { return b.value("a")+b.value("b") == "11" })
	require.NoError(b, os.Remove(filepath.Join(b.shop, "b.yaml")))
	for _, value := range []string{"2", "3"} { // the second one after a whole pass without the file
		b.settings("a", value)
		await.Eventually(b, "the folder is read again", func() bool { return b.value("a") == value })
	}
	stop()
	require.Equal(b, "1", b.value("b"), "nothing asks for a deletion")
	require.NotContains(b, out.String(), "held")

	out, stop = b.watch("--prune")
	held := regexp.MustCompile(`1 object held, nothing of it was deleted; to delete it: --approve (\S+)`)
	await.Eventually(b, "the deletion waits for an approval", func() bool { return held.MatchString(out.String()) }, out.String)
	stop()
	require.Equal(b, "1", b.value("b"))

	out, stop = b.watch("--prune", "--limit", "9", "--approve", held.FindStringSubmatch(out.String())[1])
	await.Eventually(b, "it is deleted", func() bool { return b.value("b") == "" }, out.String)
	b.file("a.yaml", "# nothing")
	await.Eventually(b, "no object is left", func() bool { return strings.Contains(out.String(), ": has no object") }, out.String)
	stop()
	require.Equal(b, "3", b.value("a"), "a folder without an object prunes nothing")
}

// watch runs the command of that name until stop, which requires that it ends with status 0.
func (b *bench) watch(args ...string) (out *output, stop func()) {
	ctx, cancel := context.WithCancel(b.Context())
	out = &output{}
	ended := make(chan int, 1)
	go func() {
		args := append([]string{"watch", "-f", b.shop, "--interval", "100ms", "--kubeconfig", b.config, "--namespace", b.ns}, args...)
		c := command(nil) //nolint:contextcheck // Run gives it the context
		c.SetIn(strings.NewReader(b.stdin))
		ended <- program.Run(ctx, c, args, out, out)
	}()
	return out, func() {
		cancel()
		require.Equal(b, 0, <-ended)
	}
}

func deleteStory(b *bench) {
	b.settings("a", "1")
	b.settings("b", "1")
	b.on(0, "apply")
	b.kubectl("create", "configmap", "other")
	require.NoError(b, os.Remove(filepath.Join(b.shop, "b.yaml")))
	require.Contains(b, b.on(statusHeld, "delete"), "1 object held, nothing was deleted; to delete it: --yes")
	require.Equal(b, "1", b.value("a"))
	b.on(statusHeld, "delete", "-o", "json")
	var waits outcomes
	b.json(&waits)
	require.Equal(b, &held{Objects: []string{"ConfigMap/" + b.ns + "/a"}}, waits.Held)
	require.Contains(b, b.on(0, "delete", "--yes"), "shop: 1 deleted\n")
	require.Equal(b, "1", b.value("a")+b.value("b"), "only what the folder has")
	for _, args := range [][]string{{"--whole-part", "--filename", b.shop}, {}} {
		args = append([]string{"delete", "--part", "shop", "--yes"}, args...)
		require.Contains(b, b.run(program.ExitUsage, args...), "--whole-part: must be given in the place of --filename")
	}
	require.Equal(b, "1", b.value("b"))
	require.Contains(b, b.run(0, "delete", "--part", "shop", "--whole-part", "--yes"), "shop: 1 deleted\n")
	require.Equal(b, "shop: nothing to delete\n", b.run(0, "delete", "--part", "shop", "--whole-part", "--yes"))
	b.kubectl("get", "configmap", "other")

	for _, command := range [][]string{{"delete", "--whole-part", "--part", "shop", "--yes"}, {"prune", "-f", b.shop, "--limit", "9"}} {
		b.isolated()
		b.on(0, "apply", "--wait")
		require.NoError(b, os.Remove(filepath.Join(b.shop, "web.yaml")))
		text := b.run(0, command...)
		require.Contains(b, text, "NetworkPolicy.networking.k8s.io/"+b.ns+"/web: is still needed: ")
		require.Contains(b, text, "\n1 object left until what needs it is gone: "+command[0]+" again\n")
		require.Contains(b, text, " deleted\n", "the Deployment")
		await.Eventually(b, "its isolation is gone, too", func() bool {
			return !strings.Contains(b.run(0, command...), "left until") && b.kubectl("get", "networkpolicy", "-o", "name") == ""
		})
	}
}

// isolated writes a Deployment, and what isolates it.
func (b *bench) isolated() {
	b.file("web.yaml", `
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: web}
spec: {podSelector: {}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 0
  selector: {matchLabels: {app: web}}
  template: {metadata: {labels: {app: web}}, spec: {containers: [{name: main, image: example.com/web}]}}
`)
}

func rightsStory(b *bench) {
	b.settings("a", "1")
	text := b.on(statusCluster, "apply")
	require.Contains(b, text, "right is missing: create configmaps in the namespace "+b.ns+"; nothing was written")
	require.Contains(b, text, "right is missing: patch configmaps in the namespace "+b.ns)
	require.Empty(b, b.value("a"))
	require.Contains(b, b.on(statusDiffers, "diff"), "+ create ConfigMap/"+b.ns+"/a\n", "to look needs no more than the right to look")

	out, stop := b.watch()
	await.Eventually(b, "it says what is refused", func() bool { return strings.Contains(out.String(), "is forbidden") }, out.String)
	stop()
	require.NotContains(b, out.String(), "create ConfigMap", "a change that was not made is not printed")

	file := filepath.Join(b.TempDir(), "create")
	b.on(statusDiffers, "plan", "--out", file)
	require.Contains(b, b.on(statusCluster, "apply", "--plan", file), "right is missing: create configmaps in the namespace "+b.ns)
	own := b.config
	b.config = b.cluster.Kubeconfig
	b.on(0, "apply")
	b.config = own
	require.NoError(b, os.Rename(filepath.Join(b.shop, "a.yaml"), filepath.Join(b.shop, "b.yaml")))
	b.settings("b", "1")
	file = filepath.Join(b.TempDir(), "delete")
	b.on(statusDiffers, "plan", "--out", file)
	require.Contains(b, b.on(statusCluster, "apply", "--plan", file), "right is missing: delete configmaps in the namespace "+b.ns)
	require.Equal(b, "1", b.value("a"))
}

func noRightsStory(b *bench) {
	b.settings("a", "1")
	for _, c := range []string{"diff", "apply"} {
		require.Contains(b, b.on(statusCluster, c, "--timeout", "5m"), "forbidden", "at once")
	}

	// The set has a kind that the account cannot list.
	b.file("secret.yaml", "{apiVersion: v1, kind: Secret, metadata: {name: s}, stringData: {p: q}}")
	own := b.config
	b.config = b.cluster.Kubeconfig
	b.on(0, "apply")
	b.config = own
	require.NoError(b, b.cluster.Apply(b.Context(), strings.ReplaceAll(`
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: NS-configmaps},
 rules: [{apiGroups: [""], resources: [configmaps], verbs: [get, list, watch]}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: NS-configmaps},
 roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: NS-configmaps},
 subjects: [{kind: ServiceAccount, name: person, namespace: NS}]}
`, "NS", b.ns)))
	b.knows("list", "configmaps")
	text := b.on(statusCluster, "diff", "--timeout", "5m")
	require.Contains(b, text, "right is missing: a set needs get, list and watch of its kinds in the whole cluster")
	require.Regexp(b, `trueup-default +trueup/v1 +shop +1 +0 +Secret\n`, b.run(0, "sets"), "it names the kind that it cannot count")

	// An account that may write Secrets but not list them is refused before the set records the kind.
	require.NoError(b, b.cluster.Apply(b.Context(), strings.ReplaceAll(`
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: NS-write},
 rules: [{apiGroups: [""], resources: [configmaps, secrets], verbs: [create, patch]}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: NS-write},
 roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: NS-write},
 subjects: [{kind: ServiceAccount, name: person, namespace: NS}]}
`, "NS", b.ns)))
	b.knows("create", "secrets")
	text = b.on(statusCluster, "apply", "--set", "other", "--part", "other")
	require.Contains(b, text, "nothing was written: right is missing: a set needs get, list and watch of its kinds in the whole cluster: ")
	require.Regexp(b, `cannot (list|watch) resource "secrets"`, text) // which of them is refused first is client-go's
	require.NoError(b, os.Remove(filepath.Join(b.shop, "secret.yaml")))
	b.settings("b", "1")
	require.NoError(b, os.Remove(filepath.Join(b.shop, "a.yaml")))
	require.Contains(b, b.on(0, "apply", "--set", "other", "--part", "other"), "1 created")
}

func otherClusterStory(b *bench) {
	b.settings("a", "1")
	b.on(0, "apply")
	b.kubectl("annotate", "--overwrite", "configmap", "trueup-default", "trueup.dev/cluster=another")
	b.settings("a", "2")
	require.Contains(b, b.on(program.ExitUsage, "apply"), "was made in another cluster (its UID is another, that of ")
	require.Equal(b, "1", b.value("a"))
	b.kubectl("annotate", "configmap", "trueup-default", "trueup.dev/cluster-") // as an account leaves it that may not list namespaces
	b.on(0, "apply")
	require.Equal(b, "2", b.value("a"))
	require.Equal(b, b.kubectl("get", "namespace", "kube-system", "-o", "jsonpath={.metadata.uid}"),
		b.kubectl("get", "configmap", "trueup-default", "-o", `jsonpath={.metadata.annotations.trueup\.dev/cluster}`))
}

func partsStory(b *bench) {
	b.settings("a", "1")
	b.settings("b", "1")
	b.on(0, "apply")
	require.NoError(b, os.Remove(filepath.Join(b.shop, "b.yaml")))
	require.Equal(b, "other: nothing to prune\n", b.on(0, "prune", "--part", "other"))
	require.Equal(b, "1", b.value("b"), "that is of another part")
	require.Contains(b, b.on(statusCluster, "apply", "--part", "other"), "ConfigMap/"+b.ns+"/a: ")

	text := b.on(statusCluster, "apply", "--set", "second")
	require.Contains(b, text, "ConfigMap/"+b.ns+"/a: is not of this set: it is of the set default in the namespace "+b.ns+", part shop\n")
	require.NoError(b, os.Remove(filepath.Join(b.shop, "a.yaml")))
	b.settings("c", "1")
	b.on(0, "apply", "--set", "second")
	text = b.run(0, "sets")
	require.Regexp(b, `trueup-default +trueup/v1 +shop +2 +0 *\n`, text)
	require.Regexp(b, `trueup-second +trueup/v1 +shop +1 +0 *\n`, text, "each has its own")
	require.NoError(b, os.Remove(filepath.Join(b.shop, "c.yaml")))
	b.settings("d", "1")
	b.on(0, "apply", "--set", "second", "--part", "other")
	b.run(0, "delete", "--part", "shop", "--whole-part", "--yes")
	require.Regexp(b, `trueup-default +trueup/v1 +0 +0 *\n`, b.run(0, "sets"), "it has no part")
	require.Equal(b, "ConfigMap/"+b.ns+"/trueup-default\nConfigMap/"+b.ns+"/trueup-second\n", b.run(0, "sets", "-o", "name"))
}

// output is written by one goroutine and read by another.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

var _ io.Writer = &output{}

func (o *output) Write(data []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(data)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}
