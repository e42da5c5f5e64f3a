package agent

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"sync"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/seed-9e1ffd66/trueup/cmd/krane/render"
	"github.com/seed-9e1ffd66/trueup/cmd/krane/stream"
	"github.com/seed-9e1ffd66/trueup/internal/reflectors"
	"github.com/seed-9e1ffd66/trueup/statesync"
)

// observer watches the pods of deployments and the Deployments of sentinels. It
// is the store of two reflectors, which restart a watch that was closed or failed,
// with a list first.
type observer struct {
	client  kubernetes.Interface
	region  string
	metrics *metrics
	logger  *slog.Logger
	changed func(statesync.Key)

	mu        sync.Mutex
	pods      map[types.UID]*corev1.Pod
	byKey     map[statesync.Key]map[types.UID]bool
	sentinels map[statesync.Key]*appsv1.Deployment
	// listed has the kinds whose first list has come.
	listed map[string]bool
}

func newObserver(client kubernetes.Interface, region string, m *metrics, logger *slog.Logger, changed func(statesync.Key)) *observer {
	return &observer{
		client: client, region: region, metrics: m, logger: logger, changed: changed, listed: map[string]bool{},
		pods: map[types.UID]*corev1.Pod{}, byKey: map[statesync.Key]map[types.UID]bool{}, sentinels: map[statesync.Key]*appsv1.Deployment{},
	}
}

const (
	kindPods      = "pods"
	kindSentinels = "sentinels"
)

// Start watches until ctx ends.
func (o *observer) Start(ctx context.Context) error {
	selector := func(c render.Component) string {
		return labels.SelectorFromSet(render.Owner(c, o.region).Labels).String()
	}
	pods, deployments := selector(render.Deployment), selector(render.Sentinel)
	watches := map[string]*cache.ListWatch{
		kindPods: {
			ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
				options.LabelSelector = pods
				list, err := o.client.CoreV1().Pods("").List(ctx, options)
				return list, o.failed(ctx, kindPods, err)
			},
			WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
				options.LabelSelector = pods
				w, err := o.client.CoreV1().Pods("").Watch(ctx, options)
				o.reconnected(options, err)
				return w, reflectors.WatchError(o.failed(ctx, kindPods, err), options)
			},
		},
		kindSentinels: {
			ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
				options.LabelSelector = deployments
				list, err := o.client.AppsV1().Deployments("").List(ctx, options)
				return list, o.failed(ctx, kindSentinels, err)
			},
			WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
				options.LabelSelector = deployments
				w, err := o.client.AppsV1().Deployments("").Watch(ctx, options)
				return w, reflectors.WatchError(o.failed(ctx, kindSentinels, err), options)
			},
		},
	}
	ctx = logr.NewContext(ctx, logr.Discard()) // failed logs what client-go would write
	var running sync.WaitGroup
	for kind, w := range watches {
		var example runtime.Object = &corev1.Pod{}
		if kind == kindSentinels {
			example = &appsv1.Deployment{}
		}
		reflector := cache.NewReflectorWithOptions(w, example, &kindStore{o, kind}, cache.ReflectorOptions{})
		running.Go(func() { reflector.RunWithContext(ctx) })
	}
	running.Wait()
	return nil
}

// failed logs err, if it is one, and returns it.
func (o *observer) failed(ctx context.Context, kind string, err error) error {
	if err != nil && ctx.Err() == nil {
		o.logger.WarnContext(ctx, "cannot be observed now", slog.String("kind", kind), slog.Any("error", err))
	}
	return err
}

func (o *observer) reconnected(options metav1.ListOptions, err error) {
	reason := "opened"
	if err != nil {
		reason = "error"
	} else if options.ResourceVersion != "" && options.ResourceVersion != "0" {
		reason = "resumed"
	}
	o.metrics.podWatches.WithLabelValues(reason).Inc()
}

// known reports whether the first list of a kind has come.
func (o *observer) known(kind string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.listed[kind]
}

