package agent

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"connectrpc.com/connect"

	ctrlv1 "github.com/seed-9e1ffd66/trueup/cmd/api/ctrl/v1"
	"github.com/seed-9e1ffd66/trueup/cmd/krane/stream"
	"github.com/seed-9e1ffd66/trueup/reconcile"
)

// heartbeater reports to the control plane that the agent is alive, and its
// position.
type heartbeater struct {
	reporter         *reporter
	streams          *streams
	region, platform string
	interval         time.Duration
	// problems returns what cannot be done, held the deletions that wait for an approval, and
	// approved takes the digest that was approved last.
	problems func() []*ctrlv1.Problem
	held     func() *ctrlv1.HeldDeletions
	approved func(digest string)

	last    time.Time // of the last answer
	failed  bool      // the last one
	yielded bool      // to another agent, which was said
}

// Reconcile implements reconcile.Reconciler: it sends one heartbeat. After a
// silence of three intervals the control plane may take the region for dead, so
// everything is reported again, as it is after another epoch was claimed. An answer
// ends the pauses of the streams if the heartbeat before failed, or if a stream was
// refused its token: the control plane is back, or the token is new.
func (h *heartbeater) Reconcile(ctx context.Context) (reconcile.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	session := &h.reporter.session
	claim, another := session.claims(), false
	err := h.reporter.breakers.Do(ctx, "Heartbeat", func(ctx context.Context) error {
		at := h.streams.acknowledged()
		request := &ctrlv1.HeartbeatRequest{Region: h.region, Platform: h.platform, Claim: claim, Yield: claim && session.superseded.Load()}
		if !claim {
			request.AgentEpoch, request.Sequence = session.epoch(), session.next()
			request.ObservedVersion, request.Epoch, request.Mark = at.Version, at.Epoch, at.Mark.String()
			request.HeldDeletions, request.Problems = h.held(), h.problems()
		}
		answer, err := h.reporter.client.Heartbeat(ctx, connect.NewRequest(request))
		if err == nil && claim {
			another = session.claim(answer.Msg.GetAgentEpoch())
		}
		if err == nil {
			h.approved(answer.Msg.GetApprovedDeletions())
		}
		return err
	})
	switch {
	case connect.IsWireError(err) && connect.CodeOf(err) != connect.CodeInvalidArgument && !aboutEpoch(err):
		h.streams.contact.failed("Heartbeat", err) // it asks for nothing in particular
	default:
		h.streams.contact.call(ctx, "Heartbeat", err)
	}
	session.refused(err)
	h.yield(ctx, session.superseded.Load())
	if stream.Reason(err) == reasonHeld {
		err = nil // there is nothing else to do than to wait
	}
	failed := h.failed
	h.failed = err != nil
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("heartbeat: %w", err)
	}
	if failed || h.streams.contact.unauthenticated() {
		h.streams.reconnect()
	}
	// Another epoch is claimed because the database may lack earlier reports.
	if another || !h.last.IsZero() && time.Since(h.last) > 3*h.interval {
		h.reporter.again(stream.Deployments)
		h.reporter.again(stream.Sentinels)
	}
	h.last = time.Now()
	return reconcile.Result{}, nil
}

// yield says once that another agent works for the region, and once that this one does.
func (h *heartbeater) yield(ctx context.Context, yields bool) {
	if yields == h.yielded {
		return
	}
	h.yielded = yields
	if yields {
		h.reporter.metrics.superseded.Set(1)
		h.reporter.logger.WarnContext(ctx, "work paused: another agent of this region has started",
			slog.Uint64("agent_epoch", h.reporter.session.epoch()))
		return
	}
	h.reporter.metrics.superseded.Set(0)
	h.reporter.logger.InfoContext(ctx, "this agent works for the region again", slog.Uint64("agent_epoch", h.reporter.session.epoch()))
}
