package shuttle

import (
	"strings"

	"sigs.k8s.io/yaml"
)

// Manifests are the objects that the agent itself needs in its cluster. All
// fields are required.
type Manifests struct {
	Image, StarbaseURL, ClusterID, Region string
}

// Where the agent lives.
const (
	agentNamespace = "starform-system"
	agentName      = "shuttle"
	tokenSecret    = "shuttle-token" //nolint:gosec // the name of a Secret
)

// YAML returns the Namespace, ServiceAccount, RBAC and Deployment as a YAML
// stream. The Secret with the token is the operator's to make.
func (m Manifests) YAML() (string, error) {
	var b strings.Builder
	b.WriteString("# The token of the cluster comes from:\n" +
		"# kubectl create secret generic " + tokenSecret + " --namespace " + agentNamespace + " --from-file=token=FILE\n")
	for _, o := range []object{
		manifest("v1", "Namespace", "", agentNamespace, object{}),
		manifest("v1", "ServiceAccount", agentNamespace, agentName, object{}),
		manifest("rbac.authorization.k8s.io/v1", "ClusterRole", "", agentName, object{"rules": clusterRules()}),
		binding("ClusterRoleBinding", "ClusterRole", ""),
		manifest("rbac.authorization.k8s.io/v1", "Role", agentNamespace, agentName, object{"rules": leaseRules()}),
		binding("RoleBinding", "Role", agentNamespace),
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
	return newObject(apiVersion, kind, namespace, name, object{"app.kubernetes.io/name": agentName}, rest).Object
}

func rule(group string, resources, verbs []any) any {
	return object{"apiGroups": []any{group}, "resources": resources, "verbs": verbs}
}

// clusterRules are what the agent does: read and write the kinds that it
// renders, and read pods. It holds the rights of the Role that it gives to
// workloads, so it needs neither escalate nor bind.
func clusterRules() []any {
	write := []any{"get", "list", "watch", "create", "patch", "delete"}
	return []any{
		rule("", []any{"namespaces", "resourcequotas", "limitranges", "serviceaccounts", "configmaps", "services"}, write),
		rule("rbac.authorization.k8s.io", []any{"roles", "rolebindings"}, write),
		rule("networking.k8s.io", []any{"networkpolicies"}, write),
		rule("apps", []any{"deployments"}, write),
		rule("policy", []any{"poddisruptionbudgets"}, write),
		rule("autoscaling", []any{"horizontalpodautoscalers"}, write),
		rule("gateway.networking.k8s.io", []any{"httproutes"}, write),
		rule("", []any{"pods"}, []any{"get", "list", "watch"}),
	}
}

func leaseRules() []any {
	return []any{rule("coordination.k8s.io", []any{"leases"}, []any{"get", "create", "update", "watch"})}
}

func binding(kind, role, namespace string) object {
	const group = "rbac.authorization.k8s.io"
	return manifest(group+"/v1", kind, namespace, agentName, object{
		"roleRef":  object{"apiGroup": group, "kind": role, "name": agentName},
		"subjects": []any{object{"kind": "ServiceAccount", "name": agentName, "namespace": agentNamespace}},
	})
}

func (m Manifests) deployment() object {
	labels := object{"app.kubernetes.io/name": agentName}
	env := func(name, v string) any { return object{"name": name, "value": v} }
	probe := func(path string) object {
		return object{"httpGet": object{"path": path, "port": "metrics"}, "periodSeconds": 10, "timeoutSeconds": 6}
	}
	return manifest("apps/v1", "Deployment", agentNamespace, agentName, object{"spec": object{
		"replicas": 1,
		"strategy": object{"type": "Recreate"},
		"selector": object{"matchLabels": labels},
		"template": object{
			"metadata": object{"labels": labels},
			"spec": object{
				"serviceAccountName":            agentName,
				"terminationGracePeriodSeconds": 30,
				"securityContext":               object{"runAsNonRoot": true, "runAsUser": 65532, "seccompProfile": object{"type": "RuntimeDefault"}},
				"containers": []any{object{
					"name":  agentName,
					"image": m.Image,
					"env": []any{
						env("STARFORM_STARBASE_URL", m.StarbaseURL), env("STARFORM_CLUSTER_ID", m.ClusterID),
						env("STARFORM_REGION", m.Region), env("STARFORM_AUTH_TOKEN_FILE", "/var/run/starform/token"),
					},
					"ports":          []any{object{"name": "metrics", "containerPort": 8080}},
					"livenessProbe":  probe("/healthz"),
					"readinessProbe": probe("/readyz"),
					"resources":      object{"requests": object{"cpu": "50m", "memory": "64Mi"}, "limits": object{"memory": "256Mi"}},
					"securityContext": object{
						"allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "capabilities": object{"drop": []any{"ALL"}},
					},
					"volumeMounts": []any{object{"name": "token", "mountPath": "/var/run/starform", "readOnly": true}},
				}},
				"volumes": []any{object{"name": "token", "secret": object{"secretName": tokenSecret}}},
			},
		},
	}})
}
