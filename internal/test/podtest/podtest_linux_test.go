package podtest_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/internal/test/await"
	"github.com/seed-9e1ffd66/trueup/internal/test/podtest"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube/kubetest"
)

// shell is an image with the shell and the tools of this machine.
func shell() podtest.Image {
	files := map[string]string{}
	for _, dir := range []string{"/bin", "/usr", "/lib", "/lib64", "/etc/alternatives"} {
		if _, err := os.Stat(dir); err == nil {
			files[dir] = dir
		}
	}
	return podtest.Image{Files: files, Entrypoint: []string{"sh", "-c"}}
}

type bench struct {
	*testing.T
	cluster *kubetest.Cluster
	node    *podtest.Node
}

func (b *bench) kubectl(args ...string) string {
	b.Helper()
	out, err := b.cluster.Kubectl(b.Context(), args...)
	require.NoError(b, err, out)
	return strings.TrimSpace(out)
}

// until waits until a field of a pod has a value.
func (b *bench) until(pod, field, want string) {
	b.Helper()
	get := func() string { return b.kubectl("get", "pod", pod, "--ignore-not-found", "-o", "jsonpath={"+field+"}") }
	await.Until(b.T, await.Moment, pod+" "+field+"="+want, func() bool { return get() == want },
		func() string { return b.kubectl("get", "pod", pod, "-o", "yaml") }, func() string { return b.node.Log("default", pod, "c") })
}

// first returns a field of the status of the first container of a pod.
func (b *bench) first(pod, field string) string {
	b.Helper()
	return b.kubectl("get", "pod", pod, "-o", "jsonpath={.status.containerStatuses[0]."+field+"}")
}

// TestPodsRun runs pods of each kind on one Node.
func TestPodsRun(t *testing.T) {
	t.Parallel()
	cluster := kubetest.Start(t, kubetest.Options{Controllers: true, Scheduler: true})
	b := &bench{t, cluster, podtest.Start(t, cluster, podtest.Options{
		Images: map[string]podtest.Image{"shell": shell()}, Hosts: map[string]string{"database.example.com": "192.0.2.7"},
	})}
	require.NoError(t, cluster.Apply(t.Context(), `
{apiVersion: v1, kind: ConfigMap, metadata: {name: config}, data: {color: blue, size: "7"}}
---
{apiVersion: v1, kind: Secret, metadata: {name: secret}, stringData: {password: s3cret}}
`))
	_, err := cluster.Kubectl(t.Context(), "wait", "--for=create", "--timeout=60s", "serviceaccount/default")
	require.NoError(t, err)
	for name, test := range map[string]func(*bench){
		"states": states, "confined": confined, "crash": crash, "missing": missing, "probes": probes, "ends": ends, "job": job,
	} {
		t.Run(name, func(t *testing.T) {
			if testing.Short() && name != "states" {
				t.Skip("long: one pod of many")
			}
			test(&bench{t, b.cluster, b.node})
		})
	}
}

func (b *bench) pod(name, more string) {
	b.Helper()
	require.NoError(b, b.cluster.Apply(b.Context(), "{apiVersion: v1, kind: Pod, metadata: {name: "+name+"}, spec: {"+more+"}}"))
}

// states is what a pod has: variables, files, names, a token.
func states(b *bench) {
	b.pod("states", `restartPolicy: Never, volumes: [{name: v, configMap: {name: config, items: [{key: size, path: a/size}]}},
  {name: empty, emptyDir: {}}],
  initContainers: [{name: first, image: shell, args: ['echo made > /e/made'], volumeMounts: [{name: empty, mountPath: /e}]}],
  containers: [{name: c, image: shell, envFrom: [{configMapRef: {name: config}, prefix: C_}],
    env: [{name: P, valueFrom: {secretKeyRef: {name: secret, key: password}}}, {name: ME,
  valueFrom: {fieldRef: {fieldPath: metadata.name}}}, {name: ALL, value: '$(C_color)-$(NONE)-$$(P)'}],
    args: ['echo $P $ME $ALL; cat /v/a/size; echo; cat /e/made; grep database /etc/hosts; echo the end > /dev/termination-log;
      test -s /var/run/secrets/kubernetes.io/serviceaccount/token && echo token'],
    volumeMounts: [{name: v, mountPath: /v}, {name: empty, mountPath: /e}]}]`)
	b.until("states", ".status.phase", "Succeeded")
	require.Equal(b, "s3cret states blue-$(NONE)-$(P)\n7\nmade\n192.0.2.7 database.example.com\ntoken\n", b.node.Log("default", "states", "c"))
	require.Equal(b, "the end", b.first("states", "state.terminated.message"))
	require.Equal(b, "Completed", b.first("states", "state.terminated.reason"))
}

// confined is what a pod may not do, as another user with a root that it cannot write to.
func confined(b *bench) {
	b.pod("confined", `restartPolicy: Never, securityContext: {runAsUser: 1234, runAsGroup: 1235, fsGroup: 1236, runAsNonRoot: true},
  volumes: [{name: empty, emptyDir: {}}],
  containers: [{name: c, image: shell, securityContext: {readOnlyRootFilesystem: true, allowPrivilegeEscalation: false},
    args: ['id -u; id -g; id -G; touch /a 2>/dev/null || echo root; touch /tmp/a 2>/dev/null || echo tmp; touch /e/a && echo e;
      grep NoNewPrivs /proc/self/status; ls /proc | grep -c "^[0-9]"'], volumeMounts: [{name: empty, mountPath: /e}]}]`)
	b.until("confined", ".status.phase", "Succeeded")
	lines := strings.Fields(b.node.Log("default", "confined", "c"))
	require.Equal(b, []string{"1234", "1235", "1235", "1236", "root", "tmp", "e", "NoNewPrivs:", "1"}, lines[:9])
	b.pod("root", `restartPolicy: Never, securityContext: {runAsNonRoot: true}, containers: [{name: c, image: shell, args: ['true']}]`)
	b.until("root", ".status.containerStatuses[0].state.waiting.reason", "CreateContainerConfigError")
	require.Equal(b, "container has runAsNonRoot and image will run as root", b.first("root", "state.waiting.message"))
}

