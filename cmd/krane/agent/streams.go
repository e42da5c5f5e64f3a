package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync/atomic"
	"time"

	"github.com/seed-9e1ffd66/trueup/cmd/api/ctrl/v1/ctrlv1connect"
	"github.com/seed-9e1ffd66/trueup/cmd/krane/stream"
	"github.com/seed-9e1ffd66/trueup/reconcile"
	"github.com/seed-9e1ffd66/trueup/statesync"
)

// streams are the three collections as far as they are received.
type streams struct {
	contact *contact
	metrics *metrics
	logger  *slog.Logger
	// synced is called after each list that was proven complete. Other is true when
	// the epoch differs from the epoch of the list before.
	synced func(collection stream.Collection, s statesync.Snapshot, other bool)

	// problems has the items that are parked, with why.
	problems *problems

	replicas map[stream.Collection]*statesync.Replica
	// outage has the collections with items that are parked for the vault, or for
	// the first list.
	outage map[stream.Collection]*atomic.Bool
	// listed has the collections whose list was proven once, or is never proven
	// because the server sends no markers.
	listed map[stream.Collection]*atomic.Bool
	// lists has the position of each collection's last list.
	lists map[stream.Collection]*atomic.Pointer[statesync.Cursor]
}

// streamConfig is what the streams need beside their methods. All fields are
// required.
type streamConfig struct {
	client  ctrlv1connect.ClusterServiceClient
	region  string
	periods Periods
	logger  *slog.Logger
	// handle makes the cluster match one item.
	handle func(context.Context, statesync.Item) error
}

// open makes the replicas, which start nothing.
func (s *streams) open(c streamConfig) {
	s.replicas = map[stream.Collection]*statesync.Replica{}
	s.outage, s.listed = map[stream.Collection]*atomic.Bool{}, map[stream.Collection]*atomic.Bool{}
	s.lists = map[stream.Collection]*atomic.Pointer[statesync.Cursor]{}
	for _, r := range resources() {
		s.listed[r.collection], s.lists[r.collection] = &atomic.Bool{}, &atomic.Pointer[statesync.Cursor]{}
		s.outage[r.collection] = &atomic.Bool{}
		s.replicas[r.collection] = s.replica(r.collection, c)
	}
}

func (s *streams) replica(collection stream.Collection, c streamConfig) *statesync.Replica {
	name := string(collection)
	source := &timedSource{source: &stream.Source{
		Client: c.client, Collection: collection, Silence: c.periods.Silence, Patience: c.periods.Patience, Logger: c.logger,
	}}
	source.onUnmarked = func() { s.listed[collection].Store(true) }
	source.answered = func() { s.contact.answered(streamOf(name)) }
	source.source.OnMessage = func(version uint64) {
		source.message = true
		s.metrics.events.WithLabelValues(name).Inc()
		if version > 0 {
			s.metrics.lastSeen.WithLabelValues(name).Set(float64(version))
		}
	}
	var epoch string
	return &statesync.Replica{
		Source:      source,
		Scope:       c.region,
		Collections: []string{name},
		Handle:      c.handle,
		Workers:     16,
		Retry:       c.periods.Retry,
		Relist:      c.periods.Relist,
		OnSynced: func(snapshot statesync.Snapshot) {
			s.listed[collection].Store(true)
			s.lists[collection].Store(&snapshot.Cursor)
			s.metrics.fullSyncs.WithLabelValues(name).Inc()
			s.metrics.connections.WithLabelValues(name, "synced").Inc()
			s.metrics.fullSync.WithLabelValues(name).Observe(time.Since(source.opened).Seconds())
			other := epoch != "" && epoch != snapshot.Cursor.Epoch
			epoch = snapshot.Cursor.Epoch
			s.synced(collection, snapshot, other)
		},
		// The ends of streams are the contact's to log.
		OnStream: func(ended statesync.Stream) { s.ended(name, ended, source) },
		OnHandled: func(p reconcile.KeyPass[statesync.Key]) {
			s.handled(p)
			s.problems.item(p)
			if p.Parked && (errors.Is(p.Err, errVault) || errors.Is(p.Err, errUnproven)) {
				s.outage[collection].Store(true)
			}
		},
	}
}

// streamOf is what the stream of a collection is called beside calls.
func streamOf(collection string) string { return "stream of " + collection }

// ended counts a stream, and reports to the contact a stream that failed to start.
func (s *streams) ended(collection string, ended statesync.Stream, source *timedSource) {
	status, err := "ended", ended.Err
	switch refused := refusedFor(err); {
	case errors.Is(err, statesync.ErrUnauthenticated):
		status = "unauthenticated"
	case refused != "":
		status = refused
	case errors.Is(err, statesync.ErrResync):
		status = "resync"
	case !source.message:
		status = "failed"
	}
	s.metrics.connections.WithLabelValues(collection, status).Inc()
	switch {
	case status == "resync":
		s.logger.Info(
			"the control plane has another history: everything is listed again",
			slog.String("collection", collection),
			slog.Any("error", err),
		)
	case ended.Retry == 0 && refusedFor(err) == "": // its own end, in order to list again
	case !source.live && !source.quiet(), errors.Is(err, statesync.ErrUnauthenticated), refusedFor(err) != "":
		s.contact.failed(streamOf(collection), err)
	case errors.Is(err, stream.ErrBroken):
		s.logger.Warn("stream ended", slog.String("collection", collection), slog.Any("error", err))
	default:
		s.contact.answered(streamOf(collection))
		s.logger.Debug("stream ended", slog.String("collection", collection), slog.Any("error", err))
	}
}

