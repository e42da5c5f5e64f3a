package foreign_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/seed-9e1ffd66/trueup/examples/foreign"
	"github.com/seed-9e1ffd66/trueup/reconcile/simtest"
	"github.com/seed-9e1ffd66/trueup/reconcile/simtest/upstream"
)

// TestMain takes out the handlers of client-go that keep the time of the last error
// for the whole process: a simulated world has a time of its own.
func TestMain(m *testing.M) {
	utilruntime.ErrorHandlers = nil
	ctrl.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

// TestTheReconcilerInASimulatedWorld runs a whole manager: its caches, its queue and
// its client.
func TestTheReconcilerInASimulatedWorld(t *testing.T) {
	t.Parallel()
	simtest.Run(t, func() simtest.Scenario {
		s := simulated(foreign.Reconciler{})
		s.Edits, s.Histories = 8, 10
		return s
	})
}

func TestASimulatedWorldFindsWhatIsWrong(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		reconciler foreign.Reconciler
		want       string
	}{
		"the server's defaults are undone in every pass": {
			foreign.Reconciler{Naive: true}, "writes at rest, the first of them: update deployments.apps shop/",
		},
		"what others made is taken over": {
			foreign.Reconciler{Adopts: true}, "-settings: not an object of the program",
		},
		"what it makes causes more of it": {
			foreign.Reconciler{Recursive: true}, "more than 200 requests in a minute without faults",
		},
		"the first child that cannot be made keeps the other from being made": {
			foreign.Reconciler{StopsEarly: true}, "the end differs from the same desired state without a history",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// The manager draws numbers of its own, so that a seed may show another symptom.
			var wrong string
			seed := uint64(0)
			for ; seed < 100 && !strings.Contains(wrong, test.want); seed++ {
				wrong = strings.Join(simtest.Simulate(t, func() simtest.Scenario { return simulated(test.reconciler) }, seed+1).Wrong, "; ")
			}
			t.Logf("seed %d: %s", seed, wrong)
			require.Contains(t, wrong, test.want)
		})
	}
}

// simulated is a user who edits two sites, and now and then has an object of the
// name that the reconciler wants.
func simulated(r foreign.Reconciler) simtest.Scenario {
	kinds, err := upstream.Kinds(scheme.Scheme, &corev1.ConfigMap{}, &appsv1.Deployment{})
	if err != nil {
		panic(err)
	}
	return simtest.Scenario{
		Kinds:     kinds,
		Machinery: &upstream.Machinery{Scheme: scheme.Scheme},
		Program: upstream.Program(func(ctx context.Context, config *rest.Config) error {
			return start(ctx, config, upstream.Mapper(kinds), r)
		}),
		Requests: 200,
		Edit: func(w *simtest.World) {
			name := fmt.Sprint("web", w.Random.IntN(2))
			data := map[string]any{"image": fmt.Sprint("example.com/web:", w.Random.IntN(3)), "greeting": "hello"}
			switch live := w.Object("configmaps", "shop", name); {
			case w.Random.IntN(6) == 0:
				_ = w.Delete("configmaps", "shop", name+"-settings")
				_ = w.Create(configMap(name+"-settings", map[string]any{"mine": "yes"})) // it may exist again
			case live == nil:
				_ = w.Create(configMap(name, data))
			case w.Random.IntN(4) == 0:
				_ = w.Delete("configmaps", "shop", name)
			default:
				_ = w.Update("configmaps", "shop", name, func(o simtest.Object) { o["data"] = data })
			}
		},
		Check: simtest.Checks(simtest.NotAnothers("configmaps", ofASite), simtest.NotAnothers("deployments.apps", ofASite)),
		Converged: func(w *simtest.World) error {
			for _, site := range w.Objects("configmaps") {
				image := site.Field("data", "image")
				settings := w.Object("configmaps", "shop", site.Name()+"-settings")
				if image == nil || settings != nil && settings.Owner() == "" {
					continue // no site, or one that cannot have its settings
				}
				web := w.Object("deployments.apps", "shop", site.Name())
				if settings == nil || web == nil || !strings.Contains(fmt.Sprint(web["spec"]), fmt.Sprint(image)) {
					return fmt.Errorf("%s does not run %v", site.Name(), image)
				}
			}
			return nil
		},
	}
}

func configMap(name string, data map[string]any) simtest.Object {
	return simtest.Object{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"namespace": "shop", "name": name}, "data": data}
}

// ofASite reports whether an object has an owner.
func ofASite(o simtest.Object) bool { return o.Owner() != "" }

// start runs a manager with the reconciler until ctx ends, as a main function does.
func start(ctx context.Context, access *rest.Config, mapper meta.RESTMapper, r foreign.Reconciler) error {
	again := true     // a name may come again, in the next life
	priority := false // that queue may leave a goroutine behind, which a bubble does not allow
	manager, err := ctrl.NewManager(access, ctrl.Options{
		Scheme: scheme.Scheme, Logger: logr.Discard(), Metrics: metricsserver.Options{BindAddress: "0"},
		Controller:     config.Controller{SkipNameValidation: &again, UsePriorityQueue: &priority},
		MapperProvider: func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return mapper, nil },
	})
	if err != nil {
		return err
	}
	r.Client = manager.GetClient()
	return errors.Join(r.SetupWithManager(manager), manager.Start(ctx))
}
