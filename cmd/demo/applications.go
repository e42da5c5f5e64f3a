package main

import (
	"context"
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/seed-9e1ffd66/trueup/cmd/api/platform/v1alpha1"
	"github.com/seed-9e1ffd66/trueup/cmd/application/names"
	"github.com/seed-9e1ffd66/trueup/internal/test/kubetest"
)

//go:embed applications.yaml
var applicationManifests string

const (
	manyApps = 50
	// look is how often the operator checks the external objects: often, for a demo.
	look = 5 * time.Second
)

// applications is a demo of the application operator: an app with its database, buckets and
// realm, a preview of it that expires, drift of each kind, many apps, rest, and the end.
type applications struct {
	operatorDemo

	client  dynamic.Interface
	outside outside
	foreign []string
}

func applicationsCommand() *cobra.Command {
	a := applications{
		operatorDemo: operatorDemo{
			program:   "application",
			namespace: "plattr-system",
			account:   "plattr-operator",
			limit:     20 * time.Minute,
			look:      "get apps.platform.internal,previews -A",
		},
	}
	steps := []func(context.Context) error{a.start, a.startOperator, a.strangers, a.one, a.preview, a.drift, a.many, a.rest, a.expires}
	return a.command(
		"applications",
		"Show the application operator at work on a real Kubernetes, PostgreSQL, S3 and Keycloak",
		steps,
		a.removed,
		func() { a.outside.stop() },
	)
}

func (a *applications) start(ctx context.Context) error {
	d := &a.demo
	d.display.step("Kubernetes, PostgreSQL, S3, Keycloak")
	var err error
	if d.kube.cluster, err = kubetest.Run(
		ctx,
		kubetest.Options{Controllers: true, Scheduler: true, Nodes: 3, Progress: d.display},
	); err != nil {
		return err
	}
	if a.client, err = dynamic.NewForConfig(d.kube.cluster.Config); err != nil {
		return err
	}
	d.display.progress("Keycloak")
	if err := a.outside.start(ctx); err != nil {
		return err
	}
	d.display.done("they answer; the administrator of the database is no superuser")
	return nil
}

// startOperator runs it beside the cluster, where it reaches the services.
func (a *applications) startOperator(ctx context.Context) error {
	if err := a.install(ctx, "--base-domain", "apps.example.com"); err != nil {
		return err
	}
	if _, err := a.kubectl(ctx, "create", "namespace", "team"); err != nil {
		return err
	}
	env := append(a.outside.env(), "BASE_DOMAIN=apps.example.com", "REDIS_ENDPOINT=redis.internal")
	return a.begin(ctx, env, "--health-probe-bind-address", "127.0.0.1:0", "--check-interval", look.String())
}

// strangers creates objects of others, which must stay as they are.
func (a *applications) strangers(ctx context.Context) (err error) {
	a.demo.display.step("Others")
	if err := a.outside.strangers(ctx); err != nil {
		return err
	}
	if a.foreign, err = a.outside.foreign(ctx); err == nil {
		a.demo.display.done("%d schemas, roles, buckets and realms of others are there", len(a.foreign))
	}
	return err
}

// apply applies an app of the namespace team, made of the template.
func (a *applications) apply(ctx context.Context, names ...string) error {
	var all strings.Builder
	for _, name := range names {
		all.WriteString(strings.ReplaceAll(applicationManifests, "NAME", name) + "---\n")
	}
	return a.demo.kube.cluster.Apply(ctx, all.String())
}

// state has the fields shown of an app or a preview.
type state struct {
	phase      v1alpha1.Phase
	conditions map[string]string // status by type
}

func (a *applications) state(ctx context.Context, resource, name string) (state, error) {
	o, err := a.client.Resource(v1alpha1.GroupVersion().WithResource(resource)).Namespace("team").Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return state{}, err
	}
	return stateOf(o), nil
}

