package foreign_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/seed-9e1ffd66/trueup/apply/applytest"
	"github.com/seed-9e1ffd66/trueup/examples/foreign"
	"github.com/seed-9e1ffd66/trueup/internal/test/await"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube/kubetest"
)

func TestAForeignReconciler(t *testing.T) {
	t.Parallel()
	cluster := kubetest.Start(t, kubetest.Options{})
	for name, test := range map[string]func(*testing.T, *kubetest.Cluster){
		"writes at rest are found":        writesAtRest,
		"a server that is busy is obeyed": busyServer,
		"a lost answer makes nothing new": lostAnswer,
		"a frozen watch is caught up":     frozenWatch,
		"it may be killed at any request": killedAnywhere,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, cluster)
		})
	}
}

// world is a namespace with a site.
type world struct {
	config    *rest.Config
	admin     client.Client
	namespace string
}

var worlds atomic.Int64

func newWorld(t *testing.T, cluster *kubetest.Cluster) *world {
	t.Helper()
	w := &world{config: cluster.Config, namespace: fmt.Sprintf("site-%d", worlds.Add(1))}
	var err error
	w.admin, err = client.New(cluster.Config, w.options(t))
	require.NoError(t, err)
	require.NoError(t, w.admin.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.namespace}}))
	require.NoError(t, w.admin.Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "web"},
		Data:       map[string]string{"image": "example.com/web:1", "greeting": "hello"},
	}))
	return w
}

// options name the kinds beforehand, so that no request asks for them.
func (w *world) options(t *testing.T) client.Options {
	t.Helper()
	scheme := runtime.NewScheme()
	require.NoError(t, errors.Join(corev1.AddToScheme(scheme), appsv1.AddToScheme(scheme)))
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Namespace"), meta.RESTScopeRoot)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("ConfigMap"), meta.RESTScopeNamespace)
	mapper.Add(appsv1.SchemeGroupVersion.WithKind("Deployment"), meta.RESTScopeNamespace)
	return client.Options{Scheme: scheme, Mapper: mapper}
}

// program is one pass of the reconciler, all of whose requests go through net.
func (w *world) program(t *testing.T, net *applytest.Transport, naive bool) func(context.Context) error {
	t.Helper()
	config := rest.CopyConfig(w.config)
	config.Wrap(net.Wrap)
	through, err := client.New(config, w.options(t))
	require.NoError(t, err)
	return w.pass(through, naive)
}

func (w *world) pass(through client.Client, naive bool) func(context.Context) error {
	r := &foreign.Reconciler{Client: through, Naive: naive}
	return func(ctx context.Context) error {
		_, err := r.Reconcile(ctx, reconcile.Request{NamespacedName: types.NamespacedName{Namespace: w.namespace, Name: "web"}})
		return err
	}
}

// state is what there is, without what differs from world to world.
func (w *world) state(ctx context.Context) (string, error) {
	var settings corev1.ConfigMapList
	var webs appsv1.DeploymentList
	if err := errors.Join(
		w.admin.List(ctx, &settings, client.InNamespace(w.namespace)),
		w.admin.List(ctx, &webs, client.InNamespace(w.namespace)),
	); err != nil {
		return "", err
	}
	var b strings.Builder
	for _, s := range settings.Items {
		fmt.Fprintln(&b, s.Name, s.Data)
	}
	for _, d := range webs.Items {
		fmt.Fprintln(&b, d.Name, d.Spec.Template.Spec.Containers[0].Image)
	}
	return b.String(), nil
}

// found collects what an assertion would fail a test with.
type found []string

func (f *found) Helper() {}

func (f *found) Errorf(format string, args ...any) { *f = append(*f, fmt.Sprintf(format, args...)) }

