package apply_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/seed-9e1ffd66/trueup/apply"
	"github.com/seed-9e1ffd66/trueup/apply/readiness"
)

// The pods of a workload are those that its label selector selects. One that is empty, or of
// another form, selects none: the other pods of the namespace, and pods of other
// namespaces, say nothing of the workload.
func TestAWorkloadIsNotReadyForItsOwnPodsOnly(t *testing.T) {
	t.Parallel()
	b := serverBench(t)
	const pod = "{containers: [{name: main, image: example.com/web:1}]}"
	b.kubectl(t, "create", "namespace", b.ns+"-more")
	b.kubectl(t, "label", "namespace", b.ns, b.ns+"-more", "pod-security.kubernetes.io/enforce=privileged")
	set := b.set(t, `{apiVersion: v1, kind: Pod, metadata: {name: web, namespace: NAMESPACE, labels: {app: web}}, spec: `+pod+`}
---
{apiVersion: v1, kind: Pod, metadata: {name: api, namespace: NAMESPACE-more, labels: {app: api}}, spec: `+pod+`}
---
{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {name: web, namespace: NAMESPACE}, spec: {selector: {matchLabels: {app: web}}}}
---
{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {name: api, namespace: NAMESPACE}, spec: {selector: {matchLabels: {app: api}}}}
---
{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {name: all, namespace: NAMESPACE}, spec: {selector: {}}}
---
{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {name: none, namespace: NAMESPACE}, spec: {}}
---
{apiVersion: v1, kind: Service, metadata: {name: web, namespace: NAMESPACE}, spec: {selector: {app: api}, ports: [{port: 80}]}}`)
	a := b.startUnsynced(t, schema.GroupVersionKind{Version: "v1", Kind: "Pod"},
		schema.GroupVersionKind{Group: "policy", Version: "v1", Kind: "PodDisruptionBudget"})
	require.NoError(t, a.Live.WaitSynced(t.Context()))
	apply1(t, a, set)
	for id, want := range map[apply.ID]readiness.Reason{
		{Group: "policy", Kind: "PodDisruptionBudget", Namespace: b.ns, Name: "web"}:  readiness.ContainerCreating,
		{Group: "policy", Kind: "PodDisruptionBudget", Namespace: b.ns, Name: "api"}:  "",
		{Group: "policy", Kind: "PodDisruptionBudget", Namespace: b.ns, Name: "all"}:  "",
		{Group: "policy", Kind: "PodDisruptionBudget", Namespace: b.ns, Name: "none"}: "",
		{Kind: "Service", Namespace: b.ns, Name: "web"}:                               "",
		{Kind: "Pod", Namespace: b.ns, Name: "web"}:                                   readiness.ContainerCreating,
	} {
		cause, err := a.Why(t.Context(), id)
		require.NoError(t, err, id)
		require.Equal(t, want, cause.Reason, id)
	}
}
