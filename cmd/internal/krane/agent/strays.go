package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed-9e1ffd66/trueup/apply"
	ctrlv1 "github.com/seed-9e1ffd66/trueup/cmd/api/ctrl/v1"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/krane/stream"
	"github.com/seed-9e1ffd66/trueup/reconcile"
	"github.com/seed-9e1ffd66/trueup/statesync"
)

// absence is since when, and in how many proven lists, an object was absent.
type absence struct {
	first time.Time
	lists int
}

// sweeper deletes what is absent from two proven lists that lie far enough apart.
type sweeper struct {
	run *run
	// grace is how far apart.
	grace time.Duration
	// window is the time within which the limit holds.
	window time.Duration
	// percent is the limit, never fewer than least.
	percent int

	lists   map[stream.Collection]uint64 // the last list that was looked at
	absent  map[types.UID]absence
	deleted []time.Time // within the window
	held    map[stream.Collection]map[string]int
}

const least = 5

func newSweeper(r *run) *sweeper {
	return &sweeper{
		run: r, grace: r.Periods.Absence, window: r.Periods.Window, percent: r.Config.MaxDeletePercent,
		lists: map[stream.Collection]uint64{}, absent: map[types.UID]absence{}, held: map[stream.Collection]map[string]int{},
	}
}

// Reconcile implements reconcile.Reconciler: a look at each list that is new.
func (s *sweeper) Reconcile(ctx context.Context) (reconcile.Result, error) {
	defer s.publish()
	snapshots := map[stream.Collection]statesync.Snapshot{}
	for _, r := range resources() {
		snapshot, complete := s.run.replicas[r.collection].Complete()
		if !complete {
			return reconcile.Result{}, nil // one that does not know is reason for doubt about all
		}
		snapshots[r.collection] = snapshot
	}
	for _, r := range resources() {
		snapshot := snapshots[r.collection]
		if snapshot.Lists == s.lists[r.collection] {
			continue
		}
		if !s.run.parts[r.component].known() {
			continue // the list is looked at when what is there is known
		}
		s.lists[r.collection] = snapshot.Lists
		if err := s.sweep(ctx, r, snapshot); err != nil {
			s.run.Logger.WarnContext(ctx, "strays not deleted", slog.String("collection", string(r.collection)), slog.Any("error", err))
		}
	}
	return reconcile.Result{}, nil
}

// sweep looks for objects that a list does not contain.
func (s *sweeper) sweep(ctx context.Context, r resource, snapshot statesync.Snapshot) error {
	held := map[string]int{}
	s.held[r.collection] = held
	live, err := liveIDs(r, snapshot)
	if err != nil {
		return err
	}
	strays, roots := s.strays(r, snapshot, live)
	if len(strays) == 0 {
		return nil
	}
	if len(live) == 0 {
		// Nothing is wanted, which is more often a mistake than a wish.
		held["empty"] = len(strays)
		s.forgive(strays)
		return nil
	}
	due := map[types.UID]bool{}
	for uid := range strays {
		a := s.absent[uid]
		if a.lists == 0 {
			a.first = snapshot.Listed
		}
		a.lists++
		s.absent[uid] = a
		if a.lists >= 2 && snapshot.Listed.Sub(a.first) >= s.grace {
			due[uid] = true
		} else {
			held["grace"]++
		}
	}
	if len(due) == 0 {
		return nil
	}
	allowed := s.allowance(roots, snapshot.Listed)
	if len(due) > allowed {
		held["limit"] = len(due)
		s.run.Logger.WarnContext(ctx, "deletions held", slog.String("collection", string(r.collection)), slog.Int("wanted", len(due)), slog.Int("limit", allowed))
		return nil
	}
	ids := make([]apply.ID, 0, len(due))
	for uid := range due {
		ids = append(ids, strays[uid])
	}
	report, err := s.run.parts[r.component].remove(ctx, ids, apply.Limit{Count: len(due)})
	for _, result := range report.Results {
		if result.Action != apply.Deleted {
			continue
		}
		s.deleted = append(s.deleted, time.Now())
		s.run.Logger.InfoContext(ctx, "stray deleted", slog.String("object", result.ID.String()))
		if r.isRoot(result.ID) {
			s.run.reporter.lost(r.key(result.ID))
		}
	}
	for _, result := range report.Results {
		if errors.Is(result.Err, apply.ErrNotOurs) {
			held["unproven"]++
		}
	}
	return err
}

// strays returns the objects of a resource that the list does not want, and how
// many roots there are in all. What belongs to a root goes with it, so it counts
// only when there is none.
func (s *sweeper) strays(r resource, snapshot statesync.Snapshot, live map[string]bool) (strays map[types.UID]apply.ID, roots int) {
	strays = map[types.UID]apply.ID{}
	rooted := map[string]bool{}
	p := s.run.parts[r.component]
	for o := range p.live.All() {
		if r.isRoot(o.ID) {
			roots++
			rooted[o.Label(r.label)] = true
		}
	}
	for o := range p.live.All() {
		wanted := live[o.Label(r.label)] || rooted[o.Label(r.label)]
		if r.isRoot(o.ID) {
			item, listed := snapshot.Items[r.key(o.ID)]
			wanted = listed && !item.Deleted
			// A delete message is its own order, and somebody is at it.
			wanted = wanted || listed && !s.run.book.wish(r.key(o.ID)).gone
		}
		if wanted || o.Deleting {
			delete(s.absent, o.UID)
			continue
		}
		strays[o.UID] = o.ID
	}
	return strays, roots
}

// forgive forgets how long the objects were absent.
func (s *sweeper) forgive(strays map[types.UID]apply.ID) {
	for uid := range strays {
		delete(s.absent, uid)
	}
}

// allowance returns how many objects may go now.
func (s *sweeper) allowance(roots int, now time.Time) int {
	s.deleted = slices.DeleteFunc(s.deleted, func(at time.Time) bool { return now.Sub(at) >= s.window })
	return max(0, max(least, roots*s.percent/100)-len(s.deleted))
}

// publish sets the metric.
func (s *sweeper) publish() {
	sums := map[string]int{"grace": 0, "limit": 0, "empty": 0, "unproven": 0}
	for _, held := range s.held {
		for reason, n := range held {
			sums[reason] += n
		}
	}
	for _, reason := range slices.Sorted(maps.Keys(sums)) {
		s.run.metrics.held.WithLabelValues(reason).Set(float64(sums[reason]))
	}
}

// liveIDs returns the ids of what a list wants to be.
func liveIDs(r resource, snapshot statesync.Snapshot) (map[string]bool, error) {
	ids := map[string]bool{}
	for key, item := range snapshot.Items {
		if item.Deleted {
			continue
		}
		m := r.message()
		if err := stream.Decode(item, m); err != nil {
			return nil, fmt.Errorf("what %s wants is unknown: %w", key, err)
		}
		ids[idOfMessage(m)] = true
	}
	return ids, nil
}

// idOfMessage returns the id that an apply message gives its objects.
func idOfMessage(m proto.Message) string {
	switch m := m.(type) {
	case *ctrlv1.ApplyDeployment:
		return m.GetDeploymentId()
	case *ctrlv1.ApplySentinel:
		return m.GetSentinelId()
	case *ctrlv1.ApplyCiliumNetworkPolicy:
		return m.GetCiliumNetworkPolicyId()
	default:
		return ""
	}
}
