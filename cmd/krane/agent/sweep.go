package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/seed-9e1ffd66/trueup/apply"
	ctrlv1 "github.com/seed-9e1ffd66/trueup/cmd/api/ctrl/v1"
	"github.com/seed-9e1ffd66/trueup/cmd/krane/stream"
	"github.com/seed-9e1ffd66/trueup/reconcile"
	"github.com/seed-9e1ffd66/trueup/statesync"
)

// absence is since when, and in how many proven lists, an object was absent.
type absence struct {
	first time.Time
	lists int
}

// lastItem is the only live item of a collection, and the position of the last list
// that had it, or of the change that left no other.
type lastItem struct {
	key statesync.Key
	at  statesync.Cursor
}

// sweeper deletes objects that are absent from two proven lists far enough apart.
type sweeper struct {
	streams  *streams
	parts    parts
	registry *registry
	reporter *reporter
	metrics  *metrics
	logger   *slog.Logger
	// grace is how far apart.
	grace    time.Duration
	problems *problems
	// heldChanged is called when other deletions are held than before.
	heldChanged func()
	// ask is [resyncer.denied].
	ask func(ctx context.Context, of resource, id string) error

	guards map[stream.Collection]*apply.Guard
	lists  map[stream.Collection]uint64 // the last list that was compared
	last   map[stream.Collection]lastItem
	absent map[types.UID]absence
	held   map[stream.Collection]map[string]int
	said   map[stream.Collection][]string // why orphans are left

	approvals approvals
}

// init makes the maps, and a guard for each collection: at most 5 deployments, or percent
// of them, within the window. With a folder it is kept there over a restart.
func (s *sweeper) init(percent int, window time.Duration, folder string) {
	s.lists, s.last = map[stream.Collection]uint64{}, map[stream.Collection]lastItem{}
	s.absent, s.held = map[types.UID]absence{}, map[stream.Collection]map[string]int{}
	s.said = map[stream.Collection][]string{}
	s.guards, s.approvals.held = map[stream.Collection]*apply.Guard{}, map[stream.Collection]apply.Held{}
	for _, r := range resources() {
		g := &apply.Guard{Unit: r.unit, Absent: apply.Limit{Count: 5, Percent: percent}, Window: window}
		if folder != "" {
			g.Memory = &apply.FileMemory{Path: filepath.Join(folder, "deletions-"+string(r.collection)+".json")}
		}
		s.guards[r.collection] = g
	}
}

// Reconcile implements reconcile.Reconciler: it compares each list that is new.
func (s *sweeper) Reconcile(ctx context.Context) (reconcile.Result, error) {
	defer s.publish()
	snapshots, complete := s.streams.complete()
	if s.reporter.session.quiet() {
		clear(s.held) // the other agent has its own
		return reconcile.Result{}, nil
	}
	if !complete || s.streams.contact.refused() {
		return reconcile.Result{}, nil
	}
	s.remember(snapshots)
	lost := s.emptied(snapshots)
	for _, r := range resources() {
		snapshot := snapshots[r.collection]
		isNew := snapshot.Lists != s.lists[r.collection]
		if !isNew && s.approvals.approved(r.collection) == "" {
			continue
		}
		if !s.parts[r.component].known() {
			continue // the list is compared once the cluster is observed
		}
		s.lists[r.collection] = snapshot.Lists
		s.say(ctx, r.collection, s.sweep(ctx, r, snapshot, lost, isNew))
	}
	return reconcile.Result{}, nil
}

// say logs why orphans are left, once for each reason: each list has them again.
func (s *sweeper) say(ctx context.Context, collection stream.Collection, err error) {
	var reasons []string
	if err != nil {
		reasons = strings.Split(err.Error(), "\n") // in any order
		slices.Sort(reasons)
	}
	if err != nil && !slices.Equal(reasons, s.said[collection]) {
		s.logger.WarnContext(ctx, "orphans not deleted", slog.String("collection", string(collection)), slog.Any("error", err))
	}
	s.said[collection] = reasons
}

// remember stores the last item of each collection that has no other.
func (s *sweeper) remember(snapshots map[stream.Collection]statesync.Snapshot) {
	for collection, snapshot := range snapshots {
		switch live := liveKeys(snapshot); len(live) {
		case 0: // the stored item is the one that was withdrawn
		case 1:
			// The position moves with lists only: the log goes on when it withdraws the
			// item, which no message names.
			if at, listed := s.streams.list(collection), snapshot.Lists != s.lists[collection]; listed && at.Epoch != "" {
				s.last[collection] = lastItem{live[0], at}
			} else if s.last[collection].key != live[0] {
				s.last[collection] = lastItem{live[0], snapshot.Cursor}
			}
		default:
			delete(s.last, collection)
		}
	}
}

