package podtest

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed-9e1ffd66/trueup/internal/pause"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube"
)

// again is the time after which something that was missing is looked for again, and the first
// pause before a container is started again.
const again = time.Second

// pod is one pod and its processes.
type pod struct {
	node    *Node
	object  *corev1.Pod // as it was when it came
	began   metav1.Time
	cancel  context.CancelFunc // lets it end
	done    chan struct{}      // closed when no process runs any more
	link    *link
	volumes map[string]string // folders of this machine

	mu         sync.Mutex
	stopped    bool
	grace      time.Duration
	address    string
	containers map[string]*corev1.ContainerStatus
}

// startPod runs a pod until it is finished or stopped.
func (n *Node) startPod(object *corev1.Pod) *pod {
	p := &pod{node: n, object: object, began: metav1.Now(), done: make(chan struct{}), containers: map[string]*corev1.ContainerStatus{}}
	ctx, cancel := context.WithCancel(context.Background())
	p.cancel = cancel
	for _, c := range slices.Concat(object.Spec.InitContainers, object.Spec.Containers) {
		p.containers[c.Name] = &corev1.ContainerStatus{
			Name: c.Name, Image: c.Image, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "PodInitializing"}},
		}
	}
	go p.run(ctx)
	return p
}

// stop lets the processes end within grace. The shortest grace counts.
func (p *pod) stop(grace time.Duration) {
	p.mu.Lock()
	if !p.stopped || grace < p.grace {
		p.stopped, p.grace = true, grace
	}
	p.mu.Unlock()
	p.cancel()
}

func (p *pod) run(ctx context.Context) {
	defer func() {
		if p.link != nil {
			p.link.remove()
		}
		close(p.done)
		p.node.pods.Add(kube.KeyOf(p.object))
	}()
	if !p.try(ctx, func() error { return p.prepare(ctx) }) {
		return
	}
	for _, c := range p.object.Spec.InitContainers {
		if !p.keep(ctx, c, p.object.Spec.RestartPolicy != corev1.RestartPolicyNever, false) {
			return
		}
	}
	var all sync.WaitGroup
	for _, c := range p.object.Spec.Containers {
		policy := p.object.Spec.RestartPolicy
		all.Go(func() { p.keep(ctx, c, policy != corev1.RestartPolicyNever, policy == corev1.RestartPolicyAlways) })
	}
	all.Wait()
}

// try does something until it succeeds, and says meanwhile what is missing. It reports whether
// it has succeeded before the pod was stopped.
func (p *pod) try(ctx context.Context, do func() error) bool {
	for {
		err := do()
		if err == nil {
			return true
		}
		for _, c := range p.object.Spec.Containers {
			p.waits(c.Name, "ContainerCreating", err.Error())
		}
		if !pause.For(ctx, again) {
			return false
		}
	}
}

// prepare makes what all containers share: the network and the volumes.
func (p *pod) prepare(ctx context.Context) error {
	if p.link == nil {
		l, err := p.node.network.add()
		if err != nil {
			return err
		}
		p.link = l
		p.mu.Lock()
		p.address = l.address.String()
		p.mu.Unlock()
	}
	p.volumes = map[string]string{}
	for _, volume := range p.object.Spec.Volumes {
		dir, err := p.volume(ctx, volume)
		if err != nil {
			return errors.Join(errors.New("volume "+volume.Name), err)
		}
		p.volumes[volume.Name] = dir
	}
	return nil
}

// path returns a file of this pod on this machine.
func (p *pod) path(parts ...string) string {
	return filepath.Join(append([]string{p.node.dir, string(p.object.UID)}, parts...)...)
}

// set changes the status of a container, and starts a pass that writes it.
func (p *pod) set(name string, change func(*corev1.ContainerStatus)) {
	p.mu.Lock()
	before := *p.containers[name]
	change(p.containers[name])
	changed := !equality.Semantic.DeepEqual(before, *p.containers[name])
	p.mu.Unlock()
	if changed {
		p.node.pods.Add(kube.KeyOf(p.object))
	}
}

func (p *pod) waits(name, reason, message string) {
	p.set(name, func(s *corev1.ContainerStatus) {
		if w := s.State.Waiting; w == nil || w.Reason != reason || w.Message != message {
			s.State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}
		}
	})
}

// folder makes a folder of this pod.
func (p *pod) folder(parts ...string) (string, error) {
	dir := p.path(parts...)
	return dir, os.MkdirAll(dir, 0o755)
}
