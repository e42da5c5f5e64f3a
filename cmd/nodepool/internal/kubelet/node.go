package kubelet

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"strconv"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Machine is what a machine knows of itself at a boot.
type Machine struct {
	ID, Type, Zone string
	// Cloud begins the providerID of its Node. Empty: aws.
	Cloud string
	// Node is the name of its Node.
	Node string
	// Arch is its architecture, as of Go.
	Arch string
	IP   string
	// BootID identifies the current boot.
	BootID string
	// Launch is what its user data says.
	Launch Launch
}

// Registration is the Node that the machine makes.
func (m *Machine) Registration() *corev1.Node {
	labels := map[string]string{
		corev1.LabelHostname: m.Node, corev1.LabelArchStable: m.Arch, corev1.LabelOSStable: "linux",
		corev1.LabelInstanceTypeStable: m.Type, corev1.LabelTopologyZone: m.Zone, corev1.LabelTopologyRegion: strings.TrimRight(m.Zone, "abcdef"),
	}
	maps.Copy(labels, m.Launch.Labels)
	return &corev1.Node{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Node"},
		ObjectMeta: metav1.ObjectMeta{Name: m.Node, Labels: labels},
		Spec:       corev1.NodeSpec{ProviderID: cmp.Or(m.Cloud, "aws") + ":///" + m.Zone + "/" + m.ID, Taints: m.Launch.Taints},
	}
}

// Join makes the Node if it is not there, and writes its status.
func (k *Kubelet) Join(ctx context.Context) error {
	_, err := k.cluster.client.CoreV1().Nodes().Create(ctx, k.Registration(), metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	// The lease first, or a Node that was away would be taken for dead at once.
	if err := k.renewLease(ctx); err != nil {
		return err
	}
	return k.report(ctx)
}

// Status is that of its Node while it works, as of now.
func (m *Machine) Status() corev1.NodeStatus {
	conditions := []corev1.NodeCondition{
		condition(corev1.NodeReady, corev1.ConditionTrue, "KubeletReady", "kubelet is posting ready status"),
		condition(corev1.NodeMemoryPressure, corev1.ConditionFalse, "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
		condition(corev1.NodeDiskPressure, corev1.ConditionFalse, "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
		condition(corev1.NodePIDPressure, corev1.ConditionFalse, "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
		condition(corev1.NodeNetworkUnavailable, corev1.ConditionFalse, "RouteCreated", "the network is ready"),
	}
	capacity := Capacity(m.Type)
	if m.Launch.MaxPods > 0 {
		capacity[corev1.ResourcePods] = *resource.NewQuantity(int64(m.Launch.MaxPods), resource.DecimalSI)
	}
	return corev1.NodeStatus{
		Capacity: capacity, Allocatable: capacity, Conditions: conditions,
		Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: m.IP}, {Type: corev1.NodeHostName, Address: m.Node}},
		NodeInfo: corev1.NodeSystemInfo{
			BootID: m.BootID, MachineID: m.ID, SystemUUID: m.ID, Architecture: m.Arch, OperatingSystem: "linux",
			OSImage: "simulated", KernelVersion: "6.12", KubeletVersion: "v1.36.3", ContainerRuntimeVersion: "containerd://2.1",
		},
	}
}

func condition(kind corev1.NodeConditionType, status corev1.ConditionStatus, reason, message string) corev1.NodeCondition {
	return corev1.NodeCondition{
		Type:               kind,
		Status:             status,
		Reason:             reason,
		Message:            message,
		LastHeartbeatTime:  metav1.Now(),
		LastTransitionTime: metav1.Now(),
	}
}

// Withdraw says what the API server would find out 40 s later: the kubelet is silent. Pods
// that were not evicted are lost.
func (k *Kubelet) Withdraw(ctx context.Context) error {
	silent := condition(corev1.NodeReady, corev1.ConditionUnknown, "NodeStatusUnknown", "Kubelet stopped posting node status.")
	// When it was heard last stays, as on a real Node.
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": []any{
		map[string]any{
			"type":               silent.Type,
			"status":             silent.Status,
			"reason":             silent.Reason,
			"message":            silent.Message,
			"lastTransitionTime": silent.LastTransitionTime,
		},
	}}})
	if err != nil {
		return err
	}
	_, err = k.cluster.client.CoreV1().Nodes().Patch(ctx, k.Node, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	return k.losePods(ctx)
}

// report writes the status of now.
func (k *Kubelet) report(ctx context.Context) error {
	status := k.Status()
	if k.Report != nil {
		k.Report(&status)
	}
	return k.PatchStatus(ctx, status)
}

// PatchStatus writes a status of the Node.
func (k *Kubelet) PatchStatus(ctx context.Context, status corev1.NodeStatus) error {
	patch, err := json.Marshal(map[string]any{"status": status})
	if err != nil {
		return err
	}
	_, err = k.cluster.client.CoreV1().Nodes().Patch(ctx, k.Node, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	return err
}

// renewLease keeps the Lease of the Node, which goes with it.
func (k *Kubelet) renewLease(ctx context.Context) error {
	leases := k.cluster.client.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	seconds, renewed := int32(40), metav1.NewMicroTime(time.Now())
	patch, err := json.Marshal(
		map[string]any{"spec": coordinationv1.LeaseSpec{HolderIdentity: &k.Node, LeaseDurationSeconds: &seconds, RenewTime: &renewed}},
	)
	if err != nil {
		return err
	}
	_, err = leases.Patch(ctx, k.Node, types.MergePatchType, patch, metav1.PatchOptions{})
	if !apierrors.IsNotFound(err) {
		return err
	}
	n, err := k.cluster.client.CoreV1().Nodes().Get(ctx, k.Node, metav1.GetOptions{})
	if err != nil {
		return ignoreGone(err)
	}
	_, err = leases.Create(ctx, &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: k.Node, OwnerReferences: []metav1.OwnerReference{
			{APIVersion: "v1", Kind: "Node", Name: n.Name, UID: n.UID},
		}},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: &k.Node, LeaseDurationSeconds: &seconds, RenewTime: &renewed},
	}, metav1.CreateOptions{})
	return err
}

// Capacity returns what a Node of an instance type has: the vCPUs of its size, and memory
// by its family; 2 vCPUs and 8 GiB if the type is unknown. All of it is allocatable.
func Capacity(instanceType string) corev1.ResourceList {
	family, size, _ := strings.Cut(instanceType, ".")
	cpus := int64(2)
	if n, found := strings.CutSuffix(size, "xlarge"); found {
		times := int64(1)
		if n, err := strconv.ParseInt(n, 10, 64); err == nil {
			times = n
		}
		cpus = 4 * times
	}
	memory := cpus * 4
	switch {
	case strings.HasPrefix(family, "c"):
		memory = cpus * 2
	case strings.HasPrefix(family, "r"):
		memory = cpus * 8
	case strings.HasPrefix(family, "t"):
		gib := map[string]int64{"nano": 0, "micro": 1, "small": 2, "medium": 4}
		if g, found := gib[size]; found {
			memory = max(1, g)
		}
	}
	return corev1.ResourceList{
		corev1.ResourceCPU:              *resource.NewQuantity(cpus, resource.DecimalSI),
		corev1.ResourceMemory:           *resource.NewQuantity(memory<<30, resource.BinarySI),
		corev1.ResourcePods:             *resource.NewQuantity(110, resource.DecimalSI),
		corev1.ResourceEphemeralStorage: *resource.NewQuantity(20<<30, resource.BinarySI),
	}
}
