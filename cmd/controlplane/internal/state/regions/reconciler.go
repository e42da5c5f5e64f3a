package regions

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/db"
	"github.com/seed-9e1ffd66/trueup/reconcile"
	"github.com/seed-9e1ffd66/trueup/statesync"
)

// Reconciler makes the log of each region match its tables. Set the fields and
// Start it once. Any number of replicas may run one.
//
// The tables decide. A row that is edited, added or removed by hand bypasses the
// log; the Reconciler finds it and appends the missing item. A row that vanished is
// withdrawn: no order to delete is sent, but the resource is in no list any more,
// and agents delete what is absent from two lists. Of many rows that vanish at once
// few are withdrawn at a time, see MinWithdrawals and Window.
//
// Rows that no agent needs any more are purged, so that the tables do not grow with each
// deployment that ever existed. Nothing is purged while a live agent has not applied the
// removal, or reports no position. Purged are:
//
//   - a resource that is archived: after 7 days, once no instance of it is reported;
//   - one that is stopped, stopping or standby: the same after 30 days, since it may be
//     wanted again without its spec;
//   - instances whose deployment has no row in their region: 7 days after their last
//     report and after the withdrawal of the row;
//   - the name of a deployment without a row in any region, and without instances:
//     7 days after the last withdrawal.
type Reconciler struct {
	// Store is the database. Required.
	Store *Store
	// Every is the time between passes. Zero: 1 minute.
	Every time.Duration
	// Settle is how long a difference must last before it is appended: a change is
	// not in the log at once. Zero: 5 s.
	Settle time.Duration
	// Logger gets a line for each difference. Nil: nothing is logged.
	Logger *slog.Logger
	// Registerer gets the metrics. Nil: they are not collected anywhere.
	Registerer prometheus.Registerer

	rows   *prometheus.CounterVec
	stored *prometheus.GaugeVec
}

const (
	// MinWithdrawals is the number of vanished rows of a region that may be
	// withdrawn within Window, by all replicas together and over their restarts, or a
	// tenth of the region's live items if that is more.
	MinWithdrawals = 5
	tenth          = 10
	// Window is also the time in which agents limit their deletions.
	Window = 5 * time.Minute
	// lease is how long a silent agent counts as alive.
	lease = 24 * time.Hour
)

// Start runs a pass every so often until ctx ends. It returns an error only if
// the metrics cannot be registered.
func (r *Reconciler) Start(ctx context.Context) error {
	if err := r.Register(); err != nil {
		return err
	}
	loop := &reconcile.Loop{
		Name: "reconciler", Interval: cmp.Or(r.Every, time.Minute), Jitter: 0.1, Logger: r.logger(),
		Reconciler: reconcile.Func(func(ctx context.Context) (reconcile.Result, error) { return reconcile.Result{}, r.Pass(ctx) }),
	}
	return loop.Start(ctx)
}

// Register makes the metrics, and registers them with Registerer if there is one. Start
// calls it.
func (r *Reconciler) Register() error {
	r.rows = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "trueup_controlplane_rows_kept_total",
		Help: "Rows of wanted state brought together with the log, by resource type and what was done: appended, withdrawn, held (too many vanished at once) or purged.",
	}, []string{"resource_type", "result"})
	r.stored = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "trueup_controlplane_rows",
		Help: "Rows in the tables, by resource type and state: wanted, dormant (stopped, stopping or standby), archived, unhandled, or orphaned (instances whose deployment has no row in their region).",
	}, []string{"resource_type", "state"})
	if r.Registerer == nil {
		return nil
	}
	return errors.Join(r.Registerer.Register(r.rows), r.Registerer.Register(r.stored))
}

func (r *Reconciler) logger() *slog.Logger { return cmp.Or(r.Logger, slog.New(slog.DiscardHandler)) }

// Pass compares every region once. A region that fails does not hold up the
// others. Only one Pass may run at a time.
func (r *Reconciler) Pass(ctx context.Context) error {
	regions, err := r.Store.Regions(ctx)
	if err != nil {
		return fmt.Errorf("keep: %w", err)
	}
	first := map[string]contents{}
	var errs []error
	all := true
	for _, region := range regions {
		found, err := r.Store.contents(ctx, region)
		switch {
		case errors.Is(err, ErrUnknownRegion), errors.Is(err, statesync.ErrUnknownScope):
			all = false
			continue // not the region that its log was made for, or without a log yet
		case err != nil:
			all = false
			errs = append(errs, fmt.Errorf("keep region %s: %w", region.ID, err))
			continue
		}
		first[region.ID] = found
	}
	r.measure(first)
	for _, region := range regions {
		if err := r.reconcile(ctx, region, first[region.ID]); err != nil {
			errs = append(errs, fmt.Errorf("keep region %s: %w", region.ID, err))
		}
	}
	if all {
		errs = append(errs, r.purgeNames(ctx, first))
	}
	return errors.Join(errs...)
}

