package servertest_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/diff"
	"github.com/seed-9e1ffd66/trueup/internal/test/await"
)

// Admission that overwrites what we state is part of our own apply: the field
// stays ours, and another apply changes nothing.
func TestWhatAdmissionOverwritesStaysOurs(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.apply(t, "setup", `
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: overwrite}
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [configmaps]}
  matchConditions: [{name: ours, expression: "object.metadata.name == 'overwritten'"}]
  failurePolicy: Fail
  reinvocationPolicy: Never
  mutations:
  - patchType: ApplyConfiguration
    applyConfiguration: {expression: "Object{data: {'a': 'by admission'}}"}
`)
	s.apply(
		t,
		"setup",
		"{apiVersion: admissionregistration.k8s.io/v1, kind: MutatingAdmissionPolicyBinding, metadata: {name: overwrite}, spec: {policyName: overwrite}}",
	)
	const config = "{apiVersion: v1, kind: ConfigMap, metadata: {name: overwritten}, data: {a: '1', b: '2'}}"
	desired := s.read(t, config)
	await.Until(t, waitLimit, "text(s.apply(t, manager, config).Object[\"data\"]) == `{\"a\":\"by admission\",\"b\":\"2\"}`", func() bool {
		return text(s.apply(t, manager, config).Object["data"]) == `{"a":"by admission","b":"2"}`
	})
	applied := s.apply(t, manager, config)
	again := s.apply(t, manager, config)
	require.Equal(t, applied.GetResourceVersion(), again.GetResourceVersion())
	still(t, applied, again, desired)
	require.Equal(t, []string{`changed .data.a: "by admission" -> "1"`}, lines(t, desired, again, diff.Options{Manager: manager}),
		"who does not know what was applied sees the values")
}
