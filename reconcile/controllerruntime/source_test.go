package controllerruntime //nolint:testpackage // the source is not exported

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// oneKind is the cache of a Manager with one informer.
type oneKind struct {
	cache.Cache

	informer *informer
}

func (c *oneKind) GetInformer(context.Context, client.Object, ...cache.InformerGetOption) (cache.Informer, error) {
	return c.informer, nil
}

// informer has a list when the test says so, and one handler, which the test calls.
type informer struct {
	cache.Informer

	handler toolscache.ResourceEventHandler
	refuses error
	listed  atomic.Bool
	removed int
}

func (i *informer) AddEventHandler(handler toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error) {
	i.handler = handler
	return listing{&i.listed}, i.refuses
}

func (i *informer) RemoveEventHandler(toolscache.ResourceEventHandlerRegistration) error {
	i.removed++
	return nil
}

type listing struct{ done *atomic.Bool }

func (l listing) HasSynced() bool { return l.done.Load() }

// refused is a server that lists nothing.
type refused struct{ client.Reader }

func (refused) List(_ context.Context, list client.ObjectList, options ...client.ListOption) error {
	var all client.ListOptions
	all.ApplyOptions(options)
	return fmt.Errorf("%s in %q, at most %d: no right", list.GetObjectKind().GroupVersionKind().Kind, all.Namespace, all.Limit)
}

// told is a sink that records its calls.
type told struct{ lines chan string }

func (s told) say(verb string, objects ...*unstructured.Unstructured) {
	for _, o := range objects {
		verb += fmt.Sprintf(" %s/%s@%s", o.GetKind(), o.GetName(), o.GetResourceVersion())
	}
	s.lines <- verb
}

func (s told) List(objects []*unstructured.Unstructured) { s.say("list", objects...) }
func (s told) Put(object *unstructured.Unstructured)     { s.say("put", object) }
func (s told) Drop(object *unstructured.Unstructured)    { s.say("drop", object) }
func (s told) Failed(err error)                          { s.say(fmt.Sprint("failed: ", err)) }

// take returns what was said so far.
func (s told) take() (lines []string) {
	synctest.Wait()
	for len(s.lines) > 0 {
		lines = append(lines, <-s.lines)
	}
	return lines
}

// delivering runs a test in virtual time, with a source of the ConfigMaps of the namespace team.
func delivering(t *testing.T, i *informer, test func(t *testing.T, to told, stop func())) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		kind := corev1.SchemeGroupVersion.WithKind("ConfigMap")
		s := &source{&oneKind{informer: i}, refused{}, &corev1.ConfigMap{}, kind, "team", slog.New(slog.DiscardHandler)}
		to := told{make(chan string, 100)}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			s.deliver(ctx, to)
		}()
		synctest.Wait()
		test(t, to, func() {
			cancel()
			<-ended
		})
	})
}

func configMap(namespace, name, version string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, ResourceVersion: version}}
}

// TestASourceDeliversWhatTheCacheSees: of its namespace, whole lists first, and nothing at its end.
func TestASourceDeliversWhatTheCacheSees(t *testing.T) {
	t.Parallel()
	i := &informer{}
	delivering(t, i, func(t *testing.T, to told, stop func()) {
		i.handler.OnAdd(configMap("team", "a", "1"), true)
		i.handler.OnAdd(configMap("team", "b", "2"), true)
		i.handler.OnAdd(configMap("others", "c", "3"), true)
		i.handler.OnUpdate(configMap("team", "a", "1"), configMap("team", "a", "4"))
		i.handler.OnDelete(configMap("team", "b", "5"))
		require.Empty(t, to.take(), "the list is not complete")
		i.listed.Store(true)
		time.Sleep(time.Second)
		require.Equal(t, []string{"list ConfigMap/a@4"}, to.take())

		i.handler.OnUpdate(configMap("team", "a", "4"), configMap("team", "a", "6"))
		i.handler.OnAdd(configMap("others", "c", "7"), false)
		i.handler.OnDelete(toolscache.DeletedFinalStateUnknown{Obj: configMap("team", "a", "6")})
		i.handler.OnDelete("no object")
		require.Equal(t, []string{"put ConfigMap/a@6", "drop ConfigMap/a@6"}, to.take())

		stop()
		require.Equal(t, 1, i.removed)
		i.handler.OnAdd(configMap("team", "a", "8"), false)
		require.Empty(t, to.take())
	})
}

func TestASourceSaysWhyThereIsNoList(t *testing.T) {
	t.Parallel()
	i := &informer{}
	delivering(t, i, func(t *testing.T, to told, stop func()) {
		const why = `failed: the cache of the Manager has no list: ConfigMapList in "team", at most 1: no right`
		time.Sleep(11 * time.Second)
		require.Equal(t, []string{why, why}, to.take(), "every five seconds")
		i.listed.Store(true)
		time.Sleep(time.Second)
		require.Equal(t, []string{"list"}, to.take())
		stop()
	})
}

func TestASourceTriesAnInformerAgainThatHasStopped(t *testing.T) {
	t.Parallel()
	i := &informer{refuses: errors.New("it has stopped")}
	i.listed.Store(true)
	delivering(t, i, func(t *testing.T, to told, stop func()) {
		time.Sleep(6 * time.Second)
		require.Equal(t, []string{"failed: it has stopped", "failed: it has stopped"}, to.take())
		stop()
		require.Zero(t, i.removed)
	})
}
