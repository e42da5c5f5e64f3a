package agent

import (
	"context"
	"iter"
	"log/slog"
	"time"

	"github.com/seed-9e1ffd66/trueup/cmd/api/starbase"
	"github.com/seed-9e1ffd66/trueup/snapshot"
)

// newSnapshots returns the unit that records a billing record for each customer pod at
// each instant of its interval.
func newSnapshots(
	config *Config,
	pods *podView,
	client *client,
	metrics *metrics,
	logger *slog.Logger,
) *snapshot.Recorder[starbase.Snapshot] {
	recorder := &snapshot.Recorder[starbase.Snapshot]{
		Source: pods, Period: config.SnapshotInterval, Spread: config.SnapshotInterval / 3, MaxRecords: starbase.MaxSnapshots,
		Collect: func(_ context.Context, at time.Time) (iter.Seq[starbase.Snapshot], error) {
			return billed(pods.All(), config.ClusterID, at), nil
		},
		Sink:   &snapshot.HTTPSink{URL: client.base + "/snapshots", Member: "snapshots", RejectedID: "snapshot_id", Client: client},
		Logger: logger,
		OnPass: func(p snapshot.Pass) {
			metrics.observeSnapshots(p)
			for _, r := range p.Rejections[:min(len(p.Rejections), maxLoggedRejections)] {
				logger.Warn("snapshot rejected", slog.String("snapshot_id", r.ID), slog.String("reason", r.Reason))
			}
		},
	}
	if config.SnapshotWALDir != "" {
		recorder.Spool = &snapshot.Spool{Dir: config.SnapshotWALDir}
	}
	return recorder
}

// maxLoggedRejections bounds the lines about one pass.
const maxLoggedRejections = 10

// billed yields the records of the pods that existed at the instant: a record that is made
// later, because the agent was restarted, bills nothing that came after it.
func billed(pods []pod, clusterID string, at time.Time) iter.Seq[starbase.Snapshot] {
	return func(yield func(starbase.Snapshot) bool) {
		instant := at.Format(time.RFC3339)
		for i := range pods {
			p := &pods[i]
			if p.created.After(at) {
				continue
			}
			s := starbase.Snapshot{
				WorkspaceID: p.workspace, ProjectID: p.project, Environment: p.environment, ServiceID: p.service,
				PodID: string(p.uid), Tier: p.tier, Phase: p.phase, ClusterID: clusterID, SnapshotTimestamp: instant,
				CPUMillis: p.cpuMillis, MemoryBytes: p.memoryBytes,
			}
			s.SnapshotID = s.ID()
			if !yield(s) {
				return
			}
		}
	}
}
