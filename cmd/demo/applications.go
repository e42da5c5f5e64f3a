package main

import (
	"context"
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed-9e1ffd66/trueup/internal/test/s3test"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube/kubetest"
)

//go:embed applications.yaml
var applicationManifests string

const (
	manyApps = 50
	// checkEvery is how often the operator checks the external objects: often, for a demo.
	checkEvery = 5 * time.Second
)

// applications is the demo of the application operator.
type applications struct {
	demo    *demo
	outside outside
	user    string   // of the operator
	before  []string // what was outside before the operator
}

func applicationsCommand() *cobra.Command {
	a := applications{demo: newDemo()}
	return a.demo.command(story{
		use:        "applications",
		short:      "Show the application operator at work on a real Kubernetes, PostgreSQL, S3 and Keycloak",
		programs:   []string{"application"},
		kubernetes: kubetest.Options{Controllers: true, Scheduler: true, Nodes: 3},
		limit:      20 * time.Minute,
		stages: []stage{
			{"PostgreSQL, S3, Keycloak", a.startServices},
			{"Operator", a.start},
			{"One app", a.one},
			{"Drift", a.drift},
			{fmt.Sprint(manyApps, " apps"), a.many},
			{"Rest", a.rest},
		},
		end: []stage{{"The end", a.remove}},
		look: func() []string {
			return []string{
				a.demo.see() + "get apps.platform.internal,deployments,ingresses -n team",
				a.demo.see() + "delete ingress shop-api -n team    # and see it come back",
				"psql '" + a.outside.superuser() + `' -c '\dn+' -c '\du'`,
				"curl --aws-sigv4 aws:amz:" + s3test.Region + ":s3 --user " + s3test.AccessKey + ":" + s3test.SecretKey + " " + a.outside.s3.URL,
				"curl " + a.outside.keycloak.URL + "/realms/shop",
			}
		},
	})
}

// start runs the operator beside the cluster, where it reaches the services.
func (a *applications) start(ctx context.Context) (_ string, err error) {
	env := append(a.outside.env(), "BASE_DOMAIN=apps.example.com", "REDIS_ENDPOINT=redis.internal")
	a.user, _, err = a.demo.operator(ctx, "application", []string{"--base-domain", "apps.example.com"}, env,
		"--check-interval", checkEvery.String())
	if err == nil {
		_, err = a.demo.kubectl(ctx, "create namespace team")
	}
	return "application runs as " + a.user + ", and its login to the database is no superuser", err
}

// apply applies apps of the template, and waits until so many run in all.
func (a *applications) apply(ctx context.Context, running int, names ...string) error {
	var all strings.Builder
	for _, name := range names {
		all.WriteString(strings.ReplaceAll(applicationManifests, "NAME", name) + "---\n")
	}
	if err := a.demo.cluster.Apply(ctx, all.String()); err != nil {
		return err
	}
	return until(ctx, func() (bool, error) {
		phases, err := a.demo.kubectl(ctx, "get apps.platform.internal -n team -o jsonpath={.items[*].status.phase}")
		n := strings.Count(phases, "Running")
		a.demo.display.progress("%d of %d run", n, running)
		return n == running, err
	})
}

// one makes an app from nothing, and uses it.
func (a *applications) one(ctx context.Context) (string, error) {
	start := time.Now()
	if err := a.apply(ctx, 1, "shop"); err != nil {
		return "", err
	}
	a.demo.note("application_seconds_to_running", time.Since(start).Seconds(), "s")
	made, err := a.difference(ctx)
	if err != nil {
		return "", err
	}
	login, err := a.demo.kubectl(ctx, "get secret shop-db -n team -o go-template={{.data.DATABASE_URL|base64decode}}")
	if err != nil {
		return "", err
	}
	return "it runs; its login and its realm answer; it has " + strings.Join(made.added, ", "), a.outside.usable(ctx, login, "shop")
}

