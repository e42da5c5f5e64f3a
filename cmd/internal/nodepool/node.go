package nodepool

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed-9e1ffd66/trueup/cloud"
	cloudkube "github.com/seed-9e1ffd66/trueup/cloud/kube"
	"github.com/seed-9e1ffd66/trueup/cmd/api/stratos/v1alpha1"
)

// nodeView is what this program reads of a Node. It is a value that is replaced, never
// changed.
type nodeView struct {
	uid     string
	version uint64 // the resourceVersion
	pool    string // the label; empty for a Node of no pool
	poolUID string
	zone    string
	// status is the Node for package cloud, without Pods and Drifted.
	status cloud.NodeStatus
	// site is what the scheduler sees, without pods.
	site cloud.Node
	// attested is what the machine says of its images.
	attested v1alpha1.Attestation
	// up is when the machine was first heard of since its last start, zero if it was not.
	up time.Time
	// ready is when the Node became ready since its last start, zero if it is not.
	ready time.Time
	// network says whether conditions of the Node decide about its network, and how.
	network networkSignal
	// scaleUpStarted is when it was started for pods, zero after it was stopped.
	scaleUpStarted time.Time
	warned         bool // that its runtime is nearly over
	deleting       bool
}

// networkSignal is what the conditions of a Node say of its network.
type networkSignal int

const (
	networkUnknown networkSignal = iota // no condition speaks of it
	networkDown
	networkUp
)

// providerPrefix begins the providerID of a machine of AWS: aws:///<zone>/<id>.
const providerPrefix = "aws:///"

// providerID returns the providerID of a machine.
func providerID(zone, id string) string { return providerPrefix + zone + "/" + id }

// instanceOf returns the zone and the id of the machine that a providerID names, and
// nothing for one of another cloud.
func instanceOf(provider string) (zone, id string) {
	rest, ok := strings.CutPrefix(provider, providerPrefix)
	if !ok {
		return "", ""
	}
	zone, id, ok = strings.Cut(rest, "/")
	if !ok || strings.Contains(id, "/") {
		return "", ""
	}
	return zone, id
}

// conditionNetworkingReady is what a network plugin may set on a Node.
const conditionNetworkingReady corev1.NodeConditionType = "NetworkingReady"

// viewNode reads a Node. A signal counts only if it is newer than the last start of the
// machine: what a Node said before its stop is no news.
func viewNode(n *corev1.Node) nodeView {
	zone, id := instanceOf(n.Spec.ProviderID)
	v := nodeView{
		uid: string(n.UID), version: versionOf(n.ResourceVersion), zone: zone, deleting: n.DeletionTimestamp != nil,
		pool: n.Labels[v1alpha1.LabelPool], poolUID: n.Annotations[v1alpha1.AnnotationPoolUID],
		site:           cloudkube.Node(n),
		scaleUpStarted: timeOf(n, v1alpha1.AnnotationScaleUpStarted),
		warned:         n.Annotations[v1alpha1.AnnotationRuntimeWarned] != "",
	}
	v.site.Machine = id
	s := &v.status
	s.Name, s.ID, s.State = n.Name, id, cloud.State(n.Labels[v1alpha1.LabelState])
	if at := stateSince(n); !at.IsZero() {
		// The label has no fractions: what was seen earlier in that second is older.
		s.Since = at.Add(time.Second - 1)
	}
	s.LastStarted = timeOf(n, v1alpha1.AnnotationLastStarted)
	s.EmptySince = timeOf(n, v1alpha1.AnnotationScaleDownCandidate)
	s.Intent = parseIntent(n.Annotations[v1alpha1.AnnotationIntent])
	if text := n.Annotations[v1alpha1.AnnotationAttested]; text != "" && json.Unmarshal([]byte(text), &v.attested) == nil && v.attested.BootID != "" {
		s.Attestation = cloud.AttestedReady
		if len(v.attested.Failed) > 0 {
			s.Attestation = cloud.AttestedPartly
		}
	}
	for i := range n.Status.Conditions {
		v.hear(&n.Status.Conditions[i])
	}
	s.Ready = !v.ready.IsZero()
	return v
}

// stateSince returns when the state of the Node was written, in whole seconds, or nothing.
func stateSince(n *corev1.Node) time.Time {
	seconds, err := strconv.ParseInt(n.Labels[v1alpha1.LabelStateSince], 10, 64)
	if err != nil {
		return time.Time{}
	}
	return time.Unix(seconds, 0)
}

// hear takes in one condition of the Node.
func (v *nodeView) hear(c *corev1.NodeCondition) {
	at := c.LastHeartbeatTime.Time
	if c.LastTransitionTime.After(at) {
		at = c.LastTransitionTime.Time
	}
	if at.Before(v.status.LastStarted) {
		return
	}
	// Unknown is what the cluster says of a kubelet that is silent.
	if c.Status != corev1.ConditionUnknown && (v.up.IsZero() || at.Before(v.up)) {
		v.up = at
	}
	switch c.Type {
	case corev1.NodeReady:
		if c.Status == corev1.ConditionTrue {
			v.ready = c.LastTransitionTime.Time
			if v.ready.Before(v.status.LastStarted) {
				v.ready = at
			}
		}
	case conditionNetworkingReady:
		v.network = networkDown
		if c.Status == corev1.ConditionTrue {
			v.network = networkUp
		}
	case corev1.NodeNetworkUnavailable:
		// A plugin that says more decides.
		if v.network == networkUnknown {
			v.network = networkDown
			if c.Status == corev1.ConditionFalse {
				v.network = networkUp
			}
		}
	default:
	}
}

// owned reports whether the Node is one of the pool. A Node that names no UID was labelled
// by hand, or has just joined.
func (v *nodeView) owned(pool, uid string) bool {
	return v.pool == pool && (v.poolUID == "" || v.poolUID == uid)
}

// timeOf reads an annotation. One that is no time is as good as none.
func timeOf(n *corev1.Node, annotation string) time.Time {
	at, err := time.Parse(time.RFC3339, n.Annotations[annotation])
	if err != nil {
		return time.Time{}
	}
	return at
}

func formatTime(at time.Time) string { return at.UTC().Format(time.RFC3339) }

// versionOf returns the number of a resourceVersion, or 0.
func versionOf(text string) uint64 {
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// intent is the annotation of a Node that is terminating.
type intent struct {
	Operation string    `json:"operation"`
	Step      string    `json:"step"`
	Reason    string    `json:"reason,omitempty"`
	Since     time.Time `json:"since"`
}

func parseIntent(text string) cloud.Intent {
	var i intent
	if text == "" || json.Unmarshal([]byte(text), &i) != nil {
		return cloud.Intent{}
	}
	return cloud.Intent{Verb: cloud.Verb(i.Operation), Reason: i.Reason, Since: i.Since}
}

// formatIntent writes an intent. The first step of a machine that runs is to be drained,
// any other goes at once.
func formatIntent(i cloud.Intent, from cloud.State) (string, error) {
	step := i.Verb
	if from == cloud.StateRunning {
		step = cloud.Drain
	}
	text, err := json.Marshal(intent{Operation: string(i.Verb), Step: string(step), Reason: i.Reason, Since: i.Since.UTC().Truncate(time.Second)})
	if err != nil {
		return "", fmt.Errorf("intent: %w", err)
	}
	return string(text), nil
}
