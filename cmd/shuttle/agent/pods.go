package agent

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/seed-9e1ffd66/trueup/apply/readiness"
	cloudkube "github.com/seed-9e1ffd66/trueup/cloud/kube"
	"github.com/seed-9e1ffd66/trueup/cmd/api/starbase"
	"github.com/seed-9e1ffd66/trueup/internal/kubewatch"
)

// pod is what is billed and reported of a customer pod.
type pod struct {
	uid                                            types.UID
	workspace, project, environment, service, tier string
	phase                                          string
	created                                        time.Time
	cpuMillis, memoryBytes                         int64
	digest                                         string // of the image that runs; empty if none does
	revision                                       string // of the template
	cause                                          readiness.Cause
}

// podView has the customer pods of the cluster by their service, as their watch shows them.
// When the watch is silent for longer than silence, the pods are listed again.
type podView struct {
	kubewatch.Store[starbase.Identity, pod]

	client  dynamic.Interface
	owner   map[string]string
	silence time.Duration
	metrics *metrics
	logger  *slog.Logger
}

// maxSilence is longer than the time between two bookmarks, about a minute.
const maxSilence = 3 * time.Minute

func newPodView(client dynamic.Interface, owner map[string]string, interval time.Duration, metrics *metrics, logger *slog.Logger) *podView {
	v := &podView{client: client, owner: owner, silence: min(interval*3/2, maxSilence), metrics: metrics, logger: logger}
	v.Read = func(o metav1.Object) (starbase.Identity, pod, bool) {
		u, ok := o.(*unstructured.Unstructured)
		if !ok {
			return starbase.Identity{}, pod{}, false
		}
		p := v.readPod(u)
		return starbase.Identity{ProjectID: p.project, Environment: p.environment, ServiceID: p.service}, p, true
	}
	v.Same = func(a, b pod) bool { return a.digest == b.digest && a.cause == b.cause }
	return v
}

// Start implements reconcile.Starter.
func (v *podView) Start(ctx context.Context) error {
	pods := v.client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "pods"})
	w := kubewatch.Watch{
		Name: "Pod", Resource: kubewatch.Of(v.client, &unstructured.Unstructured{}, pods),
		LabelSelector: labels.SelectorFromSet(v.owner).String(), Sink: v, Silence: v.silence, Relist: true, Logger: v.logger,
		Alive: func() { v.metrics.observeWatch("pods", nil) },
		Failed: func(err error) {
			if err != nil {
				v.metrics.observeWatch("pods", err)
			}
		},
	}
	return w.Start(ctx)
}

// synced is nil once the pods were listed.
func (v *podView) synced() error {
	if !v.Synced() {
		return errors.New("pods are not listed yet")
	}
	return nil
}

// digests returns the digest of the image that the pods of each service run. A service
// whose pods run several has none.
func (v *podView) digests() map[starbase.Identity]string {
	found := map[starbase.Identity]string{}
	for _, id := range v.Keys() {
		for _, p := range v.Of(id) {
			if p.digest == "" {
				continue
			}
			if other, known := found[id]; known && other != p.digest {
				found[id] = ""
				continue
			}
			found[id] = p.digest
		}
	}
	return found
}

// cause returns why pods of a service are not ready. Pods of an older template do not count.
func (v *podView) cause(id starbase.Identity) readiness.Cause {
	var newest pod
	var causes []readiness.Cause
	for _, p := range v.Of(id) {
		if p.created.After(newest.created) {
			newest = p
		}
	}
	for _, p := range v.Of(id) {
		if p.revision == newest.revision {
			causes = append(causes, p.cause)
		}
	}
	return readiness.First(causes...)
}

// readPod returns the billed fields of a pod. A pod whose requests cannot be read is billed
// without them.
func (v *podView) readPod(u *unstructured.Unstructured) pod {
	var whole corev1.Pod
	p := pod{uid: u.GetUID(), created: u.GetCreationTimestamp().Time, cause: readiness.Why(u)}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &whole); err != nil {
		v.metrics.observeWatch("pods", err)
		v.logger.Warn("pod cannot be decoded", slog.String("pod", u.GetNamespace()+"/"+u.GetName()), slog.Any("error", err))
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
	p.revision = text("pod-template-hash")
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
