package agent

import (
	"errors"
	"fmt"
	"strings"

	"github.com/seed-9e1ffd66/trueup/cmd/api/starbase"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/installation"
)

// Manifests are the objects that the agent itself needs in its cluster. Image, StarbaseURL,
// ClusterID and Region are required.
type Manifests struct {
	Image, StarbaseURL, ClusterID, Region string
	// Settings returns the value of one of [InstalledSettings] by the name of its variable, "" if
	// the agent is to have its default. Nil: it has all defaults.
	Settings func(variable string) string
	// StateClaim is the PersistentVolumeClaim that keeps billing records which were not
	// sent. Empty: a volume that goes with the pod.
	StateClaim string
	// Authorities is a ConfigMap with certificates that the agent trusts beside those of
	// its image. Empty: none.
	Authorities string
}

// Namespace is where the agent runs.
const Namespace = "starform-system"

// renewedToken is the Secret with the token that the agent renews.
const renewedToken = "shuttle-token-renewed"

// YAML returns the Namespace, ServiceAccount, RBAC and Deployment as a YAML
// stream. The Secret with the token is the operator's to make. A field that the agent would
// refuse is a *[VariableError]; the error joins them.
func (m Manifests) YAML() (string, error) {
	const tokenDir, spoolDir = "/var/run/starform", "/var/lib/shuttle"
	agent := installation.Agent{Name: "shuttle", Namespace: Namespace, TokenSecret: "shuttle-token", TokenDir: tokenDir}
	env := []installation.Variable{
		{Name: "STARFORM_STARBASE_URL", Value: m.StarbaseURL},
		{Name: "STARFORM_CLUSTER_ID", Value: m.ClusterID},
		{Name: "STARFORM_REGION", Value: m.Region},
	}
	for _, variable := range InstalledSettings() {
		if m.Settings != nil && m.Settings(variable) != "" {
			env = append(env, installation.Variable{Name: variable, Value: m.Settings(variable)})
		}
	}
	values := map[string]string{}
	for _, v := range env {
		values[v.Name] = v.Value
	}
	r := reader{lookup: func(variable string) string { return values[variable] }}
	if r.config(); len(r.errs) > 0 {
		return "", errors.Join(r.errs...)
	}
	objects := agent.Base()
	objects = append(objects, agent.ClusterRole(agent.Name, clusterRules()...)...)
	objects = append(objects, agent.Role(agent.Name,
		installation.Rule("coordination.k8s.io", []any{"leases"}, []any{"get", "create", "update", "watch"}))...)
	allowed := allowedWrites(values["STARFORM_GATEWAY_SERVICE"])
	objects = append(objects, agent.WritePolicy(installation.WritePolicy{
		Message: "shuttle writes only in namespaces of projects", Allowed: allowed,
	})...)
	objects = append(objects, agent.Deployment(installation.Workload{
		Image: m.Image,
		Env: append(env,
			installation.Variable{Name: "STARFORM_AUTH_TOKEN_FILE", Value: tokenDir + "/token"},
			installation.Variable{Name: "STARFORM_AUTH_TOKEN_SECRET", Value: Namespace + "/" + renewedToken},
			installation.Variable{Name: "STARFORM_SNAPSHOT_WAL_DIR", Value: spoolDir + "/snapshots"},
		),
		Port: 8080, PortName: "metrics", MemoryLimit: "256Mi",
		State:       installation.State{Dir: spoolDir, Size: "320Mi", Claim: m.StateClaim}, // the spool has 256 MiB
		Authorities: m.Authorities,
	}))
	return agent.YAML(nil, objects...)
}