// crash is a container that fails, and is started again; and one that may not be.
func crash(b *bench) {
	b.pod("crash", `containers: [{name: c, image: shell, terminationMessagePolicy: FallbackToLogsOnError, args: ['echo broken; exit 3']}]`)
	b.until("crash", ".status.containerStatuses[0].restartCount", "2")
	require.Equal(b, "3", b.first("crash", "lastState.terminated.exitCode"))
	require.Equal(b, "Error", b.first("crash", "lastState.terminated.reason"))
	require.Contains(b, b.first("crash", "lastState.terminated.message"), "broken")
	b.until("crash", ".status.containerStatuses[0].state.waiting.reason", "CrashLoopBackOff")
	b.until("crash", ".status.phase", "Running")
	b.until("crash", `.status.conditions[?(@.type=="Ready")].status`, "False")
	b.pod("failed", `restartPolicy: Never, containers: [{name: c, image: shell, args: ['exit 7']}]`)
	b.until("failed", ".status.phase", "Failed")
}

// missing is what is not there: an image, a Secret, a key. A Secret that comes is noticed.
func missing(b *bench) {
	b.pod("image", `containers: [{name: c, image: 'nowhere:1'}]`)
	b.until("image", ".status.containerStatuses[0].state.waiting.reason", "ImagePullBackOff")
	b.pod("late", `containers: [{name: c, image: shell, args: ['echo $P; sleep 1000'], env: [{name: P,
  valueFrom: {secretKeyRef: {name: late, key: p}}}]}]`)
	b.until("late", ".status.containerStatuses[0].state.waiting.message", `secret "late" not found`)
	b.kubectl("create", "secret", "generic", "late", "--from-literal=q=1")
	b.until("late", ".status.containerStatuses[0].state.waiting.message", `couldn't find key p for env P`)
	b.kubectl("patch", "secret", "late", "-p", `{"stringData":{"p":"come"}}`)
	b.until("late", ".status.phase", "Running")
	await.Eventually(b.T, "it prints", func() bool { return b.node.Log("default", "late", "c") == "come\n" })
}

// probes is a container that is ready while a file is there, and not alive without another.
func probes(b *bench) {
	port := "python3 -m http.server 8080 --bind 0.0.0.0 --directory /tmp"
	b.pod("probes", `containers: [{name: c, image: shell, args: ['touch /tmp/alive; (sleep 2; touch /tmp/ready) & exec `+port+`'],
    ports: [{name: http, containerPort: 8080}],
    startupProbe: {tcpSocket: {port: http}, periodSeconds: 1, failureThreshold: 60}, readinessProbe: {httpGet: {path: /ready,
  port: http}, periodSeconds: 1},
    livenessProbe: {httpGet: {path: /alive, port: 8080}, periodSeconds: 1, failureThreshold: 2}}]`)
	b.until("probes", `.status.conditions[?(@.type=="Ready")].status`, "False")
	b.until("probes", `.status.conditions[?(@.type=="Ready")].status`, "True")
	root := filepath.Join(b.node.Root("default", "probes", "c"), "tmp")
	require.NoError(b, os.Remove(filepath.Join(root, "ready")))
	b.until("probes", `.status.conditions[?(@.type=="Ready")].status`, "False")
	require.Equal(b, "0", b.first("probes", "restartCount"))
	require.NoError(b, os.Remove(filepath.Join(root, "alive")))
	b.until("probes", ".status.containerStatuses[0].restartCount", "1")
}

// ends is a pod that is deleted: it is told to end, and waited for.
func ends(b *bench) {
	for name, args := range map[string]string{
		"polite": `trap "echo told; exit 0" TERM; echo up; while true; do sleep 0.1; done`, "deaf": `echo up; sleep 1000`,
	} {
		b.pod(name, `terminationGracePeriodSeconds: 2, containers: [{name: c, image: shell, args: ['`+args+`']}]`)
		b.until(name, ".status.phase", "Running")
		await.Eventually(b.T, "it runs", func() bool { return b.node.Log("default", name, "c") == "up\n" })
	}
	began := time.Now()
	b.kubectl("delete", "pod", "polite", "deaf", "--timeout=60s")
	require.GreaterOrEqual(b, time.Since(began), 2*time.Second, "the deaf one gets its grace")
}

// job is a Job of the real controller: it succeeds after a failure.
func job(b *bench) {
	require.NoError(b, b.cluster.Apply(b.Context(), `{apiVersion: batch/v1, kind: Job, metadata: {name: job}, spec: {backoffLimit: 2,
  template: {spec: {restartPolicy: Never,
  containers: [{name: c, image: shell, args: ['exit 1']}]}}}}`))
	b.kubectl("wait", "job/job", "--for=condition=Failed", "--timeout=120s")
}
