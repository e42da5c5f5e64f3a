package apply

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
)

// statuses remembers the readiness of objects, each as of one version.
type statuses struct {
	mu sync.Mutex
	by map[ID]versioned
}

type versioned struct {
	uid       string
	version   uint64
	readiness Readiness
	read      time.Time
}

// rereadAfter is how long what was read holds of an object that the view does not
// show, so that no event tells of it.
const rereadAfter = time.Second

// await returns why an object has to wait for what it depends on, nil when
// everything is ready. What is not ready starts a pass when it changes.
func (p *pass) await(ctx context.Context, it *item) error {
	if p.Objects == nil {
		return nil
	}
	for _, id := range it.after {
		found, err := p.readiness(ctx, id)
		if err != nil {
			return fmt.Errorf("%w: looking at %s, which it depends on: %w", ErrBlocked, id, err)
		}
		if r := found.readiness; r.Status != StatusCurrent {
			if v := p.Live.views[id.GroupKind()]; v != nil {
				v.await(name{id.Namespace, id.Name}, found.version)
			}
			return fmt.Errorf("%w: it depends on %s, which is %s: %s", ErrBlocked, id, r.Status, r.Message)
		}
	}
	return nil
}

// readiness reads the status of one of our objects, anew if it has changed since
// it was last read.
func (a *Applier) readiness(ctx context.Context, id ID) (versioned, error) {
	v := a.Live.views[id.GroupKind()]
	if v == nil {
		return versioned{readiness: Readiness{StatusUnknown, "its kind is not watched: add it to Live.Kinds"}}, nil
	}
	if !v.resolved() {
		return versioned{readiness: Readiness{StatusUnknown, "its kind is not known yet"}}, nil
	}
	var now versioned
	v.read(name{id.Namespace, id.Name}, func(r *record) {
		if r != nil {
			now.uid, now.version = r.uid.String(), r.version
		}
	})
	known, ok := a.statuses.get(id)
	switch {
	case !ok:
	case now.uid == "" && time.Since(known.read) < rereadAfter, now.uid != "" && known.uid == now.uid && known.version >= now.version:
		return known, nil
	}
	object, err := a.object(v, id).Get(ctx, id.Name, metav1.GetOptions{})
	found := versioned{readiness: Readiness{StatusUnknown, "it does not exist"}, read: time.Now()}
	switch {
	case err == nil:
		found.uid, found.version = string(object.GetUID()), parseVersion(object.GetResourceVersion())
		found.readiness = ReadinessOf(object)
	case !apierrors.IsNotFound(err):
		return versioned{}, err
	}
	a.statuses.set(id, found)
	return found, nil
}

func (s *statuses) get(id ID) (versioned, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	found, ok := s.by[id]
	return found, ok
}

func (s *statuses) set(id ID, found versioned) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.by == nil {
		s.by = map[ID]versioned{}
	}
	s.by[id] = found
}

func (s *statuses) forget(set *Set) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.by, func(id ID, _ versioned) bool { return !set.Has(id) })
}

// NotReadyError says what [Applier.WaitReady] still waits for.
type NotReadyError struct {
	// Objects are those that are not ready, and why.
	Objects map[ID]Readiness
}

func (e *NotReadyError) Error() string {
	lines := make([]string, 0, len(e.Objects))
	for _, id := range slices.SortedFunc(maps.Keys(e.Objects), ID.Compare) {
		r := e.Objects[id]
		lines = append(lines, fmt.Sprintf("%s is %s: %s", id, r.Status, r.Message))
	}
	return strings.Join(lines, "\n")
}

// WaitReady returns nil once every object of the set is ready ([ReadinessOf]). An
// object is read once, and then only when the watch has told of a change to it; one
// that the watch does not show is read every second. When ctx ends first, or an
// object has failed, the error is a [*NotReadyError] with all that are not ready;
// otherwise it is that of a request. It may run beside Apply, and needs Objects.
func (a *Applier) WaitReady(ctx context.Context, set *Set) error {
	if err := a.prepare(set); err != nil {
		return err
	}
	if a.Objects == nil {
		return errors.New("apply: Applier.Objects: required to see what is ready")
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		missing, err := a.missingReadiness(ctx, set)
		if err != nil {
			return err
		}
		if len(missing) == 0 {
			return nil
		}
		for _, r := range missing {
			if r.Status == StatusFailed {
				return &NotReadyError{missing}
			}
		}
		select {
		case <-ctx.Done():
			return &NotReadyError{missing}
		case <-tick.C:
		}
	}
}

// missingReadiness returns the objects that are not ready. It asks the server for
// those only of which the view shows a version that was not read yet.
func (a *Applier) missingReadiness(ctx context.Context, set *Set) (map[ID]Readiness, error) {
	missing := map[ID]Readiness{}
	for i := range set.items {
		id := set.items[i].id
		switch found, err := a.readiness(ctx, id); {
		case err != nil && ctx.Err() != nil:
			missing[id] = Readiness{StatusUnknown, "it was not read in time"}
		case err != nil:
			return nil, fmt.Errorf("%s: %w", id, err)
		case found.readiness.Status != StatusCurrent:
			missing[id] = found.readiness
		}
	}
	return missing, nil
}

// object reaches whole objects of a kind, in the object's namespace.
func (a *Applier) object(v *view, id ID) dynamic.ResourceInterface {
	v.mu.RLock()
	defer v.mu.RUnlock()
	resource := a.Objects.Resource(v.mapping.Resource)
	if id.Namespace == "" {
		return resource
	}
	return resource.Namespace(id.Namespace)
}
