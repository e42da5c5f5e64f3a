package regions

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/agents"
	"github.com/seed-9e1ffd66/trueup/statesync/sqlstore"
)

// LogMetrics observes the change log of a database: its batches, its events, and
// what waits to be numbered. Register it, and call Observe before the log is
// started.
type LogMetrics struct {
	log    *sqlstore.Store
	logger *slog.Logger

	batches *prometheus.HistogramVec
	changes prometheus.Counter
	events  *prometheus.CounterVec
	gauges  agents.Gauges
	depth   *prometheus.Desc
	oldest  *prometheus.Desc
	stalled *prometheus.Desc

	mu      sync.Mutex
	epochs  int
	epochAt time.Time
}

// LogState is how the change log is at one moment.
type LogState struct {
	// NotReady is why /readyz fails because of the log. Empty: it does not.
	NotReady string
	// Depth is how many committed changes have no version yet, and Oldest how long ago
	// the oldest of them was written.
	Depth  int
	Oldest time.Duration
	// Epochs counts the changes of an epoch that this process has found, and EpochAt is
	// the time of the last one.
	Epochs  int
	EpochAt time.Time
}

// State returns how the log is. It is one query.
func (m *LogMetrics) State(ctx context.Context) (state LogState, err error) {
	if err := m.Ready(ctx); err != nil {
		state.NotReady = err.Error()
	}
	m.mu.Lock()
	state.Epochs, state.EpochAt = m.epochs, m.epochAt
	m.mu.Unlock()
	state.Depth, state.Oldest, err = m.log.Queue(ctx)
	return state, err
}

// NewLogMetrics returns the metrics of the log. Its events are logged by the log
// itself; logger gets what a scrape cannot read.
func NewLogMetrics(log *sqlstore.Store, logger *slog.Logger) *LogMetrics {
	const prefix = "trueup_controlplane_log_"
	m := &LogMetrics{
		log: log, logger: logger,
		batches: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: prefix + "batch_duration_seconds",
			Help: "Time to number a batch of committed changes, by result: ok or failed.",
		}, []string{"result"}),
		changes: prometheus.NewCounter(prometheus.CounterOpts{Name: prefix + "changes_total", Help: "Changes that this process has numbered."}),
		events: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: prefix + "events_total",
			Help: "What happened to the log, by kind: epoch, elected, election-lost, stuck, moving or disk-full.",
		}, []string{"event"}),
	}
	m.depth = m.gauges.New("log_queue_depth", "Committed changes without a version, at most 100,000.")
	m.oldest = m.gauges.New("log_queue_oldest_seconds", "Time since the oldest of them was written.")
	m.stalled = m.gauges.New("log_stalled_seconds", "Time since the queue was last seen to be empty or to move; 0 below 5 s.")
	m.gauges.Read = m.read
	for _, kind := range []sqlstore.EventKind{
		sqlstore.EventEpoch, sqlstore.EventElected, sqlstore.EventLost, sqlstore.EventStuck, sqlstore.EventMoving, sqlstore.EventFull,
	} {
		m.events.WithLabelValues(string(kind))
	}
	return m
}

// Observe sets the log's Logger, OnBatch and OnEvent.
func (m *LogMetrics) Observe() {
	m.log.Logger = m.logger
	m.log.OnBatch = func(b sqlstore.Batch) {
		if b.Err != nil {
			m.batches.WithLabelValues("failed").Observe(b.Took.Seconds())
			return
		}
		m.batches.WithLabelValues("ok").Observe(b.Took.Seconds())
		m.changes.Add(float64(b.Changes))
	}
	m.log.OnEvent = func(e sqlstore.Event) {
		m.events.WithLabelValues(string(e.Kind)).Inc()
		if e.Kind == sqlstore.EventEpoch {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.epochs, m.epochAt = m.epochs+1, time.Now()
		}
	}
}

// Ready returns an error while committed changes get no version. It is for
// readiness.
func (m *LogMetrics) Ready(context.Context) error {
	if stalled := m.log.Stalled(); stalled > 0 {
		return fmt.Errorf("%w for %s", errStalled, stalled.Round(time.Second))
	}
	return nil
}

var errStalled = errors.New("committed changes get no version")

// Describe implements [prometheus.Collector].
func (m *LogMetrics) Describe(to chan<- *prometheus.Desc) {
	m.batches.Describe(to)
	m.changes.Describe(to)
	m.events.Describe(to)
	m.gauges.Describe(to)
}

// Collect implements [prometheus.Collector].
func (m *LogMetrics) Collect(to chan<- prometheus.Metric) {
	m.batches.Collect(to)
	m.changes.Collect(to)
	m.events.Collect(to)
	m.gauges.Collect(to)
}

func (m *LogMetrics) read(ctx context.Context, set agents.Set) {
	set(m.stalled, m.log.Stalled().Seconds())
	depth, oldest, err := m.log.Queue(ctx)
	if err != nil {
		m.logger.WarnContext(ctx, "log queue not counted", slog.Any("error", err))
		return
	}
	set(m.depth, float64(depth))
	set(m.oldest, oldest.Seconds())
}