// drift deletes an Ingress and revokes a grant behind the operator's back.
func (a *applications) drift(ctx context.Context) (string, error) {
	if _, err := a.demo.kubectl(ctx, "delete ingress shop-api -n team"); err != nil {
		return "", err
	}
	start := time.Now()
	const ingress = "ingress.networking.k8s.io/shop-api"
	if err := a.demo.becomes(ctx, ingress, "get %s -n team --ignore-not-found -o name", ingress); err != nil {
		return "", err
	}
	inside := time.Since(start)
	if err := a.outside.pg.SQL(ctx, "platform", "REVOKE USAGE ON SCHEMA prod_shop FROM prod_shop_anon"); err != nil {
		return "", err
	}
	start = time.Now()
	err := until(ctx, func() (bool, error) {
		granted, err := rows(ctx, a.outside.superuser(), "SELECT has_schema_privilege('prod_shop_anon', 'prod_shop', 'USAGE')::text")
		return err == nil && granted[0] == "true", err
	})
	return fmt.Sprintf("a deleted Ingress is back after %s, a revoked grant after %s, with a look every %s",
		inside.Round(10*time.Millisecond), time.Since(start).Round(10*time.Millisecond), checkEvery), err
}

// many makes more apps at a time.
func (a *applications) many(ctx context.Context) (string, error) {
	start := time.Now()
	var names []string
	for n := range manyApps {
		names = append(names, fmt.Sprintf("app-%02d", n))
	}
	err := a.apply(ctx, 1+manyApps, names...)
	a.demo.note("application_seconds_to_running_50", time.Since(start).Seconds(), "s")
	return "all run, with a database, two buckets and a realm each", err
}

// rest counts the writes over two looks at all that is outside.
func (a *applications) rest(ctx context.Context) (string, error) {
	const window = 2*checkEvery + checkEvery/2
	return a.demo.rest(ctx, "application_writes_at_rest", "writes to Kubernetes, PostgreSQL, S3 and Keycloak", window, func() (int, error) {
		toKubernetes, err := a.demo.requests(aWrite, a.user)
		if err != nil {
			return 0, err
		}
		toOthers, err := a.outside.writes(ctx)
		a.demo.display.progress("writes so far: to Kubernetes %d, to PostgreSQL, S3 and Keycloak %d", toKubernetes, toOthers)
		return toKubernetes + toOthers[0] + toOthers[1] + toOthers[2], err
	})
}

// remove deletes all apps, and counts the objects left over and the changed objects of
// others.
func (a *applications) remove(ctx context.Context) (string, error) {
	if _, err := a.demo.kubectl(ctx, "delete apps.platform.internal --all -n team --timeout=10m"); err != nil {
		return "", err
	}
	now, err := a.difference(ctx)
	if err != nil {
		return "", err
	}
	inside, err := a.demo.kubectl(ctx, "get deploy,svc,ingress,hpa,secret,cm,sa,networkpolicy,namespace -A -o name "+
		"-l app.kubernetes.io/managed-by=plattr-operator")
	left := slices.Concat(now.added, strings.Fields(inside))
	a.demo.note("application_left_behind", float64(len(left)), "things")
	a.demo.note("application_foreign_touched", float64(len(now.missing)), "things")
	return fmt.Sprintf("%d things left %v, %d things of others changed %v", len(left), left, len(now.missing), now.missing), err
}

// difference names the objects outside that were not there before, and those that were there
// and are gone or changed.
func (a *applications) difference(ctx context.Context) (found struct{ added, missing []string }, err error) {
	now, err := a.outside.objects(ctx)
	for _, o := range now {
		if !slices.Contains(a.before, o) {
			found.added = append(found.added, named(o))
		}
	}
	for _, o := range a.before {
		if !slices.Contains(now, o) {
			found.missing = append(found.missing, named(o))
		}
	}
	return found, err
}

// named returns the kind and the name of an object.
func named(described string) string {
	kind, rest, _ := strings.Cut(described, " ")
	name, _, _ := strings.Cut(rest, " ")
	return kind + " " + name
}
