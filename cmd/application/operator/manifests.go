package operator

import (
	"errors"
	"strings"

	"github.com/seed-9e1ffd66/trueup/cmd/api/platform/v1alpha1"
	"github.com/seed-9e1ffd66/trueup/cmd/application/internal/crds"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/installation"
)

// Where the operator lives.
const (
	// Namespace is the namespace of the operator.
	Namespace = "plattr-system"
	// Account is the name of its ServiceAccount, roles and Deployment.
	Account = "plattr-operator"
	// ServicesSecret has the variables with addresses and passwords of services.
	ServicesSecret = "plattr-operator-services"
)

// Manifests are what differs between installations. All fields are required.
type Manifests struct{ Image, BaseDomain string }

// YAML returns the definitions, the rights and the Deployment as a stream for kubectl apply
// --server-side. A base domain that the operator would refuse is an error.
func (m Manifests) YAML() (string, error) {
	if m.BaseDomain == "" {
		return "", errors.New("BASE_DOMAIN: is not set, must be a domain such as platform.example.com")
	}
	if err := (Settings{BaseDomain: m.BaseDomain, S3Region: defaultRegion}).check(); err != nil {
		return "", err
	}
	agent := installation.Agent{Name: Account, Namespace: Namespace}
	objects := agent.Base()
	objects = append(objects, agent.ClusterRole(Account, rules()...)...)
	// Of its binding to the operator nothing is needed: it binds the role, and has no use of it.
	objects = append(objects, agent.ClusterRole(PreviewRole, previewRules()...)[0])
	objects = append(
		objects,
		agent.Role(
			Account,
			installation.Rule("coordination.k8s.io", []any{"leases"}, []any{"get", "list", "watch", "create", "update", "patch"}),
		)...)
	deployment := agent.Deployment(installation.Workload{
		Image: m.Image, Port: 9090, PortName: "http", MemoryLimit: "512Mi",
		Env: []installation.Variable{
			{
				Name:  "POD_NAME",
				Field: "metadata.name",
			},
			{Name: "OPERATOR_NAMESPACE", Field: "metadata.namespace"},
			{Name: "BASE_DOMAIN", Value: m.BaseDomain},
		},
	})
	fromSecret(deployment)
	text, err := agent.YAML([]string{
		"The services that applications use come from a Secret, of which each variable may be left out:",
		"kubectl create secret generic " + ServicesSecret + " --namespace " + Namespace + " --from-env-file=FILE",
		"DB_ADMIN_URL; KEYCLOAK_ADMIN_URL, KEYCLOAK_ADMIN_USER, KEYCLOAK_ADMIN_PASSWORD; AWS_ENDPOINT_URL, S3_REGION,",
		"AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY; REDIS_ENDPOINT; OPENSEARCH_ENDPOINT",
	}, append(objects, deployment)...)
	if err != nil {
		return "", err
	}
	definitions, err := crds.YAML()
	return strings.TrimSuffix(string(definitions), "\n") + "\n" + text, err
}

// fromSecret gives the container the variables of the Secret.
func fromSecret(deployment installation.Object) {
	template, _ := deployment["spec"].(object)["template"].(object)
	spec, _ := template["spec"].(object)
	containers, _ := spec["containers"].([]any)
	for _, c := range containers {
		if container, ok := c.(object); ok {
			container["envFrom"] = []any{object{"secretRef": object{"name": ServicesSecret, "optional": true}}}
		}
	}
}

// rules are what the operator does.
func rules() []any {
	read, write := []any{"get", "list", "watch"}, []any{"get", "list", "watch", "create", "patch", "delete"}
	return []any{
		installation.Rule(v1alpha1.Group, []any{"applications", "previewenvironments"}, read),
		installation.Rule(
			v1alpha1.Group,
			[]any{"applications", "applications/status", "previewenvironments", "previewenvironments/status"},
			[]any{"patch"},
		),
		installation.Rule(v1alpha1.Group, []any{"previewenvironments"}, []any{"delete"}), // those that have expired
		// A child names the Application as the owner that its deletion waits for.
		installation.Rule(v1alpha1.Group, []any{"applications/finalizers", "previewenvironments/finalizers"}, []any{"update"}),
		installation.Rule("", []any{"secrets", "configmaps", "serviceaccounts", "services"}, write),
		installation.Rule("apps", []any{"deployments"}, write),
		installation.Rule("batch", []any{"jobs"}, write),
		// Why a workload is not ready, and what a network policy isolates until it ends.
		installation.Rule("", []any{"pods"}, []any{"list", "watch"}),
		installation.Rule("apps", []any{"replicasets"}, []any{"list"}),
		installation.Rule("autoscaling", []any{"horizontalpodautoscalers"}, write),
		installation.Rule("networking.k8s.io", []any{"ingresses", "networkpolicies"}, write),
		// Those of previews; the UID of kube-system identifies the cluster in marks.
		installation.Rule("", []any{"namespaces"}, write),
		installation.Rule("events.k8s.io", []any{"events"}, []any{"create", "patch", "list"}),
		// What bounds the namespaces of previews, and lets teams look at them.
		installation.Rule("", []any{"resourcequotas", "limitranges"}, write),
		installation.Rule("rbac.authorization.k8s.io", []any{"rolebindings"}, write),
		installation.Object{
			"apiGroups": []any{
				"rbac.authorization.k8s.io",
			},
			"resources":     []any{"clusterroles"},
			"resourceNames": []any{PreviewRole},
			"verbs":         []any{"bind"},
		},
	}
}

// previewRules are what the team of an Application may do in the namespaces of its previews:
// look at everything but Secrets.
func previewRules() []any {
	read := []any{"get", "list", "watch"}
	return []any{
		installation.Rule("", []any{"pods", "pods/log", "services", "configmaps", "events", "resourcequotas", "limitranges"}, read),
		installation.Rule("apps", []any{"deployments", "replicasets"}, read),
		installation.Rule("batch", []any{"jobs"}, read),
		installation.Rule("autoscaling", []any{"horizontalpodautoscalers"}, read),
		installation.Rule("networking.k8s.io", []any{"ingresses", "networkpolicies"}, read),
		installation.Rule("events.k8s.io", []any{"events"}, read),
	}
}
