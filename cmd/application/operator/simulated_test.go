package operator_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/credentials"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/seed-9e1ffd66/trueup/apply/applytest"
	"github.com/seed-9e1ffd66/trueup/cmd/api/platform/v1alpha1"
	application "github.com/seed-9e1ffd66/trueup/cmd/application/operator"
	"github.com/seed-9e1ffd66/trueup/reconcile/simtest"
	"github.com/seed-9e1ffd66/trueup/reconcile/simtest/upstream"
)

const appsKind = "applications." + v1alpha1.Group

// retaining is the name of Applications that leave what they have outside.
const retaining = "keep"

// platform is the world of one history, with what the test knows of it.
type platform struct {
	*services

	// off has what an Application, by UID, did not want at some time.
	off map[string]map[string]bool
	// unshared has the Applications that did not share their realm at some time.
	unshared map[string]bool
	// scaled has the replicas that the autoscaler has set, by the UID of the Deployment.
	scaled map[string]any
	// reads has the password that each pod has started with.
	reads map[string]string
	// migrations is what is known of the migrations.
	migrations past
	// resting is whether all has converged: services are not written any more.
	resting bool
}

// Each world has the same kinds, which are read once.
var servedKinds = sync.OnceValue(func() []simtest.Kind {
	kinds, err := upstream.Kinds(
		scheme.Scheme, &corev1.Namespace{}, &corev1.ResourceQuota{}, &corev1.LimitRange{}, &rbacv1.RoleBinding{}, &corev1.Secret{},
		&corev1.ConfigMap{}, &corev1.ServiceAccount{}, &corev1.Service{}, &corev1.Pod{},
		&appsv1.Deployment{}, &appsv1.ReplicaSet{}, &batchv1.Job{}, &autoscalingv2.HorizontalPodAutoscaler{},
		&networkingv1.Ingress{}, &networkingv1.NetworkPolicy{},
	)
	if err != nil {
		panic(err)
	}
	own, err := upstream.Definitions("../internal/crds/*.yaml")
	if err != nil {
		panic(err)
	}
	return append(kinds, own...)
})

// Each world has the rights that the program ships with.
var shippedRights = sync.OnceValue(func() func(applytest.Request) error {
	text, err := application.Manifests{Image: "i", BaseDomain: "example.com"}.YAML()
	if err != nil {
		panic(err)
	}
	rights, err := upstream.Rights(text, "platform")
	if err != nil {
		panic(err)
	}
	return rights
})

