package apply

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Status is how far an object is on its way to what its spec says, in the terms
// of kstatus.
type Status string

// The statuses.
const (
	// StatusCurrent: it is as its spec says.
	StatusCurrent Status = "Current"
	// StatusInProgress: its controller is working towards it, or has not seen it yet.
	StatusInProgress Status = "InProgress"
	// StatusFailed: its controller has given up, or says that something is wrong.
	StatusFailed Status = "Failed"
	// StatusTerminating: it is being deleted.
	StatusTerminating Status = "Terminating"
	// StatusUnknown: the object cannot be read.
	StatusUnknown Status = "Unknown"
)

// Readiness is the status of an object, and why.
type Readiness struct {
	Status Status
	// Message says what is missing, empty when it is Current.
	Message string
}

func current() Readiness { return Readiness{Status: StatusCurrent} }

func inProgress(format string, args ...any) Readiness {
	return Readiness{StatusInProgress, fmt.Sprintf(format, args...)}
}

func failed(format string, args ...any) Readiness {
	return Readiness{StatusFailed, fmt.Sprintf(format, args...)}
}

// ReadinessOf reads the status off a live object. It knows the kinds of
// Kubernetes that need rules of their own; for any other it goes by
// status.observedGeneration and the conditions Stalled, Reconciling and Ready. A
// kind that has none of these is Current as soon as it exists. It takes any
// object: what is absent or of a wrong type counts as not there.
//
// The rules are those of kstatus, but for these, because here something waits
// for the outcome:
//
//   - A Job is Current when it is complete, not when it runs, and not while it is
//     suspended.
//   - A Pod that failed is Failed, and so is one that waits because its image
//     cannot be pulled or its container cannot be made. One that no node can take
//     is InProgress however long it lasts.
//   - A Service of type LoadBalancer is Current when it has an address.
//   - A claim that has lost its volume is Failed.
//   - A StatefulSet or DaemonSet that is updated OnDelete is Current when its pods
//     are ready, of whatever revision.
//   - A Deployment that is paused is Current when what it runs is as stated.
//   - An APIService is Current when it is available, a HorizontalPodAutoscaler
//     unless it cannot tell how much to scale.
//   - A condition that names an older generation than the object's is not believed.
func ReadinessOf(object *unstructured.Unstructured) Readiness {
	if object == nil || len(object.Object) == 0 {
		return Readiness{StatusUnknown, "there is no object"}
	}
	if object.GetDeletionTimestamp() != nil {
		return Readiness{StatusTerminating, "is being deleted"}
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

// readinessRule returns the rule of a kind that says it in its own way, nil for
// others.
func readinessRule(kind schema.GroupKind) func(live) Readiness {
	switch kind.Group {
	case "":
		return map[string]func(live) Readiness{
			"Pod": podReadiness, "PersistentVolumeClaim": claimReadiness, "Service": serviceReadiness, "Namespace": namespaceReadiness,
		}[kind.Kind]
	case "apps":
		return map[string]func(live) Readiness{
			"Deployment": deploymentReadiness, "ReplicaSet": replicaSetReadiness,
			"StatefulSet": statefulSetReadiness, "DaemonSet": daemonSetReadiness,
		}[kind.Kind]
	}
	switch kind {
	case schema.GroupKind{Group: "batch", Kind: "Job"}:
		return jobReadiness
	case schema.GroupKind{Group: "policy", Kind: "PodDisruptionBudget"}:
		return budgetReadiness
	case schema.GroupKind{Group: "apiregistration.k8s.io", Kind: "APIService"}:
		return apiServiceReadiness
	case schema.GroupKind{Group: "autoscaling", Kind: "HorizontalPodAutoscaler"}:
		return autoscalerReadiness
	case definitions():
		return definitionReadiness
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
	observed                      int64 // the generation that it is about; 0: it does not say
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