// reconcile appends what differs now in the same way as in first, and purges.
func (r *Reconciler) reconcile(ctx context.Context, region Region, first contents) error {
	different := first.differences()
	differences := maps.Clone(different)
	if len(differences) > 0 {
		settle := cmp.Or(r.Settle, 5*time.Second)
		select {
		case <-time.After(settle):
		case <-ctx.Done():
			return ctx.Err()
		}
		_, oldest, err := r.Store.Database.Log.Queue(ctx)
		if err != nil {
			return err
		}
		if oldest >= settle {
			clear(differences) // the log may have them, and has not numbered them yet: the next pass compares
		}
		second, err := r.Store.contents(ctx, region)
		if err != nil {
			return err
		}
		still := second.differences()
		maps.DeleteFunc(differences, func(key statesync.Key, d difference) bool { return still[key] != d })
	}
	var errs []error
	allowed := first.allowed()
	for _, key := range slices.SortedFunc(maps.Keys(differences), compareKeys) {
		d := differences[key]
		result := "appended"
		if d.row == (row{}) {
			result = "withdrawn"
		}
		log := r.logger().With(slog.String("region", region.Scope), slog.String("collection", key.Collection), slog.String("id", key.ID))
		done, err := r.Store.mend(ctx, region, key, d.row, allowed)
		switch {
		case errors.Is(err, errHeld):
			log.ErrorContext(ctx, "withdrawal held: too many rows missing")
			r.count(key.Collection, "held", 1)
		case err != nil:
			errs = append(errs, fmt.Errorf("%s/%s: %w", key.Collection, key.ID, err))
		case done:
			log.WarnContext(ctx, "row was changed without the log", slog.String("result", result))
			r.count(key.Collection, result, 1)
		}
	}
	errs = append(errs, r.purge(ctx, region, first, different))
	r.Store.Database.Log.Wake()
	return errors.Join(errs...)
}

// allowed returns how many rows of the region may be withdrawn within Window.
func (c contents) allowed() int {
	live := 0
	for _, i := range c.items {
		if !i.Deleted {
			live++
		}
	}
	return max(MinWithdrawals, live/tenth)
}

func (r *Reconciler) count(resource, result string, n int64) {
	if r.rows != nil && n > 0 {
		r.rows.WithLabelValues(resource, result).Add(float64(n))
	}
}

func compareKeys(a, b statesync.Key) int {
	return cmp.Or(cmp.Compare(a.Collection, b.Collection), cmp.Compare(a.ID, b.ID))
}

// row is one resource in the tables; no row is the zero row.
type row struct {
	state, spec string
	updatedAt   int64
}

// value returns the value of the row's item.
func (r row) value() (json.RawMessage, error) {
	if !json.Valid([]byte(r.spec)) {
		return nil, errors.New("the row's spec is not JSON; PUT the resource again")
	}
	return json.Marshal(wanted{State: r.state, Apply: json.RawMessage(r.spec)})
}

// contents is a region in the tables and in the log.
type contents struct {
	rows    map[statesync.Key]row
	items   map[statesync.Key]statesync.Item
	horizon uint64
	// orphans are by the id of their deployment.
	orphans map[string]orphans
}

// orphans are the instances of a deployment that the region has no row of.
type orphans struct {
	deploymentID string
	instances    int64
	// since is when one of them was reported last, or the row was withdrawn.
	since int64
}

// difference is a row without its item in the log.
type difference struct {
	row     row
	version uint64
}

func (c contents) differences() map[statesync.Key]difference {
	found := map[statesync.Key]difference{}
	for key, row := range c.rows {
		i := c.items[key]
		// A row that has no value differs; mend returns why.
		if value, err := row.value(); err != nil || i.Deleted || !bytes.Equal(value, i.Value) {
			found[key] = difference{row, i.Version}
		}
	}
	for key, i := range c.items {
		if _, ok := c.rows[key]; !ok && !i.Deleted {
			found[key] = difference{version: i.Version}
		}
	}
	return found
}

// contents reads the tables first: the log as read afterwards is at least as new.
func (s *Store) contents(ctx context.Context, region Region) (c contents, err error) {
	c = contents{rows: map[statesync.Key]row{}, items: map[statesync.Key]statesync.Item{}, orphans: map[string]orphans{}}
	err = s.Database.Read(ctx, func(tx *db.Tx) error {
		if _, err := regionOf(ctx, tx, region.ID); err != nil {
			return err
		}
		return c.read(ctx, tx, region.ID)
	})
	if err != nil {
		return c, err
	}
	readers, err := s.Database.Log.Readers(ctx, region.Scope)
	if err != nil {
		return c, err
	}
	const limit = 1000
	now := time.Now()
	for after, more := uint64(0), true; more; {
		page, err := s.Database.Log.Read(ctx, region.Scope, after, limit)
		if err != nil {
			return c, err
		}
		for _, i := range page.Items {
			c.items[i.Key], after = i, i.Version
		}
		more = page.More
		c.horizon = statesync.Horizon(page.Position, readers, now, lease)
		reported := func(reader statesync.Reader) bool {
			return reader.Alive(now, lease) && reader.Applied.Epoch == page.Epoch
		}
		if now.Sub(region.HeartbeatAt) < lease && !slices.ContainsFunc(readers, reported) {
			c.horizon = 0 // a live agent reports no position
		}
	}
	return c, nil
}
