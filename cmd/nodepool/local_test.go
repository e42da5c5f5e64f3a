//go:build unix && !solaris && !aix

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/seed-9e1ffd66/trueup/cloud"
	"github.com/seed-9e1ffd66/trueup/cloud/local"
	"github.com/seed-9e1ffd66/trueup/cmd/api/stratos/v1alpha1"
	"github.com/seed-9e1ffd66/trueup/cmd/nodepool/operator"
	"github.com/seed-9e1ffd66/trueup/internal/test/await"
	"github.com/seed-9e1ffd66/trueup/internal/test/process"
	"github.com/seed-9e1ffd66/trueup/internal/test/programs"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube/kubetest"
)

// desk is a laptop: a cluster, the operator as a process, and its machines.
type desk struct {
	*testing.T

	cluster  *kubetest.Cluster
	kube     *kubernetes.Clientset
	children *process.Group
	operator *process.Process
	program  string
	dir      string // of the machines
	machines *local.Provider
	pids     map[int]bool // of all machines that were ever seen
}

func newDesk(t *testing.T) *desk {
	t.Helper()
	d := &desk{T: t, program: programs.Path(t, "nodepool"), dir: filepath.Join(t.TempDir(), "it's a folder"), pids: map[int]bool{}}
	d.machines = &local.Provider{Dir: filepath.Join(d.dir, operator.LocalRegion), Zone: operator.LocalRegion + "a"}
	d.cluster = kubetest.Start(t, kubetest.Options{Controllers: true, Scheduler: true})
	d.kube = kubernetes.NewForConfigOrDie(d.cluster.Config)
	code, manifests, stderr := execute("manifests", "--cluster-name", "desk", "--region", operator.LocalRegion, "--image", "none")
	require.Zero(t, code, stderr)
	var parts []string
	for part := range strings.SplitSeq(manifests, "\n---\n") {
		if !strings.Contains(part, "\nkind: Deployment\n") {
			parts = append(parts, part)
		}
	}
	require.NoError(t, d.cluster.Apply(t.Context(), strings.Join(parts, "\n---\n")))
	_, err := d.cluster.Kubectl(t.Context(), "wait", "--for=condition=Established", "--timeout=60s", "crd", "--all")
	require.NoError(t, err)
	d.children = process.NewGroup(t.TempDir())
	t.Cleanup(func() { // the machines outlive their operator
		d.children.Close()
		ctx, end := context.WithoutCancel(t.Context()), &local.Provider{Dir: d.machines.Dir, Grace: 1}
		list, err := end.ListInstances(ctx, nil)
		require.NoError(t, err)
		for _, i := range list {
			require.NoError(t, end.TerminateInstance(ctx, i.ID))
			require.NoError(t, cloud.Wait(ctx, end, i.ID, cloud.InstanceTerminated))
		}
	})
	d.start()
	return d
}

// start runs the operator with the rights of its manifests. Machines join as the admin.
func (d *desk) start() {
	d.Helper()
	_, kubeconfig, err := d.cluster.ServiceAccount(d.Context(), operator.Namespace, operator.Account)
	require.NoError(d, err)
	d.operator, err = d.children.Run("nodepool", d.program, []string{"AWS_EC2_METADATA_DISABLED=true"},
		"--cloud-provider", "local", "--local-directory", d.dir, "--local-kubeconfig", d.cluster.Kubeconfig, "--kubeconfig", kubeconfig,
		"--cluster-name", "desk", "--leader-elect=false",
		"--metrics-bind-address", "127.0.0.1:0", "--health-probe-bind-address", "127.0.0.1:0")
	require.NoError(d, err)
}

// pool makes the pool, or changes it.
func (d *desk) pool(spec string) {
	d.Helper()
	require.NoError(d, d.cluster.Apply(d.Context(), `
{apiVersion: stratos.sh/v1alpha1, kind: AWSNodeClass, metadata: {name: desk}, spec: {
  bootstrapTemplate: AL2023, instanceType: m5.large, architecture: x86_64, subnetSelector: {any: one}, securityGroupSelector: {any: one},
  iamInstanceProfile: any}}
---
{apiVersion: stratos.sh/v1alpha1, kind: NodePool, metadata: {name: desk}, spec: {
  reconciliationInterval: 5s, preWarm: {imagesToPull: [example.com/web:1]},
  template: {nodeClassRef: {kind: AWSNodeClass, name: desk}}, `+spec+`}}`))
}