// InstalledSettings are the variables of the agent that an installation may set. The manifests decide
// about the others: paths of files, addresses, and leader election, as there is one replica.
func InstalledSettings() []string {
	return []string{
		"STARFORM_ALLOW_HTTP", "STARFORM_REQUEST_TIMEOUT",
		"STARFORM_RECONCILE_INTERVAL", "STARFORM_TRANSPORT", "STARFORM_SNAPSHOT_INTERVAL", "STARFORM_CAPACITY_INTERVAL", "STARFORM_WAKE_ON_DRIFT",
		"STARFORM_POD_SECURITY", "STARFORM_MAX_DELETE_PERCENT", "STARFORM_DNS_SELECTOR", "STARFORM_GATEWAY", "STARFORM_GATEWAY_SERVICE",
		"STARFORM_IMAGE_PULL_SECRETS", "STARFORM_CLUSTER_RANGES", "STARFORM_SOFT_LIMIT",
	}
}

// allowedWrites are expressions for what the agent writes: what is in the namespaces of projects, which
// have a prefix, and these themselves; its own Lease, memory and token; and the labels and annotations of
// the gateway, namespace/name, and of what was the gateway before, which it has labelled.
func allowedWrites(gateway string) []string {
	const (
		update  = "request.operation == 'UPDATE' && request.kind.group == '' && "
		labeled = "has(%[1]s.metadata.labels) && '" + labelNamespaceRole + "' in %[1]s.metadata.labels"
	)
	namespace, _, _ := strings.Cut(gateway, "/")
	return []string{
		"request.kind.kind == 'Namespace' && request.kind.group == '' && request.name.startsWith('" + starbase.NamespacePrefix + "')",
		"has(request.namespace) && request.kind.kind != 'Namespace' && request.namespace.startsWith('" + starbase.NamespacePrefix + "')",
		"has(request.namespace) && request.namespace == '" + Namespace + "' && (request.kind.kind in ['Lease', 'ConfigMap'] || " +
			"request.kind.kind == 'Secret' && request.name == '" + renewedToken + "' && (request.operation == 'DELETE' || object.type == 'Opaque'))",
		update + "request.kind.kind == 'Namespace' && (request.name == '" + namespace + "' || " + fmt.Sprintf(labeled, "oldObject") + ")",
		update + "request.kind.kind == 'Service' && (request.namespace + '/' + request.name == '" + gateway + "' || " +
			fmt.Sprintf(labeled, "namespaceObject") + ")",
	}
}

// clusterRules are what the agent does: read and write the kinds that it
// renders, read pods, and list what else may live in a namespace. It holds the rights of the Role that it gives to
// workloads, so it needs neither escalate nor bind.
func clusterRules() []any {
	write := []any{"get", "list", "watch", "create", "patch", "delete"}
	return []any{
		installation.Rule(
			"",
			[]any{"namespaces", "resourcequotas", "limitranges", "serviceaccounts", "secrets", "configmaps", "services"},
			write,
		),
		installation.Rule("rbac.authorization.k8s.io", []any{"roles", "rolebindings"}, write),
		installation.Rule("networking.k8s.io", []any{"networkpolicies"}, write),
		installation.Rule("apps", []any{"deployments"}, write),
		installation.Rule("policy", []any{"poddisruptionbudgets"}, write),
		installation.Rule("autoscaling", []any{"horizontalpodautoscalers"}, write),
		installation.Rule("gateway.networking.k8s.io", []any{"httproutes"}, write),
		installation.Rule("", []any{"pods"}, []any{"get", "list", "watch"}),
		// What keeps the namespace of a project that is deleted, or the network policy of pods that end.
		installation.Rule("", []any{"persistentvolumeclaims", "replicationcontrollers"}, []any{"list"}),
		installation.Rule("apiextensions.k8s.io", []any{"customresourcedefinitions"}, []any{"list"}),
		installation.Rule("apps", []any{"daemonsets", "replicasets", "statefulsets"}, []any{"list"}),
		installation.Rule("batch", []any{"cronjobs", "jobs"}, []any{"list"}),
		installation.Rule("networking.k8s.io", []any{"ingresses"}, []any{"list"}),
	}
}
