package operator

import (
	"context"
	"errors"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/seed-9e1ffd66/trueup/cmd/api/thurkube/v1alpha1"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube"
)

// cached reads references from the cache of a controller.
type cached struct {
	ctx context.Context //nolint:containedctx // it ends with the pass
	op  *operator
}

func (c cached) lookup(at kube.Reference, target any) error {
	o, err := c.op.jobs.Lookup(at)
	if err != nil {
		return err
	}
	if o.GetDeletionTimestamp() != nil {
		return kube.ErrAbsent
	}
	return into(o.Object, target)
}

func (c cached) keys(at kube.Reference) (map[string]bool, error) {
	o, err := c.op.jobs.Lookup(at)
	if errors.Is(err, kube.ErrAbsent) {
		c.op.names.forget(at)
	}
	if err != nil {
		return nil, err
	}
	return c.op.names.of(c.ctx, at, o)
}

// keyNames remembers which keys each Secret and ConfigMap has that is used, for as long
// as its version stays. It holds no value of any.
type keyNames struct {
	client dynamic.Interface

	mu    sync.Mutex
	known map[kube.Reference]versionKeys
}

// versionKeys are the keys of one version of a Secret or ConfigMap.
type versionKeys struct {
	uid     types.UID
	version string
	keys    map[string]bool
}

func (s *keyNames) forget(at kube.Reference) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.known, at)
}

func (s *keyNames) of(ctx context.Context, at kube.Reference, seen metav1.Object) (map[string]bool, error) {
	s.mu.Lock()
	found, ok := s.known[at]
	s.mu.Unlock()
	if ok && found.uid == seen.GetUID() && found.version == seen.GetResourceVersion() {
		return found.keys, nil
	}
	o, err := s.client.Resource(at.Resource).Namespace(at.Namespace).Get(ctx, at.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, kube.ErrAbsent
	}
	if err != nil {
		return nil, fmt.Errorf("read %s %s/%s: %w", at.Resource.Resource, at.Namespace, at.Name, err)
	}
	keys := map[string]bool{}
	for _, field := range []string{"data", "binaryData"} {
		data, _ := o.Object[field].(map[string]any)
		for key := range data {
			keys[key] = true
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known == nil {
		s.known = map[kube.Reference]versionKeys{}
	}
	// What was read may be newer than what the cache shows: the next event of the object
	// then reads it once more.
	s.known[at] = versionKeys{seen.GetUID(), seen.GetResourceVersion(), keys}
	return keys, nil
}

// claimSizes grows volumes. Each is read once, and again when its job states another
// size.
type claimSizes struct {
	client dynamic.Interface

	mu   sync.Mutex
	seen map[types.UID]string
}

// grow raises the size of a job's volume to the stated size. It never shrinks it.
func (c *claimSizes) grow(ctx context.Context, job *v1alpha1.AgentJob) error {
	want := job.Spec.Storage.Size
	c.mu.Lock()
	done := c.seen[job.UID] == want.String()
	c.mu.Unlock()
	if done {
		return nil
	}
	claims := c.client.Resource(corev1.SchemeGroupVersion.WithResource("persistentvolumeclaims")).Namespace(job.Namespace)
	o, err := claims.Get(ctx, claimName(job.Name), metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("read the volume: %w", err)
	}
	var claim corev1.PersistentVolumeClaim
	if err := into(o.Object, &claim); err != nil {
		return err
	}
	if has := claim.Spec.Resources.Requests[corev1.ResourceStorage]; has.Cmp(want) < 0 {
		if err := c.raise(ctx, job, &claim, want); err != nil {
			return err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.seen == nil {
		c.seen = map[types.UID]string{}
	}
	c.seen[job.UID] = want.String()
	return nil
}

func (c *claimSizes) raise(ctx context.Context, job *v1alpha1.AgentJob, claim *corev1.PersistentVolumeClaim, to resource.Quantity) error {
	patch := fmt.Sprintf(
		`{"metadata":{"uid":%q,"resourceVersion":%q},"spec":{"resources":{"requests":{"storage":%q}}}}`,
		claim.UID,
		claim.ResourceVersion,
		to.String(),
	)
	_, err := c.client.Resource(corev1.SchemeGroupVersion.WithResource("persistentvolumeclaims")).Namespace(job.Namespace).
		Patch(ctx, claim.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{FieldManager: manager})
	if apierrors.IsInvalid(err) || apierrors.IsForbidden(err) {
		return errors.Join(errInvalid, fmt.Errorf("spec.storage.size: the volume cannot grow: %w", err))
	}
	return err
}

func (c *claimSizes) forget(job types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.seen, job)
}
