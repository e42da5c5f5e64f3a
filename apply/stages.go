package apply

import "k8s.io/apimachinery/pkg/runtime/schema"

// Stages order the kinds: an object is applied when those of the stages before
// it have been, and deleted in reverse. A kind that is not listed is a workload.
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
	stageCount
)

// stageOf returns the stage of a kind.
func stageOf(kind schema.GroupKind) int {
	switch kind.Kind {
	case "RoleBinding", "ClusterRoleBinding":
		return stageBindings
	}
	switch kind.Group {
	case "apiextensions.k8s.io", "apiregistration.k8s.io":
		return stageDefinitions
	case "rbac.authorization.k8s.io", "admissionregistration.k8s.io", "scheduling.k8s.io", "storage.k8s.io":
		return stagePolicies
	case "autoscaling", "policy":
		return stageScaling
	case "gateway.networking.k8s.io":
		return stageRoutes
	}
	switch kind.Kind {
	case "Namespace":
		return stageNamespaces
	case "ResourceQuota", "LimitRange", "NetworkPolicy":
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
