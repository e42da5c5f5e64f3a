package statuspage

import (
	"context"
	"html/template"
	"log/slog"
	"reflect"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// section is one part of the page, with what it shows.
type section struct {
	name  string
	model any
	// version is raised when the model changes.
	version uint64
}

// rendered is a section as HTML.
type rendered struct {
	Name string
	HTML template.HTML

	version uint64
	model   any
}

// feed reads the database for all viewers.
type feed struct {
	source     *source
	template   *template.Template
	logger     *slog.Logger
	interval   time.Duration
	maxViewers int
	looks      prometheus.Counter
	watching   prometheus.Gauge
	// looking is held by the goroutine that reads.
	looking chan struct{}
	// awake wakes start when the first viewer comes.
	awake chan struct{}
	// ended is closed when start ends.
	ended chan struct{}

	mu       sync.Mutex
	sections []section
	lookedAt time.Time
	viewers  map[*viewer]struct{}
}

// viewer is one open stream.
type viewer struct {
	sessionID string
	// wake has an entry when something may have changed.
	wake chan struct{}
	// dismissed is closed when the session has ended.
	dismissed chan struct{}
}

func newFeed(from *source, parsed *template.Template, logger *slog.Logger) *feed {
	return &feed{
		source: from, template: parsed, logger: logger,
		looks: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "trueup_controlplane_status_looks_total",
			Help: "How often the status page has read the database, for all viewers together.",
		}),
		watching: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "trueup_controlplane_status_viewers",
			Help: "Open streams of the status page.",
		}),
		looking: make(chan struct{}, 1), awake: make(chan struct{}, 1), ended: make(chan struct{}),
		viewers: map[*viewer]struct{}{},
	}
}

// start looks while there are viewers, until ctx ends.
func (f *feed) start(ctx context.Context) error {
	defer close(f.ended)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-f.awake:
		}
		for f.watched() {
			begin := time.Now()
			if err := f.look(ctx); err != nil && ctx.Err() == nil {
				f.logger.WarnContext(ctx, "status page cannot read the database", slog.Any("error", err))
				f.trouble()
			}
			// A slow database is left alone nine tenths of the time.
			const share = 10
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(max(f.interval, share*time.Since(begin))):
			}
		}
	}
}

func (f *feed) watched() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.viewers) > 0
}

// refresh looks if the last look is too old.
func (f *feed) refresh(ctx context.Context) error {
	if f.fresh() {
		return nil
	}
	return f.look(ctx)
}

// latest returns what the view shows of the sections, looking first if the last look is
// too old.
func (f *feed) latest(ctx context.Context, v view) ([]rendered, error) {
	if err := f.refresh(ctx); err != nil {
		return nil, err
	}
	return f.since(nil, v)
}

func (f *feed) fresh() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return time.Since(f.lookedAt) < f.interval
}

// look reads the database, unless another goroutine just did, and wakes the viewers
// if something has changed.
func (f *feed) look(ctx context.Context) error {
	select {
	case f.looking <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-f.looking }()
	if f.fresh() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	f.looks.Inc()
	found, err := f.source.read(ctx)
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lookedAt = time.Now()
	f.replace(found)
	return nil
}

// trouble puts on the page that the database cannot be read.
func (f *feed) trouble() {
	f.mu.Lock()
	defer f.mu.Unlock()
	next := append([]section(nil), f.sections...)
	for i := range next {
		if s, ok := next[i].model.(summary); ok && s.StaleSince.IsZero() {
			s.StaleSince = f.lookedAt.UTC()
			next[i].model = s
		}
	}
	f.replace(next)
}

// replace replaces the sections with the ones found. The caller holds mu.
func (f *feed) replace(found []section) {
	changed := len(f.sections) != len(found)
	for i := range found {
		found[i].version = 1
		if len(f.sections) != len(found) {
			continue
		}
		if found[i].version = f.sections[i].version; !reflect.DeepEqual(found[i].model, f.sections[i].model) {
			found[i].version++
			changed = true
		}
	}
	f.sections = found
	if !changed {
		return
	}
	for v := range f.viewers {
		v.notify()
	}
}

// notify never waits: one entry is enough for any number of changes.
func (v *viewer) notify() {
	select {
	case v.wake <- struct{}{}:
	default:
	}
}

// since renders what the view shows of the sections that are newer than the versions in
// seen, and notes there which they are. All are newer than nil.
func (f *feed) since(seen map[string]uint64, v view) ([]rendered, error) {
	f.mu.Lock()
	sections := f.sections
	f.mu.Unlock()
	now := time.Now().UTC()
	models := narrow(sections, v)
	var list []rendered
	for _, s := range sections {
		if seen[s.name] == s.version {
			continue
		}
		html, err := execute(f.template, s.name, content{Now: now, Model: models[s.name]})
		if err != nil {
			return nil, err
		}
		if seen != nil {
			seen[s.name] = s.version
		}
		list = append(
			list,
			rendered{Name: s.name, HTML: template.HTML(html), version: s.version, model: models[s.name]},
		) //nolint:gosec // made by html/template
	}
	return list, nil
}

// join adds a viewer, or returns nil if there are too many.
func (f *feed) join(sessionID string) *viewer {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.viewers) >= f.maxViewers {
		return nil
	}
	v := &viewer{sessionID: sessionID, wake: make(chan struct{}, 1), dismissed: make(chan struct{})}
	v.notify()
	f.viewers[v] = struct{}{}
	f.watching.Set(float64(len(f.viewers)))
	select {
	case f.awake <- struct{}{}:
	default:
	}
	return v
}

func (f *feed) leave(v *viewer) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.viewers, v)
	f.watching.Set(float64(len(f.viewers)))
}

// dismiss ends the streams of a session.
func (f *feed) dismiss(sessionID string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for v := range f.viewers {
		if v.sessionID == sessionID {
			close(v.dismissed)
			delete(f.viewers, v)
		}
	}
	f.watching.Set(float64(len(f.viewers)))
}
