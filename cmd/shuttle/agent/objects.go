package agent

import (
	"net/netip"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/seed-9e1ffd66/trueup/apply"
	"github.com/seed-9e1ffd66/trueup/cmd/api/starbase"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/isolation"
)

// object is a Kubernetes object, and its parts, as JSON has them.
type object = map[string]any

func newObject(apiVersion, kind, namespace, name string, labels map[string]any, rest object) *unstructured.Unstructured {
	metadata := object{"name": name, "labels": labels}
	if namespace != "" {
		metadata["namespace"] = namespace
	}
	rest["apiVersion"], rest["kind"], rest["metadata"] = apiVersion, kind, metadata
	return &unstructured.Unstructured{Object: rest}
}

// projectLabels are the labels of an object that a project has once. The
// owner's labels, managed-by and cluster-id, are added by package apply.
func projectLabels(p *starbase.Project) map[string]any {
	return object{labelWorkspaceID: p.WorkspaceID, labelProjectID: hex32(p.ProjectID)}
}

func environmentLabels(p *starbase.Project, environment string) map[string]any {
	labels := projectLabels(p)
	labels[labelEnvironment] = environment
	return labels
}

// namespace refuses pods that are looser than the cluster allows.
func namespace(p *starbase.Project, loosest isolation.Level) *unstructured.Unstructured {
	labels := projectLabels(p)
	labels[isolation.Enforce] = string(loosest)
	return newObject("v1", "Namespace", "", p.Namespace, labels, object{})
}

// serviceAccount is what the pods of a project run as. They pull images with the named Secrets.
func serviceAccount(p *starbase.Project, pullSecrets []string) *unstructured.Unstructured {
	rest := object{"automountServiceAccountToken": false}
	if len(pullSecrets) > 0 {
		references := make([]any, len(pullSecrets))
		for n, name := range pullSecrets {
			references[n] = object{"name": name}
		}
		rest["imagePullSecrets"] = references
	}
	return newObject("v1", "ServiceAccount", p.Namespace, serviceAccountName, projectLabels(p), rest)
}

// tenantRole lets the workloads of a project read its ConfigMaps.
func tenantRole(p *starbase.Project) []*unstructured.Unstructured {
	const group = "rbac.authorization.k8s.io"
	return []*unstructured.Unstructured{
		newObject(group+"/v1", "Role", p.Namespace, roleName, projectLabels(p), object{
			"rules": []any{object{"apiGroups": []any{""}, "resources": []any{"configmaps"}, "verbs": []any{"get", "list", "watch"}}},
		}),
		newObject(group+"/v1", "RoleBinding", p.Namespace, roleName, projectLabels(p), object{
			"roleRef":  object{"apiGroup": group, "kind": "Role", "name": roleName},
			"subjects": []any{object{"kind": "ServiceAccount", "name": serviceAccountName, "namespace": p.Namespace}},
		}),
	}
}

func resourceQuota(p *starbase.Project) *unstructured.Unstructured {
	return newObject("v1", "ResourceQuota", p.Namespace, quotaName, projectLabels(p), object{"spec": object{"hard": anyMap(p.Quota)}})
}

// limitRange returns nil when the project states no limits.
func limitRange(p *starbase.Project) *unstructured.Unstructured {
	limit := object{"type": "Container"}
	for name, quantities := range map[string]map[string]string{
		"default": p.Limits.Default, "defaultRequest": p.Limits.DefaultRequest, "max": p.Limits.Max, "min": p.Limits.Min,
	} {
		if len(quantities) > 0 {
			limit[name] = anyMap(quantities)
		}
	}
	if len(limit) == 1 {
		return nil
	}
	return newObject("v1", "LimitRange", p.Namespace, limitRangeName, projectLabels(p), object{"spec": object{"limits": []any{limit}}})
}

// limitIDs are the objects that limit what runs in the namespace of a project.
func limitIDs(p *starbase.Project) (ids []apply.ID) {
	if len(p.Quota) > 0 {
		ids = append(ids, apply.ID{Kind: "ResourceQuota", Namespace: p.Namespace, Name: quotaName})
	}
	if limitRange(p) != nil {
		ids = append(ids, apply.ID{Kind: "LimitRange", Namespace: p.Namespace, Name: limitRangeName})
	}
	return ids
}

// notPublic returns the ranges that the rule for TCP 443 leaves out: the ranges of RFC
// 1918 and similar ones, in which clusters and their nodes live, and link-local
// addresses, where clouds answer with credentials; and the cluster's own public ranges.
func notPublic(cluster []netip.Prefix) (v4, v6 []any) {
	v4 = []any{"10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.168.0.0/16"}
	v6 = []any{"::1/128", "fc00::/7", "fe80::/10"}
	for _, prefix := range cluster {
		if prefix.Addr().Is4() {
			v4 = append(v4, prefix.String())
		} else {
			v6 = append(v6, prefix.String())
		}
	}
	return v4, v6
}

// networkPolicy isolates an environment: in from itself and from the gateway;
// out to itself, to DNS, to public addresses on TCP 443, and to what the
// project lists.
func networkPolicy(p *starbase.Project, environment string, rules *Rules) *unstructured.Unstructured {
	pods := func() object {
		return object{"matchLabels": object{labelProjectID: hex32(p.ProjectID), labelEnvironment: environment}}
	}
	v4, v6 := notPublic(rules.ClusterRanges)
	egress := []any{
		object{"to": []any{object{"podSelector": pods()}}},
		object{
			"to": []any{object{
				"namespaceSelector": object{"matchLabels": object{"kubernetes.io/metadata.name": rules.DNS.Namespace}},
				"podSelector":       object{"matchLabels": anyMap(rules.DNS.Labels)},
			}},
			"ports": []any{object{"port": 53, "protocol": "UDP"}, object{"port": 53, "protocol": "TCP"}},
		},
		object{
			"to": []any{
				object{"ipBlock": object{"cidr": "0.0.0.0/0", "except": v4}},
				object{"ipBlock": object{"cidr": "::/0", "except": v6}},
			},
			"ports": []any{object{"port": 443, "protocol": "TCP"}},
		},
	}
	for _, e := range p.Egress {
		port := object{"protocol": e.Protocol}
		if e.Port != 0 {
			port["port"] = e.Port
		}
		egress = append(egress, object{"to": []any{object{"ipBlock": object{"cidr": e.CIDR}}}, "ports": []any{port}})
	}
	return newObject("networking.k8s.io/v1", "NetworkPolicy", p.Namespace, policyName(environment), environmentLabels(p, environment), object{
		"spec": object{
			"podSelector": pods(),
			"policyTypes": []any{"Ingress", "Egress"},
			"ingress": []any{object{"from": []any{
				object{"podSelector": pods()},
				object{"namespaceSelector": object{"matchLabels": object{labelNamespaceRole: roleGateway}}},
			}}},
			"egress": egress,
		},
	})
}

func anyMap(m map[string]string) map[string]any {
	converted := make(map[string]any, len(m))
	for key, v := range m {
		converted[key] = v
	}
	return converted
}
