package kubetest_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/reconcile/kube/kubetest"
)

const gadgets = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gadgets.example.com}
spec:
  group: example.com
  names: {plural: gadgets, singular: gadget, kind: Gadget, listKind: GadgetList}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`

// TestAWriteWithinTheProcessWorksAsKubectlDoes does the same within the process and by kubectl, in
// two namespaces, and compares what is there afterwards.
func TestAWriteWithinTheProcessWorksAsKubectlDoes(t *testing.T) {
	if testing.Short() {
		t.Skip("long: a Kubernetes of its own")
	}
	t.Parallel()
	c := kubetest.Start(t, kubetest.Options{})
	ways := map[string]func(args ...string) error{
		"inside": func(args ...string) error {
			_, err := c.Inside(t.Context(), args...)
			return err
		},
		"kubectl": func(args ...string) error {
			_, err := c.Process(t.Context(), args...)
			return err
		},
	}
	require.NoError(t, c.Apply(t.Context(), gadgets))
	for _, do := range ways {
		require.NoError(t, do("wait", "--for=condition=Established", "--timeout=300s", "crd", "--all"))
		require.NoError(t, do("wait", "--for=condition=established", "crd/gadgets.example.com"))
	}
	const left = "jsonpath={range .items[*]}{.kind} {.metadata.name} {.metadata.finalizers} {.data} {.spec} {.status} " +
		"{range .metadata.managedFields[*]}{.manager}/{.operation}/{.subresource} {end};{end}"
	there := map[string]string{}
	for way, do := range ways {
		require.NoError(t, do("create", "namespace", way))
		require.NoError(t, c.Apply(t.Context(), strings.ReplaceAll(`
{apiVersion: v1, kind: ConfigMap, metadata: {name: one, namespace: WAY}, data: {key: "1", list: a}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: two, namespace: WAY}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: three, namespace: WAY}}
---
{apiVersion: example.com/v1, kind: Gadget, metadata: {name: one, namespace: WAY}, spec: {size: 1}}
`, "WAY", way)))
		for _, args := range [][]string{
			{"patch", "-n", way, "configmap", "one", "-p", `{"data":{"key":"2"}}`},
			{"patch", "cm/one", "-n", way, "--type=merge", "--patch", `{"data":{"list":null}}`, "--field-manager=other"},
			{"patch", "configmap", "one", "-n", way, "--type=json", "-p", `[{"op":"add","path":"/data/more","value":"3"}]`},
			{"patch", "gadget", "one", "-n", way, "--type=merge", "-p", `{"spec":{"size":2},"status":{"size":3}}`},
			{"patch", "gadget", "one", "-n", way, "--subresource=status", "--type=merge", "-p", "status: {size: 4}"},
			{"delete", "configmap", "two", "-n", way, "--timeout=60s"},
			{"delete", "configmap", "three", "-n", way, "--cascade=foreground", "--wait=false"}, // nothing here collects garbage
			{"delete", "configmap", "two", "-n", way, "--ignore-not-found"},
		} {
			require.NoError(t, do(args...), "%s %v", way, args)
		}
		out, err := c.Process(t.Context(), "get", "configmap,gadget", "-n", way, "--show-managed-fields", "-o", left)
		require.NoError(t, err)
		there[way] = out
	}
	require.Equal(t, there["kubectl"], there["inside"])
	require.Contains(t, there["inside"], `Gadget one   {"size":2} {"size":4}`)

	require.Contains(t, there["inside"], `ConfigMap three ["foregroundDeletion"]`)

	// An object that a finalizer holds is waited for.
	require.NoError(t, c.Apply(t.Context(), "{apiVersion: v1, kind: ConfigMap, metadata: {name: held, finalizers: [example.com/hold]}}"))
	require.NoError(t, ways["inside"]("delete", "configmap", "held", "--wait=false"))
	require.ErrorContains(t, ways["inside"]("delete", "configmap", "held", "--timeout=100ms"), "timed out waiting for the condition")
	require.ErrorContains(t, ways["kubectl"]("delete", "configmap", "held", "--timeout=1s"), "timed out waiting for the condition")
	gone := make(chan error, 1)
	go func() { gone <- ways["inside"]("delete", "configmap", "held", "--ignore-not-found") }()
	require.NoError(t, ways["inside"]("patch", "configmap", "held", "--type=merge", "-p", `{"metadata":{"finalizers":null}}`))
	require.NoError(t, <-gone)

	// A condition of an older generation is not waited for in vain, nor believed.
	require.NoError(t, c.Apply(t.Context(), "{apiVersion: example.com/v1, kind: Gadget, metadata: {name: two}, spec: {size: 1}}"))
	state := func(generation string) string {
		return `{"status":{"observedGeneration":` + generation + `,"conditions":[{"type":"Done","status":"True"}]}}`
	}
	require.NoError(t, ways["inside"]("patch", "gadget", "two", "--subresource=status", "--type=merge", "-p", state("0")))
	for way, do := range ways {
		require.ErrorContains(t, do("wait", "--for=condition=Done", "gadget/two", "--timeout=1s"), "timed out waiting for the condition", way)
	}
	require.NoError(t, ways["inside"]("patch", "gadget", "two", "--subresource=status", "--type=merge", "-p", state("1")))
	for _, do := range ways {
		require.NoError(t, do("wait", "--for=condition=Done", "gadget", "two"))
	}

	// What the server refuses is worded by kubectl, as is what is not of the subset.
	for _, line := range []string{
		"create namespace inside", "create configmap a", "patch configmap absent -p {}", "patch gadget two -p {}",
		"patch configmap held --type=json -p {}", "delete configmap absent", "delete configmap a b", "delete configmap a --grace-period=1",
		"delete configmap a --cascade=orphan", "wait --for=condition=Done gadget absent", "wait --for=delete gadget two",
		"wait --for=condition=Done=False gadget two", "label configmap a b=c", "patch sprocket a -p {}", "-n inside delete configmap one",
	} {
		require.ErrorIs(t, ways["inside"](strings.Fields(line)...), kubetest.ErrElsewhere, line)
	}
	_, err := c.Kubectl(t.Context(), "delete", "configmap", "absent")
	require.ErrorContains(t, err, `Error from server (NotFound): configmaps "absent" not found`)
}
