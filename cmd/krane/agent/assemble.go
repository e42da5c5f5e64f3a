package agent

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	clientmetadata "k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/seed-9e1ffd66/trueup/apply/budget"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/owntoken"
	"github.com/seed-9e1ffd66/trueup/cmd/krane/config"
	"github.com/seed-9e1ffd66/trueup/cmd/krane/control"
	"github.com/seed-9e1ffd66/trueup/cmd/krane/internal/breaker"
	"github.com/seed-9e1ffd66/trueup/cmd/krane/internal/vault"
	"github.com/seed-9e1ffd66/trueup/cmd/krane/render"
	"github.com/seed-9e1ffd66/trueup/cmd/krane/stream"
	"github.com/seed-9e1ffd66/trueup/internal/kubewatch"
	"github.com/seed-9e1ffd66/trueup/reconcile"
	"github.com/seed-9e1ffd66/trueup/statesync"
)

// work is the agent without its listener.
type work struct {
	group   reconcile.Group
	parts   parts
	streams *streams
}

// ready returns nil once the cluster is observed and each list was proven once.
func (w *work) ready() error {
	if err := w.parts.synced(); err != nil {
		return fmt.Errorf("the cluster is not observed yet: %w", err)
	}
	return w.streams.ready()
}

// cellOf returns what all objects of an agent have in common.
func cellOf(c *config.Config) render.Cell {
	return render.Cell{
		Region:       c.Cluster.Region,
		Platform:     c.Cluster.Platform,
		RuntimeClass: c.RuntimeClass,
		StorageClass: c.StorageClassName,
		PodSecurity:  c.PodSecurity,
		Registry:     render.Registry{URL: c.Registry.URL, Username: c.Registry.Username, Password: c.Registry.Password.Reveal()},
	}
}

// assemble makes the parts of the agent and connects them. It starts nothing.
func (a *Agent) assemble(m *metrics) (*work, error) {
	metadata, typed, objects, err := a.kubernetes()
	if err != nil {
		return nil, err
	}
	periods := a.Periods.complete()
	cell := cellOf(&a.Config)
	tokens := owntoken.New(owntoken.Config{
		Given: a.Config.GivenToken, Agent: a.Config.Cluster.Region + "@" + a.Config.Cluster.Platform, Kubernetes: objects,
		Secret: a.Config.TokenSecret, ControlPlane: a.Config.Control.URL, Logger: a.Logger,
	})
	client := control.New(a.Config, tokens, a.Control)
	registry := newRegistry()
	contact := newContact(address(a.Config), m, a.Logger)
	repairs := &repairer{registry: registry, logger: a.Logger}
	parts := newParts(metadata, typed.Discovery(), cell.Region, a.Logger, repairs.drifted, repairs.ended)
	m.contested = parts.contested
	problems := newProblems(parts.unseen())
	streams := &streams{contact: contact, metrics: m, logger: a.Logger, problems: problems}

	reports := &reporter{
		client: client, breakers: &breaker.Set{OnChange: m.breaker, Pause: periods.Pause}, metrics: m, logger: a.Logger,
		registry: registry, streams: streams, contact: contact, inventory: periods.Inventory,
	}
	reports.init()
	reports.observer = newObserver(typed, cell.Region, m, a.Logger, func(key statesync.Key) {
		reports.changed(key)
		repairs.left(key)
	})
	converge := &converger{
		cell: cell, vault: cmp.Or(a.Vault, newVault(a.Config.Vault)), parts: parts, registry: registry,
		namespaces: &namespaces{cell: cell, parts: parts}, reporter: reports, metrics: m, problems: problems, proven: streams.proven,
	}
	repairs.converger = converge
	repairs.queue = &reconcile.Queue[statesync.Key]{
		Name: "repairs", Reconcile: repairs.repair, Workers: 8,
		Backoff: reconcile.Backoff{Min: time.Second, Max: time.Minute, Jitter: 0.5}, Logger: a.Logger,
	}
	sweep := &sweeper{
		streams: streams, parts: parts, registry: registry, reporter: reports, metrics: m, logger: a.Logger,
		grace: periods.Absence, problems: problems,
	}
	sweep.init(a.Config.MaxDeletePercent, periods.Window, a.Config.StateDir)
	sweeps := &reconcile.Loop{Name: "orphans", Reconciler: sweep, Interval: periods.Resync, Jitter: 0.1, Logger: a.Logger}
	streams.synced = func(collection stream.Collection, s statesync.Snapshot, other bool) {
		if other {
			reports.again(collection) // the database may lack earlier reports
		}
		registry.forget(string(collection), s.Items)
		problems.keep(collection, s.Items)
		repairs.queue.Add(registry.confirm(string(collection), s.Items)...)
		sweeps.Trigger()
	}
	streams.open(streamConfig{client: client, region: cell.Region, periods: periods, logger: a.Logger, handle: converge.handle})
	resync := &resyncer{
		client: client, breakers: &breaker.Set{OnChange: m.breaker, Pause: periods.Pause, Failed: breaker.Unreachable},
		streams: streams, contact: contact, parts: parts, registry: registry, converger: converge, metrics: m, logger: a.Logger,
	}
	sweep.ask = resync.denied
	resync.queue = &reconcile.Queue[statesync.Key]{Name: "queries", Reconcile: resync.query, Workers: 4, Logger: a.Logger}

	w := &work{group: reconcile.Group{StopTimeout: stopTimeout}, parts: parts, streams: streams}
	add := func(name string, s reconcile.Starter) {
		w.group.Members = append(w.group.Members, reconcile.Member{Name: name, Starter: s})
	}
	observed := func(s reconcile.Starter) reconcile.Starter {
		return &afterwards{parts: parts, patience: periods.Settle, logger: a.Logger, starter: s}
	}
	for _, c := range components() {
		add("live "+string(c), parts[c].live)
	}
	add("observer", reports.observer)
	add("reports", reports.queue)
	add("report loop", &reconcile.Loop{Name: "reports", Reconciler: reports, Interval: periods.Report, Jitter: 0.1, Logger: a.Logger})
	heartbeats := &reconcile.Loop{ // the contact logs what fails
		Name: "heartbeat", Interval: periods.Heartbeat,
		Backoff: reconcile.Backoff{Min: min(time.Second, periods.Heartbeat), Max: periods.Heartbeat, Jitter: 0.5},
		Reconciler: &heartbeater{
			reporter: reports, streams: streams, region: cell.Region, platform: cell.Platform, interval: periods.Heartbeat,
			held: sweep.approvals.heldDeletions, problems: problems.report, approved: func(digest string) {
				if sweep.approvals.approve(digest) {
					sweeps.Trigger()
				}
			},
		},
	}
	sweep.heldChanged, problems.changed = heartbeats.Trigger, heartbeats.Trigger
	reports.session.renew = heartbeats.Trigger
	contact.refusedToken = heartbeats.Trigger
	add("heartbeat", heartbeats)
	add("token renewal", tokens.Loop())
	add("token", &reconcile.Loop{Name: "token", Interval: tokenInterval, Logger: a.Logger, Reconciler: &tokenWatcher{
		read: tokens.Token,
		changed: func() {
			heartbeats.Trigger()
			streams.reconnect()
		},
	}})
	for _, r := range resources() {
		add("replica "+string(r.collection), observed(streams.replicas[r.collection]))
	}
	add("repairs", observed(repairs.queue))
	add("queries", observed(resync.queue))
	add("orphans", sweeps)
	add("resync", observed(&reconcile.Loop{Name: "resync", Reconciler: resync, Interval: periods.Resync, Jitter: 0.1, Logger: a.Logger}))
	add("namespaces", &reconcile.Loop{
		Name:     "namespaces",
		Interval: min(periods.Resync, periods.Namespace),
		Jitter:   0.1,
		Logger:   a.Logger,
		Reconciler: &namespaceSweeper{
			streams:  streams,
			parts:    parts,
			registry: registry,
			session:  &reports.session,
			logger:   a.Logger,
			after:    periods.Namespace,
			empty:    map[string]time.Time{},
		},
	})
	add("gauges", &reconcile.Loop{Name: "gauges", Interval: min(15*time.Second, periods.Report), Reconciler: streams})
	return w, nil
}

