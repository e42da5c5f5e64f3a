package agent

import (
	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/seed-9e1ffd66/trueup/apply"
	ctrlv1 "github.com/seed-9e1ffd66/trueup/cmd/api/ctrl/v1"
	"github.com/seed-9e1ffd66/trueup/cmd/krane/render"
	"github.com/seed-9e1ffd66/trueup/cmd/krane/stream"
	"github.com/seed-9e1ffd66/trueup/statesync"
)

// resource is what differs between the three collections.
type resource struct {
	collection stream.Collection
	component  render.Component
	// root is the kind of the object that owns the others: it has the resource's
	// k8s_name, and its label has the resource's id.
	root  schema.GroupKind
	label string
	// rpc is the point query of one.
	rpc string
}

// The labels that carry ids.
const (
	labelDeploymentID = "unkey.com/deployment.id"
	labelSentinelID   = "unkey.com/sentinel.id"
	labelPolicyID     = "unkey.com/policy.id"
)

// resources returns all three.
func resources() []resource {
	return []resource{
		{
			stream.Deployments,
			render.Deployment,
			schema.GroupKind{Group: "apps", Kind: "ReplicaSet"},
			labelDeploymentID,
			"GetDesiredDeploymentState",
		},
		{stream.Sentinels, render.Sentinel, schema.GroupKind{Group: "apps", Kind: "Deployment"}, labelSentinelID, "GetDesiredSentinelState"},
		{
			stream.Policies,
			render.Policy,
			schema.GroupKind{Group: "cilium.io", Kind: "CiliumNetworkPolicy"},
			labelPolicyID,
			"GetDesiredCiliumNetworkPolicyState",
		},
	}
}

// of returns the resource of a collection.
func of(collection string) resource {
	for _, r := range resources() {
		if string(r.collection) == collection {
			return r
		}
	}
	return resource{}
}

// isRoot reports whether the object is the root of its resource.
func (r resource) isRoot(id apply.ID) bool { return id.GroupKind() == r.root }

// unit names the resource that an object belongs to, such as deployments/ID.
func (r resource) unit(o apply.Observed) string {
	if id := o.Label(r.label); id != "" {
		return string(r.collection) + "/" + id
	}
	return ""
}

func (r resource) key(id apply.ID) statesync.Key { return r.collection.Key(id.Namespace, id.Name) }

func (r resource) rootID(key statesync.Key) apply.ID {
	namespace, name := stream.Split(key)
	return apply.ID{Group: r.root.Group, Kind: r.root.Kind, Namespace: namespace, Name: name}
}

// idOfMessage returns the id that an apply message gives its objects.
func idOfMessage(m proto.Message) string {
	switch m := m.(type) {
	case *ctrlv1.ApplyDeployment:
		return m.GetDeploymentId()
	case *ctrlv1.ApplySentinel:
		return m.GetSentinelId()
	case *ctrlv1.ApplyCiliumNetworkPolicy:
		return m.GetCiliumNetworkPolicyId()
	default:
		return ""
	}
}