func stateOf(o *unstructured.Unstructured) state {
	phase, _, _ := unstructured.NestedString(o.Object, "status", "phase")
	s := state{v1alpha1.Phase(phase), map[string]string{}}
	conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	for _, c := range conditions {
		if condition, ok := c.(map[string]any); ok {
			s.conditions[fmt.Sprint(condition["type"])] = fmt.Sprint(condition["status"])
		}
	}
	return s
}

// one makes an app from nothing, and prints when each of its stages was done.
func (a *applications) one(ctx context.Context) error {
	a.demo.display.step("One app")
	start := time.Now()
	if err := a.apply(ctx, "shop"); err != nil {
		return err
	}
	var lines []string
	seen := map[string]bool{}
	err := until(ctx, func() (bool, error) {
		s, err := a.state(ctx, "applications", "shop")
		for _, stage := range []string{"DatabaseReady", "StorageReady", "AuthReady", "IngressReady", "DeploymentReady", "Ready"} {
			if s.conditions[stage] == "True" && !seen[stage] {
				seen[stage] = true
				lines = append(lines, fmt.Sprintf("  %-16s after %4.1f s", stage, time.Since(start).Seconds()))
			}
		}
		a.demo.display.progress("%s", s.phase)
		return s.phase == v1alpha1.Running, err
	})
	if err != nil {
		return err
	}
	took := time.Since(start)
	if err := a.outside.usable(ctx, a.kubectl); err != nil {
		return err
	}
	a.demo.display.done("it runs; its login, its schema, its public bucket and its realm answer")
	a.demo.display.print(lines...)
	a.demo.note(
		"application_seconds_to_running",
		took.Seconds(),
		"s",
		"seconds from nothing to a running app with a database, two buckets and a realm",
	)
	return nil
}

// preview copies the app for five minutes: it expires while the rest is shown.
func (a *applications) preview(ctx context.Context) error {
	a.demo.display.step("A preview")
	err := a.demo.kube.cluster.Apply(
		ctx,
		"{apiVersion: platform.internal/v1alpha1, kind: PreviewEnvironment, metadata: {name: shop-42, namespace: team}, spec: {applicationRef: shop, pullRequest: 42, branch: feature, ttl: 5m}}",
	)
	if err != nil {
		return err
	}
	err = until(ctx, func() (bool, error) {
		s, err := a.state(ctx, "previewenvironments", "shop-42")
		a.demo.display.progress("%s", s.phase)
		return s.phase == v1alpha1.Running, err
	})
	if err != nil {
		return err
	}
	row, err := a.kubectl(ctx, "get", "preview", "shop-42", "-n", "team", "--no-headers")
	a.demo.display.done("%s", strings.Join(strings.Fields(row), "  "))
	return err
}

// drift changes something of each kind behind the operator's back.
func (a *applications) drift(ctx context.Context) error {
	a.demo.display.step("Drift")
	start := time.Now()
	for _, args := range [][]string{
		{"delete", "ingress", "shop-api", "-n", "team"},
		{"patch", "service", "shop", "-n", "team", "--type=merge", "-p", `{"spec":{"selector":{"platform.internal/app":"other"}}}`},
	} {
		if _, err := a.kubectl(ctx, args...); err != nil {
			return err
		}
	}
	err := until(ctx, func() (bool, error) {
		found, err := a.kubectl(
			ctx,
			"get",
			"ingress/shop-api",
			"service/shop",
			"-n",
			"team",
			"--ignore-not-found",
			"-o",
			`jsonpath={.items[*].metadata.name} {.items[1].spec.selector.platform\.internal/app}`,
		)
		return strings.TrimSpace(found) == "shop-api shop shop", err
	})
	if err != nil {
		return err
	}
	inside := time.Since(start)
	if err := a.outside.damage(ctx); err != nil {
		return err
	}
	start = time.Now()
	if err := until(ctx, func() (bool, error) { return a.outside.repaired(ctx) }); err != nil {
		return err
	}
	a.demo.display.done("an Ingress and a Service are right again after %s; a grant, a policy and a redirect after %s, with a look every %s",
		inside.Round(10*time.Millisecond), time.Since(start).Round(10*time.Millisecond), look)
	return nil
}

