package operator_test

import (
	"errors"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed-9e1ffd66/trueup/internal/test/await"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube"
	"github.com/seed-9e1ffd66/trueup/reconcile/operator"
)

func (s *sites) misfit() {
	s.put("misfit", "fine", "misfit-a")
	s.condition("misfit", "Ready", "True Ready")
	s.kubectl("patch", "site", "misfit", "--type=merge", "-p", `{"spec":{"pages":7}}`)
	require.Contains(s, s.condition("misfit", "Stalled", "True InvalidObject"), "cannot unmarshal number into Go struct field")
	require.Equal(s, "misfit-a", s.kubectl("get", "configmap", "misfit-a", "-o", "jsonpath={.data.text}"))
	s.kubectl("delete", "site", "misfit", "--timeout=60s")
	require.Empty(s, s.kubectl("get", "configmap", "misfit-a", "--ignore-not-found"))
}

func (s *sites) emptied() {
	s.put("empty", "fine", "last")
	s.condition("empty", "Ready", "True Ready")
	s.put("empty", "fine")
	s.condition("empty", "Ready", "True Ready")
	require.Empty(s, s.kubectl("get", "configmap", "last", "--ignore-not-found"))
}

func (s *sites) flaky() {
	s.put("flaky", "flaky", "flaky-a")
	s.condition("flaky", "Ready", "True Ready")
	before := asked.Load()
	s.operator.Add(types.NamespacedName{Namespace: "default", Name: "flaky"})
	await.Eventually(s, "a pass is added", func() bool { return asked.Load() > before })
}

func (s *sites) role() {
	s.put("guarded", "role", "guarded-a")
	s.condition("guarded", "Ready", "True Ready")
	urls := func() string {
		return s.kubectl("get", "clusterrole", "site-guarded", "--ignore-not-found", "-o", "jsonpath={.rules[*].nonResourceURLs[*]}")
	}
	s.kubectl("patch", "clusterrole", "site-guarded", "--type=merge", "-p", `{"rules":[]}`)
	await.Eventually(s, "it is repaired", func() bool { return urls() == "/guarded" })
	uid := s.kubectl("get", "site", "guarded", "-o", "jsonpath={.metadata.uid}")
	s.kubectl("label", "configmap", "guarded-a", "example.com/site=another", "--overwrite")
	await.Eventually(s, "the label is put back", func() bool {
		return s.kubectl("get", "configmap", "guarded-a", "-o", `jsonpath={.metadata.labels.example\.com/site}`) == uid
	})
	s.kubectl("delete", "site", "guarded", "--timeout=60s")
	require.Empty(s, urls())
}

var secrets = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}

// themeOf returns what a site refers to: the Secret of its name, if it is themed.
func themeOf(site *Site) []kube.Reference {
	if site.Spec.Mode != "themed" {
		return nil
	}
	return []kube.Reference{{Resource: secrets, Namespace: site.Namespace, Name: site.Name}}
}

// baseOf returns what a Secret refers to: the one that an annotation names.
func baseOf(from kube.Reference, secret *unstructured.Unstructured) []kube.Reference {
	if base := secret.GetAnnotations()["base"]; base != "" {
		return []kube.Reference{{Resource: from.Resource, Namespace: from.Namespace, Name: base}}
	}
	return nil
}

// themed returns one page, with the data of the Secret and of its base.
func (s *sites) themed(site *Site) ([]operator.Object, error) {
	theme, err := s.operator.Lookup(themeOf(site)[0])
	if err != nil {
		return nil, err
	}
	base, err := s.operator.Lookup(kube.Reference{Resource: secrets, Namespace: site.Namespace, Name: theme.GetAnnotations()["base"]})
	if err != nil && !errors.Is(err, kube.ErrAbsent) {
		return nil, err
	}
	themed := page(site.Name)
	themed.Data["text"], _, _ = unstructured.NestedString(theme.Object, "data", "color")
	if base != nil {
		themed.Data["base"], _, _ = unstructured.NestedString(base.Object, "data", "color")
	}
	return operator.Objects[*corev1.ConfigMap](themed), nil
}

func (s *sites) theme() {
	s.put("dark", "themed")
	s.condition("dark", "Reconciling", "True InvalidChildren")
	s.kubectl("create", "secret", "generic", "dark", "--from-literal=color=blue")
	s.condition("dark", "Ready", "True Ready")
	becomes := func(want string) {
		s.Helper()
		var have string
		await.Eventually(s, want, func() bool {
			have = s.kubectl("get", "configmap", "dark", "-o", "jsonpath={.data.text} {.data.base}")
			return have == want
		}, func() string { return have })
	}
	becomes("Ymx1ZQ== ")
	s.kubectl("annotate", "secret", "dark", "base=bright")
	s.kubectl("patch", "secret", "dark", "-p", `{"data":{"color":"cmVk"}}`)
	becomes("cmVk ")
	s.kubectl("create", "secret", "generic", "bright", "--from-literal=color=blue")
	becomes("cmVk Ymx1ZQ==")
}

// policy refuses to delete what is kept.
const policy = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: kept}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [DELETE], resources: [configmaps]}]}
  validations: [{expression: "!has(oldObject.data) || !has(oldObject.data.kept)", message: it is kept}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: kept}
spec: {policyName: kept, validationActions: [Deny]}
`

func (s *sites) kept() {
	require.NoError(s, s.cluster.Apply(s.Context(), policy))
	s.kubectl("create", "configmap", "probe", "--from-literal=kept=yes")
	await.Eventually(s, "the policy is in force", func() bool {
		_, err := s.cluster.Kubectl(s.Context(), "delete", "configmap", "probe", "--dry-run=server")
		return err != nil
	})
	for _, name := range []string{"keeps", "leaves"} {
		s.put(name, "kept", name)
		s.condition(name, "Ready", "True Ready")
	}
	s.put("keeps", "fine", "keeps")
	require.Contains(s, s.condition("keeps", "Stalled", "True Invalid"), "ConfigMap/default/extra-keeps: ")
	s.kubectl("delete", "site", "leaves", "--wait=false")
	await.Eventually(s, "the status says so", func() bool {
		return s.kubectl("get", "site", "leaves", "-o", `jsonpath={.status.conditions[?(@.type=="Stalled")].reason}`) == "Invalid"
	})
	s.kubectl("delete", "validatingadmissionpolicybinding", "kept")
	s.condition("keeps", "Ready", "True Ready")
	require.Empty(s, s.kubectl("get", "configmap", "extra-keeps", "--ignore-not-found"))
	await.Eventually(s, "the other site goes", func() bool { return s.kubectl("get", "site", "leaves", "--ignore-not-found") == "" })
}
