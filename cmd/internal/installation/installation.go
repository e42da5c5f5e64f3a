// Package installation renders the objects that an agent itself needs in its
// cluster: its namespace, its ServiceAccount, its rights, and its Deployment.
package installation

import (
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"
)

// Object is a Kubernetes object as JSON.
type Object = map[string]any

// Agent is what the objects of one agent have in common. All fields are
// required except the fields of the token.
type Agent struct {
	// Name is the name of the ServiceAccount, the Deployment and its container, and the
	// value of the label app.kubernetes.io/name.
	Name string
	// Namespace is where the agent runs.
	Namespace string
	// TokenSecret is the Secret whose key "token" is mounted at TokenDir. It is
	// made by the operator, and is not among the objects. Empty: it needs none.
	TokenSecret, TokenDir string
}

// Workload is what the Deployments of agents differ in. All fields but State and
// Authorities are required.
type Workload struct {
	Image string
	// Env are the variables of the container in this order.
	Env []Variable
	// Port is where /healthz, /readyz and /metrics are served, PortName its name.
	Port     int
	PortName string
	// MemoryLimit is a quantity such as 256Mi. The runtime keeps to nine tenths of it.
	MemoryLimit string
	// State is a folder that the agent writes.
	State State
	// Authorities is a ConfigMap in the namespace whose files, such as ca.crt, are
	// certificates as PEM that are trusted beside the image's own. It is not among the
	// objects. Empty: none.
	Authorities string
}

// State is a folder that outlives a container. The zero State is none.
type State struct {
	// Dir is where it is mounted.
	Dir string
	// Size is a quantity such as 16Mi: what it may hold.
	Size string
	// Claim is the PersistentVolumeClaim that keeps it, which is not among the objects.
	// Empty: the folder goes with the pod.
	Claim string
}

// Variable is an environment variable: a value, or a field of the pod.
type Variable struct{ Name, Value, Field string }

// Literal returns the value of a variable, or an argument of a container, of which Kubernetes makes text:
// it would replace $(NAME), and makes one $ of two.
func Literal(text string) string { return strings.ReplaceAll(text, "$", "$$") }

const rbac = "rbac.authorization.k8s.io"

// YAML returns the objects as a stream for kubectl apply, after a comment that
// shows how the Secret is made, and the further lines of comment.
func (a Agent) YAML(comment []string, objects ...Object) (string, error) {
	var b strings.Builder
	if a.TokenSecret != "" {
		b.WriteString("# The token comes from:\n" +
			"# kubectl create secret generic " + a.TokenSecret + " --namespace " + a.Namespace + " --from-file=token=FILE\n")
	}
	for _, line := range comment {
		b.WriteString("# " + line + "\n")
	}
	for _, o := range objects {
		data, err := yaml.Marshal(o)
		if err != nil {
			return "", err
		}
		b.WriteString("---\n")
		b.Write(data)
	}
	return b.String(), nil
}

// Object returns an object with the agent's label. An empty namespace is that of
// a cluster-scoped object. It is rest, completed.
func (a Agent) Object(apiVersion, kind, namespace, name string, rest Object) Object {
	metadata := Object{"name": name, "labels": a.labels()}
	if namespace != "" {
		metadata["namespace"] = namespace
	}
	rest["apiVersion"], rest["kind"], rest["metadata"] = apiVersion, kind, metadata
	return rest
}

func (a Agent) labels() Object { return Object{"app.kubernetes.io/name": a.Name} }

// Base returns the Namespace and the ServiceAccount.
func (a Agent) Base() []Object {
	return []Object{
		a.Object("v1", "Namespace", "", a.Namespace, Object{}),
		a.Object("v1", "ServiceAccount", a.Namespace, a.Name, Object{}),
	}
}

// Rule is a rule of a Role or ClusterRole for one API group.
func Rule(group string, resources, verbs []any) any {
	return Object{"apiGroups": []any{group}, "resources": resources, "verbs": verbs}
}

// ClusterRole returns a ClusterRole of that name with its ClusterRoleBinding to
// the agent's account.
func (a Agent) ClusterRole(name string, rules ...any) []Object {
	return a.role("ClusterRole", "", name, rules)
}

// Role returns a Role of that name in the agent's namespace with its RoleBinding
// to the agent's account.
func (a Agent) Role(name string, rules ...any) []Object {
	return a.role("Role", a.Namespace, name, rules)
}

func (a Agent) role(kind, namespace, name string, rules []any) []Object {
	return []Object{
		a.Object(rbac+"/v1", kind, namespace, name, Object{"rules": rules}),
		a.Object(rbac+"/v1", kind+"Binding", namespace, name, Object{
			"roleRef":  Object{"apiGroup": rbac, "kind": kind, "name": name},
			"subjects": []any{Object{"kind": "ServiceAccount", "name": a.Name, "namespace": a.Namespace}},
		}),
	}
}

