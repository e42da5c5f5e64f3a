package kubetest_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/reconcile/kube/kubetest"
)

// TestAGetWithinTheProcessAnswersAsKubectlDoes compares both on a real server.
func TestAGetWithinTheProcessAnswersAsKubectlDoes(t *testing.T) {
	if testing.Short() {
		t.Skip("long: a Kubernetes of its own")
	}
	t.Parallel()
	c := kubetest.Start(t, kubetest.Options{GatewayAPI: true})
	require.NoError(t, c.Apply(t.Context(), deployment+`---
{apiVersion: v1, kind: Namespace, metadata: {name: other, labels: {a: b}}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: one, namespace: other, labels: {a: b}}, data: {key: "1"}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: two, namespace: other}, data: {key: "2"}}
---
{apiVersion: v1, kind: Secret, metadata: {name: one, namespace: other, labels: {a: b}}, data: {key: MQ==}}
---
{apiVersion: gateway.networking.k8s.io/v1, kind: HTTPRoute, metadata: {name: route, namespace: other, labels: {a: b}}, spec: {hostnames: [x.example.com]}}
`))
	inside, err := c.Inside(t.Context(), "get", "configmap", "one", "-n", "other", "-o", "jsonpath={.data.key}")
	require.NoError(t, err)
	require.Equal(t, "1", inside)
	for _, line := range []string{
		"deploy web -o jsonpath={.spec.replicas}{.spec.absent}",
		"deployment/web -o=go-template={{.spec.replicas}}{{.metadata.absent}}",
		"deploy -o jsonpath={.items[*].metadata.managedFields[0].manager}",
		"cm one two -n other -o jsonpath={.items[*].data.key}{.kind}",
		"configmaps -n other -l a=b -o name",
		"configmaps --namespace=other -l a!=b -o name",
		"cm,secrets,httproutes -n other -l a=b -o name",
		"cm,secret,httproute -n other -o jsonpath={range.items[*]}{.kind}/{.metadata.name}{end}",
		"httproutes.gateway.networking.k8s.io -n other -o name",
		"httproutes.v1.gateway.networking.k8s.io route -n other -o name",
		"crd -o name",
		"clusterroles -l kubernetes.io/bootstrapping=rbac-defaults -o name",
		"secrets -A -l a=b -o jsonpath={.items[*].data}",
		"secrets one -n other -o go-template={{.data.key|base64decode}}",
		"namespaces other -o jsonpath={.metadata.labels}",
		"namespaces -l a=b -o jsonpath={.items[0].metadata.name}",
		"events.events.k8s.io -n other -o jsonpath={.items[*].reason}",
		"cm absent -n other -o name --ignore-not-found",
		"cm absent -n other -o jsonpath={.data}",
		"cm one absent -n other -o name --ignore-not-found",
		"cm -n absent -o name",
		"cm -n other --field-selector=metadata.name=two -o name",
	} {
		args := strings.Fields(line)
		t.Run(line, func(t *testing.T) {
			t.Parallel()
			want, wantErr := c.Process(t.Context(), append([]string{"get"}, args...)...)
			got, gotErr := c.Inside(t.Context(), append([]string{"get"}, args...)...)
			require.Equal(t, want, got)
			require.Equal(t, wantErr == nil, gotErr == nil, "%v, %v", wantErr, gotErr)
			if wantErr != nil {
				require.ErrorContains(t, wantErr, gotErr.Error())
			}
		})
	}
	for _, line := range []string{"cm one -n other -o yaml", "cm one -n other", "sprockets -o name", "cm -w -o name", "cm one -n other -o jsonpath={.data", "secret one -n other -o name --as nobody"} {
		_, err := c.Inside(t.Context(), append([]string{"get"}, strings.Fields(line)...)...)
		require.ErrorIs(t, err, kubetest.ErrElsewhere, line)
	}
	canceled, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("no time"))
	_, err = c.Kubectl(canceled, "get", "cm", "-o", "name")
	require.ErrorContains(t, err, "no time")
}

// TestAnApplyWithinTheProcessWorksAsKubectlDoes covers what it leaves to kubectl, too.
func TestAnApplyWithinTheProcessWorksAsKubectlDoes(t *testing.T) {
	t.Parallel()
	c := kubetest.Start(t, kubetest.Options{})
	managers := func() string {
		out, err := c.Kubectl(
			t.Context(),
			"get",
			"cm",
			"a",
			"-o",
			"jsonpath={.metadata.managedFields[*].manager}{.metadata.managedFields[*].operation}{.data}",
		)
		require.NoError(t, err)
		return out
	}
	require.NoError(t, c.Apply(t.Context(), "---\n\n---\n{apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: {key: v}}\n"))
	require.Equal(t, `kubectlApply{"key":"v"}`, managers())
	require.NoError(
		t,
		c.Apply(t.Context(), "{apiVersion: v1, kind: List, items: [{apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: {key: w}}]}"),
	)
	require.Equal(t, `kubectlApply{"key":"w"}`, managers())
	require.ErrorContains(t, c.Apply(t.Context(), "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}, date: {key: v}}"), "date")
	require.ErrorContains(t, c.Apply(t.Context(), "{apiVersion: example.com/v1, kind: Sprocket, metadata: {name: a}}"), "Sprocket")
}