// newPlatform makes a world with two tenants.
func newPlatform() (*platform, simtest.Scenario) {
	p := &platform{
		services: newServices(), off: map[string]map[string]bool{}, unshared: map[string]bool{},
		scaled: map[string]any{}, reads: map[string]string{}, migrations: newPast(),
	}
	p.judge = func(w *simtest.World, name string, before, after *thing) {
		if p.judgeWrite(w, name, before, after); p.resting {
			w.Blame("%s is written at rest", name)
		}
	}
	return p, simtest.Scenario{
		Kinds: servedKinds(), Machinery: &upstream.Machinery{Scheme: scheme.Scheme}, Rights: shippedRights(),
		Program: p.program,
		Actors: []func(*simtest.World, simtest.Change){
			p.note, p.noteMigrations, simtest.Kubelet{Runs: runs}.Act, simtest.Deployments, simtest.ReplicaSets, runJobs,
		},
		Habits: p.habits(),
		// A backup from before an Application leaves what was made outside of it.
		Without: []applytest.Disturbance{simtest.RestoreStore},
		Check:   simtest.Checks(stablePassword, simtest.NotAnothers("services", managed)),
		Start: func(w *simtest.World) {
			objects := []simtest.Object{{
				"apiVersion": "v1", "kind": "Service", "metadata": map[string]any{"namespace": "green", "name": "taken"},
				"spec": map[string]any{"ports": []any{map[string]any{"port": 80.0}}},
			}}
			for _, name := range []string{"platform", "blue", "green"} {
				objects = append(objects, simtest.Object{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": name}})
			}
			for _, o := range slices.Backward(objects) {
				if err := w.Create(o); err != nil {
					panic(err)
				}
			}
		},
		// Each child is applied again once a day.
		Refreshes: 2,
		// A pass that failed is repeated after 5 minutes at the latest, by a process that has
		// waited for the Lease of the one before.
		Bounds: p.bounds(), Recovery: 5*time.Minute + 30*time.Second,
		// Which of two has a name is of the history.
		State: func(*simtest.World) string { return "" },
	}
}

// program is the operator with the services of the world.
func (p *platform) program(ctx context.Context, net http.RoundTripper) error {
	return p.start(ctx, net, net)
}

// start starts it, without a Lease, with this way to the API server.
func (p *platform) start(ctx context.Context, net, server http.RoundTripper) error {
	return p.operator(net, server, true).Start(ctx)
}

func (p *platform) operator(net, server http.RoundTripper, alone bool) *application.Operator {
	o := &application.Operator{
		Kubernetes: &rest.Config{Host: "http://simtest", Transport: server}, Namespace: "platform", Instance: "one", Alone: alone,
		Settings: application.Settings{
			BaseDomain: "example.com", Redis: "redis.internal", S3Region: "ca-central-1", S3Endpoint: "http://storage.internal",
			DatabaseURL: "postgresql://admin:secret@database.internal/platform",
			KeycloakURL: "http://logins.internal", KeycloakUser: "admin", KeycloakPassword: "secret",
		},
		S3Credentials: credentials.NewStaticCredentialsProvider("key", "secret", ""),
		Address:       "0", MetricsAddress: "0", Logger: slog.New(slog.DiscardHandler),
	}
	storage, logins := link{p.services, net, theStorage, p.serveStorage}, link{p.services, net, theLogins, p.serveLogins}
	o.Tap(nil, storage, logins)
	o.TapDatabase(func(server application.Databases) application.Databases { return memory{server, p.services, net} })
	return o
}

func simulated() simtest.Scenario {
	p, s := newPlatform()
	s.Edits, s.Pause, s.Rest = 12, 2*time.Minute, time.Hour
	switch s.Histories = 5; {
	case long():
		s.Histories = 12
	case testing.Short():
		s.Histories = 2
	}
	s.Edit, s.Converged = editApps, p.converged
	return s
}

func anApp(namespace, name string, spec map[string]any) simtest.Object {
	return simtest.Object{
		"apiVersion": v1alpha1.GroupVersion().String(), "kind": "Application",
		"metadata": map[string]any{"namespace": namespace, "name": name}, "spec": spec,
	}
}

// specOf draws the spec of an Application.
func specOf(dice *rand.Rand, namespace, name string) map[string]any {
	policy := "Delete"
	if name == retaining {
		policy = "Retain"
	}
	some := func() bool { return dice.IntN(3) > 0 }
	environment := "production"
	if (namespace == "green") == some() {
		environment = "staging" // beside the other tenant's, most of the time
	}
	buckets := []any{
		map[string]any{"name": "files", "public": some()}, map[string]any{"name": "media", "public": some()},
	}[dice.IntN(2):]
	auth := map[string]any{"enabled": some(), "deletionPolicy": policy}
	if some() {
		auth["sharedWith"] = []any{"blue", "green"}
	}
	migrations := map[string]any{}
	if some() {
		migrations["engine"] = "knex"
	}
	return map[string]any{
		"repository": "github.com/team/app", "framework": "nextjs", "environment": environment,
		"imageRef": []string{"app:0", "app:1", "app:2", badImage}[dice.IntN(4)], "scaling": map[string]any{"min": 1 + dice.IntN(2)}, "auth": auth,
		"database": map[string]any{"enabled": some(), "anonRead": some(), "deletionPolicy": policy, "migrations": migrations},
		"storage":  map[string]any{"enabled": some(), "buckets": buckets, "deletionPolicy": policy},
		"redis":    map[string]any{"enabled": some()},
	}
}

// editApps is what users of two tenants do, the autoscaler, and people with kubectl.
func editApps(w *simtest.World) {
	dice := w.Random
	namespace, name := []string{"blue", "green"}[dice.IntN(2)], []string{"shop", "shop", "shop", retaining, retaining, "taken"}[dice.IntN(6)]
	spec, act := specOf(dice, namespace, name), dice.IntN(12)
	asks := []string{v1alpha1.AnnotationRotate, v1alpha1.AnnotationMigrate}[dice.IntN(2)]
	kind, child := childKinds[dice.IntN(len(childKinds))], []string{"", "-db", "-api"}[dice.IntN(3)]
	live := w.Object(appsKind, namespace, name)
	switch {
	case live == nil:
		_ = w.Create(anApp(namespace, name, spec)) // it does not exist
	case act < 3:
		_ = w.Delete(appsKind, namespace, name) // it exists
	case act < 8:
		spec["environment"] = live.Field("spec", "environment") // it cannot be changed
		_ = w.Update(appsKind, namespace, name, func(o simtest.Object) { o["spec"] = spec })
	case act == 8:
		_ = w.Update(appsKind, namespace, name, func(o simtest.Object) { // it exists
			o.Set(fmt.Sprint(dice.IntN(3)), "metadata", "annotations", asks)
		})
	case act == 9 && name != "taken":
		_ = w.As("person").Delete(kind, namespace, name+child) // it may not exist
	case act == 10:
		_ = w.As("person").Update("secrets", namespace, name+"-db", func(o simtest.Object) { // it may not exist
			o.Set("YnkgaGFuZA==", "data", "DB_PASSWORD")
		})
	case dice.IntN(2) == 0:
		_ = w.As("person").Update("deployments.apps", namespace, name, setImage("app:9")) // it may not exist
	default:
		_ = w.As("autoscaler").Update("deployments.apps", namespace, name, func(o simtest.Object) { // it may not exist
			o.Set(float64(2+dice.IntN(3)), "spec", "replicas")
		})
	}
}

// TestApplicationsInASimulatedWorld has users create, change and delete Applications.
func TestApplicationsInASimulatedWorld(t *testing.T) {
	t.Parallel()
	simtest.Histories(t, simulated)
}
