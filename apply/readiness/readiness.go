// Package readiness reads from live Kubernetes objects how far they have reached their
// spec, and why not. [Of] takes one object and returns one [Result], in the terms of
// kstatus. [Why] takes a workload and its pods and returns the first [Cause]. It is pure:
// no client, no clock.
//
// A cause is one word, an outlook, and the words of Kubernetes:
//
//	Reason             shows in                                   Outlook
//	Quota              condition ReplicaFailure: exceeded quota   Transient
//	Rejected           condition ReplicaFailure: any other        Transient
//	Unschedulable      condition PodScheduled                     Transient; Waiting at a scheduling gate
//	Volume             PodScheduled, or the claim                 Transient; Waiting at a new claim; Lasting if lost
//	ImagePull          ErrImagePull, ImagePullBackOff, ...        Transient; Lasting if the name is invalid
//	ContainerConfig    CreateContainerConfigError, ...            Transient
//	ContainerCreating  phase Pending, ContainerCreating, ...      Waiting
//	CrashLoop          CrashLoopBackOff, an exit code but 0       Transient
//	Unready            running, condition Ready is not True       Waiting
//	Evicted            a failed pod: Evicted, DisruptionTarget    Transient
//	ProgressDeadline   Progressing is False, a Job has Failed     Lasting
//
// The controller of a workload reports ProgressDeadline when it has waited long enough.
// Then a Transient cause of the workload's pods is Lasting.
//
//trueup:pure
package readiness

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Status is how far an object has reached its spec, in the terms of kstatus.
type Status string

// The statuses.
const (
	// Current: it has reached its spec.
	Current Status = "Current"
	// InProgress: its controller is working towards it, or has not seen it yet.
	InProgress Status = "InProgress"
	// Failed: its controller has given up, or reports that something is wrong.
	Failed Status = "Failed"
	// Terminating: it is being deleted.
	Terminating Status = "Terminating"
	// Unknown: the object cannot be read.
	Unknown Status = "Unknown"
)

// Result is the status of an object, and why.
type Result struct {
	Status Status
	// Message names what is missing, empty when it is Current.
	Message string
}

func current() Result { return Result{Status: Current} }

func inProgress(format string, args ...any) Result {
	return Result{InProgress, fmt.Sprintf(format, args...)}
}

func failed(format string, args ...any) Result {
	return Result{Failed, fmt.Sprintf(format, args...)}
}

// Of returns the status of a live object. It has rules for the kinds of
// Kubernetes that need them; for any other it goes by status.observedGeneration
// and the conditions Stalled, Reconciling and Ready. A kind that has none of
// these is Current as soon as it exists. It takes any object: a field that is
// absent or of a wrong type counts as absent.
//
// The rules are kstatus rules, with these exceptions. Callers wait for the outcome.
//
//   - A Job is Current when it is complete, not when it runs, and not while it is
//     suspended.
//   - A Pod that failed is Failed, and so is one that waits because its image
//     cannot be pulled or its container cannot be made. A Pod that fits no node stays
//     InProgress.
//   - A Service of type LoadBalancer is Current when it has an address.
//   - A claim that has lost its volume is Failed.
//   - A StatefulSet or DaemonSet that is updated OnDelete is Current when its pods
//     are ready, of whatever revision.
//   - A Deployment that is paused is Current when its pods match the spec.
//   - An APIService is Current when it is available, a HorizontalPodAutoscaler unless
//     it cannot compute a scale.
//   - A condition of an older generation than the object's is ignored.
func Of(object *unstructured.Unstructured) Result {
	if object == nil || len(object.Object) == 0 {
		return Result{Unknown, "there is no object"}
	}
	if object.GetDeletionTimestamp() != nil {
		return Result{Terminating, "is being deleted"}
	}
	o := live{object.Object}
	generation := o.count("metadata", "generation")
	if observed, ok := o.number("status", "observedGeneration"); ok && generation != 0 && observed != generation {
		return inProgress("generation %d is not observed yet, %d is", generation, observed)
	}
	for _, kind := range []string{"Stalled", "Reconciling"} {
		switch c, ok := o.condition(kind); {
		case !ok || c.status != "True":
		case c.behind(generation):
			return inProgress("%s, as of generation %d of %d", c, c.observed, generation)
		case kind == "Stalled":
			return failed("%s", c)
		default:
			return inProgress("%s", c)
		}
	}
	if rule := readinessRule(object.GroupVersionKind().GroupKind()); rule != nil {
		return rule(o)
	}
	switch c, ok := o.condition("Ready"); {
	case ok && c.status != "True":
		return inProgress("%s", c)
	case ok && c.behind(generation):
		return inProgress("%s, as of generation %d of %d", c, c.observed, generation)
	default:
		return current()
	}
}

