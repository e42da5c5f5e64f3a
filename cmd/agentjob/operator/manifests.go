package operator

import (
	"strings"

	"github.com/seed-9e1ffd66/trueup/cmd/agentjob/internal/crds"
	"github.com/seed-9e1ffd66/trueup/cmd/api/thurkube/v1alpha1"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/installation"
)

// Where the operator lives.
const (
	// Namespace is the namespace of the operator.
	Namespace = "thurkube-system"
	// Account is the name of its ServiceAccount, roles and Deployment.
	Account = "thurkube"
	// Ceiling is the ClusterRole that holds what the operator may grant. It is made of
	// those with the label LabelCeiling, which belong to the cluster's administrators. What
	// the operator holds beside it is never granted.
	Ceiling = "thurkube-ceiling"
	// LabelCeiling set to "true" on a ClusterRole adds it to the ceiling.
	LabelCeiling = v1alpha1.Group + "/aggregate-to-ceiling"
)

// Manifests are what differs between installations. All fields are required.
type Manifests struct{ Image string }

// YAML returns the definitions, the rights and the Deployment as a stream for kubectl
// apply --server-side.
func (m Manifests) YAML() (string, error) {
	agent := installation.Agent{Name: Account, Namespace: Namespace}
	objects := agent.Base()
	objects = append(objects, agent.ClusterRole(Account, rules()...)...)
	objects = append(
		objects,
		agent.Role(
			Account,
			installation.Rule("coordination.k8s.io", []any{"leases"}, []any{"get", "list", "watch", "create", "update", "patch"}),
		)...)
	ceiling := agent.ClusterRole(Ceiling)
	delete(ceiling[0], "rules") // they come from the roles that it aggregates
	ceiling[0]["aggregationRule"] = object{"clusterRoleSelectors": []any{object{"matchLabels": object{LabelCeiling: "true"}}}}
	objects = append(objects, ceiling...)
	objects = append(objects, agent.Deployment(installation.Workload{
		Image: m.Image, Port: 8080, PortName: "http", MemoryLimit: "256Mi",
		Env: []installation.Variable{
			{Name: "POD_NAME", Field: "metadata.name"},
			{Name: "POD_NAMESPACE", Field: "metadata.namespace"},
			{Name: "THURKUBE_HEALTH_ADDR", Value: "0.0.0.0:8080"},
		},
	}))
	text, err := agent.YAML(nil, objects...)
	if err != nil {
		return "", err
	}
	definitions, err := crds.YAML()
	return strings.TrimSuffix(string(definitions), "\n") + "\n" + text, err
}

// rules are what the operator does. It may neither escalate nor bind, writes no Secret and
// enters no pod. It grants none of these rules: see judgeRules.
func rules() []any {
	read, write := []any{"get", "list", "watch"}, []any{"get", "list", "watch", "create", "patch", "delete"}
	const rbac = "rbac.authorization.k8s.io"
	return []any{
		installation.Rule(v1alpha1.Group, []any{
			jobsPlural, runtimesPlural, authsPlural, rolesPlural, skillsPlural, serversPlural, repositoriesPlural, accessesPlural,
		}, read),
		installation.Rule(v1alpha1.Group, []any{jobsPlural, jobsPlural + "/status"}, []any{"patch"}),
		// A child names the job as the owner that its deletion waits for.
		installation.Rule(v1alpha1.Group, []any{jobsPlural + "/finalizers"}, []any{"update"}),
		installation.Rule("", []any{"configmaps", "serviceaccounts", "persistentvolumeclaims"}, write),
		installation.Rule("batch", []any{"jobs", "cronjobs"}, write),
		installation.Rule("networking.k8s.io", []any{"networkpolicies"}, write),
		installation.Rule(rbac, []any{"roles", "rolebindings", "clusterroles", "clusterrolebindings"}, write),
		// Their versions are watched, and the names of their keys are read.
		installation.Rule("", []any{"secrets"}, read),
		installation.Rule("", []any{"pods", "namespaces"}, read),
		installation.Rule("events.k8s.io", []any{"events"}, []any{"list", "create", "patch"}), // why a Job has no pod
	}
}