// podsOf returns the pods of a deployment.
func (o *observer) podsOf(key statesync.Key) []*corev1.Pod {
	o.mu.Lock()
	defer o.mu.Unlock()
	var found []*corev1.Pod
	for uid := range o.byKey[key] {
		found = append(found, o.pods[uid])
	}
	return found
}

// sentinel returns the Deployment of a sentinel, nil if there is none.
func (o *observer) sentinel(key statesync.Key) *appsv1.Deployment {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.sentinels[key]
}

// keys returns the keys with live objects.
func (o *observer) keys() []statesync.Key {
	o.mu.Lock()
	defer o.mu.Unlock()
	var keys []statesync.Key
	for key := range o.byKey {
		keys = append(keys, key)
	}
	for key := range o.sentinels {
		keys = append(keys, key)
	}
	return keys
}

// deploymentOf returns the key of the deployment that a pod belongs to.
func deploymentOf(pod *corev1.Pod) (statesync.Key, bool) {
	owner := metav1.GetControllerOf(pod)
	if owner == nil || owner.Kind != "ReplicaSet" {
		return statesync.Key{}, false
	}
	return stream.Deployments.Key(pod.Namespace, owner.Name), true
}

// put stores one object, or drops it, and returns its key. The mutex is held.
func (o *observer) put(object any, drop bool) (statesync.Key, bool) {
	switch object := object.(type) {
	case *corev1.Pod:
		key, ok := deploymentOf(object)
		if !ok {
			return key, false
		}
		if drop {
			delete(o.pods, object.UID)
			delete(o.byKey[key], object.UID)
			if len(o.byKey[key]) == 0 {
				delete(o.byKey, key)
			}
			return key, true
		}
		object.ManagedFields = nil
		o.pods[object.UID] = object
		if o.byKey[key] == nil {
			o.byKey[key] = map[types.UID]bool{}
		}
		o.byKey[key][object.UID] = true
		return key, true
	case *appsv1.Deployment:
		key := stream.Sentinels.Key(object.Namespace, object.Name)
		if object.ManagedFields = nil; drop {
			delete(o.sentinels, key)
		} else {
			o.sentinels[key] = object
		}
		return key, true
	default:
		return statesync.Key{}, false
	}
}

// kindStore is an observer as the store of one kind.
type kindStore struct {
	observer *observer
	kind     string
}

var _ cache.ReflectorStore = (*kindStore)(nil)

func (s *kindStore) one(object any, drop bool) {
	s.observer.mu.Lock()
	key, ok := s.observer.put(object, drop)
	s.observer.mu.Unlock()
	if ok {
		s.observer.changed(key)
	}
}

// Add implements cache.ReflectorStore.
func (s *kindStore) Add(object any) error {
	s.one(object, false)
	return nil
}

// Update implements cache.ReflectorStore.
func (s *kindStore) Update(object any) error { return s.Add(object) }

// Delete implements cache.ReflectorStore.
func (s *kindStore) Delete(object any) error {
	s.one(object, true)
	return nil
}

// Resync implements cache.ReflectorStore.
func (*kindStore) Resync() error { return nil }

// Replace implements cache.ReflectorStore.
func (s *kindStore) Replace(objects []any, _ string) error {
	s.observer.mu.Lock()
	touched := map[statesync.Key]bool{}
	if s.kind == kindPods {
		for key := range s.observer.byKey {
			touched[key] = true
		}
		clear(s.observer.pods)
		clear(s.observer.byKey)
	} else {
		for key := range s.observer.sentinels {
			touched[key] = true
		}
		clear(s.observer.sentinels)
	}
	for _, object := range objects {
		if key, ok := s.observer.put(object, false); ok {
			touched[key] = true
		}
	}
	s.observer.listed[s.kind] = true
	s.observer.mu.Unlock()
	for key := range touched {
		s.observer.changed(key)
	}
	return nil
}

// sorted returns the keys in order, each once.
func sorted(keys []statesync.Key) []statesync.Key {
	slices.SortFunc(keys, func(a, b statesync.Key) int { return cmp.Compare(a.Collection+"/"+a.ID, b.Collection+"/"+b.ID) })
	return slices.Compact(keys)
}
