//trueup:pure

package readiness

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Reason is why a workload is not ready, one word for programs.
type Reason string

// The reasons. A pod meets them in about this order.
const (
	// Quota: a quota of the namespace does not allow its pods.
	Quota Reason = "Quota"
	// Rejected: the server refuses its pods for another reason, such as pod security.
	Rejected Reason = "Rejected"
	// Unschedulable: no node fits a pod, or a scheduling gate holds it.
	Unschedulable Reason = "Unschedulable"
	// Volume: a claim has no volume, or has lost it.
	Volume Reason = "Volume"
	// ImagePull: an image cannot be pulled.
	ImagePull Reason = "ImagePull"
	// ContainerConfig: a container cannot be made from its spec. A ConfigMap, a Secret or
	// the command does not exist, for example.
	ContainerConfig Reason = "ContainerConfig"
	// ContainerCreating: a pod is being scheduled, or its containers are being made.
	ContainerCreating Reason = "ContainerCreating"
	// CrashLoop: a container ended with an error, and has not become ready since.
	CrashLoop Reason = "CrashLoop"
	// Unready: the containers run, and are not ready.
	Unready Reason = "Unready"
	// Evicted: a node gave a pod up, or made room for others.
	Evicted Reason = "Evicted"
	// ProgressDeadline: the controller has given up: the deadline of a Deployment or Job
	// has passed, or a Job has failed too often.
	ProgressDeadline Reason = "ProgressDeadline"
)

// Outlook is what ends a [Cause].
type Outlook string

// The outlooks, each heavier than the one before.
const (
	// Waiting: a usual step of a start. Nothing has failed.
	Waiting Outlook = "Waiting"
	// Transient: something has failed and is tried again. It may end without a change of
	// the workload.
	Transient Outlook = "Transient"
	// Lasting: the workload or what it needs must change, or its controller has given up
	// waiting.
	Lasting Outlook = "Lasting"
)

// Cause is why a workload is not ready. The zero value is none.
type Cause struct {
	Reason  Reason
	Outlook Outlook
	// Message names the pod and the container, and has the words of Kubernetes.
	Message string
}

// Why returns the first cause why a workload is not ready, the zero Cause if none shows. The
// workload is a Deployment, a ReplicaSet, a Job, a Pod or any other object that has pods;
// nil is allowed. The others are its pods and, if at hand, its ReplicaSets and claims, in
// any order. Objects of other kinds are ignored. So are pods that are ready, complete or
// being deleted, and pods of an older revision.
//
// The cause of a pod explains the controller's failure: it comes before ProgressDeadline,
// which makes it Lasting. Of several causes the heaviest outlook comes first, and then the
// reason that is met first.
func Why(workload *unstructured.Unstructured, others ...*unstructured.Unstructured) Cause {
	causes := []Cause{causeOf(workload)}
	newest, pods := newestOf(others)
	if newest != nil {
		causes = append(causes, causeOf(newest))
	}
	for _, o := range pods {
		causes = append(causes, causeOf(o))
	}
	for _, o := range others {
		if kindOf(o) == "PersistentVolumeClaim" {
			causes = append(causes, causeOf(o))
		}
	}
	return First(causes...)
}

// First returns the cause that [Why] returns for a workload with these causes: its own and
// the causes of its pods, each found by Why.
func First(causes ...Cause) Cause {
	var first, ended Cause
	for _, c := range causes {
		switch {
		case c.Reason == "":
		case c.Reason == ProgressDeadline:
			ended = c
		case first.Reason == "" || c.Compare(first) < 0:
			first = c
		}
	}
	switch {
	case ended.Reason == "":
	case first.Reason == "":
		return ended
	case first.Outlook == Waiting:
		ended.Message += "; " + first.Message
		return ended
	default:
		first.Outlook = Lasting
	}
	return first
}

// Compare orders causes of different objects: the one to be said first is less. It has the
// heaviest outlook. For the causes of one workload and its pods there is [First].
func (c Cause) Compare(other Cause) int {
	outlooks := []Outlook{Lasting, Transient, Waiting}
	reasons := []Reason{
		Quota, Rejected, Unschedulable, Volume, ImagePull, ContainerConfig, ContainerCreating, CrashLoop, Unready, Evicted,
	}
	return cmp.Or(
		slices.Index(outlooks, c.Outlook)-slices.Index(outlooks, other.Outlook),
		slices.Index(reasons, c.Reason)-slices.Index(reasons, other.Reason),
		strings.Compare(c.Message, other.Message),
	)
}

// kindOf returns the kind of an object that Why knows, empty for others.
func kindOf(o *unstructured.Unstructured) string {
	if o == nil {
		return ""
	}
	switch kind := o.GroupVersionKind(); kind.Group {
	case "", "apps", "batch":
		return kind.Kind
	default:
		return ""
	}
}