// readinessRule returns the rule of a kind that reports it in its own way, nil for
// others.
func readinessRule(kind schema.GroupKind) func(live) Result {
	switch kind.Group {
	case "":
		return map[string]func(live) Result{
			"Pod": pod, "PersistentVolumeClaim": claim, "Service": service, "Namespace": namespace,
		}[kind.Kind]
	case "apps":
		return map[string]func(live) Result{
			"Deployment": deployment, "ReplicaSet": replicaSet,
			"StatefulSet": statefulSet, "DaemonSet": daemonSet,
		}[kind.Kind]
	}
	switch kind {
	case schema.GroupKind{Group: "batch", Kind: "Job"}:
		return job
	case schema.GroupKind{Group: "policy", Kind: "PodDisruptionBudget"}:
		return budget
	case schema.GroupKind{Group: "apiregistration.k8s.io", Kind: "APIService"}:
		return apiService
	case schema.GroupKind{Group: "autoscaling", Kind: "HorizontalPodAutoscaler"}:
		return autoscaler
	case schema.GroupKind{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}:
		return definition
	default:
		return nil
	}
}

// live reads a decoded object. What is absent or of another type reads as zero.
type live struct{ object map[string]any }

func (o live) number(path ...string) (int64, bool) {
	v, found, err := unstructured.NestedFieldNoCopy(o.object, path...)
	if err != nil || !found {
		return 0, false
	}
	switch n := v.(type) {
	case int64:
		return n, true
	case float64:
		return int64(n), true
	default:
		return 0, false
	}
}

func (o live) count(path ...string) int64 {
	n, _ := o.number(path...)
	return n
}

// wanted returns a number of replicas, which is 1 when left out.
func (o live) wanted(path ...string) int64 {
	n, ok := o.number(path...)
	if !ok {
		return 1
	}
	return n
}

func (o live) text(path ...string) string {
	s, _, err := unstructured.NestedString(o.object, path...)
	if err != nil {
		return ""
	}
	return s
}

// condition is one of status.conditions.
type condition struct {
	kind, status, reason, message string
	observed                      int64 // the generation that it is about; 0: unset
}

// behind reports that the condition is about an older generation.
func (c condition) behind(generation int64) bool { return c.observed != 0 && c.observed < generation }

func (c condition) String() string {
	s := c.kind + " is " + c.status
	if c.reason != "" {
		s += ", " + c.reason
	}
	if c.message != "" {
		s += ": " + c.message
	}
	return s
}

func (o live) condition(kind string) (condition, bool) {
	list, _, err := unstructured.NestedFieldNoCopy(o.object, "status", "conditions")
	conditions, ok := list.([]any)
	if err != nil || !ok {
		return condition{}, false
	}
	for _, entry := range conditions {
		m, ok := entry.(map[string]any)
		if !ok || m["type"] != kind {
			continue
		}
		c := live{m}
		return condition{kind, c.text("status"), c.text("reason"), c.text("message"), c.count("observedGeneration")}, true
	}
	return condition{}, false
}