// handled logs a pass over one item that failed.
func (s *streams) handled(p reconcile.KeyPass[statesync.Key]) {
	if p.Err != nil && !errors.Is(p.Err, context.Canceled) && !errors.Is(p.Err, errUnproven) {
		s.logger.Error(
			"not applied",
			slog.Any("key", p.Key),
			slog.Int("attempt", p.Attempt),
			slog.Bool("parked", p.Parked),
			slog.Any("error", p.Err),
		)
	}
}

// complete returns the snapshots of all collections, and false unless each was
// proven complete: one that is not casts doubt on all.
func (s *streams) complete() (map[stream.Collection]statesync.Snapshot, bool) {
	snapshots := map[stream.Collection]statesync.Snapshot{}
	for collection, replica := range s.replicas {
		snapshot, complete := replica.Complete()
		if !complete {
			return nil, false
		}
		snapshots[collection] = snapshot
	}
	return snapshots, true
}

// proven reports whether the list of a collection was proven complete once.
func (s *streams) proven(collection stream.Collection) bool { return s.listed[collection].Load() }

// current reports whether the stream of a collection is open and was proven complete.
func (s *streams) current(collection stream.Collection) bool {
	return s.replicas[collection].Status().Complete
}

// ready returns nil once each collection was listed.
func (s *streams) ready() error {
	for _, r := range resources() {
		if s.replicas[r.collection].Status().Cursor.Epoch == "" {
			return fmt.Errorf("no list of %s yet", r.collection)
		}
	}
	return nil
}

// applied returns the version up to which a collection is applied.
func (s *streams) applied(collection stream.Collection) uint64 {
	return s.replicas[collection].Status().Applied.Version
}

// acknowledged returns the position up to which all collections are applied, if they are of
// one epoch: the position of the collection that is furthest behind.
func (s *streams) acknowledged() statesync.Cursor {
	at := statesync.Cursor{Version: math.MaxUint64}
	for _, replica := range s.replicas {
		applied := replica.Status().Applied
		if applied.Epoch == "" || at.Epoch != "" && at.Epoch != applied.Epoch {
			return statesync.Cursor{}
		}
		if applied.Version < at.Version {
			at = applied
		}
	}
	return at
}

// reconnect ends the pauses between attempts.
func (s *streams) reconnect() {
	for _, replica := range s.replicas {
		replica.Reconnect()
	}
}

// relist has a collection listed again.
func (s *streams) relist(collection stream.Collection) { s.replicas[collection].List() }

// list returns the position of the last list of a collection, zero before the first.
func (s *streams) list(collection stream.Collection) statesync.Cursor {
	if at := s.lists[collection].Load(); at != nil {
		return *at
	}
	return statesync.Cursor{}
}

// retryParked lists the collections with items that are parked for the vault: they
// are tried again after a list.
func (s *streams) retryParked() {
	for _, r := range resources() {
		if s.outage[r.collection].Swap(false) {
			s.relist(r.collection)
		}
	}
}

// Reconcile implements reconcile.Reconciler: it sets the gauges.
func (s *streams) Reconcile(context.Context) (reconcile.Result, error) {
	for collection, replica := range s.replicas {
		status := replica.Status()
		s.metrics.parked.WithLabelValues(string(collection)).Set(float64(status.Parked))
		s.metrics.lag.WithLabelValues(string(collection)).Set(float64(status.Head - min(status.Head, status.Applied.Version)))
	}
	return reconcile.Result{}, nil
}

// timedSource is a source that has the time when its stream was opened, and what the
// server has sent on it. A resumed stream begins before that.
type timedSource struct {
	source *stream.Source
	// answered is called with the first frame that shows that the stream works.
	answered func()
	// onUnmarked is called when the server turns out to send no markers.
	onUnmarked func()

	opened time.Time
	// message is true once anything came, and live once the list is proven or the
	// stream resumed. One that is unmarked is live with its first message.
	message, live, unmarked bool
}

// Watch implements statesync.Source.
func (t *timedSource) Watch(ctx context.Context, w statesync.Watch, receive func(statesync.Frame) error) error {
	t.opened, t.message, t.live, t.unmarked = time.Now(), false, false, false
	return t.source.Watch(ctx, w, func(f statesync.Frame) error {
		if f.Type == statesync.FrameHeader && stream.Unmarked(f.Epoch) {
			t.unmarked = true
			t.onUnmarked() // before its items
		}
		if err := receive(f); err != nil {
			return err
		}
		if !t.live && f.Type != statesync.FrameHeader && (f.Type != statesync.FrameItems || t.unmarked) {
			t.live = true
			t.answered()
		}
		return nil
	})
}

// quiet reports whether the stream was open for long, on a server without markers,
// which sends changes only.
func (t *timedSource) quiet() bool { return t.unmarked && time.Since(t.opened) > time.Minute }
