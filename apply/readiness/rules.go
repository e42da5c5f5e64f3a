//trueup:pure

package readiness

import "k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

// replicas compares the counts of a workload with the desired one, in the order in
// which a controller reaches them.
func replicas(wanted int64, counts ...count) Result {
	for _, c := range counts {
		if c.have < wanted {
			return inProgress("%s: %d of %d", c.name, c.have, wanted)
		}
	}
	return current()
}

type count struct {
	name string
	have int64
}

func (o live) status(field, label string) count { return count{label, o.count("status", field)} }

// surplus reports replicas that must still be deleted.
func (o live) surplus(wanted int64) Result {
	if have := o.count("status", "replicas"); have > wanted {
		return inProgress("replicas: %d of %d", have, wanted)
	}
	return current()
}

// onDelete reports that pods are replaced when they are deleted, so their revision is
// no sign of the controller's progress.
func (o live) onDelete() bool { return o.text("spec", "updateStrategy", "type") == "OnDelete" }

func deployment(o live) Result {
	if c, ok := o.condition("Progressing"); ok && c.reason == "ProgressDeadlineExceeded" {
		return failed("%s", c)
	}
	if _, seen := o.number("status", "observedGeneration"); !seen {
		return inProgress("its controller has not seen it yet")
	}
	wanted := o.wanted("spec", "replicas")
	if r := replicas(wanted, o.status("replicas", "replicas"), o.status("updatedReplicas", "updated replicas")); r.Status != Current {
		return r
	}
	if old := o.count("status", "replicas") - o.count("status", "updatedReplicas"); old > 0 {
		return inProgress("%d old replicas are still there", old)
	}
	if r := o.surplus(wanted); r.Status != Current {
		return r
	}
	if r := replicas(
		wanted,
		o.status("availableReplicas", "available replicas"),
		o.status("readyReplicas", "ready replicas"),
	); r.Status != Current {
		return r
	}
	if c, ok := o.condition("Available"); ok && c.status != "True" {
		return inProgress("%s", c)
	}
	return current()
}

func replicaSet(o live) Result {
	if c, ok := o.condition("ReplicaFailure"); ok && c.status == "True" {
		return inProgress("%s", c)
	}
	if _, seen := o.number("status", "observedGeneration"); !seen {
		return inProgress("its controller has not seen it yet")
	}
	wanted := o.wanted("spec", "replicas")
	if r := o.surplus(wanted); r.Status != Current {
		return r
	}
	return replicas(wanted, o.status("replicas", "replicas"), o.status("fullyLabeledReplicas", "labelled replicas"),
		o.status("availableReplicas", "available replicas"), o.status("readyReplicas", "ready replicas"))
}

func statefulSet(o live) Result {
	if _, seen := o.number("status", "observedGeneration"); !seen {
		return inProgress("its controller has not seen it yet")
	}
	wanted := o.wanted("spec", "replicas")
	if r := o.surplus(wanted); r.Status != Current {
		return r
	}
	if r := replicas(
		wanted,
		o.status("replicas", "replicas"),
		o.status("readyReplicas", "ready replicas"),
	); r.Status != Current ||
		o.onDelete() {
		return r
	}
	if partition := o.count("spec", "updateStrategy", "rollingUpdate", "partition"); partition > 0 {
		return replicas(max(0, wanted-partition), o.status("updatedReplicas", "updated replicas"))
	}
	if now, next := o.text("status", "currentRevision"), o.text("status", "updateRevision"); now != next {
		return inProgress("revision %s is being replaced by %s", now, next)
	}
	return replicas(wanted, o.status("currentReplicas", "current replicas"))
}

func daemonSet(o live) Result {
	_, seen := o.number("status", "observedGeneration")
	wanted, counted := o.number("status", "desiredNumberScheduled")
	if !seen || !counted {
		return inProgress("its controller has not seen it yet")
	}
	updated := o.status("updatedNumberScheduled", "updated pods")
	if o.onDelete() {
		updated.have = wanted
	}
	return replicas(wanted, o.status("currentNumberScheduled", "scheduled pods"), updated,
		o.status("numberAvailable", "available pods"), o.status("numberReady", "ready pods"))
}

func pod(o live) Result {
	switch phase := o.text("status", "phase"); phase {
	case "Succeeded":
		return current()
	case "Failed":
		return failed("phase Failed: %s", o.text("status", "message"))
	case "Running":
		if c, ok := o.condition("Ready"); ok && c.status == "True" {
			return current()
		}
		if waiting := o.crashing(); waiting != "" {
			return failed("%s", waiting)
		}
		return inProgress("running, and not ready")
	default:
		if c, ok := o.condition("PodScheduled"); ok && c.status == "False" {
			return inProgress("%s", c)
		}
		if waiting := o.crashing(); waiting != "" {
			return failed("%s", waiting)
		}
		return inProgress("phase %q", phase)
	}
}

// crashing names a container that cannot start by itself.
func (o live) crashing() string {
	for c := range o.containers() {
		reason := c.text("state", "waiting", "reason")
		if _, outlook := WaitReason(reason); outlook != Waiting {
			return "container " + c.text("name") + " is waiting: " + reason + ": " + c.text("state", "waiting", "message")
		}
	}
	return ""
}

func claim(o live) Result {
	switch phase := o.text("status", "phase"); phase {
	case "Bound":
		return current()
	case "Lost":
		return failed("phase Lost: its volume was deleted")
	default:
		return inProgress("phase %q", phase)
	}
}

func service(o live) Result {
	if o.text("spec", "type") != "LoadBalancer" {
		return current()
	}
	ingress, _ := o.object["status"].(map[string]any)
	balancer, _ := ingress["loadBalancer"].(map[string]any)
	if list, _ := balancer["ingress"].([]any); len(list) > 0 {
		return current()
	}
	return inProgress("the load balancer has no address yet")
}

func namespace(o live) Result {
	if o.text("status", "phase") == "Terminating" {
		return Result{Terminating, "is being deleted"}
	}
	return current()
}

func job(o live) Result {
	if c, ok := o.condition("Failed"); ok && c.status == "True" {
		return failed("%s", c)
	}
	if c, ok := o.condition("Complete"); ok && c.status == "True" {
		return current()
	}
	if suspended, _, err := unstructured.NestedBool(o.object, "spec", "suspend"); err == nil && suspended {
		return inProgress("suspended")
	}
	return inProgress("not complete")
}

func budget(o live) Result {
	if _, seen := o.number("status", "observedGeneration"); !seen {
		return inProgress("its controller has not seen it yet")
	}
	// It is in force whether or not there are pods to protect.
	if c, ok := o.condition("DisruptionAllowed"); ok && c.reason == "SyncFailed" {
		return inProgress("%s", c)
	}
	return current()
}

func definition(o live) Result {
	if c, ok := o.condition("NamesAccepted"); ok && c.status == "False" {
		return failed("%s", c)
	}
	switch c, ok := o.condition("Established"); {
	case ok && c.status == "True":
		return current()
	case ok && c.status == "False" && c.reason != "Installing":
		return failed("%s", c)
	default:
		return inProgress("not established yet")
	}
}

func apiService(o live) Result {
	if c, ok := o.condition("Available"); ok && c.status == "True" {
		return current()
	}
	return inProgress("not available yet")
}

func autoscaler(o live) Result {
	if c, ok := o.condition("ScalingActive"); ok && c.status == "False" && c.reason != "ScalingDisabled" {
		return inProgress("%s", c)
	}
	return current()
}
