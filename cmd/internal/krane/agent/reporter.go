package agent

import (
	"context"
	"encoding/hex"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"

	ctrlv1 "github.com/seed-9e1ffd66/trueup/cmd/api/ctrl/v1"
	"github.com/seed-9e1ffd66/trueup/cmd/api/ctrl/v1/ctrlv1connect"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/krane/breaker"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/krane/pods"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/krane/stream"
	"github.com/seed-9e1ffd66/trueup/reconcile"
	"github.com/seed-9e1ffd66/trueup/statesync"
)

// reporter tells the control plane what runs, when that has changed since the
// last report that it accepted.
type reporter struct {
	client   ctrlv1connect.ClusterServiceClient
	breakers *breaker.Set
	metrics  *metrics
	logger   *slog.Logger
	book     *book
	observer *observer
	// observed returns the version up to which a collection is applied.
	observed func(collection string) uint64
	session  uint64
	sequence atomic.Uint64
	queue    *reconcile.Queue[statesync.Key]

	mu sync.Mutex
	// accepted is what each last accepted report said.
	accepted  map[statesync.Key]string
	histories map[statesync.Key]*pods.History
	// owed has the deployments that are gone and not acknowledged.
	owed map[statesync.Key]bool
}

const (
	reportTimeout = 10 * time.Second
	// settle is how long changes are collected before they are reported.
	settle = 100 * time.Millisecond
	// isGone is what an accepted report of a deletion said.
	isGone = "gone"
)

func (r *reporter) init() {
	r.accepted, r.histories, r.owed = map[statesync.Key]string{}, map[statesync.Key]*pods.History{}, map[statesync.Key]bool{}
	r.queue = &reconcile.Queue[statesync.Key]{
		Name: "reports", Reconcile: r.report, Workers: 8, Timeout: 2 * reportTimeout,
		Backoff: reconcile.Backoff{Min: 500 * time.Millisecond, Max: 30 * time.Second, Jitter: 0.5},
	}
}

// changed makes a report of the key follow, if there is anything new to say.
func (r *reporter) changed(key statesync.Key) {
	if key.Collection != string(stream.Policies) {
		r.queue.AddAfter(key, settle)
	}
}

// lost notes that a deployment is gone that nobody has said a word about.
func (r *reporter) lost(key statesync.Key) {
	if key.Collection != string(stream.Deployments) {
		return
	}
	r.owe(key)
	r.changed(key)
}

func (r *reporter) owe(key statesync.Key) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.owed[key] = true
	r.metrics.unreported.Set(float64(len(r.owed)))
}

// Reconcile implements reconcile.Reconciler: a look at everything.
func (r *reporter) Reconcile(context.Context) (reconcile.Result, error) {
	r.look()
	return reconcile.Result{}, nil
}

func (r *reporter) look() {
	keys := append(r.observer.keys(), r.book.wanted()...)
	r.mu.Lock()
	seen := map[statesync.Key]bool{}
	for key := range r.owed {
		keys = append(keys, key)
	}
	for _, key := range keys {
		seen[key] = true
	}
	for key := range r.accepted {
		if !seen[key] && !r.book.wish(key).known {
			delete(r.accepted, key)
			delete(r.histories, key)
		}
	}
	r.mu.Unlock()
	r.queue.Resync(sorted(keys)...)
}

// again makes everything of a collection be reported anew.
func (r *reporter) again(collection stream.Collection) {
	r.mu.Lock()
	maps.DeleteFunc(r.accepted, func(key statesync.Key, _ string) bool { return key.Collection == string(collection) })
	r.mu.Unlock()
	r.look()
}

// report sends one report, unless the last one said the same.
func (r *reporter) report(ctx context.Context, key statesync.Key) (reconcile.Result, error) {
	later := reconcile.Result{RequeueAfter: time.Second}
	if key.Collection == string(stream.Sentinels) {
		if !r.observer.known(kindSentinels) {
			return later, nil
		}
		return reconcile.Result{}, r.sentinel(ctx, key)
	}
	if !r.observer.known(kindPods) {
		return later, nil
	}
	return reconcile.Result{}, r.deployment(ctx, key)
}

