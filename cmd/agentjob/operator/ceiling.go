package operator

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/component-helpers/auth/rbac/validation"

	"github.com/seed-9e1ffd66/trueup/cmd/api/thurkube/v1alpha1"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube"
)

// ceilingRole refers to the ClusterRole that holds what may be granted.
func ceilingRole(name string) kube.Reference {
	return kube.Reference{Resource: rbacv1.SchemeGroupVersion.WithResource("clusterroles"), Name: name}
}

// denied returns why a job may not have its rights, nil if it may. The API server compares
// granted rights with all rights of the operator, which are more than it may grant, so the
// ceiling is compared here. The error is transient.
func (p *pass) denied() (*problem, error) {
	if p.plan.from.access == nil {
		return nil, nil //nolint:nilnil // it asks for none
	}
	scope := p.job.Spec.Access
	if scope != v1alpha1.NamespaceScope && !p.op.limits.everywhere {
		namespace, err := p.op.jobs.Lookup(kube.Reference{Resource: namespacesResource, Name: p.job.Namespace})
		if allowed := err == nil && namespace.GetLabels()[v1alpha1.LabelAllowAccess] == "true"; !allowed {
			return &problem{
				reason: reasonDenied,
				message: fmt.Sprintf(
					"namespace %s has no label %s=true; set access: Namespace, or ask an administrator of the cluster",
					p.job.Namespace,
					v1alpha1.LabelAllowAccess,
				),
			}, nil
		}
	}
	var ceiling rbacv1.ClusterRole
	switch o, err := p.op.jobs.Lookup(ceilingRole(p.op.limits.ceiling)); {
	case errors.Is(err, kube.ErrAbsent): // nothing may be granted
	case err != nil:
		return nil, fmt.Errorf("the ceiling: %w", err)
	default:
		if err := into(o.Object, &ceiling); err != nil {
			return nil, fmt.Errorf("the ceiling: %w", err)
		}
	}
	return judgeRules(p.plan.from.access, scope, p.op.limits.ceiling, ceiling.Rules), nil
}

// judgeRules returns why the rules of a ClusterAccess are not granted, nil if they are:
// those that the ceiling does not cover, and for rights in one namespace those that would
// let a run make pods which are not as the operator makes them.
func judgeRules(access *v1alpha1.ClusterAccess, scope v1alpha1.AccessScope, name string, ceiling []rbacv1.PolicyRule) *problem {
	if _, above := validation.Covers(ceiling, access.Spec.Rules); len(above) > 0 {
		return &problem{reason: reasonDenied, message: fmt.Sprintf(
			"ClusterAccess %s asks for more than the ceiling, ClusterRole %s: %s; an administrator of the cluster can allow it in a ClusterRole with the label %s=true",
			access.Name,
			name,
			describe(above),
			LabelCeiling,
		)}
	}
	if scope != v1alpha1.NamespaceScope {
		return nil
	}
	var making []rbacv1.PolicyRule
	for _, rule := range access.Spec.Rules {
		for _, single := range validation.BreakdownRule(rule) {
			if makesPods(single) {
				making = append(making, single)
			}
		}
	}
	if len(making) > 0 {
		return &problem{reason: reasonDenied, message: fmt.Sprintf(
			"ClusterAccess %s with access: Namespace may not make pods or rights, which would not be confined as the pod of a run: %s; remove it from the rules",
			access.Name,
			describe(making),
		)}
	}
	return nil
}

// podMakers are the resources of Kubernetes, by API group, whose writers decide about the
// pods of a namespace, or about who may: what a pod may do is in the spec that they write.
func podMakers() map[string][]string {
	return map[string][]string{
		"":               {"pods", "pods/ephemeralcontainers", "replicationcontrollers", "serviceaccounts/token"},
		"apps":           {"deployments", "replicasets", "statefulsets", "daemonsets", "controllerrevisions"},
		"batch":          {"jobs", "cronjobs"},
		rbacv1.GroupName: {"roles", "rolebindings"},
	}
}

// makesPods reports whether a rule of one verb and one resource lets its holder make pods
// of any spec, act as another account, or give rights.
func makesPods(rule rbacv1.PolicyRule) bool {
	if len(rule.Resources) == 0 {
		return false // of a URL
	}
	verb, group, resource := rule.Verbs[0], rule.APIGroups[0], rule.Resources[0]
	if slices.Contains([]string{"impersonate", "bind", "escalate"}, verb) {
		return true
	}
	if !slices.Contains([]string{"create", "update", "patch", rbacv1.VerbAll}, verb) {
		return false
	}
	for g, resources := range podMakers() {
		if group != rbacv1.APIGroupAll && group != g {
			continue
		}
		if slices.ContainsFunc(resources, func(made string) bool { return resourceMatches(resource, made) }) {
			return true
		}
	}
	return false
}

// resourceMatches reports whether a resource of a rule, which may be * or */subresource,
// names a resource.
func resourceMatches(rule, resource string) bool {
	if rule == rbacv1.ResourceAll || rule == resource {
		return true
	}
	_, sub, nested := strings.Cut(resource, "/")
	return nested && rule == "*/"+sub
}

// describe names rules of one verb and one resource each, by resource with its verbs, at
// most ten of them.
func describe(rules []rbacv1.PolicyRule) string {
	const most = 10
	var order []string
	verbs := map[string][]string{}
	for _, rule := range rules {
		what := strings.Join(rule.NonResourceURLs, "")
		if len(rule.Resources) > 0 {
			what = rule.Resources[0]
			if group := rule.APIGroups[0]; group != "" {
				what += "." + group
			}
			if len(rule.ResourceNames) > 0 {
				what += " " + rule.ResourceNames[0]
			}
		}
		if verbs[what] == nil {
			order = append(order, what)
		}
		if !slices.Contains(verbs[what], rule.Verbs[0]) {
			verbs[what] = append(verbs[what], rule.Verbs[0])
		}
	}
	var parts []string
	for _, what := range order[:min(len(order), most)] {
		parts = append(parts, fmt.Sprintf("%s %s", strings.Join(verbs[what], ","), what))
	}
	if more := len(order) - most; more > 0 {
		parts = append(parts, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(parts, "; ")
}
