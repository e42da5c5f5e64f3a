//trueup:pure

package readiness

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// InMetadata reports whether the metadata of a live object shows its [Status], because no
// field of its status matters to [Of]: it is Current once it exists, and Terminating while
// it is being deleted. The object may be the desired one: of a Service, which is Current
// without an address unless it asks for a load balancer, it is the type that decides.
func InMetadata(object *unstructured.Unstructured) bool {
	if object == nil {
		return false
	}
	kind := object.GroupVersionKind().GroupKind()
	if kind == (schema.GroupKind{Kind: "Service"}) {
		return live{object.Object}.text("spec", "type") != "LoadBalancer"
	}
	return inMetadata[kind.Group][kind.Kind]
}

// inMetadata has the kinds of Kubernetes that have no status, or one without conditions
// and an observed generation. Other kinds of these groups and custom kinds have to be read.
var inMetadata = map[string]map[string]bool{ //nolint:gochecknoglobals // a table, never written to
	"": {
		"ConfigMap": true, "Endpoints": true, "LimitRange": true, "Namespace": true, "PersistentVolume": true, "PodTemplate": true,
		"ResourceQuota": true, "Secret": true, "ServiceAccount": true,
	},
	"admissionregistration.k8s.io": {
		"MutatingAdmissionPolicy": true, "MutatingAdmissionPolicyBinding": true, "MutatingWebhookConfiguration": true,
		"ValidatingAdmissionPolicyBinding": true, "ValidatingWebhookConfiguration": true,
	},
	"batch":               {"CronJob": true},
	"coordination.k8s.io": {"Lease": true},
	"discovery.k8s.io":    {"EndpointSlice": true},
	"networking.k8s.io":   {"Ingress": true, "IngressClass": true, "NetworkPolicy": true},
	"node.k8s.io":         {"RuntimeClass": true},
	"rbac.authorization.k8s.io": {
		"ClusterRole": true, "ClusterRoleBinding": true, "Role": true, "RoleBinding": true,
	},
	"scheduling.k8s.io": {"PriorityClass": true},
	"storage.k8s.io":    {"CSIDriver": true, "StorageClass": true},
}
