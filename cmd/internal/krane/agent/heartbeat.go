package agent

import (
	"context"
	"fmt"
	"time"

	"connectrpc.com/connect"

	ctrlv1 "github.com/seed-9e1ffd66/trueup/cmd/api/ctrl/v1"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/krane/stream"
	"github.com/seed-9e1ffd66/trueup/reconcile"
)

// heartbeater reports to the control plane that the agent is alive, and its
// position.
type heartbeater struct {
	reporter         *reporter
	streams          *streams
	region, platform string
	interval         time.Duration

	last   time.Time // of the last answer
	failed bool      // the last one
}

// Reconcile implements reconcile.Reconciler: it sends one heartbeat. After a
// silence of three intervals the control plane may take the region for dead, so
// everything is reported anew. The first answer after a failure ends the pauses of
// the streams: the control plane is back, or the token is new.
func (h *heartbeater) Reconcile(ctx context.Context) (reconcile.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	err := h.reporter.breakers.Do(ctx, "Heartbeat", func(ctx context.Context) error {
		at := h.streams.acknowledged()
		_, err := h.reporter.client.Heartbeat(ctx, connect.NewRequest(&ctrlv1.HeartbeatRequest{
			Region: h.region, Platform: h.platform,
			AgentEpoch: h.reporter.session, Sequence: h.reporter.sequence.Add(1), ObservedVersion: at.Version, Epoch: at.Epoch, Mark: at.Mark.String(),
		}))
		return err
	})
	failed := h.failed
	h.failed = err != nil
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("heartbeat: %w", err)
	}
	if failed {
		h.streams.reconnect()
	}
	if !h.last.IsZero() && time.Since(h.last) > 3*h.interval {
		h.reporter.again(stream.Deployments)
		h.reporter.again(stream.Sentinels)
	}
	h.last = time.Now()
	return reconcile.Result{}, nil
}
