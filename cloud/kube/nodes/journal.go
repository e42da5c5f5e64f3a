package nodes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed-9e1ffd66/trueup/cloud"
	"github.com/seed-9e1ffd66/trueup/internal/versions"
)

// ErrJournal means that another process has written launches, as after this one has lost the
// Lease, or that the object is gone: nothing is launched then.
var ErrJournal = errors.New("the launches of the pool were changed by another process")

// A Journal keeps the launches of a pool in the status of its object, where they survive the
// process. It implements [cloud.Journal]: a launch is recorded before the cloud is asked, so that
// one whose answer is lost is found again by its ordinal and not made twice. It is safe for
// concurrent use. Times are kept in whole seconds.
type Journal[T metav1.Object] struct {
	// Write changes the status of an object, and leaves in object what the server has then, as
	// kube.Status.Update does: update may run again, on a newer object. Required.
	Write func(ctx context.Context, object T, update func(T)) error
	// Get reads the launches and the highest ordinal from a status, Set writes them. Required.
	Get func(T) ([]cloud.LaunchIntent, int64)
	Set func(object T, launches []cloud.LaunchIntent, ordinal int64)
	// Copy returns an object whose status can be changed without the other's. Required.
	Copy func(T) T

	mu       sync.Mutex
	known    bool
	launches []cloud.LaunchIntent
	ordinal  int64
	open     bool
	failed   error // of the last write, until Open
	object   T     // as it was seen or written last
}

// Open takes in the object as a pass sees it. What this process wrote itself is newer than
// what the pass sees.
func (j *Journal[T]) Open(object T) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if !j.known {
		j.launches, j.ordinal = j.Get(object)
		j.known = true
	}
	if !j.open || versions.Parse(j.object.GetResourceVersion()) < versions.Parse(object.GetResourceVersion()) {
		j.object, j.open, j.failed = j.Copy(object), true, nil
	}
}

// Intents returns the launches that are recorded, and the highest ordinal.
func (j *Journal[T]) Intents() ([]cloud.LaunchIntent, int64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.launches), j.ordinal
}

// Record implements [cloud.Journal].
func (j *Journal[T]) Record(ctx context.Context, i cloud.LaunchIntent) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	launches := slices.DeleteFunc(slices.Clone(j.launches), func(l cloud.LaunchIntent) bool { return l.Ordinal == i.Ordinal })
	return j.change(ctx, append(launches, i), max(j.ordinal, i.Ordinal))
}

// Erase implements [cloud.Journal].
func (j *Journal[T]) Erase(ctx context.Context, operation string) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	launches := slices.DeleteFunc(slices.Clone(j.launches), func(l cloud.LaunchIntent) bool { return l.Operation == operation })
	if len(launches) == len(j.launches) {
		return nil
	}
	return j.change(ctx, launches, j.ordinal)
}

// change writes the launches, unless they are not those that this process knows.
func (j *Journal[T]) change(ctx context.Context, launches []cloud.LaunchIntent, ordinal int64) error {
	if !j.open {
		return cmp.Or(j.failed, errors.New("the journal is not open"))
	}
	object, conflict := j.Copy(j.object), false
	err := j.Write(ctx, object, func(o T) {
		stored, last := j.Get(o)
		if conflict = last != j.ordinal || !sameLaunches(stored, j.launches); !conflict {
			j.Set(o, launches, ordinal)
		}
	})
	if err == nil && conflict {
		err = ErrJournal
	}
	if stored, _ := j.Get(object); err == nil && !sameLaunches(stored, launches) {
		err = fmt.Errorf("pool %s is gone or was changed: %w", object.GetName(), ErrJournal)
	}
	if err != nil {
		// The write may have arrived all the same: the next pass reads what there is.
		j.known, j.open, j.failed = false, false, err
		return err
	}
	j.launches, j.ordinal, j.object = launches, ordinal, object
	return nil
}

func sameLaunches(a, b []cloud.LaunchIntent) bool {
	return slices.EqualFunc(a, b, func(a, b cloud.LaunchIntent) bool {
		return a.Operation == b.Operation && a.Ordinal == b.Ordinal && a.Attempt == b.Attempt && a.Template == b.Template && a.Hash == b.Hash &&
			a.Count == b.Count && slices.Equal(a.IDs, b.IDs) && a.Since.Truncate(time.Second).Equal(b.Since.Truncate(time.Second))
	})
}
