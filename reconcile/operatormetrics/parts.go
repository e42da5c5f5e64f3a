package operatormetrics

import (
	"cmp"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-9e1ffd66/trueup/reconcile"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube"
	"github.com/seed-9e1ffd66/trueup/snapshot"
	"github.com/seed-9e1ffd66/trueup/statesync"
)

// Loop registers the metrics of a Loop that has not started. Like the other functions it calls the function
// that was there before, and its error is that of the registry, such as for two of one name.
func Loop(r prometheus.Registerer, l *reconcile.Loop) error {
	passes := durations("trueup_loop_pass_duration_seconds", "Passes of a loop, by their result.", "loop", cmp.Or(l.Name, "loop"))
	onPass := l.OnPass
	l.OnPass = func(p reconcile.Pass) {
		observe(passes, p.Duration, p.Err)
		if onPass != nil {
			onPass(p)
		}
	}
	return register(r, passes)
}

// Queue registers the metrics of a Queue that has not started.
func Queue[K comparable](r prometheus.Registerer, q *reconcile.Queue[K]) error {
	name := cmp.Or(q.Name, "queue")
	passes := durations("trueup_queue_pass_duration_seconds", "Passes over one key, by their result.", "queue", name)
	onPass := q.OnPass
	q.OnPass = func(p reconcile.KeyPass[K]) {
		observe(passes, p.Duration, p.Err)
		if onPass != nil {
			onPass(p)
		}
	}
	return register(r, passes,
		gauge("trueup_queue_waiting", "Keys that wait for a worker.", "queue", name, func() int { return q.Len() }),
		gauge("trueup_queue_parked", "Keys that are not repeated before an event, as a repetition cannot cure them.", "queue", name,
			func() int { return len(q.Parked()) }),
	)
}

// Lease registers whether the work of a Lease that has not started runs in this process.
func Lease(r prometheus.Registerer, l *kube.Lease) error {
	held := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "trueup_lease_held", Help: "1 while the work of the lease runs in this process.",
		ConstLabels: prometheus.Labels{"lease": l.Namespace + "/" + l.Name},
	})
	onChange := l.OnChange
	l.OnChange = func(s kube.LeaseState) {
		held.Set(0)
		if s.Held {
			held.Set(1)
		}
		if onChange != nil {
			onChange(s)
		}
	}
	return register(r, held)
}

// Replica registers the metrics of a Replica that has not started.
func Replica(r prometheus.Registerer, p *statesync.Replica) error {
	handled := durations("trueup_replica_handle_duration_seconds", "Calls of Handle for one key, by their result.", "scope", p.Scope)
	streams := prometheus.NewCounter(prometheus.CounterOpts{
		Name: "trueup_replica_streams_total", Help: "Streams that have ended.", ConstLabels: prometheus.Labels{"scope": p.Scope},
	})
	onHandled, onStream := p.OnHandled, p.OnStream
	p.OnHandled = func(pass reconcile.KeyPass[statesync.Key]) {
		observe(handled, pass.Duration, pass.Err)
		if onHandled != nil {
			onHandled(pass)
		}
	}
	p.OnStream = func(s statesync.Stream) {
		streams.Inc()
		if onStream != nil {
			onStream(s)
		}
	}
	return register(r, handled, streams,
		gauge("trueup_replica_complete", "1 while the copy is proven to be complete.", "scope", p.Scope, func() int {
			if p.Status().Complete {
				return 1
			}
			return 0
		}),
		gauge("trueup_replica_pending", "Keys that are not handled yet.", "scope", p.Scope, func() int { return p.Status().Pending }),
		gauge("trueup_replica_parked", "Keys that were given up.", "scope", p.Scope, func() int { return p.Status().Parked }),
		gauge("trueup_replica_behind", "Versions of the log that are not applied yet.", "scope", p.Scope, func() int {
			status := p.Status()
			return int(status.Head - min(status.Head, status.Applied.Version)) //nolint:gosec // far fewer
		}),
	)
}

// Server registers how many changes a Server that has not started has given to its streams.
func Server(r prometheus.Registerer, s *statesync.Server) error {
	changes := prometheus.NewCounter(prometheus.CounterOpts{
		Name: "trueup_log_changes_total", Help: "Changes of the log that were read, once for all streams of a scope.",
	})
	onRead := s.OnRead
	s.OnRead = func(scope string, page statesync.Page) {
		changes.Add(float64(len(page.Items)))
		if onRead != nil {
			onRead(scope, page)
		}
	}
	return register(r, changes)
}

// Recorder registers what has become of the records of a Recorder that has not started. name tells it from
// others in the registry.
func Recorder[T any](r prometheus.Registerer, name string, s *snapshot.Recorder[T]) error {
	records := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "trueup_snapshot_records_total", Help: "Records, by what has become of them.", ConstLabels: prometheus.Labels{"recorder": name},
	}, []string{"result"})
	spooled := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "trueup_snapshot_spooled", Help: "Records on disk that wait for delivery.", ConstLabels: prometheus.Labels{"recorder": name},
	})
	onPass := s.OnPass
	s.OnPass = func(p snapshot.Pass) {
		for result, n := range map[string]int{"accepted": p.Accepted, "duplicate": p.Duplicates, "rejected": p.Rejected, "lost": p.Lost} {
			records.WithLabelValues(result).Add(float64(n))
		}
		spooled.Set(float64(p.Spooled))
		if onPass != nil {
			onPass(p)
		}
	}
	return register(r, records, spooled)
}

func durations(name, help, label, value string) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: name, Help: help, ConstLabels: prometheus.Labels{label: value}, Buckets: prometheus.ExponentialBuckets(0.001, 4, 8), // to 16 s
	}, []string{"result"})
}

func observe(of *prometheus.HistogramVec, d time.Duration, err error) {
	result := "success"
	if err != nil {
		result = "error"
	}
	of.WithLabelValues(result).Observe(d.Seconds())
}

func gauge(name, help, label, value string, read func() int) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help, ConstLabels: prometheus.Labels{label: value}},
		func() float64 { return float64(read()) })
}

// register registers all, or nothing.
func register(r prometheus.Registerer, all ...prometheus.Collector) error {
	for i, c := range all {
		if err := r.Register(c); err != nil {
			for _, before := range all[:i] {
				r.Unregister(before)
			}
			return err
		}
	}
	return nil
}
