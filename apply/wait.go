package apply

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/seed-9e1ffd66/trueup/apply/internal/view"
	"github.com/seed-9e1ffd66/trueup/apply/internal/write"
	"github.com/seed-9e1ffd66/trueup/apply/readiness"
	"github.com/seed-9e1ffd66/trueup/internal/versions"
)

// readiness returns the status of an object of a set. It reads the object, again if it
// has changed since the last read, unless its metadata shows the status. An object that
// the view does not show is read only if the set leaves it to others. The item is nil if
// the set does not apply the object.
func (a *Applier) readiness(ctx context.Context, id ID, it *item) (status, error) {
	unknown := func(message string) (status, error) {
		return status{Result: readiness.Result{Status: readiness.Unknown, Message: message}}, nil
	}
	v := a.Live.registry.view(id.GroupKind())
	if v == nil {
		return unknown("its kind is not watched")
	}
	look := v.Look(view.NameOf(id.Namespace, id.Name))
	var now status
	switch {
	case look.Mapping == nil:
		return unknown("its kind is not known yet")
	case look.Found:
		now.uid, now.version = look.Record.UID(), look.Record.Version()
		if it != nil && it.static {
			if now.Status = readiness.Current; look.Record.Deleting() {
				now.Result = readiness.Result{Status: readiness.Terminating, Message: "is being deleted"}
			}
			return now, nil
		}
		if known, ok := a.Live.statuses.get(id, now.uid, now.version); ok {
			return known, nil
		}
	case it != nil:
		if a.Live.finished.done(it, time.Now()) {
			return status{Result: readiness.Result{Status: readiness.Current, Message: "completed, and removed by its TTL"}}, nil
		}
		if it.policy == KeepAsStated {
			return unknown("it does not exist")
		}
	}
	t := &write.Target{Resource: look.Mapping.Resource, Namespace: id.Namespace, Name: id.Name}
	object, err := a.writer.Look(ctx, t)
	whole, isWhole := object.(*unstructured.Unstructured)
	switch {
	case write.Gone(err):
		return unknown("it does not exist")
	case err != nil:
		return status{}, err
	case !isWhole:
		return unknown("only its metadata is known")
	}
	found := status{uid: string(object.GetUID()), version: versionOf(object), shown: now.version, Result: readiness.Of(whole)}
	if look.Found {
		a.Live.statuses.set(id, found)
	}
	return found, nil
}

func versionOf(object metav1.Object) uint64 { return versions.Parse(object.GetResourceVersion()) }

// NotReadyError names what [Applier.WaitReady] still waits for.
type NotReadyError struct {
	// Objects has each object that is not ready, and why.
	Objects map[ID]readiness.Result
}

func (e *NotReadyError) Error() string {
	lines := make([]string, 0, len(e.Objects))
	for _, id := range slices.SortedFunc(maps.Keys(e.Objects), ID.Compare) {
		r := e.Objects[id]
		lines = append(lines, fmt.Sprintf("%s is %s: %s", id, r.Status, r.Message))
	}
	return strings.Join(lines, "\n")
}

// Readiness returns the status of the objects of the set, as readiness.Of reads it from
// the live object: of all, or of those kinds. An object is read once, and then
// only when the watch has shown a change of it: at rest the call costs no request. An
// object whose metadata shows its status ([readiness.InMetadata]) is not read at all, if
// the watch shows it. It needs Objects. If a request fails, its error is returned with the
// statuses read so far.
func (a *Applier) Readiness(ctx context.Context, set *Set, kinds ...schema.GroupKind) (map[ID]readiness.Result, error) {
	if err := a.acceptReading(set); err != nil {
		return nil, err
	}
	found := make(map[ID]readiness.Result, len(set.items))
	for i := range set.items {
		id := set.items[i].id
		if len(kinds) > 0 && !slices.Contains(kinds, id.GroupKind()) {
			continue
		}
		s, err := a.readiness(ctx, id, &set.items[i])
		if err != nil {
			return found, fmt.Errorf("%s: %w", id, err)
		}
		found[id] = s.Result
	}
	return found, nil
}

func (a *Applier) acceptReading(set *Set) error {
	if err := a.accept(set); err != nil {
		return err
	}
	if a.Objects == nil {
		return errors.New("apply: Applier.Objects: is required for readiness")
	}
	return nil
}

// WaitReady returns nil once every object of the set is ready (readiness.Of). An
// object is read as often as by [Applier.Readiness]. When ctx ends first, or an object has failed, the error is a [*NotReadyError] with all
// that are not ready. Any other error is a failed request. It may run beside Apply, and
// needs Objects.
func (a *Applier) WaitReady(ctx context.Context, set *Set) error {
	if err := a.acceptReading(set); err != nil {
		return err
	}
	views, done := a.use(set)
	defer done()
	changed := make(chan struct{}, 1)
	defer func() {
		for i := range set.items {
			views[set.items[i].group].Forget(set.items[i].at, &changed)
		}
	}()
	for {
		missing := map[ID]readiness.Result{}
		for i := range set.items {
			it := &set.items[i]
			found, err := a.readiness(ctx, it.id, it)
			switch {
			case err != nil && ctx.Err() != nil:
				found.Result = readiness.Result{Status: readiness.Unknown, Message: "it was not read in time"}
			case err != nil:
				return fmt.Errorf("%s: %w", it.id, err)
			case found.Status == readiness.Current:
				continue
			}
			missing[it.id] = found.Result
			views[it.group].Await(it.at, found.version, &changed, func() {
				select {
				case changed <- struct{}{}:
				default:
				}
			})
		}
		if len(missing) == 0 {
			return nil
		}
		for _, r := range missing {
			if r.Status == readiness.Failed {
				return &NotReadyError{missing}
			}
		}
		select {
		case <-ctx.Done():
			return &NotReadyError{missing}
		case <-changed:
		}
	}
}
