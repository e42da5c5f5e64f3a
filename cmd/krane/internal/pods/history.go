package pods

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// window is the time within which restarts count together.
	window = 5 * time.Minute
	// maxRestarts is how many of them are a crash loop.
	maxRestarts = 3

	backOff = "CrashLoopBackOff"
)

// History remembers the restarts of a deployment's containers. The zero value
// remembers none. It must not be used concurrently.
type History struct {
	containers map[key]*container
}

type key struct {
	pod  types.UID
	name string
}

// container is the state that is kept of a container.
type container struct {
	count   int32     // restarts, when it was last seen
	seen    time.Time // last
	recent  []time.Time
	looping bool
}

// forget drops the entries that belong to none of the pods.
func (h *History) forget(pods []*corev1.Pod) {
	maps.DeleteFunc(h.containers, func(k key, _ *container) bool {
		return !slices.ContainsFunc(pods, func(pod *corev1.Pod) bool { return pod.UID == k.pod })
	})
}

// observe takes note of a pod's restarts and returns why it counts as crashing,
// "" if it does not.
func (h *History) observe(pod *corev1.Pod, now time.Time) (reason string) {
	if h.containers == nil {
		h.containers = map[key]*container{}
	}
	for _, status := range statuses(pod) {
		at := key{pod.UID, status.Name}
		c := h.containers[at]
		// The restarts between two observations have no times.
		if c == nil || now.Sub(c.seen) > window {
			c = &container{count: status.RestartCount, looping: seemsLooping(status)}
			h.containers[at] = c
		}
		c.see(status, now)
		if c.looping && reason == "" {
			reason = fmt.Sprintf("container %s was restarted %d times: %s", status.Name, status.RestartCount, ending(status))
		}
	}
	return reason
}

func (c *container) see(status corev1.ContainerStatus, now time.Time) {
	for range min(status.RestartCount-c.count, maxRestarts) {
		c.recent = append(c.recent, now)
	}
	c.count, c.seen = status.RestartCount, now
	c.recent = slices.DeleteFunc(c.recent, func(at time.Time) bool { return now.Sub(at) > window })
	switch {
	case len(c.recent) >= maxRestarts:
		c.looping = true
	case len(c.recent) == 0 && !backingOff(status):
		c.looping = false
	}
}

func backingOff(status corev1.ContainerStatus) bool {
	return status.State.Waiting != nil && status.State.Waiting.Reason == backOff
}

// seemsLooping judges a container on its first observation.
func seemsLooping(status corev1.ContainerStatus) bool {
	last := status.LastTerminationState.Terminated
	return status.RestartCount >= maxRestarts && backingOff(status) && last != nil && last.FinishedAt.Sub(last.StartedAt.Time) < window
}

// ending describes how the last run ended, without output of the container.
func ending(status corev1.ContainerStatus) string {
	last := cmp.Or(status.State.Terminated, status.LastTerminationState.Terminated)
	if last == nil {
		return "the end is unknown"
	}
	if last.Signal != 0 {
		return fmt.Sprintf("%s, signal %d", cmp.Or(last.Reason, "Error"), last.Signal)
	}
	return fmt.Sprintf("%s, exit code %d", cmp.Or(last.Reason, "Error"), last.ExitCode)
}
