package kubelet

import (
	"context"
	"encoding/json"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// RunPods runs the pods of a Ready Node until ctx ends: they are Running at once, and gone
// at once when they are deleted.
func (k *Kubelet) RunPods(ctx context.Context) {
	for {
		failed := false
		for _, pod := range k.bound(ctx) {
			var err error
			switch {
			case pod.DeletionTimestamp != nil:
				err = k.removePod(ctx, pod)
			case pod.Status.Phase == corev1.PodPending:
				err = k.patchPod(ctx, pod, k.runningPod(pod))
			}
			if err != nil && ctx.Err() == nil {
				k.cluster.log.WarnContext(ctx, "running a pod", slog.String("pod", pod.Namespace+"/"+pod.Name), slog.Any("err", err))
				failed = true
			}
		}
		retry := make(<-chan time.Time)
		if failed {
			retry = time.After(retryEvery)
		}
		select {
		case <-ctx.Done():
			return
		case <-k.wake:
		case <-retry:
		}
	}
}

func (k *Kubelet) bound(ctx context.Context) []*corev1.Pod {
	objects, err := k.cluster.pods.GetIndexer().ByIndex(byNode, k.Node)
	if err != nil {
		k.cluster.log.ErrorContext(ctx, "finding pods", slog.Any("err", err))
	}
	var pods []*corev1.Pod
	for _, o := range objects {
		if pod, ok := o.(*corev1.Pod); ok {
			pods = append(pods, pod)
		}
	}
	return pods
}

// losePods ends the pods that are still on a machine when it ends: terminating pods are
// deleted, the others fail, as after a graceful shutdown of a kubelet.
func (k *Kubelet) losePods(ctx context.Context) error {
	for _, pod := range k.bound(ctx) {
		switch {
		case pod.DeletionTimestamp != nil:
			if err := k.removePod(ctx, pod); err != nil {
				return err
			}
		case pod.Status.Phase == corev1.PodRunning:
			k.cluster.log.InfoContext(ctx, "a pod is lost with its machine", slog.String("pod", pod.Namespace+"/"+pod.Name))
			if err := k.patchPod(
				ctx,
				pod,
				corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Terminated", Message: "Pod was terminated in response to imminent node shutdown."},
			); err != nil {
				return err
			}
		}
	}
	return nil
}

func (k *Kubelet) removePod(ctx context.Context, pod *corev1.Pod) error {
	err := k.cluster.client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
		GracePeriodSeconds: new(int64), Preconditions: &metav1.Preconditions{UID: &pod.UID},
	})
	return ignoreGone(err)
}

func (k *Kubelet) patchPod(ctx context.Context, pod *corev1.Pod, status corev1.PodStatus) error {
	// The UID makes a write to the successor of the pod a conflict.
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": pod.UID}, "status": status})
	if err != nil {
		return err
	}
	_, err = k.cluster.client.CoreV1().
		Pods(pod.Namespace).
		Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	return ignoreGone(err)
}

func ignoreGone(err error) error {
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

func (k *Kubelet) runningPod(pod *corev1.Pod) corev1.PodStatus {
	started := metav1.Now()
	status := corev1.PodStatus{Phase: corev1.PodRunning, HostIP: k.IP, PodIP: k.IP, StartTime: &started}
	for _, kind := range []corev1.PodConditionType{corev1.PodInitialized, corev1.PodReady, corev1.ContainersReady} {
		status.Conditions = append(status.Conditions, corev1.PodCondition{Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: started})
	}
	running := true
	for _, c := range pod.Spec.Containers {
		status.ContainerStatuses = append(status.ContainerStatuses, corev1.ContainerStatus{
			Name: c.Name, Image: c.Image, Ready: true, Started: &running,
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: started}},
		})
	}
	return status
}
