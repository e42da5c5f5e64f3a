package operator_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/seed-9e1ffd66/trueup/cmd/api/platform/v1alpha1"
	"github.com/seed-9e1ffd66/trueup/cmd/application/internal/crds"
	application "github.com/seed-9e1ffd66/trueup/cmd/application/operator"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/definitionstest"
	"github.com/seed-9e1ffd66/trueup/reconcile/simtest"
	"github.com/seed-9e1ffd66/trueup/reconcile/simtest/upstream"
)

const appsKind = "applications." + v1alpha1.Group

// platform is the world of one history, with what the test knows of it.
type platform struct{}

// newPlatform makes a world with two tenants.
func newPlatform() (*platform, simtest.Scenario) {
	p := &platform{}
	kinds, err := upstream.Kinds(
		scheme.Scheme, &corev1.Namespace{}, &corev1.ResourceQuota{}, &corev1.LimitRange{}, &rbacv1.RoleBinding{}, &corev1.Secret{},
		&corev1.ConfigMap{}, &corev1.ServiceAccount{}, &corev1.Service{}, &corev1.Pod{}, &appsv1.Deployment{}, &appsv1.ReplicaSet{},
		&autoscalingv2.HorizontalPodAutoscaler{}, &networkingv1.Ingress{}, &networkingv1.NetworkPolicy{},
	)
	if err != nil {
		panic(err)
	}
	own, err := upstream.Definitions("../internal/crds/*.yaml")
	if err != nil {
		panic(err)
	}
	return p, simtest.Scenario{
		Kinds: append(kinds, own...), Machinery: &upstream.Machinery{Scheme: scheme.Scheme}, Admit: definitionstest.Defaults(crds.YAML),
		Program: func(ctx context.Context, net http.RoundTripper) error {
			o := &application.Operator{
				Kubernetes: &rest.Config{Host: "http://simtest", Transport: net}, Namespace: "platform", Instance: "one",
				Settings: application.Settings{BaseDomain: "example.com", S3Region: "home-1", Redis: "redis.internal"},
				Address:  "0", MetricsAddress: "0", Alone: true, Logger: slog.New(slog.DiscardHandler),
			}
			return o.Start(ctx)
		},
		Actors: []func(*simtest.World, simtest.Change){simtest.Kubelet{}.Act, simtest.Deployments, simtest.ReplicaSets},
		Start: func(w *simtest.World) {
			for _, name := range []string{"platform", "blue", "green"} {
				if err := w.Create(simtest.Object{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": name}}); err != nil {
					panic(err)
				}
			}
		},
		// Each child is applied again once a day.
		Refreshes: 2,
		// Which of two has a name is of the history.
		State: func(*simtest.World) string { return "" },
	}
}

func simulated() simtest.Scenario {
	_, s := newPlatform()
	s.Edits, s.Pause = 10, 2*time.Minute
	s.Edit, s.Converged = editApps, simtest.TrueAtRest(appsKind, "Ready")
	return s
}

func anApp(namespace, name string, spec map[string]any) simtest.Object {
	return simtest.Object{
		"apiVersion": v1alpha1.GroupVersion().String(), "kind": "Application",
		"metadata": map[string]any{"namespace": namespace, "name": name}, "spec": spec,
	}
}

func editApps(w *simtest.World) {
	name := fmt.Sprint("a", w.Random.IntN(2))
	spec := map[string]any{
		"repository": "github.com/team/app", "framework": "nextjs", "environment": "production",
		"imageRef": fmt.Sprint("app:", w.Random.IntN(3)), "scaling": map[string]any{"min": 1 + w.Random.IntN(2)},
	}
	switch live := w.Object(appsKind, "blue", name); {
	case live == nil:
		_ = w.Create(anApp("blue", name, spec)) // it does not exist
	case w.Random.IntN(4) == 0:
		_ = w.Delete(appsKind, "blue", name) // it exists
	default:
		_ = w.Update(appsKind, "blue", name, func(o simtest.Object) { o["spec"] = spec }) // it exists
	}
}

// TestApplicationsInASimulatedWorld has users create, change and delete Applications.
func TestApplicationsInASimulatedWorld(t *testing.T) {
	t.Parallel()
	simtest.Histories(t, simulated)
}