// WritePolicy is what an agent writes, beyond what RBAC can say, in CEL.
type WritePolicy struct {
	// Message is what the API server answers to a write for which none of Allowed holds.
	Message string
	Allowed []string
	// Variables are expressions that the others read as variables.NAME. Each has a Name and a Value.
	Variables []Variable
}

// WritePolicy returns a ValidatingAdmissionPolicy of the agent's name with its binding: the API server
// refuses each write of the agent's account that the policy does not allow. Other accounts are not
// bound by it.
func (a Agent) WritePolicy(p WritePolicy) []Object {
	const admission = "admissionregistration.k8s.io/v1"
	spec := Object{
		"failurePolicy": "Fail",
		"matchConstraints": Object{"resourceRules": []any{Object{
			"apiGroups": []any{"*"}, "apiVersions": []any{"*"}, "resources": []any{"*/*"}, "operations": []any{"CREATE", "UPDATE", "DELETE"},
		}}},
		"matchConditions": []any{Object{
			"name": "agent", "expression": "request.userInfo.username == 'system:serviceaccount:" + a.Namespace + ":" + a.Name + "'",
		}},
		"validations": []any{Object{"expression": "(" + strings.Join(p.Allowed, ") || (") + ")", "message": p.Message}},
	}
	var variables []any
	for _, v := range p.Variables {
		variables = append(variables, Object{"name": v.Name, "expression": v.Value})
	}
	if len(variables) > 0 {
		spec["variables"] = variables
	}
	return []Object{
		a.Object(admission, "ValidatingAdmissionPolicy", "", a.Name, Object{"spec": spec}),
		a.Object(admission, "ValidatingAdmissionPolicyBinding", "", a.Name, Object{
			"spec": Object{"policyName": a.Name, "validationActions": []any{"Deny"}},
		}),
	}
}

// Deployment returns a Deployment of one replica that never runs beside its
// successor, without privileges.
func (a Agent) Deployment(w Workload) Object {
	env := make([]any, 0, len(w.Env)+1)
	if limit, err := resource.ParseQuantity(w.MemoryLimit); err == nil { // else the server names it
		env = append(env, Object{"name": "GOMEMLIMIT", "value": strconv.FormatInt(limit.Value()/10*9, 10)})
	}
	for _, v := range w.Env {
		if v.Field != "" {
			env = append(env, Object{"name": v.Name, "valueFrom": Object{"fieldRef": Object{"fieldPath": v.Field}}})
			continue
		}
		env = append(env, Object{"name": v.Name, "value": Literal(v.Value)})
	}
	probe := func(path string) Object {
		return Object{"httpGet": Object{"path": path, "port": w.PortName}, "periodSeconds": 10, "timeoutSeconds": 6}
	}
	var mounts, volumes []any
	if a.TokenSecret != "" {
		mounts = []any{Object{"name": "token", "mountPath": a.TokenDir, "readOnly": true}}
		volumes = []any{Object{"name": "token", "secret": Object{"secretName": a.TokenSecret}}}
	}
	if w.Authorities != "" {
		const dir = "/etc/authorities"
		env = append(env, Object{"name": "SSL_CERT_DIR", "value": dir})
		mounts = append(mounts, Object{"name": "authorities", "mountPath": dir, "readOnly": true})
		volumes = append(volumes, Object{"name": "authorities", "configMap": Object{"name": w.Authorities}})
	}
	security := Object{"runAsNonRoot": true, "runAsUser": 65532, "seccompProfile": Object{"type": "RuntimeDefault"}}
	if w.State.Dir != "" {
		security["fsGroup"] = 65532
		mounts = append(mounts, Object{"name": "state", "mountPath": w.State.Dir})
		volumes = append(volumes, w.State.volume())
	}
	return a.Object("apps/v1", "Deployment", a.Namespace, a.Name, Object{"spec": Object{
		"replicas": 1,
		"strategy": Object{"type": "Recreate"},
		"selector": Object{"matchLabels": a.labels()},
		"template": Object{
			"metadata": Object{"labels": a.labels()},
			"spec": Object{
				"serviceAccountName":            a.Name,
				"terminationGracePeriodSeconds": 30,
				"securityContext":               security,
				"containers": []any{Object{
					"name":           a.Name,
					"image":          w.Image,
					"env":            env,
					"ports":          []any{Object{"name": w.PortName, "containerPort": w.Port}},
					"livenessProbe":  probe("/healthz"),
					"readinessProbe": probe("/readyz"),
					"resources":      Object{"requests": Object{"cpu": "50m", "memory": "64Mi"}, "limits": Object{"memory": w.MemoryLimit}},
					"securityContext": Object{
						"allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "capabilities": Object{"drop": []any{"ALL"}},
					},
					"volumeMounts": mounts,
				}},
				"volumes": volumes,
			},
		},
	}})
}

func (s State) volume() Object {
	if s.Claim != "" {
		return Object{"name": "state", "persistentVolumeClaim": Object{"claimName": s.Claim}}
	}
	return Object{"name": "state", "emptyDir": Object{"sizeLimit": s.Size}}
}
