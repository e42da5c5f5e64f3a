package operator

import (
	"strings"

	"github.com/seed-9e1ffd66/trueup/cloud/kube/buffers"
	"github.com/seed-9e1ffd66/trueup/cmd/api/stratos/v1alpha1"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/installation"
	"github.com/seed-9e1ffd66/trueup/cmd/nodepool/internal/crds"
)

// Where the operator lives.
const (
	// Namespace is the namespace of the operator.
	Namespace = "stratos-system"
	// Account is the name of its ServiceAccount, roles and Deployment.
	Account = "stratos"
)

// Manifests are what differs between installations.
type Manifests struct {
	// Image of the container. Required.
	Image string
	// ClusterName, ClusterEndpoint, ClusterCA, ClusterCIDR and Region are the Operator
	// fields of the same names. The first is required.
	ClusterName, ClusterEndpoint, ClusterCA, ClusterCIDR, Region string
	// InterruptionQueue is the URL of a queue; see [EC2.Notices]. It may be empty.
	InterruptionQueue string
}

// YAML returns the definitions, the rights and the Deployment as a stream for kubectl
// apply --server-side.
func (m Manifests) YAML() (string, error) {
	agent := installation.Agent{Name: Account, Namespace: Namespace}
	objects := agent.Base()
	objects = append(objects, agent.ClusterRole(Account, Rules()...)...)
	objects = append(
		objects,
		agent.Role(
			Account,
			installation.Rule("coordination.k8s.io", []any{"leases"}, []any{"get", "list", "watch", "create", "update", "patch"}),
		)...)
	env := []installation.Variable{
		{Name: "POD_NAME", Field: "metadata.name"},
		{Name: "POD_NAMESPACE", Field: "metadata.namespace"},
		{Name: "STRATOS_CLUSTER_NAME", Value: m.ClusterName},
	}
	for _, v := range []installation.Variable{
		{Name: "STRATOS_CLUSTER_ENDPOINT", Value: m.ClusterEndpoint},
		{Name: "STRATOS_CLUSTER_CA", Value: m.ClusterCA},
		{Name: "STRATOS_CLUSTER_CIDR", Value: m.ClusterCIDR},
		{Name: "AWS_REGION", Value: m.Region},
		{Name: "STRATOS_INTERRUPTION_QUEUE", Value: m.InterruptionQueue},
	} {
		if v.Value != "" {
			env = append(env, v)
		}
	}
	objects = append(
		objects,
		agent.Deployment(installation.Workload{Image: m.Image, Port: 8081, PortName: "http", MemoryLimit: "512Mi", Env: env}),
	)
	text, err := agent.YAML(nil, objects...)
	if err != nil {
		return "", err
	}
	definitions, err := crds.YAML()
	return strings.TrimSuffix(string(definitions), "\n") + "\n" + text, err
}

// Rules are the rights of the operator in the whole cluster: it manages Nodes, evicts
// pods, and changes no other object of anybody.
func Rules() []any {
	read, watch := []any{"get", "list", "watch"}, []any{"list", "watch"}
	return []any{
		installation.Rule(v1alpha1.Group, []any{"nodepools", "awsnodeclasses"}, append(read, "patch")),
		installation.Rule(v1alpha1.Group, []any{"nodepools/status", "awsnodeclasses/status"}, []any{"patch"}),
		installation.Rule("", []any{"nodes"}, append(read, "create", "patch", "delete")),
		installation.Rule("", []any{"pods", "namespaces"}, read),
		installation.Rule("", []any{"pods/eviction"}, []any{"create"}),
		installation.Rule("policy", []any{"poddisruptionbudgets"}, read),
		installation.Rule("apps", []any{"daemonsets"}, read),
		// Where the claims of pods can be attached.
		installation.Rule("", []any{"persistentvolumeclaims", "persistentvolumes"}, watch),
		installation.Rule("storage.k8s.io", []any{"storageclasses", "csinodes"}, watch),
		installation.Rule("events.k8s.io", []any{"events"}, []any{"create", "patch"}),
		// CapacityBuffers, where the cluster has them: of all definitions only theirs is seen.
		installation.Object{
			"apiGroups":     []any{"apiextensions.k8s.io"},
			"resources":     []any{"customresourcedefinitions"},
			"resourceNames": []any{buffers.Definition},
			"verbs":         watch,
		},
		installation.Rule(buffers.Group, []any{buffers.Plural}, read),
		installation.Rule(buffers.Group, []any{buffers.Plural + "/status"}, []any{"patch"}),
		installation.Rule("", []any{"podtemplates"}, watch),
		installation.Rule("apps", []any{"deployments", "statefulsets"}, watch),
	}
}
