package agent

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/seed-9e1ffd66/trueup/cmd/krane/internal/breaker"
	"github.com/seed-9e1ffd66/trueup/cmd/krane/stream"
	"github.com/seed-9e1ffd66/trueup/statesync"
)

// Why the control plane refuses the region. No object is deleted meanwhile, and an
// operator has to act.
const (
	unknownRegion = "unknown_region"
	regionClaimed = "region_claimed"
)

// forgotten is how long a call counts as failing after its last failure. Streams and
// heartbeats are repeated sooner, for ever; a report may become needless.
const forgotten = 2 * time.Minute

// contact is whether the control plane answers, over all streams and calls. An outage
// is the time in which one of them fails or more: one line at its beginning, one at
// its end. It also holds why the region is refused, as deletions_held.
type contact struct {
	address string
	metrics *metrics
	logger  *slog.Logger
	// refusedToken is called when a stream is refused its token and was not the time
	// before. It is not called again while the token stays refused.
	refusedToken func()

	mu sync.Mutex
	// failing has the streams and calls whose last attempt failed.
	failing map[string]failure
	// began is when the outage began, zero without one.
	began    time.Time
	failures int
}

// failure is the last one of a call, and why the region was refused, "" if it was not.
type failure struct {
	at      time.Time
	err     error
	refused string
}

func newContact(address string, m *metrics, logger *slog.Logger) *contact {
	c := &contact{address: address, metrics: m, logger: logger, failing: map[string]failure{}}
	c.publish()
	return c
}

// call takes the result of a unary call. Of the errors only those count that are not
// an answer about the request.
func (c *contact) call(ctx context.Context, rpc string, err error) {
	switch {
	case errors.Is(err, breaker.ErrOpen),
		errors.Is(err, context.Canceled),
		ctx.Err() != nil && err != nil && !errors.Is(ctx.Err(), context.DeadlineExceeded):
	case err == nil, answer(err):
		c.answered(rpc)
	case !connect.IsWireError(err), refusal(err):
		c.failed(rpc, err)
	}
}

// answer reports whether the error is an answer about the request.
func answer(err error) bool {
	code := connect.CodeOf(err)
	return connect.IsWireError(err) && (code == connect.CodeNotFound || code == connect.CodeInvalidArgument || aboutEpoch(err))
}

// refusal reports whether the error is about the caller, or the whole server.
func refusal(err error) bool {
	return slices.Contains([]connect.Code{
		connect.CodeUnauthenticated, connect.CodePermissionDenied, connect.CodeUnavailable, connect.CodeDeadlineExceeded,
		connect.CodeResourceExhausted, connect.CodeUnimplemented, connect.CodeFailedPrecondition,
	}, connect.CodeOf(err))
}

// refusedFor returns why an error refuses the region, "" if it does not.
func refusedFor(err error) string {
	switch reason := stream.Reason(err); {
	case errors.Is(err, statesync.ErrUnknownScope), reason == "unknown-region":
		return unknownRegion
	case errors.Is(err, stream.ErrClaimed), reason == "region-claimed":
		return regionClaimed
	default:
		return ""
	}
}

// failed takes a failure of a stream or call.
func (c *contact) failed(what string, err error) {
	c.metrics.failures.WithLabelValues(what).Inc()
	c.logger.Debug("call to the control plane failed", slog.String("call", what), slog.Any("error", err))
	c.mu.Lock()
	defer c.mu.Unlock()
	now, refused := time.Now(), refusedFor(err)
	before := c.failing[what]
	if refused == "" {
		refused = before.refused // until it is answered otherwise
	}
	if errors.Is(err, statesync.ErrUnauthenticated) && !errors.Is(before.err, statesync.ErrUnauthenticated) {
		c.refusedToken()
	}
	c.failing[what] = failure{now, err, refused}
	c.failures++
	c.publish()
	if c.began.IsZero() {
		c.began, c.failures = now, 1
		logger := c.logger.With(
			slog.String("call", what), slog.String("address", c.address), slog.Any("error", err), slog.Time("since", now),
		)
		if refused != "" {
			logger.Warn("the control plane refuses the region")
		} else {
			logger.Warn("no contact with the control plane")
		}
	}
}

// answered takes a success of a stream or call.
func (c *contact) answered(what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.began.IsZero() {
		return
	}
	now := time.Now()
	delete(c.failing, what)
	for other, f := range c.failing {
		if now.Sub(f.at) > forgotten {
			delete(c.failing, other)
		}
	}
	c.publish()
	if len(c.failing) == 0 {
		c.logger.Info(
			"contact with the control plane again",
			slog.String("address", c.address),
			slog.Duration("after", now.Sub(c.began)),
			slog.Int("failures", c.failures),
		)
		c.began = time.Time{}
	}
}

// refused reports whether the last answer to a stream or call refuses the region.
func (c *contact) refused() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, f := range c.failing {
		if f.refused != "" {
			return true
		}
	}
	return false
}

// unauthenticated reports whether a stream was refused its token and pauses.
func (c *contact) unauthenticated() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, f := range c.failing {
		if errors.Is(f.err, statesync.ErrUnauthenticated) {
			return true
		}
	}
	return false
}

// publish sets the metric. The mutex is held, or not needed yet.
func (c *contact) publish() {
	for _, reason := range []string{unknownRegion, regionClaimed} {
		raised := 0.0
		for _, f := range c.failing {
			if f.refused == reason {
				raised = 1
			}
		}
		c.metrics.held.WithLabelValues(reason).Set(raised)
	}
}
