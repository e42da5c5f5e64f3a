package render

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/seed-9e1ffd66/trueup/apply"
	"github.com/seed-9e1ffd66/trueup/cmd/api/ctrl/specs"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/isolation"
)

// Cell is what all objects of an agent have in common. It holds a password:
// do not print it.
type Cell struct {
	// Region is a label of each object. Required.
	Region string
	// Platform is a label of the workloads. Empty: none.
	Platform string
	// RuntimeClass is the runtime class of all pods. Empty: the cluster's default.
	RuntimeClass string
	// StorageClass is the storage class of scratch volumes. Empty: the cluster's default.
	StorageClass string
	// Registry is where images are pulled from. The zero value pulls without a
	// password.
	Registry Registry
	// PodSecurity is the loosest level that a deployment may ask for, and what namespaces
	// enforce. Empty: restricted.
	PodSecurity isolation.Level
}

// Registry is a registry of container images and how to log in.
type Registry struct {
	URL, Username, Password string
}

// Component is the part that an object plays.
type Component string

// The components.
const (
	Namespace  Component = "namespace"
	Account    Component = "account"
	Deployment Component = "deployment"
	Sentinel   Component = "sentinel"
	Policy     Component = "policy"
)

// Labels of the contract.
const (
	prefix = "unkey.com/"

	labelManagedBy     = "app.kubernetes.io/managed-by"
	labelComponent     = "app.kubernetes.io/component"
	labelRegion        = prefix + "region"
	labelPlatform      = prefix + "platform"
	labelWorkspaceID   = prefix + "workspace.id"
	labelProjectID     = prefix + "project.id"
	labelAppID         = prefix + "app.id"
	labelEnvironmentID = prefix + "environment.id"
	labelDeploymentID  = prefix + "deployment.id"
	labelBuildID       = prefix + "build.id"
	labelSentinelID    = prefix + "sentinel.id"
	labelPolicyID      = prefix + "policy.id"

	manager = "krane"
	domain  = "unkey.com"
)

// Where pods of customers run, and where requests to them come from.
const (
	nodeClass         = "node-class"
	untrusted         = "untrusted"
	frontline         = "frontline"
	pullSecretName    = "krane-registry"
	rootStorageMiB    = 128
	scratchPath       = "/data"
	scaleDownSeconds  = 60
	defaultCPUPercent = 80
)

// Owner is the identity under which the objects of a component are applied in a
// region and recognized: the field manager krane, and labels
// that no other component and no other region has.
func Owner(component Component, region string) apply.Owner {
	return apply.Owner{Manager: manager, Domain: domain, Labels: map[string]string{
		labelManagedBy: manager, labelRegion: region, labelComponent: string(component),
	}}
}

// Kinds are the kinds of a component's objects.
func Kinds(component Component) []schema.GroupVersionKind {
	var (
		secret  = schema.GroupVersionKind{Version: "v1", Kind: "Secret"}
		account = schema.GroupVersionKind{Version: "v1", Kind: "ServiceAccount"}
		budget  = schema.GroupVersionKind{Group: "policy", Version: "v1", Kind: "PodDisruptionBudget"}
		policy  = schema.FromAPIVersionAndKind(specs.PolicyAPIVersion, specs.PolicyKind)
	)
	switch component {
	case Namespace:
		return []schema.GroupVersionKind{{Version: "v1", Kind: "Namespace"}, secret, policy}
	case Account:
		return []schema.GroupVersionKind{account}
	case Deployment:
		return []schema.GroupVersionKind{
			secret, account,
			{Group: "apps", Version: "v1", Kind: "ReplicaSet"},
			{Group: "autoscaling", Version: "v2", Kind: "HorizontalPodAutoscaler"},
			policy, budget,
		}
	case Sentinel:
		return []schema.GroupVersionKind{{Group: "apps", Version: "v1", Kind: "Deployment"}, {Version: "v1", Kind: "Service"}, budget}
	case Policy:
		return []schema.GroupVersionKind{policy}
	default:
		return nil
	}
}

// object is a Kubernetes object, and its parts, as JSON has them.
type object = map[string]any

// labels returns the labels of a component's object: the labels of the contract
// and more, without empty ones.
func (c Cell) labels(component Component, more map[string]string) object {
	labels := object{labelManagedBy: manager, labelRegion: c.Region, labelComponent: string(component)}
	for key, v := range more {
		if v != "" {
			labels[key] = v
		}
	}
	return labels
}

func newObject(apiVersion, kind, namespace, name string, labels, rest object) *unstructured.Unstructured {
	metadata := object{"name": name, "labels": labels}
	if namespace != "" {
		metadata["namespace"] = namespace
	}
	rest["apiVersion"], rest["kind"], rest["metadata"] = apiVersion, kind, metadata
	return &unstructured.Unstructured{Object: rest}
}
