package pools

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/seed-9e1ffd66/trueup/cloud"
	"github.com/seed-9e1ffd66/trueup/cloud/kube/nodes"
	"github.com/seed-9e1ffd66/trueup/reconcile"
)

// Announced reads what a cloud announces of machines, and has the passes of their pools heed it.
// A message is deleted once the machines that it names are drained, are no longer there, or are of
// no pool: another process reads it again until then. An Announced is safe for concurrent use, and
// must not be copied.
type Announced struct {
	// Queue has the messages. Required.
	Queue cloud.Notices
	// Cluster has the Nodes of the machines; it must have seen all of them before Start. Required.
	Cluster *nodes.Cluster
	// Look asks for a pass of a pool. Required.
	Look func(pool string)
	// Logger receives each notice once, and what went wrong. Required.
	Logger *slog.Logger
	// Keep is for how long a notice counts that has not come again. Default 10m.
	Keep time.Duration

	mu      sync.Mutex
	notices map[string]announcement // by machine
}

type announcement struct {
	notice cloud.Notice
	// started is when the machine was started last when the notice came. A machine that has been
	// started since has done what a notice asks for that does not end it.
	started time.Time
	until   time.Time
}

// open reports whether something is to be done for the notice.
func (a announcement) open(v nodes.View) bool {
	switch v.Status.State {
	case cloud.StateWarmup:
		return v.Pool != ""
	case cloud.StateRunning:
		return v.Pool != "" && (a.notice.Ends || v.Status.LastStarted.Equal(a.started))
	case cloud.StateStandby:
		return v.Pool != "" && a.notice.Ends
	default:
		return false
	}
}

// retryReceive is when a queue is asked again that has failed.
var retryReceive = reconcile.Backoff{Min: time.Second, Max: time.Minute, Jitter: 0.2} //nolint:gochecknoglobals // constant

// receivePause bounds how often a queue is asked that returns nothing at once.
const receivePause = time.Second

// Start reads messages until ctx ends; then it returns nil. An error of the queue is logged, and
// the queue asked again after a while.
func (a *Announced) Start(ctx context.Context) error {
	failures := 0
	for ctx.Err() == nil {
		messages, err := a.Queue.Receive(ctx)
		if err == nil {
			err = a.take(ctx, messages)
		}
		pause := receivePause
		switch {
		case ctx.Err() != nil:
			return nil //nolint:nilerr // an error is of the end
		case err != nil:
			failures++
			pause, _ = retryReceive.Next(failures)
			a.Logger.WarnContext(ctx, "notices of the cloud not read", slog.Any("error", err), slog.Duration("again", pause))
		case len(messages) > 0:
			failures, pause = 0, 0
		default:
			failures = 0
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
	return nil
}

// take notes what messages announce, and deletes those that need nothing more.
func (a *Announced) take(ctx context.Context, messages []cloud.Message) error {
	var done []cloud.Message
	var errs []error
	for _, m := range messages {
		if m.Err != nil {
			a.Logger.WarnContext(ctx, "notice of the cloud dropped", slog.Any("error", m.Err))
		}
		open := false
		for _, n := range m.Notices {
			open = a.open(ctx, n) || open
		}
		if !open {
			done = append(done, m)
		}
	}
	if len(done) > 0 {
		errs = append(errs, a.Queue.Delete(ctx, done))
	}
	return errors.Join(errs...)
}

// open notes a notice, and reports whether something is to be done for it.
func (a *Announced) open(ctx context.Context, n cloud.Notice) bool {
	v, _ := a.Cluster.OfMachine(n.Machine)
	a.mu.Lock()
	noted, again := a.notices[n.Machine]
	if !again || noted.notice != n {
		noted = announcement{notice: n, started: v.Status.LastStarted}
	}
	noted.until = time.Now().Add(cmp.Or(a.Keep, 10*time.Minute))
	open := noted.open(v)
	if open {
		set(&a.notices, n.Machine, noted)
	} else {
		delete(a.notices, n.Machine)
	}
	a.mu.Unlock()
	if !open {
		return false
	}
	if !again {
		a.Logger.InfoContext(ctx, "notice of the cloud", slog.String("pool", v.Pool), slog.String("node", v.Status.Name),
			slog.String("machine", n.Machine), slog.String("reason", n.Reason), slog.Bool("ends", n.Ends))
	}
	a.Look(v.Pool)
	return true
}

// Notices returns what is announced of machines and not done yet, for [cloud.Observed].Notices.
func (a *Announced) Notices() map[string]cloud.Notice {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := make(map[string]cloud.Notice, len(a.notices))
	for id, n := range a.notices {
		if v, _ := a.Cluster.OfMachine(id); !time.Now().Before(n.until) {
			delete(a.notices, id)
		} else if n.open(v) {
			out[id] = n.notice
		}
	}
	return out
}