// emptied returns how many collections are empty while the cluster has roots of them.
func (s *sweeper) emptied(snapshots map[stream.Collection]statesync.Snapshot) (n int) {
	for _, r := range resources() {
		if len(liveKeys(snapshots[r.collection])) > 0 {
			continue
		}
		for o := range s.parts[r.component].live.All() {
			if r.isRoot(o.ID) && !o.Deleting {
				n++
				break
			}
		}
	}
	return n
}

// keep removes from orphans all objects that an empty list lacks, except the one that may
// be deleted: the last of its collection, which the log has withdrawn. A list that is empty
// for another reason is more often a mistake than an order. Objects without a root run nothing and are not kept.
func (s *sweeper) keep(r resource, snapshot statesync.Snapshot, orphans map[types.UID]apply.ID, lost int) (held int) {
	last, ok := s.last[r.collection]
	ok = ok && lost == 1 && last.at.Epoch == snapshot.Cursor.Epoch && last.at.Version < snapshot.Cursor.Version
	for uid, id := range orphans {
		if !r.isRoot(id) || ok && r.key(id) == last.key {
			continue
		}
		held++
		delete(orphans, uid)
		delete(s.absent, uid)
	}
	return held
}

// sweep deletes the objects that a list does not contain, once they are due. Lost is
// the number of collections that are empty and were not. A list that is not new proves no
// further absence.
func (s *sweeper) sweep(ctx context.Context, r resource, snapshot statesync.Snapshot, lost int, isNew bool) error {
	held := map[string]int{}
	s.held[r.collection] = held
	defer func() {
		s.kept(ctx, r.collection, held["empty"])
		if held["doubt"] == 0 {
			s.problems.set(doubtsOf(r.collection), "")
		}
	}()
	live, err := liveIDs(r, snapshot)
	if err != nil {
		return err
	}
	orphans := s.orphans(r, snapshot, live)
	if len(orphans) == 0 {
		return s.remove(ctx, r, nil, held) // nothing is held any more
	}
	if len(live) == 0 {
		held["empty"] = s.keep(r, snapshot, orphans, lost)
	}
	due := map[types.UID]bool{}
	for uid := range orphans {
		if s.lasts(uid, snapshot, isNew) {
			due[uid] = true
		} else {
			held["grace"]++
		}
	}
	if len(due) == 0 {
		return nil
	}
	ids := make([]apply.ID, 0, len(due))
	for uid := range due {
		ids = append(ids, orphans[uid])
	}
	ids, doubts := s.undoubted(ctx, r, ids)
	held["doubt"] = len(doubts)
	doubt := errors.Join(doubts...)
	if len(doubts) > 0 {
		s.problems.set(doubtsOf(r.collection), fmt.Sprintf("%d objects are in no list and are not deleted: %s", len(doubts), doubt))
	}
	if len(ids) == 0 {
		return doubt
	}
	return errors.Join(s.remove(ctx, r, ids, held), doubt)
}

// undoubted returns the objects that may be deleted, and an error for each root that may be desired although no list
// has it: a list lacks what the control plane cannot send, such as a row in a state that only a newer version knows.
func (s *sweeper) undoubted(ctx context.Context, r resource, ids []apply.ID) (sure []apply.ID, doubts []error) {
	for _, id := range ids {
		if r.isRoot(id) {
			o, err := s.parts[r.component].live.Get(id)
			if err == nil {
				err = s.ask(ctx, r, o.Label(r.label))
			}
			if err != nil {
				doubts = append(doubts, fmt.Errorf("%s: not deleted: %w", id, err))
				continue
			}
		}
		sure = append(sure, id)
	}
	return sure, doubts
}

// doubtsOf is the resource of the problem about roots that may be desired.
func doubtsOf(collection stream.Collection) string { return string(collection) + " in no list" }

// kept has a person know how many objects are kept since a list is empty: no approval ends that.
func (s *sweeper) kept(ctx context.Context, collection stream.Collection, n int) {
	message := ""
	if n > 0 {
		message = fmt.Sprintf("the list has none, and %d objects are not deleted: an empty list is more often a mistake than an order; "+
			"state what is to stay, or delete each", n)
	}
	if s.problems.set(string(collection), message) && n > 0 {
		s.logger.WarnContext(ctx, "orphans kept: the list is empty", slog.String("collection", string(collection)), slog.Int("objects", n))
	}
}

