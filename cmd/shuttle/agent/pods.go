package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"

	cloudkube "github.com/seed-9e1ffd66/trueup/cloud/kube"
	"github.com/seed-9e1ffd66/trueup/cmd/api/starbase"
	"github.com/seed-9e1ffd66/trueup/internal/reflectors"
)

// pod has the fields of a customer pod that are billed and reported.
type pod struct {
	uid                                            types.UID
	workspace, project, environment, service, tier string
	phase                                          string
	created                                        time.Time
	cpuMillis, memoryBytes                         int64
	digest                                         string // of the image that runs; empty if none does
}

// podView watches the customer pods of the cluster, and knows when it was last proven to
// be current: by a whole list, an event or a bookmark. A watch that is silent for longer
// than silence is given up, and the pods are listed again: a server sends a bookmark about
// every minute, so that the watch is dead then, whatever its connection looks like.
type podView struct {
	client  dynamic.Interface
	owner   map[string]string
	silence time.Duration
	metrics *metrics
	logger  *slog.Logger

	// changed is called, if set, when another image runs in a pod.
	changed func()

	proof chan struct{} // holds at most one, for the watchdog

	mu   sync.RWMutex
	pods map[types.UID]pod
	seen time.Time
}

var (
	_ cache.ReflectorStore         = (*podView)(nil)
	_ cache.TransformingStore      = (*podView)(nil)
	_ cache.ResourceVersionUpdater = (*podView)(nil)
)

const (
	// listPatience is how long a list may take.
	listPatience = time.Minute
	// maxSilence is longer than the time between two bookmarks.
	maxSilence = 3 * time.Minute
)

func newPodView(client dynamic.Interface, owner map[string]string, interval time.Duration, metrics *metrics, logger *slog.Logger) *podView {
	return &podView{
		client: client, owner: owner, silence: min(interval*3/2, maxSilence), metrics: metrics, logger: logger, proof: make(chan struct{}, 1),
	}
}

// Start implements reconcile.Starter.
func (v *podView) Start(ctx context.Context) error {
	ctx = logr.NewContext(ctx, logr.Discard()) // failures are counted and logged here
	for ctx.Err() == nil {
		v.follow(ctx)
	}
	return nil
}

// follow lists and watches until ctx ends or the watch is silent.
func (v *podView) follow(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	select {
	case <-v.proof: // of an earlier watch
	default:
	}
	var reflector sync.WaitGroup
	defer reflector.Wait()
	defer cancel()
	reflector.Go(func() {
		cache.NewReflectorWithOptions(v.source(), &unstructured.Unstructured{}, v, cache.ReflectorOptions{Name: "pods"}).RunWithContext(ctx)
	})
	silent := time.NewTimer(max(listPatience, v.silence))
	defer silent.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-v.proof:
			silent.Reset(v.silence)
		case <-silent.C:
			v.report(ctx, errSilent)
			return
		}
	}
}

var errSilent = errors.New("the watch is silent")

func (v *podView) source() cache.ListerWatcher {
	resource := v.client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "pods"})
	selector := labels.SelectorFromSet(v.owner).String()
	return cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			options.LabelSelector = selector
			list, err := resource.List(ctx, options)
			v.report(ctx, err)
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			options.LabelSelector = selector
			w, err := resource.Watch(ctx, options)
			v.report(ctx, err)
			return w, reflectors.WatchError(err, options)
		},
	}, v.client)
}

// report counts and logs an error. A version that is too old is none: the list that
// follows shows all.
func (v *podView) report(ctx context.Context, err error) {
	if err == nil || ctx.Err() != nil || apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		return
	}
	v.metrics.observeWatch("pods", err)
	v.logger.WarnContext(ctx, "watch failed", slog.String("kind", "Pod"), slog.Any("error", err))
}

// Seen implements snapshot.Source.
func (v *podView) Seen() time.Time {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.seen
}

// synced is nil once the pods were listed.
func (v *podView) synced() error {
	if v.Seen().IsZero() {
		return errors.New("pods are not listed yet")
	}
	return nil
}

// list returns the pods, in no order.
func (v *podView) list() []pod {
	v.mu.RLock()
	defer v.mu.RUnlock()
	list := make([]pod, 0, len(v.pods))
	for _, p := range v.pods {
		list = append(list, p)
	}
	return list
}

func (v *podView) count() int {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return len(v.pods)
}

// UpdateResourceVersion implements cache.ResourceVersionUpdater: it is called for each
// event and bookmark of the watch.
func (v *podView) UpdateResourceVersion(string) { v.prove() }

// prove notes that the view is current.
func (v *podView) prove() {
	now := time.Now()
	v.mu.Lock()
	v.seen = now
	v.mu.Unlock()
	v.metrics.observeWatch("pods", nil)
	select {
	case v.proof <- struct{}{}:
	default:
	}
}

// Add implements cache.ReflectorStore.
func (v *podView) Add(o any) error { return v.Update(o) }

