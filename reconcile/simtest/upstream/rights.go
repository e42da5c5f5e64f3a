package upstream

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	yamlutil "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/seed-9e1ffd66/trueup/apply/applytest"
)

// Rights returns a Scenario.Rights: the rights that manifests give to the service accounts in them, by
// the ClusterRoles and Roles that they bind. manifests is a stream of YAML, as kubectl takes it. home is
// the namespace that the scenario has in place of the one of the accounts.
func Rights(manifests, home string) (func(applytest.Request) error, error) {
	roles, bound := map[string][]rbacv1.PolicyRule{}, map[string][]rbacv1.PolicyRule{} // the latter by namespace, empty: all
	var bindings []rbacv1.RoleBinding
	for documents := yamlutil.NewYAMLReader(bufio.NewReader(strings.NewReader(manifests))); ; {
		text, err := documents.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		var role rbacv1.ClusterRole // a Role has no other fields
		var binding rbacv1.RoleBinding
		if err = errors.Join(err, yaml.Unmarshal(text, &role)); err != nil {
			return nil, fmt.Errorf("rights: %w", err)
		}
		switch role.Kind {
		case "ClusterRole", "Role":
			roles[role.Kind+" "+role.Name] = role.Rules
		case "ClusterRoleBinding", "RoleBinding":
			if err := yaml.Unmarshal(text, &binding); err != nil {
				return nil, fmt.Errorf("rights: %w", err)
			}
			bindings = append(bindings, binding)
		}
	}
	for _, b := range bindings {
		for _, s := range b.Subjects {
			if s.Kind != rbacv1.ServiceAccountKind {
				continue
			}
			if b.Namespace == s.Namespace {
				b.Namespace = home
			}
			bound[b.Namespace] = append(bound[b.Namespace], roles[b.RoleRef.Kind+" "+b.RoleRef.Name]...)
		}
	}
	if len(bound) == 0 {
		return nil, errors.New("rights: the manifests bind no role to a service account")
	}
	return func(r applytest.Request) error {
		if slices.ContainsFunc(slices.Concat(bound[""], bound[r.Namespace]), func(rule rbacv1.PolicyRule) bool { return allows(rule, r) }) {
			return nil
		}
		return fmt.Errorf("%s: no role allows it", r)
	}, nil
}

// allows reports whether a rule allows a request.
func allows(rule rbacv1.PolicyRule, r applytest.Request) bool {
	has := func(all []string, one string) bool { return slices.Contains(all, "*") || slices.Contains(all, one) }
	resource := r.Resource
	if r.Subresource != "" {
		resource += "/" + r.Subresource
	}
	return has(rule.Verbs, r.Verb) && has(rule.APIGroups, r.Group) && has(rule.Resources, resource) &&
		(len(rule.ResourceNames) == 0 || slices.Contains(rule.ResourceNames, r.Name))
}
