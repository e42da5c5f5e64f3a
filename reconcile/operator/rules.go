package operator

import (
	"cmp"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Rules are the rights that the operator needs: the rules of a ClusterRole, or with Namespace
// of a Role there. The plurals of Owns and OwnsCluster are guessed as usual. What Children reads
// beside Lookup is not in them, nor is what a child of the kinds Role and ClusterRole grants: the API
// server lets an account grant the rights that it has itself, or any with the verb escalate.
func (o *Operator[T]) Rules() []rbacv1.PolicyRule {
	kind, plural := o.Kind.Group, o.resource().Resource
	r := rules{}
	r.add(kind, plural, "get", "list", "watch", "patch")
	r.add(kind, plural+"/status", "patch")
	r.add(kind, plural+"/finalizers", "update") // for blockOwnerDeletion
	for _, owned := range slices.Concat(o.Owns, o.OwnsCluster) {
		guessed, _ := meta.UnsafeGuessKindToResource(owned)
		r.add(owned.Group, guessed.Resource, "get", "list", "watch", "create", "patch", "delete")
		if hasPods(owned.GroupKind()) {
			r.add("", "pods", "list") // why a workload is not ready
		}
		if strings.HasSuffix(owned.Kind, "NetworkPolicy") && slices.Contains(o.Owns, owned) { // it goes after pods of its namespace
			r.add("", "pods", "list")
			r.add("", "replicationcontrollers", "list")
			for _, workloads := range []string{"daemonsets", "deployments", "replicasets", "statefulsets"} {
				r.add("apps", workloads, "list")
			}
			r.add("batch", "cronjobs", "list")
			r.add("batch", "jobs", "list")
		}
	}
	for _, k := range o.Referenced {
		r.add(k.Resource.Group, k.Resource.Resource, "get", "list", "watch")
	}
	r.add("events.k8s.io", "events", "create", "patch")
	return r.sorted()
}

// Rules are the rights that the process needs beside its work: the rules of a Role in the
// namespace of the Lease. There are none without a Lease.
func (p *Process) Rules() []rbacv1.PolicyRule {
	r := rules{}
	if p.Lease != nil {
		r.add("coordination.k8s.io", "leases", "get", "create", "update", "watch")
	}
	return r.sorted()
}

// hasPods reports whether objects of a kind may have pods: those of apps and batch, and custom
// resources.
func hasPods(kind schema.GroupKind) bool {
	return kind.Group == "apps" || kind.Group == "batch" ||
		strings.Contains(kind.Group, ".") && !strings.HasSuffix(kind.Group, ".k8s.io")
}

// rules are the verbs for each resource.
type rules map[schema.GroupResource][]string

func (r rules) add(group, resource string, verbs ...string) {
	key := schema.GroupResource{Group: group, Resource: resource}
	for _, verb := range verbs {
		if !slices.Contains(r[key], verb) {
			r[key] = append(r[key], verb)
		}
	}
}

// sorted returns one rule for each resource, in the order of their names.
func (r rules) sorted() []rbacv1.PolicyRule {
	list := make([]rbacv1.PolicyRule, 0, len(r))
	for key, verbs := range r {
		list = append(list, rbacv1.PolicyRule{APIGroups: []string{key.Group}, Resources: []string{key.Resource}, Verbs: verbs})
	}
	slices.SortFunc(list, func(a, b rbacv1.PolicyRule) int {
		return cmp.Or(cmp.Compare(a.APIGroups[0], b.APIGroups[0]), cmp.Compare(a.Resources[0], b.Resources[0]))
	})
	return list
}