// Update implements cache.ReflectorStore.
func (v *podView) Update(o any) error {
	p, err := v.read(o)
	if err != nil {
		return err
	}
	v.mu.Lock()
	if v.pods == nil {
		v.pods = map[types.UID]pod{}
	}
	news := v.pods[p.uid].digest != p.digest
	v.pods[p.uid] = p
	v.mu.Unlock()
	if news {
		v.news()
	}
	return nil
}

// Delete implements cache.ReflectorStore.
func (v *podView) Delete(o any) error {
	p, err := v.read(o)
	if err != nil {
		return err
	}
	v.mu.Lock()
	delete(v.pods, p.uid)
	v.mu.Unlock()
	if p.digest != "" {
		v.news()
	}
	return nil
}

// Replace implements cache.ReflectorStore.
func (v *podView) Replace(objects []any, _ string) error {
	pods := make(map[types.UID]pod, len(objects))
	for _, o := range objects {
		p, err := v.read(o)
		if err != nil {
			return err
		}
		pods[p.uid] = p
	}
	v.mu.Lock()
	v.pods = pods
	v.mu.Unlock()
	v.prove()
	v.news()
	return nil
}

func (v *podView) news() {
	if v.changed != nil {
		v.changed()
	}
}

// digests returns the digest of the image that the pods of each service run. A service
// whose pods run several has none.
func (v *podView) digests() map[starbase.Identity]string {
	v.mu.RLock()
	defer v.mu.RUnlock()
	found := map[starbase.Identity]string{}
	for _, p := range v.pods {
		if p.digest == "" {
			continue
		}
		id := starbase.Identity{ProjectID: p.project, Environment: p.environment, ServiceID: p.service}
		if other, known := found[id]; known && other != p.digest {
			found[id] = ""
			continue
		}
		found[id] = p.digest
	}
	return found
}

// Resync implements cache.ReflectorStore. It does nothing.
func (v *podView) Resync() error { return nil }

// listedPod is a pod of a list that is not complete yet.
type listedPod struct {
	metav1.ObjectMeta
	pod pod
}

// Transformer implements cache.TransformingStore: a list of whole pods is not kept in
// memory.
func (v *podView) Transformer() cache.TransformFunc {
	return func(o any) (any, error) {
		u, ok := o.(*unstructured.Unstructured)
		if !ok {
			return o, nil
		}
		p, err := v.read(u)
		return &listedPod{metav1.ObjectMeta{Namespace: u.GetNamespace(), Name: u.GetName(), UID: p.uid}, p}, err
	}
}

func (v *podView) read(o any) (pod, error) {
	switch o := o.(type) {
	case *listedPod:
		return o.pod, nil
	case *unstructured.Unstructured:
		return v.readPod(o), nil
	default:
		return pod{}, fmt.Errorf("the watch delivered a %T; want a Pod", o)
	}
}

// readPod returns the billed fields of a pod. A pod whose requests cannot be read is billed
// without them.
func (v *podView) readPod(u *unstructured.Unstructured) pod {
	var whole corev1.Pod
	p := pod{uid: u.GetUID(), created: u.GetCreationTimestamp().Time}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &whole); err != nil {
		v.metrics.observeWatch("pods", err)
		v.logger.Warn("pod not understood", slog.String("pod", u.GetNamespace()+"/"+u.GetName()), slog.Any("error", err))
		phase, _, phaseErr := unstructured.NestedString(u.Object, "status", "phase")
		if phaseErr == nil {
			whole.Status.Phase = corev1.PodPhase(phase)
		}
	} else {
		requests := cloudkube.Pod(&whole).Requests
		p.cpuMillis, p.memoryBytes = requests.CPU, requests.Memory
		p.digest = runningDigest(&whole)
	}
	// Copies: substrings would keep the whole object in memory.
	text := func(key string) string { return strings.Clone(u.GetLabels()[key]) }
	p.workspace, p.project, p.service = text(labelWorkspaceID), uuidOf(text(labelProjectID)), uuidOf(text(labelServiceID))
	p.environment, p.tier = text(labelEnvironment), text(labelTier)
	p.phase = "Unknown"
	if phase := string(whole.Status.Phase); slices.Contains([]string{"Pending", "Running", "Succeeded", "Failed"}, phase) {
		p.phase = strings.Clone(phase)
	}
	return p
}

// runningDigest returns the digest of the image that runs in the container of a service.
func runningDigest(p *corev1.Pod) string {
	for _, c := range p.Status.ContainerStatuses {
		if c.Name != containerName || c.State.Running == nil {
			continue
		}
		if at := strings.LastIndex(c.ImageID, "sha256:"); at >= 0 {
			return strings.Clone(c.ImageID[at:])
		}
		return digestOf(c.Image)
	}
	return ""
}

// digestOf returns the digest that an image is named by, empty for one named by a tag.
func digestOf(image string) string {
	_, digest, _ := strings.Cut(image, "@")
	return strings.Clone(digest)
}