func writesAtRest(t *testing.T, cluster *kubetest.Cluster) {
	t.Helper()
	w := newWorld(t, cluster)
	var net applytest.Transport
	naive := w.program(t, &net, true)
	require.NoError(t, naive(t.Context()))
	net.Reset()
	require.NoError(t, naive(t.Context()))
	var told found
	net.NoWrites(&told)
	require.Equal(t, found{"a write where none was due: update deployments.apps " + w.namespace + "/web"}, told)

	corrected := w.program(t, &net, false)
	net.Reset()
	require.NoError(t, corrected(t.Context()))
	net.NoWrites(t)
}

func busyServer(t *testing.T, cluster *kubetest.Cluster) {
	t.Helper()
	w := newWorld(t, cluster)
	var busy atomic.Int64
	net := applytest.Transport{Fault: func(r applytest.Request) applytest.Fault {
		if r.Writes() && busy.Add(1) <= 2 {
			return applytest.Fault{Status: http.StatusTooManyRequests, RetryAfter: time.Second}
		}
		return applytest.Fault{}
	}}
	require.NoError(t, w.program(t, &net, false)(t.Context()), "the client tries again")
	require.Equal(t, 4, net.Count("create"), "two of them were refused")
}

func lostAnswer(t *testing.T, cluster *kubetest.Cluster) {
	t.Helper()
	w := newWorld(t, cluster)
	var lose atomic.Bool
	lose.Store(true)
	net := applytest.Transport{Fault: func(r applytest.Request) applytest.Fault {
		return applytest.Fault{LoseAnswer: r.Resource == "deployments" && r.Verb == "create" && lose.Swap(false)}
	}}
	pass := w.program(t, &net, false)
	require.ErrorIs(t, pass(t.Context()), applytest.ErrLost)
	net.Reset()
	require.NoError(t, pass(t.Context()))
	net.NoWrites(t)
}

func frozenWatch(t *testing.T, cluster *kubetest.Cluster) {
	t.Helper()
	w := newWorld(t, cluster)
	var net applytest.Transport
	config := rest.CopyConfig(w.config)
	config.Wrap(net.Wrap)
	options := w.options(t)
	view, err := cache.New(
		config,
		cache.Options{Scheme: options.Scheme, Mapper: options.Mapper, DefaultNamespaces: map[string]cache.Config{w.namespace: {}}},
	)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- view.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-done)
	})
	options.Cache = &client.CacheOptions{Reader: view}
	through, err := client.New(config, options)
	require.NoError(t, err)
	pass := w.pass(through, false)
	require.True(t, view.WaitForCacheSync(ctx))
	await.Eventually(t, "pass(t.Context()) == nil && len(net.Writes()) == 0", func() bool { // until it sees what it made
		net.Reset()
		return pass(t.Context()) == nil && len(net.Writes()) == 0
	})

	net.Freeze()
	var site corev1.ConfigMap
	require.NoError(t, w.admin.Get(t.Context(), types.NamespacedName{Namespace: w.namespace, Name: "web"}, &site))
	site.Data["image"] = "example.com/web:2"
	require.NoError(t, w.admin.Update(t.Context(), &site))
	net.Reset()
	require.NoError(t, pass(t.Context()))
	net.NoWrites(t) // it sees the world as it was
	net.Thaw()
	await.Eventually(t, `err == nil && strings.Contains(state, "example.com/web:2")`, func() bool {
		if err := pass(t.Context()); err != nil {
			return false
		}
		state, err := w.state(t.Context())
		return err == nil && strings.Contains(state, "example.com/web:2")
	})
}

func killedAnywhere(t *testing.T, cluster *kubetest.Cluster) {
	t.Helper()
	applytest.Sweep{}.Run(t, func(t *testing.T) applytest.Scenario {
		t.Helper()
		w := newWorld(t, cluster)
		return applytest.Scenario{
			World: w.namespace,
			Run:   func(ctx context.Context, net *applytest.Transport) error { return w.program(t, net, false)(ctx) },
			State: w.state,
		}
	})
}