// eventually waits, and has what the operator says if that fails.
func (d *desk) eventually(what string, holds func() bool) {
	d.Helper()
	await.Eventually(d, what, func() bool {
		select {
		case <-d.operator.Exited():
			require.Fail(d, "the operator has ended", d.operator.Tail())
		default:
		}
		return holds()
	}, func() string { return d.operator.Tail() + fmt.Sprintf("\n%v", d.list()) })
}

// list returns the machines, and takes note of their processes.
func (d *desk) list() []cloud.Instance {
	d.Helper()
	list, err := d.machines.ListInstances(d.Context(), nil)
	require.NoError(d, err)
	for _, i := range list {
		if pid := d.pid(i.ID); pid > 0 {
			d.pids[pid] = true
		}
	}
	return list
}

// pid is the process of a machine, 0 if it has not begun.
func (d *desk) pid(id string) int {
	d.Helper()
	log, err := os.ReadFile(filepath.Join(d.machines.Dir, id+".log"))
	require.True(d, err == nil || errors.Is(err, fs.ErrNotExist), err)
	line, _, _ := strings.Cut(string(log), "\n")
	pid, _ := strconv.Atoi(line) // it is empty at first
	return pid
}

// in returns the machines in a state.
func (d *desk) in(state cloud.InstanceState) (ids []string) {
	d.Helper()
	for _, i := range d.list() {
		if i.State == state {
			ids = append(ids, i.ID)
		}
	}
	return ids
}

// standby are the machines whose Node is ready to be started.
func (d *desk) standby() (ids []string) {
	d.Helper()
	for _, n := range d.nodes() {
		id := n.Labels["stratos.sh/instance-id"]
		if n.Labels[v1alpha1.LabelState] == "standby" && slices.Contains(d.in(cloud.InstanceStopped), id) {
			ids = append(ids, id)
		}
	}
	return ids
}

func (d *desk) nodes() []corev1.Node {
	d.Helper()
	nodes, err := d.kube.CoreV1().Nodes().List(d.Context(), metav1.ListOptions{})
	require.NoError(d, err)
	return nodes.Items
}

// pods makes a ReplicaSet with pods of a whole machine.
func (d *desk) pods(count int) {
	d.Helper()
	require.NoError(d, d.cluster.Apply(d.Context(), fmt.Sprintf(`
{apiVersion: apps/v1, kind: ReplicaSet, metadata: {name: web, namespace: default}, spec: {replicas: %d, selector: {matchLabels: {app: web}},
  template: {metadata: {labels: {app: web}}, spec: {terminationGracePeriodSeconds: 0,
    containers: [{name: web, image: "example.com/web:1", resources: {requests: {cpu: 1500m}}}]}}}}`, count)))
}

// running returns the machines whose pods run.
func (d *desk) running() (ids []string) {
	d.Helper()
	pods, err := d.kube.CoreV1().Pods("default").List(d.Context(), metav1.ListOptions{})
	require.NoError(d, err)
	for i := range pods.Items {
		if p := &pods.Items[i]; p.Status.Phase == corev1.PodRunning && p.DeletionTimestamp == nil {
			ids = append(ids, strings.TrimPrefix(p.Spec.NodeName, "node-"))
		}
	}
	slices.Sort(ids)
	return ids
}

// leave deletes the pool, after which nothing of it is left.
func (d *desk) leave() {
	d.Helper()
	_, err := d.cluster.Kubectl(d.Context(), "delete", "nodepool", "desk", "--wait=false")
	require.NoError(d, err)
	d.eventually("the pool is gone", func() bool {
		_, err := d.cluster.Kubectl(d.Context(), "get", "nodepool", "desk")
		return err != nil && strings.Contains(err.Error(), "NotFound") && len(d.list()) == 0
	})
	d.eventually("no Node is left", func() bool { return len(d.nodes()) == 0 })
	d.eventually("no Lease is left", func() bool {
		leases, err := d.kube.CoordinationV1().Leases(corev1.NamespaceNodeLease).List(d.Context(), metav1.ListOptions{})
		require.NoError(d, err)
		return len(leases.Items) == 0
	})
	for pid := range d.pids {
		d.eventually("no process is left", func() bool { return errors.Is(syscall.Kill(-pid, 0), syscall.ESRCH) })
	}
	files, err := os.ReadDir(d.machines.Dir)
	require.NoError(d, err)
	require.Len(d, files, 1, "the lock: %v", files)
	require.NoError(d, d.operator.Stop(30*time.Second), d.operator.Tail())
}

