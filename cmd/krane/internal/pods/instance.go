package pods

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	corev1 "k8s.io/api/core/v1"

	ctrlv1 "github.com/seed-9e1ffd66/trueup/cmd/api/ctrl/v1"
)

// Status is how an instance does.
type Status = ctrlv1.ReportDeploymentStatusRequest_Update_Instance_Status

// The statuses, by short names.
const (
	Pending = ctrlv1.ReportDeploymentStatusRequest_Update_Instance_STATUS_PENDING
	Running = ctrlv1.ReportDeploymentStatusRequest_Update_Instance_STATUS_RUNNING
	Failed  = ctrlv1.ReportDeploymentStatusRequest_Update_Instance_STATUS_FAILED
)

// Instance is a pod that has an address.
type Instance struct {
	// Name is the name of the pod.
	Name string
	// Address is ip:port, the port being the first that the pod states.
	Address string
	// CPUMillicores and MemoryMiB are the limits of the pod's containers.
	CPUMillicores, MemoryMiB int64
	Status                   Status
	// Reason is why it is Failed: the container, how often it was restarted, and
	// how it ended. It has no output of the container.
	Reason string
	// Restarts is the sum of its containers' since it began.
	Restarts int32
}

// Instances returns the instances among the pods of a deployment, in the order of
// their names, as of now. The history must have seen the same deployment's pods
// each time, and no other's; it forgets those that are not among pods.
func (h *History) Instances(pods []*corev1.Pod, now time.Time) []Instance {
	h.forget(pods)
	instances := make([]Instance, 0, len(pods))
	for _, pod := range pods {
		reason := h.observe(pod, now) // also of those that are no instance yet
		phase := pod.Status.Phase
		if pod.Status.PodIP == "" || phase == corev1.PodSucceeded || phase == corev1.PodFailed {
			continue
		}
		i := Instance{Name: pod.Name, Address: address(pod), Status: Pending}
		for _, c := range pod.Spec.Containers {
			i.CPUMillicores += c.Resources.Limits.Cpu().MilliValue()
			i.MemoryMiB += c.Resources.Limits.Memory().Value() >> 20
		}
		for _, c := range statuses(pod) {
			i.Restarts += c.RestartCount
		}
		switch {
		case pod.DeletionTimestamp != nil: // it finishes its requests, and gets no new one
		case phase == corev1.PodRunning && ready(pod):
			i.Status = Running
		case reason != "":
			i.Status, i.Reason = Failed, reason
		}
		instances = append(instances, i)
	}
	slices.SortFunc(instances, compare)
	return instances
}

func compare(a, b Instance) int {
	return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Address, b.Address), cmp.Compare(a.Status, b.Status))
}

func ready(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.ContainersReady && c.Status == corev1.ConditionTrue
	})
}

func address(pod *corev1.Pod) string {
	port := int32(0)
	for _, c := range pod.Spec.Containers {
		if port == 0 && len(c.Ports) > 0 {
			port = c.Ports[0].ContainerPort
		}
	}
	return net.JoinHostPort(pod.Status.PodIP, strconv.Itoa(int(port)))
}

func statuses(pod *corev1.Pod) []corev1.ContainerStatus {
	return slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses)
}

// Sum is the digest of a report's content: of two with the same Sum one need not be
// sent.
type Sum [sha256.Size]byte

// SumOf returns the SHA-256 over name, address and status of the instances, in
// whatever order they come.
func SumOf(instances []Instance) Sum {
	sorted := slices.SortedFunc(slices.Values(instances), compare)
	h := sha256.New()
	for _, i := range sorted {
		// With lengths, so that no two lists are joined to the same bytes.
		for _, text := range []string{i.Name, i.Address, i.Status.String()} {
			_, _ = h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(text)))) // never fails
			_, _ = h.Write([]byte(text))
		}
	}
	return Sum(h.Sum(nil))
}

// Health returns the health of a sentinel of which so many pods are desired and
// available.
func Health(desired, available int32) ctrlv1.Health {
	switch {
	case desired == 0:
		return ctrlv1.Health_HEALTH_PAUSED
	case available > 0:
		return ctrlv1.Health_HEALTH_HEALTHY
	default:
		return ctrlv1.Health_HEALTH_UNHEALTHY
	}
}

// maxReason is how long a reason may be on the wire, in bytes.
const maxReason = 1024

// line returns the text without control characters, cut to maxReason: the runtime of
// the containers has written parts of it.
func line(text string) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, text)
	return strings.ToValidUTF8(text[:min(len(text), maxReason)], "") // without half a character
}

// Update returns the report of the deployment whose ReplicaSet has the name.
func Update(name string, instances []Instance) *ctrlv1.ReportDeploymentStatusRequest_Update {
	update := &ctrlv1.ReportDeploymentStatusRequest_Update{K8SName: name}
	for _, i := range instances {
		update.Instances = append(update.Instances, &ctrlv1.ReportDeploymentStatusRequest_Update_Instance{
			K8SName:       i.Name,
			Address:       i.Address,
			CpuMillicores: i.CPUMillicores,
			MemoryMib:     i.MemoryMiB,
			Status:        i.Status,
			Reason:        line(i.Reason),
			Restarts:      i.Restarts,
		})
	}
	return update
}
