package cainjector_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"os"
	"testing"

	cmapi "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	"github.com/cert-manager/cert-manager/pkg/controller/cainjector"
	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metrics "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/seed-9e1ffd66/trueup/internal/test/publishedtest"
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

var defects = []publishedtest.Defect{{
	Name: "C1", Controller: "cainjector", Record: "not on record; cert-manager/cert-manager#6340 has the symptom: a 403 is not tried again",
	Symptom: `^not converged: h\d has the CA|^the server accepted no write`, Within: publishedtest.ByChance, // 185 and 585
}}

// TestThePublishedCAInjector simulates histories of it. What is found is what is on
// record.
func TestThePublishedCAInjector(t *testing.T) {
	publishedtest.Run(t, "cainjector", webhooks, defects)
}

// endable is a cache that ends to wait when the program ends. Otherwise the manager spins
// for ever, and time does not pass: kubernetes-sigs/controller-runtime#3440.
type endable struct {
	cache.Cache

	program context.Context //nolint:containedctx // the context of the manager does not end
}

func (c endable) WaitForCacheSync(context.Context) bool {
	return c.Cache.WaitForCacheSync(c.program) || c.program.Err() != nil
}

// run is the main of cainjector, with its options.
func run(ctx context.Context, access *rest.Config) error {
	access.UserAgent = "cainjector"
	priority, again := false, true
	m, err := ctrl.NewManager(access, ctrl.Options{
		Scheme: scheme.Scheme, Metrics: metrics.Options{BindAddress: "0"},
		Cache:  cache.Options{NewInformer: upstream.NewInformer},
		Client: client.Options{Cache: &client.CacheOptions{DisableFor: []client.Object{&corev1.Secret{}}}},
		NewCache: func(access *rest.Config, options cache.Options) (cache.Cache, error) {
			c, err := cache.New(access, options)
			return endable{c, ctx}, err
		},
		Controller: config.Controller{UsePriorityQueue: &priority, SkipNameValidation: &again},
	})
	if err != nil {
		return err
	}
	err = cainjector.RegisterAllInjectors(ctx, m, cainjector.SetupOptions{
		EnabledReconcilersFor: map[string]bool{cainjector.ValidatingWebhookConfigurationName: true},
	})
	if err != nil {
		return err
	}
	return m.Start(ctx)
}

// webhooks is a user who makes, changes and deletes two Secrets and four webhooks, each of
// which gets its CA from one of them.
func webhooks() simtest.Scenario {
	kinds, err := upstream.Kinds(scheme.Scheme, &corev1.Secret{}, &admissionv1.ValidatingWebhookConfiguration{})
	utilruntime.Must(err)
	const resource = "validatingwebhookconfigurations.admissionregistration.k8s.io"
	return simtest.Scenario{
		Kinds: kinds, Machinery: &upstream.Machinery{Scheme: scheme.Scheme}, Program: upstream.Program(run),
		Rest:  1, // it applies each CA again when it starts, and nothing changes
		Edits: 30,
		Edit: func(w *simtest.World) {
			ca := base64.StdEncoding.EncodeToString(fmt.Append(nil, w.Random.IntN(100)))
			of, name := fmt.Sprint("s", w.Random.IntN(2)), fmt.Sprint("h", w.Random.IntN(4))
			if w.Random.IntN(2) == 0 {
				change := func(o simtest.Object) { o.Set(ca, "data", "ca.crt") }
				if w.Random.IntN(4) == 0 && w.Delete("secrets", "shop", of) == nil || w.Update("secrets", "shop", of, change) == nil {
					return
				}
				_ = w.Create(simtest.Object{ // it does not exist
					"apiVersion": "v1", "kind": "Secret", "data": map[string]any{"ca.crt": ca}, "metadata": map[string]any{
						"namespace": "shop", "name": of, "annotations": map[string]any{cmapi.AllowsInjectionFromSecretAnnotation: "true"},
					},
				})
				return
			}
			change := func(o simtest.Object) {
				o.Set("shop/"+of, "metadata", "annotations", cmapi.WantInjectFromSecretAnnotation)
			}
			if w.Random.IntN(4) == 0 && w.Delete(resource, "", name) == nil || w.Update(resource, "", name, change) == nil {
				return
			}
			_ = w.Create(simtest.Object{ // it does not exist
				"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
				"metadata": map[string]any{"name": name, "annotations": map[string]any{cmapi.WantInjectFromSecretAnnotation: "shop/" + of}},
				"webhooks": []any{map[string]any{"name": "a.example.com", "sideEffects": "None", "clientConfig": map[string]any{"url": "https://a"}}},
			})
		},
		Check: simtest.NotAnothers("secrets", func(simtest.Object) bool { return false }),
		Converged: func(w *simtest.World) error {
			for _, o := range w.Objects(resource) {
				of := fmt.Sprint(o.Field("metadata", "annotations", cmapi.WantInjectFromSecretAnnotation))
				hook := simtest.Object(o["webhooks"].([]any)[0].(map[string]any)) //nolint:forcetypeassert // by its type
				got := hook.Field("clientConfig", "caBundle")
				if secret := w.Object("secrets", "shop", of[len("shop/"):]); secret != nil && got != secret.Field("data", "ca.crt") {
					return fmt.Errorf("%s has the CA %v, and %s has %v", o.Name(), got, of, secret.Field("data", "ca.crt"))
				}
			}
			return nil
		},
		State: func(*simtest.World) string { return "" }, // the CA of a deleted Secret stays
	}
}