// newestOf returns the newest ReplicaSet, nil if there is none, and the pods of the newest
// revision.
func newestOf(objects []*unstructured.Unstructured) (newest *unstructured.Unstructured, pods []*unstructured.Unstructured) {
	revision := func(o *unstructured.Unstructured) int {
		n, err := strconv.Atoi(o.GetAnnotations()["deployment.kubernetes.io/revision"])
		if err != nil {
			return 0
		}
		return n
	}
	var youngest *unstructured.Unstructured
	for _, o := range objects {
		switch kindOf(o) {
		case "ReplicaSet":
			if newest == nil || revision(o) > revision(newest) {
				newest = o
			}
		case "Pod":
			if at := o.GetCreationTimestamp(); youngest == nil || at.After(youngest.GetCreationTimestamp().Time) {
				youngest = o
			}
		}
	}
	of := func(o *unstructured.Unstructured) string {
		return cmp.Or(o.GetLabels()["pod-template-hash"], o.GetLabels()["controller-revision-hash"])
	}
	for _, o := range objects {
		if kindOf(o) != "Pod" {
			continue
		}
		if newest == nil && of(o) == of(youngest) || newest != nil && of(o) == newest.GetLabels()["pod-template-hash"] {
			pods = append(pods, o)
		}
	}
	return newest, pods
}

// causeOf returns the cause that one object shows.
func causeOf(object *unstructured.Unstructured) Cause {
	kind := kindOf(object)
	if kind == "" || object.GetDeletionTimestamp() != nil {
		return Cause{}
	}
	o := live{object.Object}
	switch kind {
	case "Pod":
		c := podCause(o)
		if c.Reason != "" {
			c.Message = "Pod " + object.GetName() + ": " + c.Message
		}
		return c
	case "PersistentVolumeClaim":
		switch r := claim(o); r.Status {
		case InProgress:
			return Cause{Volume, Waiting, "PersistentVolumeClaim " + object.GetName() + ": " + r.Message}
		case Failed:
			return Cause{Volume, Lasting, "PersistentVolumeClaim " + object.GetName() + ": " + r.Message}
		default:
			return Cause{}
		}
	case "Job":
		if c, ok := o.condition("Failed"); ok && c.status == "True" {
			return Cause{ProgressDeadline, Lasting, c.String()}
		}
		return Cause{}
	default:
		return controllerCause(o)
	}
}

// controllerCause reads the conditions of a Deployment or ReplicaSet. That of a ReplicaSet
// shows in its Deployment, too.
func controllerCause(o live) Cause {
	var refused, ended Cause
	if c, ok := o.condition("ReplicaFailure"); ok && c.status == "True" {
		refused = Refused(c.message)
	}
	if c, ok := o.condition("Progressing"); ok && c.status == "False" {
		ended = Cause{ProgressDeadline, Lasting, c.String()}
	}
	return First(refused, ended)
}

// Refused returns the cause that the API server has refused a pod with this message.
func Refused(message string) Cause {
	if strings.Contains(message, "exceeded quota") || strings.Contains(message, "failed quota") {
		return Cause{Quota, Transient, message}
	}
	return Cause{Rejected, Transient, message}
}

func podCause(o live) Cause {
	phase := o.text("status", "phase")
	switch phase {
	case "Succeeded":
		return Cause{}
	case "Failed":
		return failedPod(o)
	}
	if c, ok := o.condition("PodScheduled"); ok && c.status == "False" {
		switch {
		case c.reason == "SchedulingGated":
			return Cause{Unschedulable, Waiting, c.String()}
		case strings.Contains(strings.ToLower(c.message), "persistentvolumeclaim"):
			return Cause{Volume, Transient, c.String()}
		default:
			return Cause{Unschedulable, Transient, c.String()}
		}
	}
	var found Cause
	for c := range o.containers() {
		if cause := c.cause(); cause.Reason != "" && (found.Reason == "" || cause.Compare(found) < 0) {
			found = cause
		}
	}
	switch c, ready := o.condition("Ready"); {
	case found.Reason != "":
		return found
	case ready && c.status == "True":
		return Cause{}
	case phase == "Running":
		return Cause{Unready, Waiting, cmp.Or(c.message, "it runs, and is not ready")}
	default:
		return Cause{ContainerCreating, Waiting, fmt.Sprintf("phase %q", phase)}
	}
}

// failedPod returns why a pod has ended. Its controller makes another one.
func failedPod(o live) Cause {
	reason, message := o.text("status", "reason"), o.text("status", "message")
	if c, ok := o.condition("DisruptionTarget"); ok && c.status == "True" {
		return Cause{Evicted, Transient, c.String()}
	}
	if reason == "Evicted" || reason == "Preempting" || reason == "NodeLost" || reason == "Shutdown" || reason == "Terminated" {
		return Cause{Evicted, Transient, reason + ": " + message}
	}
	for c := range o.containers() {
		if text := c.ended("state"); text != "" {
			return Cause{CrashLoop, Transient, text}
		}
	}
	return Cause{CrashLoop, Transient, strings.TrimSuffix(cmp.Or(reason, "phase Failed")+": "+message, ": ")}
}
