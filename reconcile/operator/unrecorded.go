package operator

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed-9e1ffd66/trueup/reconcile/kube"
)

// unrecorded are the objects whose status cannot be written for lack of a right or of a field or
// subresource in the definition: what is wrong with them cannot be there. It is safe for concurrent
// use.
type unrecorded struct {
	mu      sync.Mutex
	objects map[types.NamespacedName]error
}

// note keeps the error of a write of a status. Another error may pass, and says nothing.
func (u *unrecorded) note(key types.NamespacedName, err error) {
	lasting := apierrors.IsForbidden(err) || apierrors.IsNotFound(err) || errors.Is(err, kube.ErrDropped)
	u.mu.Lock()
	defer u.mu.Unlock()
	switch {
	case err == nil:
		delete(u.objects, key)
	case lasting && u.objects == nil:
		u.objects = map[types.NamespacedName]error{key: err}
	case lasting:
		u.objects[key] = err
	}
}

// err is the error of the first object, and how many there are.
func (u *unrecorded) err() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.objects) == 0 {
		return nil
	}
	first := slices.MinFunc(slices.Collect(maps.Keys(u.objects)), func(a, b types.NamespacedName) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	if more := len(u.objects) - 1; more > 0 {
		return fmt.Errorf("%w (and %d more)", u.objects[first], more)
	}
	return u.objects[first]
}
