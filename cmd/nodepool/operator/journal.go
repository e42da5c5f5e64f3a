package operator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed-9e1ffd66/trueup/cloud"
	"github.com/seed-9e1ffd66/trueup/cmd/api/stratos/v1alpha1"
	"github.com/seed-9e1ffd66/trueup/internal/versions"
)

// errJournal means that another process has written launches, as after this one has lost the
// Lease: nothing is launched then.
var errJournal = errors.New("the launches of the pool were changed by another process")

// journal keeps the launches of a pool in its status, where they survive the process. It
// implements [cloud.Journal]: a launch is recorded before the cloud is asked, so that one
// whose answer is lost is found again by its ordinal and not made twice.
type journal struct {
	write func(ctx context.Context, pool *v1alpha1.NodePool, update func(*v1alpha1.NodePool)) error

	mu       sync.Mutex
	known    bool
	launches []v1alpha1.Launch
	ordinal  int64
	pool     *v1alpha1.NodePool // as it was seen or written last
}

// open takes in the pool as a pass sees it. What this process wrote itself is newer than
// what the pass sees.
func (j *journal) open(pool *v1alpha1.NodePool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if !j.known {
		j.known, j.launches, j.ordinal = true, pool.Status.Launches, pool.Status.LastOrdinal
	}
	if j.pool == nil || versions.Parse(j.pool.ResourceVersion) < versions.Parse(pool.ResourceVersion) {
		j.pool = copyOf(pool)
	}
}

// intents returns the launches that are recorded, and the highest ordinal.
func (j *journal) intents() ([]cloud.LaunchIntent, int64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	out := make([]cloud.LaunchIntent, 0, len(j.launches))
	for _, l := range j.launches {
		out = append(out, cloud.LaunchIntent{
			Operation: l.Operation,
			Ordinal:   l.Ordinal,
			Attempt:   l.Attempt,
			Template:  l.Template,
			Hash:      l.Hash,
			Count:     int(l.Count),
			IDs:       slices.Clone(l.InstanceIDs),
			Since:     l.Since.Time,
		})
	}
	return out, j.ordinal
}

// Record implements [cloud.Journal].
func (j *journal) Record(ctx context.Context, i cloud.LaunchIntent) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	launches := slices.DeleteFunc(slices.Clone(j.launches), func(l v1alpha1.Launch) bool { return l.Ordinal == i.Ordinal })
	launches = append(launches, v1alpha1.Launch{
		Operation:   i.Operation,
		Ordinal:     i.Ordinal,
		Attempt:     i.Attempt,
		Template:    i.Template,
		Hash:        i.Hash,
		Count:       int32(i.Count),
		InstanceIDs: i.IDs,
		Since:       metav1.NewTime(i.Since), //nolint:gosec // at most 1000
	})
	return j.change(ctx, launches, max(j.ordinal, i.Ordinal))
}

// Erase implements [cloud.Journal].
func (j *journal) Erase(ctx context.Context, operation string) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	launches := slices.DeleteFunc(slices.Clone(j.launches), func(l v1alpha1.Launch) bool { return l.Operation == operation })
	if len(launches) == len(j.launches) {
		return nil
	}
	return j.change(ctx, launches, j.ordinal)
}

// change writes the launches, unless they are not those that this process knows.
func (j *journal) change(ctx context.Context, launches []v1alpha1.Launch, ordinal int64) error {
	if j.pool == nil {
		return errors.New("the journal is not open")
	}
	pool, conflict := copyOf(j.pool), false
	err := j.write(ctx, pool, func(p *v1alpha1.NodePool) {
		conflict = p.Status.LastOrdinal != j.ordinal || !sameLaunches(p.Status.Launches, j.launches)
		if conflict {
			return
		}
		p.Status.Launches, p.Status.LastOrdinal = launches, ordinal
	})
	if err == nil && conflict {
		err = errJournal
	}
	if err == nil && !sameLaunches(pool.Status.Launches, launches) {
		err = fmt.Errorf("pool %s is gone or was changed: %w", pool.Name, errJournal)
	}
	if err != nil {
		// The write may have arrived all the same: the next pass reads what there is.
		j.known = false
		j.pool = nil
		return err
	}
	j.launches, j.ordinal, j.pool = launches, ordinal, pool
	return nil
}

func sameLaunches(a, b []v1alpha1.Launch) bool {
	return slices.EqualFunc(a, b, func(a, b v1alpha1.Launch) bool {
		a.Since, b.Since = metav1.NewTime(a.Since.Truncate(time.Second)), metav1.NewTime(b.Since.Truncate(time.Second))
		return a.Since.Time.Equal(b.Since.Time) && equalBut(a, b)
	})
}

func equalBut(a, b v1alpha1.Launch) bool {
	a.Since, b.Since = metav1.Time{}, metav1.Time{}
	return equality.Semantic.DeepEqual(a, b)
}

// copyOf returns a pool whose status can be changed without the other's.
func copyOf(p *v1alpha1.NodePool) *v1alpha1.NodePool {
	c := *p
	c.ObjectMeta = *p.DeepCopy()
	c.Status.Launches, c.Status.Conditions = slices.Clone(p.Status.Launches), slices.Clone(p.Status.Conditions)
	c.Status.Regions, c.Status.PodAssignments = slices.Clone(p.Status.Regions), slices.Clone(p.Status.PodAssignments)
	return &c
}
