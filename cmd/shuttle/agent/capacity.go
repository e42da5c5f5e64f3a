package agent

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/seed-9e1ffd66/trueup/cmd/api/starbase"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/program"
	"github.com/seed-9e1ffd66/trueup/reconcile"
	"github.com/seed-9e1ffd66/trueup/snapshot"
)

// capacity reports how many customer pods the cluster has.
type capacity struct {
	config  *Config
	pods    *podView
	client  *client
	metrics *metrics
}

// newCapacityLoop returns the unit that reports at each interval.
func newCapacityLoop(config *Config, pods *podView, client *client, metrics *metrics, logger *slog.Logger) *reconcile.Loop {
	return &reconcile.Loop{
		Name: "capacity", Reconciler: &capacity{config: config, pods: pods, client: client, metrics: metrics},
		Interval: config.CapacityInterval, Jitter: jitter, Timeout: config.CapacityInterval, Logger: program.Changes(logger),
		Backoff: reconcile.Backoff{Min: time.Second, Max: config.CapacityInterval, Jitter: 0.5},
	}
}

// Reconcile implements reconcile.Reconciler: one report. Pods that may have changed
// unseen are not reported, and that they are not listed yet is no error: their watch logs why.
func (c *capacity) Reconcile(ctx context.Context) (reconcile.Result, error) {
	now := time.Now()
	seen := c.pods.Seen()
	if seen.IsZero() {
		return reconcile.Result{RequeueAfter: time.Second}, nil
	}
	if now.Sub(seen) >= 2*c.config.CapacityInterval {
		return reconcile.Result{}, fmt.Errorf("capacity: pods: %w", snapshot.ErrStale)
	}
	count, limit := int64(c.pods.Len()), int64(c.config.SoftLimit)
	report := &starbase.CapacityReport{
		ClusterID: c.config.ClusterID, CurrentPodCount: &count, SoftLimit: &limit, Timestamp: now.UTC().Format(time.RFC3339Nano),
	}
	if err := c.client.reportCapacity(ctx, report); err != nil {
		return reconcile.Result{}, fmt.Errorf("capacity: %w", err)
	}
	c.metrics.capacitySent.Inc()
	return reconcile.Result{}, nil
}
