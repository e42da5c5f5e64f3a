package nodes

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed-9e1ffd66/trueup/cloud"
	"github.com/seed-9e1ffd66/trueup/cloud/demand"
	"github.com/seed-9e1ffd66/trueup/cloud/kube"
	"github.com/seed-9e1ffd66/trueup/internal/versions"
)

// A View is what is read of a Node. It is a value that is replaced, never changed; its slices
// and maps are shared.
type View struct {
	// UID and Zone are of the Node, Pool and PoolUID those that it names: empty for a Node
	// of no pool, or one that was labelled by hand or has just joined.
	UID, Zone, Pool, PoolUID string
	// Status is the Node for package cloud, without Drifted.
	Status cloud.NodeStatus
	// Site is what the scheduler sees, without pods.
	Site demand.Node
	// Bound are the pods that wait on the Node for the start of the machine. Only
	// [Snapshot.Nodes] sets them.
	Bound []*demand.Pod
	// Up reports that the kubelet has reported since the last stop.
	Up bool
	// Ready is when this process saw the Node become ready; zero if it is not, or was so
	// when it was seen first.
	Ready time.Time
	// ScaleUpStarted is when it was started for pods, zero once its Node is ready.
	ScaleUpStarted time.Time
	// Deleting reports that the Node is being deleted.
	Deleting bool

	version uint64  // the resourceVersion
	atStop  signals // of the time when the machine was stopped last
	network networkSignal
	warned  bool // that its runtime is nearly over
}

// networkSignal is what the conditions of a Node say of its network.
type networkSignal int

const (
	networkUnknown networkSignal = iota // no condition speaks of it
	networkDown
	networkUp
)

// conditionNetworkingReady is what a network plugin may set on a Node.
const conditionNetworkingReady corev1.NodeConditionType = "NetworkingReady"

// view reads a Node. A signal counts only if it has changed since the machine was
// stopped last: what a Node said before is no news. The times of a signal are by other
// clocks than this one: they are compared with nothing but themselves.
func view(n *corev1.Node, d Domain, platform Platform) View {
	zone, id := platform.Machine(n.Spec.ProviderID)
	v := View{
		UID: string(n.UID), version: versions.Parse(n.ResourceVersion), Zone: zone, Deleting: n.DeletionTimestamp != nil,
		Pool: n.Labels[d.PoolLabel()], PoolUID: n.Annotations[d.poolUID()],
		Site:           kube.Node(n),
		atStop:         parseSignals(n.Annotations[d.signalsAtStop()]),
		ScaleUpStarted: timeOf(n, d.scaleUpStarted()),
		warned:         n.Annotations[d.runtimeWarned()] != "",
	}
	v.Site.Machine = id
	s := &v.Status
	s.Name, s.ID, s.State = n.Name, id, cloud.State(n.Labels[d.StateLabel()])
	if at := d.since(n); !at.IsZero() {
		// The label has no fractions: an observation from earlier in that second is older.
		s.Since = at.Add(time.Second - 1)
	}
	s.LastStarted = timeOf(n, d.lastStarted())
	s.EmptySince = timeOf(n, d.scaleDownCandidate())
	s.Intent = parseIntent(n.Annotations[d.intent()])
	var attested Attestation
	if text := n.Annotations[d.AttestedAnnotation()]; text != "" && json.Unmarshal([]byte(text), &attested) == nil && attested.BootID != "" {
		s.Attestation = cloud.AttestedReady
		if len(attested.Failed) > 0 {
			s.Attestation = cloud.AttestedPartly
		}
	}
	s.Starting = s.State == cloud.StateRunning && !v.ScaleUpStarted.IsZero()
	for i := range n.Status.Conditions {
		if c := &n.Status.Conditions[i]; signalOf(n, c) != v.atStop[string(c.Type)] {
			v.hear(c)
		}
	}
	return v
}

// since returns when the state of the Node was written, in whole seconds, or nothing.
func (d Domain) since(n *corev1.Node) time.Time {
	seconds, err := strconv.ParseInt(n.Labels[d.stateSince()], 10, 64)
	if err != nil {
		return time.Time{}
	}
	return time.Unix(seconds, 0)
}

// hear takes in one condition of the Node.
func (v *View) hear(c *corev1.NodeCondition) {
	switch c.Type {
	case corev1.NodeReady:
		// Unknown is what the cluster says of a kubelet that is silent.
		v.Up = c.Status != corev1.ConditionUnknown
		v.Status.Ready = c.Status == corev1.ConditionTrue
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

// signals are what a Node says of its readiness and its network, by the type of the
// condition, each as a text that is another one whenever it is stated again.
type signals map[string]string

// signalNetworkPlugin is the key of the signal of the network plugin's pod.
const signalNetworkPlugin = "networkPlugin"

// signalOf returns the signal of a condition. The boot distinguishes two conditions of the
// same second.
func signalOf(n *corev1.Node, c *corev1.NodeCondition) string {
	boot := ""
	if c.Type == corev1.NodeReady { // of the kubelet, as the boot is
		boot = n.Status.NodeInfo.BootID
	}
	return strings.Join([]string{string(c.Status), formatTime(c.LastHeartbeatTime.Time), formatTime(c.LastTransitionTime.Time), boot}, " ")
}

// formatSignals formats the signals of a Node and of its network plugin.
func formatSignals(n *corev1.Node, plugin string) (string, error) {
	all := signals{}
	if plugin != "" {
		all[signalNetworkPlugin] = plugin
	}
	for i := range n.Status.Conditions {
		switch c := &n.Status.Conditions[i]; c.Type {
		case corev1.NodeReady, corev1.NodeNetworkUnavailable, conditionNetworkingReady:
			all[string(c.Type)] = signalOf(n, c)
		default:
		}
	}
	text, err := json.Marshal(all)
	if err != nil {
		return "", fmt.Errorf("signals: %w", err)
	}
	return string(text), nil
}

// parseSignals reads what formatSignals has written. A text that is none is as good as
// none.
func parseSignals(text string) signals {
	var all signals
	if text == "" || json.Unmarshal([]byte(text), &all) != nil {
		return nil
	}
	return all
}

// Owned reports whether the Node is one of the pool. A Node that names no UID was labelled
// by hand, or has just joined.
func (v *View) Owned(pool, uid string) bool {
	return v.Pool == pool && (v.PoolUID == "" || v.PoolUID == uid)
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

// formatIntent formats an intent. The first step of a running machine is its drain; any
// other machine starts with the operation itself.
func formatIntent(i cloud.Intent, from cloud.State) (string, error) {
	step := i.Verb
	if from == cloud.StateRunning {
		step = cloud.Drain
	}
	text, err := json.Marshal(
		intent{Operation: string(i.Verb), Step: string(step), Reason: i.Reason, Since: i.Since.UTC().Truncate(time.Second)},
	)
	if err != nil {
		return "", fmt.Errorf("intent: %w", err)
	}
	return string(text), nil
}
