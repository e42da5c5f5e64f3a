//trueup:pure

package apply

import "k8s.io/apimachinery/pkg/runtime/schema"

// Stages order the kinds: an object is applied after the objects of earlier stages, and
// deleted in reverse. A kind that is not listed is a workload.
const (
	stageDefinitions = iota
	stageNamespaces
	stagePolicies
	stageBindings // a binding is refused while its role does not exist
	stageConfiguration
	stageServices
	stageWorkloads
	stageScaling
	stageRoutes
	stageAdmission // a webhook refuses everything while its server does not run
)

// isNamespace and isDefinition recognise the kinds that other objects live in.
func isNamespace(kind schema.GroupKind) bool { return kind == schema.GroupKind{Kind: "Namespace"} }

func isDefinition(kind schema.GroupKind) bool {
	return kind == schema.GroupKind{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}
}

// stageOf returns the stage of a kind.
func stageOf(kind schema.GroupKind) int {
	switch kind.Kind {
	case "RoleBinding", "ClusterRoleBinding":
		return stageBindings
	}
	if isolates(kind) {
		return stagePolicies
	}
	switch kind.Group {
	case "apiextensions.k8s.io", "apiregistration.k8s.io":
		return stageDefinitions
	case "rbac.authorization.k8s.io", "scheduling.k8s.io", "storage.k8s.io":
		return stagePolicies
	case "autoscaling", "policy":
		return stageScaling
	case "gateway.networking.k8s.io":
		return stageRoutes
	case "admissionregistration.k8s.io":
		return stageAdmission
	}
	switch kind.Kind {
	case "Namespace":
		return stageNamespaces
	case "ResourceQuota", "LimitRange":
		return stagePolicies
	case "ServiceAccount", "ConfigMap", "Secret", "PersistentVolume", "PersistentVolumeClaim":
		return stageConfiguration
	case "Service":
		return stageServices
	case "Ingress":
		return stageRoutes
	default:
		return stageWorkloads
	}
}

// isolates reports whether objects of a kind restrict the traffic of pods.
func isolates(kind schema.GroupKind) bool {
	switch kind.Kind {
	case "NetworkPolicy", "AdminNetworkPolicy", "BaselineAdminNetworkPolicy", "ClusterNetworkPolicy", "GlobalNetworkPolicy",
		"CiliumNetworkPolicy", "CiliumClusterwideNetworkPolicy": // whatever its group: networks bring kinds of their own
		return true
	}
	return false
}

// hasPods reports whether Kubernetes makes pods for objects of a kind, and deletes the pods with the object.
func hasPods(kind schema.GroupKind) bool {
	return kind.Group == "apps" || kind.Group == "batch" || kind == schema.GroupKind{Kind: "ReplicationController"}
}

// podsIn reports whether a kind that cannot be seen may have running pods.
func podsIn(kind schema.GroupKind) bool { return hasPods(kind) || isPod(kind) }

func isPod(kind schema.GroupKind) bool { return kind == schema.GroupKind{Kind: "Pod"} }

// gates reports whether a kind isolates or limits what runs in its namespace.
func gates(kind schema.GroupKind) bool {
	stage := stageOf(kind)
	return stage == stagePolicies || stage == stageBindings
}

// cures reports whether the server may accept an object that it has rejected in the
// namespace after a change of an object of this kind.
func cures(kind schema.GroupKind) bool {
	switch kind.Kind {
	case "Namespace", "ResourceQuota", "LimitRange", "ServiceAccount":
		return kind.Group == ""
	default:
		return isDefinition(kind) || kind.Group == "rbac.authorization.k8s.io" || kind.Group == "admissionregistration.k8s.io" ||
			kind.Group == "scheduling.k8s.io"
	}
}
