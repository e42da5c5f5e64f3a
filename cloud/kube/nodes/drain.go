package nodes

import (
	"context"
	"errors"
	"fmt"

	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/seed-9e1ffd66/trueup/internal/parallel"
)

// evictionsAtOnce is how many pods of one Node are evicted at a time.
const evictionsAtOnce = 8

// Drain implements [cloud.Nodes]. Pods that are being deleted are waited for.
func (m *Marks) Drain(ctx context.Context, name string) (left int, err error) {
	pods := m.Cluster.evictable(name)
	errs := make([]error, len(pods))
	parallel.Each(len(pods), evictionsAtOnce, func(i int) {
		if !pods[i].terminating {
			errs[i] = m.evict(ctx, pods[i])
		}
	})
	return len(pods), errors.Join(errs...)
}

// evict asks for the eviction of one pod. That a disruption budget forbids it now is no
// error.
func (m *Marks) evict(ctx context.Context, pod podOnNode) error {
	eviction := &policyv1.Eviction{
		TypeMeta:      metav1.TypeMeta{APIVersion: "policy/v1", Kind: "Eviction"},
		ObjectMeta:    metav1.ObjectMeta{Name: pod.key.Name, Namespace: pod.key.Namespace},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &pod.uid}},
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(eviction)
	if err != nil {
		return err
	}
	_, err = m.Client.Resource(podsResource).Namespace(pod.key.Namespace).
		Create(ctx, &unstructured.Unstructured{Object: content}, metav1.CreateOptions{}, "eviction")
	if err == nil || apierrors.IsNotFound(err) || apierrors.IsTooManyRequests(err) || apierrors.IsConflict(err) {
		return nil
	}
	return fmt.Errorf("evict pod %s: %w", pod.key, err)
}
