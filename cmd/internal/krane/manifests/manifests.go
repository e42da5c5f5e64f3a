// Package manifests renders the objects that a krane agent needs in its cluster.
package manifests

import "github.com/seed-9e1ffd66/trueup/cmd/internal/installation"

// Manifests are what differs between installations. All fields are required.
type Manifests struct {
	Image, ControlURL, Region string
}

// Where the agent lives.
const (
	// Namespace is that of the agent.
	Namespace = "krane-system"
	// Account is the name of its ServiceAccount, roles and Deployment.
	Account = "krane"
)

// YAML returns the objects as a stream for kubectl apply. The Secret with the
// token is the operator's to make.
func (m Manifests) YAML() (string, error) {
	const tokenDir, namespaces = "/var/run/krane", Account + "-namespaces"
	agent := installation.Agent{Name: Account, Namespace: Namespace, TokenSecret: "krane-token", TokenDir: tokenDir}
	objects := agent.Base()
	objects = append(objects, agent.ClusterRole(Account, rules()...)...)
	// A namespace is empty when no kind has an object in it.
	objects = append(objects, agent.ClusterRole(namespaces,
		installation.Rule("*", []any{"*"}, []any{"list"}),
		installation.Rule("", []any{"namespaces"}, []any{"delete"}))...)
	objects = append(objects, agent.Deployment(installation.Workload{
		Image: m.Image,
		Env: []installation.Variable{
			{Name: "KRANE_CONTROL_URL", Value: m.ControlURL},
			{Name: "KRANE_CLUSTER_REGION", Value: m.Region},
			{Name: "KRANE_TOKEN_FILE", Value: tokenDir + "/token"},
		},
		Port: 8070, PortName: "http", MemoryLimit: "512Mi",
	}))
	return agent.YAML([]string{"The role " + namespaces + " may be left out: then no empty namespace is ever deleted."}, objects...)
}

// rules are what the agent does: read, write and delete the kinds that it
// renders, and read pods.
func rules() []any {
	read := []any{"get", "list", "watch"}
	write := []any{"get", "list", "watch", "create", "patch", "delete"}
	return []any{
		installation.Rule("", []any{"namespaces"}, []any{"get", "list", "watch", "create", "patch"}),
		installation.Rule("", []any{"secrets", "serviceaccounts", "services"}, write),
		installation.Rule("apps", []any{"replicasets", "deployments"}, write),
		installation.Rule("autoscaling", []any{"horizontalpodautoscalers"}, write),
		installation.Rule("policy", []any{"poddisruptionbudgets"}, write),
		installation.Rule("cilium.io", []any{"ciliumnetworkpolicies"}, write),
		installation.Rule("", []any{"pods"}, read),
	}
}
