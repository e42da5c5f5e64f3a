package agents

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/front/adminapi"
)

// scrapeTimeout bounds the queries of one scrape.
const scrapeTimeout = 5 * time.Second

// Gauges are metrics that are read from the database at each scrape: what is removed there has
// no series any more. They implement [prometheus.Collector].
type Gauges struct {
	// Read sets all gauges. An error is logged there: it would drop all other metrics too.
	// Required.
	Read func(ctx context.Context, set Set)

	all []*prometheus.Desc
}

// Set is the value of a gauge in a scrape, with the values of its labels.
type Set func(gauge *prometheus.Desc, value float64, labels ...string)

// New adds a gauge. Its name is trueup_controlplane_ and the given one.
func (g *Gauges) New(name, help string, labels ...string) *prometheus.Desc {
	gauge := prometheus.NewDesc("trueup_controlplane_"+name, help, labels, nil)
	g.all = append(g.all, gauge)
	return gauge
}

// Describe implements [prometheus.Collector].
func (g *Gauges) Describe(to chan<- *prometheus.Desc) {
	for _, gauge := range g.all {
		to <- gauge
	}
}

// Collect implements [prometheus.Collector].
func (g *Gauges) Collect(to chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout) //nolint:forbidigo // a scrape brings none
	defer cancel()
	g.Read(ctx, func(gauge *prometheus.Desc, value float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(gauge, prometheus.GaugeValue, value, labels...)
	})
}

// Expires sets the gauge to the time until a token ends, unless it has no end, or its agent was heard of
// after that: then it has another one, such as the token of all regions.
func Expires(lifetime time.Duration, until, contact time.Time, set Set, gauge *prometheus.Desc, labels ...string) {
	if lifetime > 0 && !until.IsZero() && !contact.After(until) {
		set(gauge, max(0, time.Until(until).Seconds()), labels...)
	}
}

// Contacts counts agents by when they were heard of last: alive, silent or never.
type Contacts map[string]float64

// Add counts an agent, and sets for how long it is silent, unless it was never heard of.
func (c Contacts) Add(contact time.Time, set Set, silence *prometheus.Desc, labels ...string) {
	if contact.IsZero() {
		c["never"]++
		return
	}
	silent := time.Since(contact)
	set(silence, max(0, silent.Seconds()), labels...)
	if silent < adminapi.Silence {
		c["alive"]++
	} else {
		c["silent"]++
	}
}

// Set sets the gauge of the counts.
func (c Contacts) Set(set Set, gauge *prometheus.Desc) {
	for _, contact := range []string{"alive", "silent", "never"} {
		set(gauge, c[contact], contact)
	}
}