// TestAPoolOnALaptop is the life of a pool of processes, whose operator is killed twice.
func TestAPoolOnALaptop(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.pool("poolSize: 3, minStandby: 1")
	d.eventually("one machine is on standby", func() bool { return len(d.standby()) == 1 })
	first := d.standby()[0]
	require.Equal(t, []string{first}, d.in(cloud.InstanceStopped), "it stopped itself, and is the only one")
	n, err := d.kube.CoreV1().Nodes().Get(t.Context(), "node-"+first, metav1.GetOptions{})
	require.NoError(t, err)
	require.Contains(t, n.Annotations[v1alpha1.AnnotationAttested], "example.com/web:1")
	require.Equal(t, []string{"m5.large", operator.LocalRegion, operator.LocalRegion + "a"}, []string{
		n.Labels[corev1.LabelInstanceTypeStable], n.Labels[corev1.LabelTopologyRegion], n.Labels[corev1.LabelTopologyZone],
	})

	d.pods(1)
	d.operator.Kill()
	d.start()
	d.eventually("its pod runs", func() bool { return slices.Equal(d.running(), []string{first}) })
	d.keepsItsToken(first)
	d.eventually("another takes its place", func() bool { return len(d.standby()) == 1 && len(d.list()) == 2 })
	require.NotContains(t, d.standby(), first)

	d.pool("poolSize: 3, minStandby: 1, scaleDown: {emptyNodeTTL: 1s}")
	d.operator.Kill()
	d.pods(0)
	d.start()
	d.eventually("it goes back", func() bool { return len(d.standby()) == 2 && len(d.list()) == 2 })
	require.Contains(t, d.standby(), first)
	require.Len(t, d.pids, 3, "one was started twice, the other once: %v", d.pids)
	d.leave()
}

// keepsItsToken looks for the token of a machine that runs where others see it.
func (d *desk) keepsItsToken(id string) {
	d.Helper()
	args, err := exec.CommandContext(d.Context(), "ps", "-ww", "-o", "args=", "-p", strconv.Itoa(d.pid(id))).Output()
	require.NoError(d, err)
	require.Contains(d, string(args), localMachine)
	log, err := os.ReadFile(filepath.Join(d.machines.Dir, id+".log"))
	require.NoError(d, err)
	operators, err := os.ReadFile(d.operator.Log)
	require.NoError(d, err)
	for _, text := range [][]byte{args, log, operators} {
		require.NotContains(d, string(text), d.cluster.Config.BearerToken)
	}
}

// TestAMachineIsKilled has the process of a machine with a pod end at once. The pool sees that
// the machine is stopped, the cluster replaces the pod, and a machine on standby gets it.
func TestAMachineIsKilled(t *testing.T) {
	if testing.Short() {
		t.Skip("long: a second cluster")
	}
	t.Parallel()
	d := newDesk(t)
	d.pool("poolSize: 3, minStandby: 1")
	d.eventually("one machine is on standby", func() bool { return len(d.standby()) == 1 })
	first := d.standby()[0]
	d.pods(1)
	d.eventually("its pod runs", func() bool { return slices.Equal(d.running(), []string{first}) && len(d.standby()) == 1 })
	second, killed := d.standby()[0], d.pid(first)
	require.NoError(t, syscall.Kill(-killed, syscall.SIGKILL))
	d.eventually("a pod runs where a process does, and the other machine is on standby", func() bool {
		running, standby := d.running(), d.standby()
		return len(running) == 1 && d.pid(running[0]) != killed && slices.Equal(d.in(cloud.InstanceRunning), running) && len(standby) == 1 &&
			slices.Equal(slices.Sorted(slices.Values(append(running, standby...))), slices.Sorted(slices.Values([]string{first, second})))
	})
	require.Len(t, d.list(), 2, "none was launched for it")
	d.pods(0)
	d.leave()
}

func TestAFolderThatCannotBeUsedIsNamed(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	for _, dir := range []string{file, filepath.Join(file, "below"), "/proc/none"} {
		_, err := options{directory: dir}.local()
		require.ErrorContains(t, err, "--local-directory: is "+dir+", must be a folder that this user can write: ")
	}
	dir := filepath.Join(t.TempDir(), "new")
	cloud, err := options{directory: dir}.local()
	require.NoError(t, err)
	require.Equal(t, dir, cloud.Dir)
	files, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, files, "the trial is gone")
}
