//trueup:pure

package readiness

import (
	"cmp"
	"fmt"
	"iter"
)

// container is the status of one container of a pod.
type container struct {
	live
	init bool
}

// containers yields the statuses of the containers of a pod, those that start it first.
func (o live) containers() iter.Seq[container] {
	return func(yield func(container) bool) {
		status, _ := o.object["status"].(map[string]any)
		for _, field := range []string{"initContainerStatuses", "containerStatuses"} {
			list, _ := status[field].([]any)
			for _, entry := range list {
				if m, ok := entry.(map[string]any); ok && !yield(container{live{m}, field == "initContainerStatuses"}) {
					return
				}
			}
		}
	}
}

// WaitReason returns what it means that a container waits for the given reason
// (state.waiting.reason), and how long that may take.
func WaitReason(waiting string) (Reason, Outlook) {
	switch waiting {
	case "ErrImagePull", "ImagePullBackOff", "ImageInspectError", "RegistryUnavailable", "SignatureValidationFailed":
		return ImagePull, Transient
	case "InvalidImageName", "ErrImageNeverPull":
		return ImagePull, Lasting
	case "CreateContainerConfigError", "CreateContainerError", "RunContainerError", "PreCreateHookError", "PreStartHookError":
		return ContainerConfig, Transient
	case "CrashLoopBackOff", "PostStartHookError":
		return CrashLoop, Transient
	default: // ContainerCreating, PodInitializing
		return ContainerCreating, Waiting
	}
}

// cause returns why a container does not run, or runs after an error.
func (c container) cause() Cause {
	name := "container " + c.text("name")
	if reason := c.text("state", "waiting", "reason"); reason != "" {
		why, outlook := WaitReason(reason)
		if why == CrashLoop { // the words of the kubelet have the delay, which grows
			return Cause{why, outlook, cmp.Or(c.ended("lastState"), name+": "+reason)}
		}
		text := name + ": " + reason
		if message := c.text("state", "waiting", "message"); message != "" {
			text += ": " + message
		}
		return Cause{why, outlook, text}
	}
	if text := c.ended("state"); text != "" {
		return Cause{CrashLoop, Transient, text}
	}
	if ready, _ := c.object["ready"].(bool); !ready && (!c.init || c.count("state", "terminated", "exitCode") != 0) {
		if text := c.ended("lastState"); text != "" && c.object["state"] != nil {
			return Cause{CrashLoop, Transient, text}
		}
	}
	return Cause{}
}

// ended returns how a container ended with an error, empty if it did not.
func (c container) ended(state string) string {
	code, ended := c.number(state, "terminated", "exitCode")
	if !ended || code == 0 {
		return ""
	}
	text := fmt.Sprintf("container %s ended with exit code %d", c.text("name"), code)
	if reason := c.text(state, "terminated", "reason"); reason != "" && reason != "Error" {
		text += ", " + reason
	}
	if message := c.text(state, "terminated", "message"); message != "" {
		text += ": " + message
	}
	return text
}
