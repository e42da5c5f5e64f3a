package agent

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	ctrlv1 "github.com/seed-9e1ffd66/trueup/cmd/api/ctrl/v1"
	"github.com/seed-9e1ffd66/trueup/cmd/api/ctrl/v1/ctrlv1connect"
	"github.com/seed-9e1ffd66/trueup/cmd/krane/config"
	"github.com/seed-9e1ffd66/trueup/cmd/krane/internal/breaker"
	"github.com/seed-9e1ffd66/trueup/cmd/krane/render"
	"github.com/seed-9e1ffd66/trueup/cmd/krane/stream"
	"github.com/seed-9e1ffd66/trueup/statesync"
)

// Metrics returns all metrics of the agent.
func Metrics() *prometheus.Registry { return newMetrics().registry }

// Run runs the agent without its listener. It gives the metrics, and whether the agent is ready, first.
func (a *Agent) Run(ctx context.Context, given func(of *prometheus.Registry, ready func() error)) error {
	m := newMetrics()
	w, err := a.assemble(m)
	if err != nil {
		return err
	}
	given(m.registry, w.ready)
	return w.group.Start(ctx)
}

// CellOf returns what all objects of an agent have in common.
func CellOf(c *config.Config) render.Cell { return cellOf(c) }

// RefusedTokens returns how often a contact has a heartbeat sent because a stream that
// fails with these errors, one after the other, was refused its token.
func RefusedTokens(failures ...error) (n int) {
	c := newContact("", newMetrics(), slog.New(slog.DiscardHandler))
	c.refusedToken = func() { n++ }
	for _, err := range failures {
		c.failed("stream", err)
	}
	return n
}

// Reports are the heartbeats and reports of an agent without streams and without a cluster.
type Reports struct {
	Registry *prometheus.Registry
	// Renewed is how often a heartbeat was asked for at once.
	Renewed int

	reporter  *reporter
	heartbeat *heartbeater
}

// NewReports returns those to a control plane. An accepted report holds for inventory.
func NewReports(client ctrlv1connect.ClusterServiceClient, logger *slog.Logger, inventory time.Duration) *Reports {
	m := newMetrics()
	s := &streams{contact: newContact("", m, logger), metrics: m, logger: logger}
	r := &reporter{
		client: client, breakers: &breaker.Set{OnChange: m.breaker}, metrics: m, logger: logger,
		registry: newRegistry(), streams: s, contact: s.contact, inventory: inventory,
	}
	r.init()
	r.observer = newObserver(nil, "eu", m, logger, r.changed)
	reports := &Reports{Registry: m.registry, reporter: r, heartbeat: &heartbeater{
		reporter: r, streams: s, region: "eu", interval: time.Hour,
		problems: newProblems(allSeen).report, held: (&approvals{}).heldDeletions, approved: func(string) {},
	}}
	r.session.renew = func() { reports.Renewed++ }
	return reports
}

// Follows has these followers of the streams.
func (r *Reports) Follows(replicas map[stream.Collection]*statesync.Replica) {
	r.reporter.streams.replicas = replicas
}

// Heartbeat sends one.
func (r *Reports) Heartbeat(ctx context.Context) error {
	_, err := r.heartbeat.Reconcile(ctx)
	return err
}

// Want sets the desired version of the key.
func (r *Reports) Want(key statesync.Key, version uint64) {
	r.reporter.registry.set(r.reporter.registry.entry(key), desired{received: true, version: version})
}

// Send sends a report of the key, which is answered with an error or nil. It reports
// whether the control plane was asked.
func (r *Reports) Send(ctx context.Context, key statesync.Key, content string, answer error) (asked bool, err error) {
	err = r.reporter.send(ctx, key, content, "ReportDeploymentStatus", func(context.Context) error {
		asked = true
		return answer
	})
	return asked, err
}

// Furnish has a namespace furnished, and returns how often that is new of so many times.
func Furnish(cell render.Cell, times int, names ...string) (fresh int, err error) {
	ps := parts{}
	for _, c := range components() {
		ps[c] = &part{owner: render.Owner(c, cell.Region)}
	}
	n, seen := &namespaces{cell: cell, parts: ps}, map[*furnishing]bool{}
	for range times {
		for _, name := range names {
			f, err := n.furnish(name)
			if err != nil {
				return 0, err
			}
			if !seen[f] {
				fresh++
			}
			seen[f] = true
		}
	}
	return fresh, nil
}

// allSeen are the kinds that cannot be seen: none.
func allSeen() []*ctrlv1.Problem { return nil }