// kubernetes returns the clients, whose requests share one budget.
func (a *Agent) kubernetes() (clientmetadata.Interface, kubernetes.Interface, dynamic.Interface, error) {
	access := rest.CopyConfig(a.Kubernetes)
	access.UserAgent = "krane"
	access.QPS, access.Burst = float32(a.Config.Kubernetes.QPS), a.Config.Kubernetes.Burst
	if access.QPS == 0 {
		access.QPS = -1 // the server's fairness decides
	}
	access.Wrap((&budget.Budget{}).Wrap)
	metadata, err := clientmetadata.NewForConfig(access)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("kubernetes client: %w", err)
	}
	objects, err := kubewatch.Dynamic(access, nil)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("kubernetes client: %w", err)
	}
	typed, err := kubernetes.NewForConfig(access)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("kubernetes client: %w", err)
	}
	return metadata, typed, objects, nil
}

// address returns the address of the control plane as log lines show it.
func address(c config.Config) string {
	if c.Control.URL == nil {
		return ""
	}
	return c.Control.URL.Redacted()
}

func newVault(c config.Vault) vault.Decrypter {
	switch {
	case c.URL != nil:
		return vault.NewService(c.URL, c.Token.Reveal())
	case c.KeyFile != "":
		return &vault.KeyFile{Path: c.KeyFile}
	default:
		return vault.None{}
	}
}

// afterwards is a starter that waits until the cluster is observed, at most for
// its patience.
type afterwards struct {
	parts    parts
	patience time.Duration
	logger   *slog.Logger
	starter  reconcile.Starter
}

// Start waits and then runs the starter until ctx ends.
func (a *afterwards) Start(ctx context.Context) error {
	wait, cancel := context.WithTimeout(ctx, a.patience)
	if err := a.parts.waitSynced(wait); err != nil && ctx.Err() == nil {
		a.logger.WarnContext(ctx, "watches not synced, starting anyway", slog.Any("error", err))
	}
	cancel()
	return a.starter.Start(ctx)
}
