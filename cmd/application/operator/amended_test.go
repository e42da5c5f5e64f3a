package operator_test

import (
	"github.com/stretchr/testify/require"
)

// causes is D35: a quota, a node that does not exist and a rollout past its deadline are in
// Ready's reason, and a rollout that has failed is in the phase.
func causes(b *bench) {
	b.in("create", "quota", "few", "--hard=pods=1")
	b.eventually("the quota counts", func() bool { return b.get("quota", "few", ".status.used") != "" })
	b.app("quota", ", imageRef: 'app:1'")
	b.eventually("the quota is named", func() bool { return b.condition("quota", "Ready", "reason") == "Quota" })
	require.Contains(b, b.condition("quota", "Ready", "message"), "exceeded quota: few")
	require.Equal(b, "Provisioning", b.get("app", "quota", ".status.phase"))
	require.Contains(b, b.in("get", "app", "quota"), "Quota")
	b.in("delete", "quota", "few")
	b.phase("quota", "Running")

	b.app("huge", ", imageRef: 'app:1', resources: {requests: {cpu: 9000}, limits: {cpu: 9000}}")
	b.eventually("the node is named", func() bool { return b.condition("huge", "Ready", "reason") == "Unschedulable" })
	require.Contains(b, b.condition("huge", "Ready", "message"), "Insufficient cpu")
	b.in("patch", "deployment", "huge", "-p", `{"spec":{"progressDeadlineSeconds":1}}`)
	b.phase("huge", "Failed")
	require.Contains(b, b.condition("huge", "Ready", "message"), "Insufficient cpu")
	require.Contains(b, b.in("get", "events.events.k8s.io", "-o", "jsonpath={.items[*].reason}"), "Unschedulable")
	b.app("huge", ", imageRef: 'app:1'")
	b.phase("huge", "Running")
}

// shaped is E6: what the container of the app is made of.
func shaped(b *bench) {
	b.app("shaped", withDatabase+", port: 8080, healthPath: /up, command: [/bin/serve, --fast], imagePullSecrets: [{name: registry}]"+
		", resources: {requests: {memory: 1Gi}, limits: {memory: 2Gi}}")
	b.phase("shaped", "Running")
	container := func(path string) string {
		return b.get("deployment", "shaped", ".spec.template.spec.containers[0]."+path)
	}
	require.Equal(b, `["/bin/serve","--fast"] 8080`, container("command")+" "+container("ports[0].containerPort"))
	require.Equal(b, "/up /up", container("readinessProbe.httpGet.path")+" "+container("livenessProbe.httpGet.path"))
	require.JSONEq(b, `{"requests":{"cpu":"100m","memory":"1Gi"},"limits":{"cpu":"1","memory":"2Gi"}}`, container("resources"))
	require.Equal(b, "registry", b.get("deployment", "shaped", ".spec.template.spec.imagePullSecrets[*].name"))
	require.Equal(b, "8080", b.get("service", "shaped", `.spec.ports[?(@.name=="http")].targetPort`))
	require.Equal(b, "8080", b.get("networkpolicy", "shaped", ".spec.ingress[0].ports[0].port"))
	_, err := b.cluster.Kubectl(b.Context(), "patch", "app", "shaped", "-n", b.name, "--type=merge", "-p", `{"spec":{"port":3001}}`)
	require.ErrorContains(b, err, "spec.port")
	b.app("shaped", withDatabase)
	b.eventually("it is the usual one", func() bool { return container("ports[0].containerPort") == "3000" })
	require.Empty(b, container("command")+b.get("deployment", "shaped", ".spec.template.spec.imagePullSecrets"))
}

// idle is C18: a setting without effect is said, and a variable that hides the operator's.
func idle(b *bench) {
	b.app("idle", withDatabase+", storage: {buckets: [{name: files}]}, auth: {providers: [github]}"+
		", envVars: [{name: DATABASE_URL, value: mine}]")
	b.phase("idle", "Running")
	require.Equal(b, "spec.storage.buckets has no effect while spec.storage.enabled is false; "+
		"spec.auth.providers has no effect while spec.auth.enabled is false; "+
		"spec.envVars: DATABASE_URL takes the place of the operator's", b.condition("idle", "Ready", "message"))
	require.Equal(b, "True", b.condition("idle", "Ready", "status"))
	b.app("idle", withDatabase)
	b.eventually("nothing is said", func() bool { return b.condition("idle", "Ready", "message") == "" })
}