// lasts notes that a list lacks an object, and reports whether two lists lack it that are far
// enough apart.
func (s *sweeper) lasts(uid types.UID, snapshot statesync.Snapshot, isNew bool) bool {
	a := s.absent[uid]
	if a.lists == 0 {
		a.first = snapshot.Listed
	}
	if isNew {
		a.lists++
	}
	s.absent[uid] = a
	return a.lists >= 2 && snapshot.Listed.Sub(a.first) >= s.grace
}

// remove deletes orphans, except roots that the guard holds. Objects without a root run nothing, and the deletion of their
// root was counted.
func (s *sweeper) remove(ctx context.Context, r resource, ids []apply.ID, held map[string]int) error {
	var left []apply.ID
	ids = slices.DeleteFunc(slices.Clone(ids), func(id apply.ID) bool {
		if !r.isRoot(id) {
			left = append(left, id)
		}
		return !r.isRoot(id)
	})
	p := s.parts[r.component]
	rest, failed := p.remove(ctx, left)
	report, err := p.sweep(ctx, ids, s.guards[r.collection], s.approvals.approved(r.collection))
	held["grace"] += rest.Pending // it isolates pods
	held["limit"] = len(report.Held.IDs())
	if s.approvals.hold(r.collection, report.Held) {
		if digest := report.Held.Digest; digest != "" {
			s.logger.WarnContext(ctx, "deletions held",
				slog.String("collection", string(r.collection)), slog.String("digest", s.approvals.heldDeletions().GetDigest()), slog.Any("error", err))
		}
		s.heldChanged()
	}
	for _, result := range append(rest.Results, report.Results...) {
		if errors.Is(result.Err, apply.ErrNotOurs) {
			held["unproven"]++
		}
		if result.Action != apply.Deleted {
			continue
		}
		s.logger.InfoContext(ctx, "orphan deleted", slog.String("object", result.ID.String()))
		if r.isRoot(result.ID) {
			s.reporter.lost(r.key(result.ID))
		}
	}
	if _, held := errors.AsType[*apply.LimitError](err); held {
		return failed
	}
	return errors.Join(failed, err)
}

// orphans returns the objects of a resource that are not in the list. What belongs to a
// root is deleted with it, so it is one only without a root.
func (s *sweeper) orphans(r resource, snapshot statesync.Snapshot, live map[string]bool) map[types.UID]apply.ID {
	orphans := map[types.UID]apply.ID{}
	rooted := map[string]bool{}
	p := s.parts[r.component]
	for o := range p.live.All() {
		if r.isRoot(o.ID) {
			rooted[o.Label(r.label)] = true
		}
	}
	for o := range p.live.All() {
		wanted := live[o.Label(r.label)] || rooted[o.Label(r.label)]
		if r.isRoot(o.ID) {
			item, listed := snapshot.Items[r.key(o.ID)]
			wanted = listed && !item.Deleted
			// A delete message is an order of its own, which a worker carries out.
			wanted = wanted || listed && !s.registry.desired(r.key(o.ID)).gone
		}
		if wanted || o.Deleting {
			delete(s.absent, o.UID)
			continue
		}
		orphans[o.UID] = o.ID
	}
	return orphans
}

// publish sets the metric.
func (s *sweeper) publish() {
	sums := map[string]int{"grace": 0, "limit": 0, "empty": 0, "unproven": 0, "doubt": 0}
	for _, held := range s.held {
		for reason, n := range held {
			sums[reason] += n
		}
	}
	for _, reason := range slices.Sorted(maps.Keys(sums)) {
		s.metrics.held.WithLabelValues(reason).Set(float64(sums[reason]))
	}
}

// liveKeys returns the keys of the items that are not deleted.
func liveKeys(snapshot statesync.Snapshot) (keys []statesync.Key) {
	for key, item := range snapshot.Items {
		if !item.Deleted {
			keys = append(keys, key)
		}
	}
	return keys
}

// liveIDs returns the ids of the items of a list that are not deleted.
func liveIDs(r resource, snapshot statesync.Snapshot) (map[string]bool, error) {
	ids := map[string]bool{}
	for key, item := range snapshot.Items {
		if item.Deleted {
			continue
		}
		m := ctrlv1.NewApply(string(r.collection))
		if err := stream.Decode(item, m); err != nil {
			return nil, fmt.Errorf("item %s cannot be read: %w", key, err)
		}
		ids[idOfMessage(m)] = true
	}
	return ids, nil
}