// many makes more apps at a time.
func (a *applications) many(ctx context.Context) error {
	a.demo.display.step(fmt.Sprint(manyApps, " apps"))
	start := time.Now()
	var names []string
	for n := range manyApps {
		names = append(names, fmt.Sprintf("app-%02d", n))
	}
	if err := a.apply(ctx, names...); err != nil {
		return err
	}
	err := until(ctx, func() (bool, error) {
		all, err := a.client.Resource(v1alpha1.GroupVersion().WithResource("applications")).Namespace("team").List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err
		}
		running := 0
		for i := range all.Items {
			if strings.HasPrefix(all.Items[i].GetName(), "app-") && stateOf(&all.Items[i]).phase == v1alpha1.Running {
				running++
			}
		}
		a.demo.display.progress("%d of %d run", running, manyApps)
		return running == manyApps, nil
	})
	a.demo.display.done("all run")
	a.demo.note(
		"application_seconds_to_running_50",
		time.Since(start).Seconds(),
		"s",
		"seconds until %d more run, with two buckets, a database and a realm each",
		manyApps,
	)
	return err
}

// expires waits for the end of the preview.
func (a *applications) expires(ctx context.Context) error {
	a.demo.display.step("The preview expires")
	at, err := a.kubectl(ctx, "get", "preview", "shop-42", "-n", "team", "--ignore-not-found", "-o", "jsonpath={.status.expiresAt}")
	if err != nil {
		return err
	}
	err = until(ctx, func() (bool, error) {
		left, err := a.kubectl(
			ctx,
			"get",
			"preview/shop-42",
			"namespace/"+names.App{Name: "shop", PullRequest: 42, Home: "team"}.Namespace(),
			"-n",
			"team",
			"--ignore-not-found",
			"-o",
			"name",
		)
		a.demo.display.progress("at %s", at)
		return left == "", err
	})
	if err != nil {
		return err
	}
	left, err := a.outside.left(ctx, "%_pr42")
	if err == nil && len(left) > 0 {
		err = fmt.Errorf("left: %s", strings.Join(left, ", "))
	}
	a.demo.display.done("its namespace, schema, roles and bucket are gone; the app runs")
	return err
}

// removed deletes all apps, and counts the objects left over and the missing objects of
// others.
func (a *applications) removed(ctx context.Context) error {
	a.demo.display.step("The end")
	if _, err := a.kubectl(ctx, "delete", "apps.platform.internal", "--all", "-n", "team", "--timeout=10m"); err != nil {
		return err
	}
	left, err := a.outside.left(ctx, "%")
	if err != nil {
		return err
	}
	inside, err := a.kubectl(
		ctx,
		"get",
		"deploy,svc,ingress,hpa,secret,cm,sa,networkpolicy,namespace",
		"-A",
		"-l",
		"app.kubernetes.io/managed-by=plattr-operator",
		"-o",
		"name",
	)
	if err != nil {
		return err
	}
	left = append(left, strings.Fields(inside)...)
	foreign, err := a.outside.foreign(ctx)
	if err != nil {
		return err
	}
	touched := 0
	for _, was := range a.foreign {
		if !slices.Contains(foreign, was) {
			touched++
			a.demo.display.print("  changed: " + was)
		}
	}
	a.demo.display.done("%d things left %v, %d things of others changed", len(left), left, touched)
	a.demo.note("application_left_behind", float64(len(left)), "things", "things left of deleted apps, inside and outside of the cluster")
	a.demo.note("application_foreign_touched", float64(touched), "things", "things of others that were changed")
	return nil
}
