package nodes

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// A Domain prefixes the labels, annotations and taints of a program on its Nodes, such as
// "stratos.sh". It is the Domain of the [cloud.Scope] of the pools.
type Domain string

func (d Domain) key(name string) string { return string(d) + "/" + name }

// PoolLabel is the label with the name of the pool, "pool" below the domain.
func (d Domain) PoolLabel() string { return d.key("pool") }

// StateLabel is the label with the [cloud.State], "state" below the domain.
func (d Domain) StateLabel() string { return d.key("state") }

// AttestedAnnotation is the annotation with what the machine recorded of its warm-up before
// its first stop, as the JSON of an [Attestation], "warmup-attested" below the domain.
func (d Domain) AttestedAnnotation() string { return d.key("warmup-attested") }

// StandbyTaint keeps pods off a machine that is stopped, and evicts those that do not
// tolerate it, "standby" below the domain.
func (d Domain) StandbyTaint() corev1.Taint {
	return corev1.Taint{Key: d.key("standby"), Value: "true", Effect: corev1.TaintEffectNoExecute}
}

// NotReadyTaint is on a machine from its registration, and from each start, until its
// network is ready, "not-ready" below the domain.
func (d Domain) NotReadyTaint() corev1.Taint {
	return corev1.Taint{Key: d.key("not-ready"), Value: "true", Effect: corev1.TaintEffectNoSchedule}
}

// The other labels of a Node: the machine, and when the state was written, in Unix seconds.
func (d Domain) instanceID() string { return d.key("instance-id") }
func (d Domain) stateSince() string { return d.key("state-since") }

// The other annotations of a Node. Times are as in RFC 3339. scaleUpStarted is there from a
// start until the Node is ready, signalsAtStop has what the Node said when its machine was
// stopped last, intent what a terminating Node is on its way to, both as JSON.
func (d Domain) poolUID() string            { return d.key("pool-uid") }
func (d Domain) warmupCompleted() string    { return d.key("warmup-completed") }
func (d Domain) lastStarted() string        { return d.key("last-started") }
func (d Domain) scaleDownCandidate() string { return d.key("scale-down-candidate-since") }
func (d Domain) scaleUpStarted() string     { return d.key("scale-up-started") }
func (d Domain) signalsAtStop() string      { return d.key("signals-at-stop") }
func (d Domain) intent() string             { return d.key("intent") }
func (d Domain) runtimeWarned() string      { return d.key("max-runtime-warned") }

// An Attestation is what a machine records on its Node before it is stopped the first time.
type Attestation struct {
	// BootID identifies the boot that pulled the images.
	BootID string `json:"bootID"`
	// Images are those that are there, Failed those that could not be pulled.
	Images []string `json:"images,omitempty"`
	Failed []string `json:"failed,omitempty"`
}

// A Platform is how a cloud and a network plugin show on Nodes.
type Platform struct {
	// Machine returns the zone and the id of the machine that the providerID of a Node
	// names, and an empty id for one of another cloud. Required.
	Machine func(providerID string) (zone, id string)
	// ProviderID is its opposite: the providerID of a Node that is created for a machine
	// which has lost its own. Required.
	ProviderID func(zone, id string) string
	// NetworkPlugin has the labels of the pods of the network plugin's DaemonSet, such as
	// k8s-app: aws-node. If the cluster has that DaemonSet, the network of a machine is
	// ready once its pod there is. Empty: conditions of the Node decide alone.
	NetworkPlugin map[string]string
	// ZoneLabels are further labels with the zone, such as topology.ebs.csi.aws.com/zone, which
	// a CSI driver sets once a machine has joined. Volumes ask for them, and a machine that does
	// not exist yet counts as having them.
	ZoneLabels []string
}

// isNetworkPlugin reports whether a pod with these labels belongs to the network plugin.
func (p Platform) isNetworkPlugin(labels map[string]string) bool {
	for key, value := range p.NetworkPlugin {
		if labels[key] != value {
			return false
		}
	}
	return len(p.NetworkPlugin) > 0
}

// Zoned returns the platform of a cloud whose providerIDs are "CLOUD:///ZONE/ID", such as
// "aws" and "local".
func Zoned(cloud string, networkPlugin map[string]string) Platform {
	prefix := cloud + ":///"
	return Platform{
		Machine: func(provider string) (zone, id string) {
			rest, ok := strings.CutPrefix(provider, prefix)
			if !ok {
				return "", ""
			}
			zone, id, ok = strings.Cut(rest, "/")
			if !ok || strings.Contains(id, "/") {
				return "", ""
			}
			return zone, id
		},
		ProviderID:    func(zone, id string) string { return prefix + zone + "/" + id },
		NetworkPlugin: networkPlugin,
	}
}
