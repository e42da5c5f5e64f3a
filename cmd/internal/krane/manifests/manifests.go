// Package manifests writes the objects that a krane agent needs in its cluster:
// its namespace, its account, the least rights, and its Deployment.
package manifests

import (
	"strings"

	"sigs.k8s.io/yaml"
)

// Manifests say what differs between installations. All fields are required.
type Manifests struct {
	Image, ControlURL, Region string
}

// Where the agent lives.
const (
	// Namespace is that of the agent.
	Namespace = "krane-system"
	// Account is the name of its ServiceAccount, roles and Deployment.
	Account = "krane"

	tokenSecret = "krane-token" //nolint:gosec // the name of a Secret
	port        = 8070
)

type object = map[string]any

// YAML returns the objects as a stream for kubectl apply. The Secret with the
// token is the operator's to make.
func (m Manifests) YAML() (string, error) {
	var b strings.Builder
	b.WriteString("# The token for the control plane comes from:\n" +
		"# kubectl create secret generic " + tokenSecret + " --namespace " + Namespace + " --from-file=token=FILE\n" +
		"# The role " + Account + "-namespaces may be left out: then no empty namespace is ever deleted.\n")
	for _, o := range []object{
		manifest("v1", "Namespace", "", Namespace, object{}),
		manifest("v1", "ServiceAccount", Namespace, Account, object{}),
		manifest("rbac.authorization.k8s.io/v1", "ClusterRole", "", Account, object{"rules": rules()}),
		binding(Account),
		// To know that a namespace is empty means to look for everything.
		manifest("rbac.authorization.k8s.io/v1", "ClusterRole", "", Account+"-namespaces", object{"rules": []any{
			rule("*", []any{"*"}, []any{"list"}),
			rule("", []any{"namespaces"}, []any{"delete"}),
		}}),
		binding(Account + "-namespaces"),
		m.deployment(),
	} {
		data, err := yaml.Marshal(o)
		if err != nil {
			return "", err
		}
		b.WriteString("---\n")
		b.Write(data)
	}
	return b.String(), nil
}

func manifest(apiVersion, kind, namespace, name string, rest object) object {
	metadata := object{"name": name, "labels": object{"app.kubernetes.io/name": Account}}
	if namespace != "" {
		metadata["namespace"] = namespace
	}
	rest["apiVersion"], rest["kind"], rest["metadata"] = apiVersion, kind, metadata
	return rest
}

func rule(group string, resources, verbs []any) any {
	return object{"apiGroups": []any{group}, "resources": resources, "verbs": verbs}
}

// rules are what the agent does: read, write and delete the kinds that it renders,
// and read pods.
func rules() []any {
	read := []any{"get", "list", "watch"}
	write := []any{"get", "list", "watch", "create", "patch", "delete"}
	return []any{
		rule("", []any{"namespaces"}, []any{"get", "list", "watch", "create", "patch"}),
		rule("", []any{"secrets", "serviceaccounts", "services"}, write),
		rule("apps", []any{"replicasets", "deployments"}, write),
		rule("autoscaling", []any{"horizontalpodautoscalers"}, write),
		rule("policy", []any{"poddisruptionbudgets"}, write),
		rule("cilium.io", []any{"ciliumnetworkpolicies"}, write),
		rule("", []any{"pods"}, read),
	}
}

func binding(role string) object {
	const group = "rbac.authorization.k8s.io"
	return manifest(group+"/v1", "ClusterRoleBinding", "", role, object{
		"roleRef":  object{"apiGroup": group, "kind": "ClusterRole", "name": role},
		"subjects": []any{object{"kind": "ServiceAccount", "name": Account, "namespace": Namespace}},
	})
}

func (m Manifests) deployment() object {
	labels := object{"app.kubernetes.io/name": Account}
	env := func(name, v string) any { return object{"name": name, "value": v} }
	probe := func(path string) object {
		return object{"httpGet": object{"path": path, "port": "http"}, "periodSeconds": 10, "timeoutSeconds": 6}
	}
	return manifest("apps/v1", "Deployment", Namespace, Account, object{"spec": object{
		"replicas": 1,
		"strategy": object{"type": "Recreate"},
		"selector": object{"matchLabels": labels},
		"template": object{
			"metadata": object{"labels": labels},
			"spec": object{
				"serviceAccountName":            Account,
				"terminationGracePeriodSeconds": 30,
				"securityContext":               object{"runAsNonRoot": true, "runAsUser": 65532, "seccompProfile": object{"type": "RuntimeDefault"}},
				"containers": []any{object{
					"name": Account, "image": m.Image,
					"env": []any{
						env("KRANE_CONTROL_URL", m.ControlURL), env("KRANE_CLUSTER_REGION", m.Region), env("KRANE_TOKEN_FILE", "/var/run/krane/token"),
					},
					"ports":          []any{object{"name": "http", "containerPort": port}},
					"livenessProbe":  probe("/healthz"),
					"readinessProbe": probe("/readyz"),
					"resources":      object{"requests": object{"cpu": "50m", "memory": "64Mi"}, "limits": object{"memory": "512Mi"}},
					"securityContext": object{
						"allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "capabilities": object{"drop": []any{"ALL"}},
					},
					"volumeMounts": []any{object{"name": "token", "mountPath": "/var/run/krane", "readOnly": true}},
				}},
				"volumes": []any{object{"name": "token", "secret": object{"secretName": tokenSecret}}},
			},
		},
	}})
}