func (r *reporter) deployment(ctx context.Context, key statesync.Key) error {
	running := r.observer.podsOf(key)
	w := r.book.wish(key)
	r.mu.Lock()
	history := r.histories[key]
	if history == nil {
		history = &pods.History{}
		r.histories[key] = history
	}
	gone := w.gone || r.owed[key] && !w.known
	r.mu.Unlock()
	_, name := stream.Split(key)
	request := &ctrlv1.ReportDeploymentStatusRequest{}
	// Of one key at a time, so the history is not shared.
	instances := history.Instances(running, time.Now())
	sum := pods.SumOf(instances)
	says := hex.EncodeToString(sum[:])
	switch {
	case gone:
		// What still shuts down is of no use to anybody.
		says = isGone
		r.owe(key)
		request.Change = &ctrlv1.ReportDeploymentStatusRequest_Delete_{Delete: &ctrlv1.ReportDeploymentStatusRequest_Delete{K8SName: name}}
	case !w.known && len(running) == 0:
		return nil
	default:
		request.Change = &ctrlv1.ReportDeploymentStatusRequest_Update_{Update: pods.Update(name, instances)}
	}
	return r.send(ctx, key, says, "ReportDeploymentStatus", func(ctx context.Context) error {
		request.AgentEpoch, request.Sequence, request.ObservedVersion = r.session, r.sequence.Add(1), r.observed(key.Collection)
		_, err := r.client.ReportDeploymentStatus(ctx, connect.NewRequest(request))
		return err
	})
}

func (r *reporter) sentinel(ctx context.Context, key statesync.Key) error {
	d := r.observer.sentinel(key)
	if d == nil {
		return nil
	}
	wanted := int32(1)
	if d.Spec.Replicas != nil {
		wanted = *d.Spec.Replicas
	}
	_, name := stream.Split(key)
	request := &ctrlv1.ReportSentinelStatusRequest{
		K8SName: name, AvailableReplicas: d.Status.AvailableReplicas, Health: pods.Health(wanted, d.Status.AvailableReplicas),
	}
	return r.send(ctx, key, fmt.Sprintf("%d %s", request.GetAvailableReplicas(), request.GetHealth()), "ReportSentinelStatus", func(ctx context.Context) error {
		request.AgentEpoch, request.Sequence, request.ObservedVersion = r.session, r.sequence.Add(1), r.observed(key.Collection)
		_, err := r.client.ReportSentinelStatus(ctx, connect.NewRequest(request))
		return err
	})
}

// send makes the call unless the last one that was accepted said the same.
func (r *reporter) send(ctx context.Context, key statesync.Key, says, rpc string, call func(context.Context) error) error {
	r.mu.Lock()
	same := r.accepted[key] == says
	r.mu.Unlock()
	if same {
		r.metrics.deduped.Inc()
		r.settled(key)
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	began := time.Now()
	err := r.breakers.Do(ctx, rpc, call)
	r.metrics.report(key.Collection, began, err)
	if connect.CodeOf(err) == connect.CodeNotFound && err != nil {
		// It knows nothing of this one, which no repetition changes.
		r.logger.DebugContext(ctx, "the control plane does not know what was reported", slog.String("key", key.String()))
		err = nil
	}
	if err != nil {
		r.logger.DebugContext(ctx, "report failed", slog.String("key", key.String()), slog.Any("error", err))
		return err
	}
	r.mu.Lock()
	r.accepted[key] = says
	r.mu.Unlock()
	r.settled(key)
	return nil
}

// settled drops a debt that is paid, or void because the deployment is back.
func (r *reporter) settled(key statesync.Key) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.owed, key)
	r.metrics.unreported.Set(float64(len(r.owed)))
}

// heartbeater tells the control plane that the agent lives.
type heartbeater struct {
	reporter         *reporter
	region, platform string
	interval         time.Duration
	// acknowledged returns how far the agent is, and the zero Cursor as long as
	// that is not known. reconnect lets the streams try again.
	acknowledged func() statesync.Cursor
	reconnect    func()
	last         time.Time
	failed       bool
}

// Reconcile implements reconcile.Reconciler. After a silence for which the
// control plane may have given up on the region, everything is reported anew.
// The first answer after a failure ends the pauses of the streams: the control
// plane is back, or a new token is there.
func (h *heartbeater) Reconcile(ctx context.Context) (reconcile.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	err := h.reporter.breakers.Do(ctx, "Heartbeat", func(ctx context.Context) error {
		at := h.acknowledged()
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
		h.reconnect()
	}
	if !h.last.IsZero() && time.Since(h.last) > 3*h.interval {
		h.reporter.again(stream.Deployments)
		h.reporter.again(stream.Sentinels)
	}
	h.last = time.Now()
	return reconcile.Result{}, nil
}
