package operator

import (
	"cmp"
	"maps"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/seed-9e1ffd66/trueup/cmd/api/platform/v1alpha1"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/isolation"
)

// PreviewRole is the ClusterRole of those that may look at a preview. The operator may bind
// it, and no other.
const PreviewRole = "plattr-preview-team"

const previewQuota = "preview"

// previewHome returns the namespace of a preview with the objects that bound it, because a
// tenant, who may create no namespace, causes its creation. Namespace is the Application's.
func (s *subject) previewHome(namespace string) []*unstructured.Unstructured {
	in := func(apiVersion, kind, name string, fields object) *unstructured.Unstructured {
		o := object{"apiVersion": apiVersion, "kind": kind, "metadata": object{"name": name, "namespace": s.app.Namespace, "labels": s.labels()}}
		maps.Copy(o, fields)
		return &unstructured.Unstructured{Object: o}
	}
	labels := s.labels()
	labels[isolation.Enforce] = string(isolation.Restricted)
	home := &unstructured.Unstructured{Object: object{
		"apiVersion": "v1", "kind": "Namespace", "metadata": object{"name": s.app.Namespace, "labels": labels},
	}}
	// At most two pods run, and one more while they are replaced. A certificate takes a pod
	// for a moment.
	quota := in("v1", "ResourceQuota", previewQuota, object{"spec": object{"hard": object{
		"pods":                   "8",
		"requests.cpu":           "2",
		"requests.memory":        "4Gi",
		"limits.cpu":             "8",
		"limits.memory":          "8Gi",
		"services":               "5",
		"services.loadbalancers": "0",
		"services.nodeports":     "0",
		"persistentvolumeclaims": "0",
		"secrets":                "20",
		"configmaps":             "20",
	}}})
	limits := in("v1", "LimitRange", previewQuota, object{"spec": object{"limits": []any{object{
		"type": "Container", "default": object{"cpu": "500m", "memory": "256Mi"}, "defaultRequest": object{"cpu": "50m", "memory": "64Mi"},
		"max": object{"cpu": "2", "memory": "2Gi"},
	}}}})
	const rbac = "rbac.authorization.k8s.io"
	binding := in(rbac+"/v1", "RoleBinding", PreviewRole, object{
		"roleRef": object{"apiGroup": rbac, "kind": "ClusterRole", "name": PreviewRole}, "subjects": team(s.app.Spec.Previews.Team, namespace),
	})
	return []*unstructured.Unstructured{home, quota, limits, binding}
}

// team returns the subjects that may look at a preview.
func team(stated []v1alpha1.Subject, namespace string) (subjects []any) {
	const rbac = "rbac.authorization.k8s.io"
	if len(stated) == 0 {
		return []any{object{"apiGroup": rbac, "kind": "Group", "name": "system:serviceaccounts:" + namespace}}
	}
	for _, one := range stated {
		if one.Kind == "ServiceAccount" {
			subjects = append(subjects, object{"kind": one.Kind, "name": one.Name, "namespace": cmp.Or(string(one.Namespace), namespace)})
		} else {
			subjects = append(subjects, object{"apiGroup": rbac, "kind": one.Kind, "name": one.Name})
		}
	}
	return subjects
}
