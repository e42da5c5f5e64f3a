package agent

import (
	"context"
	"encoding/hex"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"connectrpc.com/connect"

	ctrlv1 "github.com/seed-9e1ffd66/trueup/cmd/api/ctrl/v1"
	"github.com/seed-9e1ffd66/trueup/cmd/api/ctrl/v1/ctrlv1connect"
	"github.com/seed-9e1ffd66/trueup/cmd/krane/internal/breaker"
	"github.com/seed-9e1ffd66/trueup/cmd/krane/internal/pods"
	"github.com/seed-9e1ffd66/trueup/cmd/krane/stream"
	"github.com/seed-9e1ffd66/trueup/reconcile"
	"github.com/seed-9e1ffd66/trueup/statesync"
)

// reporter reports to the control plane what runs, when that has changed since the
// last report that was accepted.
type reporter struct {
	client   ctrlv1connect.ClusterServiceClient
	breakers *breaker.Set
	metrics  *metrics
	logger   *slog.Logger
	registry *registry
	observer *observer
	streams  *streams
	contact  *contact
	session  session
	queue    *reconcile.Queue[statesync.Key]

	// inventory is how long an accepted report holds.
	inventory time.Duration

	mu sync.Mutex
	// accepted has each key's last report that was answered.
	accepted  map[statesync.Key]accepted
	histories map[statesync.Key]*pods.History
	// owed has the deployments that are deleted and whose report is not acknowledged.
	owed map[statesync.Key]bool
}

// accepted is the content of a report that was answered, and when.
type accepted struct {
	content string
	at      time.Time
	// holds is how long it is not repeated.
	holds time.Duration
	// unknown is whether the control plane does not know the key, of which version is what
	// was desired then. Such a report is repeated more and more seldom, and at once when the
	// key is desired again.
	unknown bool
	version uint64
}

const (
	reportTimeout = 10 * time.Second
	// reportDelay is how long changes are collected before they are reported.
	reportDelay = 100 * time.Millisecond
	// isGone is the content of a report of a deletion.
	isGone = "gone"
)

func (r *reporter) init() {
	r.accepted, r.histories, r.owed = map[statesync.Key]accepted{}, map[statesync.Key]*pods.History{}, map[statesync.Key]bool{}
	r.queue = &reconcile.Queue[statesync.Key]{
		Name: "reports", Reconcile: r.report, Workers: 8, Timeout: 2 * reportTimeout,
		Backoff: reconcile.Backoff{Min: 500 * time.Millisecond, Max: 30 * time.Second, Jitter: 0.5},
	}
}

// changed queues a report of the key, which is sent if its content is new.
func (r *reporter) changed(key statesync.Key) {
	if reported(key) {
		r.queue.AddAfter(key, reportDelay)
	}
}

// reported reports whether there is a report about the key. There is none of policies: one
// of the name of a deployment would say that nothing runs of it.
func reported(key statesync.Key) bool { return key.Collection != string(stream.Policies) }

// lost records that a deployment was deleted without a delete message.
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

// Reconcile implements reconcile.Reconciler: it queues all reports.
func (r *reporter) Reconcile(context.Context) (reconcile.Result, error) {
	r.queueAll()
	return reconcile.Result{}, nil
}

func (r *reporter) queueAll() {
	keys := append(r.observer.keys(), r.registry.present()...)
	r.mu.Lock()
	seen := map[statesync.Key]bool{}
	for key := range r.owed {
		keys = append(keys, key)
	}
	for _, key := range keys {
		seen[key] = true
	}
	for key := range r.accepted {
		if !seen[key] && !r.registry.desired(key).received {
			delete(r.accepted, key)
			delete(r.histories, key)
		}
	}
	r.mu.Unlock()
	r.queue.Resync(slices.DeleteFunc(sorted(keys), func(key statesync.Key) bool { return !reported(key) })...)
}

// again has each key of a collection reported again.
func (r *reporter) again(collection stream.Collection) {
	r.mu.Lock()
	maps.DeleteFunc(r.accepted, func(key statesync.Key, _ accepted) bool { return key.Collection == string(collection) })
	r.mu.Unlock()
	r.queueAll()
}

// report sends one report, unless the last accepted one had the same content.
func (r *reporter) report(ctx context.Context, key statesync.Key) (reconcile.Result, error) {
	later := reconcile.Result{RequeueAfter: time.Second}
	if !r.session.claimed() {
		return later, nil
	}
	if key.Collection == string(stream.Sentinels) {
		if !r.observer.sentinels.Synced() {
			return later, nil
		}
		return reconcile.Result{}, r.sentinel(ctx, key)
	}
	if !r.observer.pods.Synced() {
		return later, nil
	}
	return reconcile.Result{}, r.deployment(ctx, key)
}

func (r *reporter) deployment(ctx context.Context, key statesync.Key) error {
	running := r.observer.pods.Of(key)
	d := r.registry.desired(key)
	r.mu.Lock()
	history := r.histories[key]
	if history == nil {
		history = &pods.History{}
		r.histories[key] = history
	}
	gone := d.gone || r.owed[key] && !d.received
	r.mu.Unlock()
	_, name := stream.Split(key)
	request := &ctrlv1.ReportDeploymentStatusRequest{}
	// One worker per key, so the history is not shared.
	instances := history.Instances(running, time.Now())
	sum := pods.SumOf(instances)
	content := hex.EncodeToString(sum[:])
	switch {
	case gone:
		// Pods that still shut down are not reported.
		content = isGone
		r.owe(key)
		request.Change = &ctrlv1.ReportDeploymentStatusRequest_Delete_{Delete: &ctrlv1.ReportDeploymentStatusRequest_Delete{K8SName: name}}
	case !d.received && len(running) == 0:
		return nil
	default:
		request.Change = &ctrlv1.ReportDeploymentStatusRequest_Update_{Update: pods.Update(name, instances)}
	}
	return r.send(ctx, key, content, "ReportDeploymentStatus", func(ctx context.Context) error {
		request.AgentEpoch, request.Sequence, request.ObservedVersion = r.session.epoch(), r.session.next(), r.streams.applied(
			stream.Collection(key.Collection),
		)
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
	return r.send(
		ctx,
		key,
		fmt.Sprintf("%d %s", request.GetAvailableReplicas(), request.GetHealth()),
		"ReportSentinelStatus",
		func(ctx context.Context) error {
			request.AgentEpoch, request.Sequence, request.ObservedVersion = r.session.epoch(), r.session.next(), r.streams.applied(
				stream.Collection(key.Collection),
			)
			_, err := r.client.ReportSentinelStatus(ctx, connect.NewRequest(request))
			return err
		},
	)
}

// send makes the call unless the last accepted one had the same content and still
// holds.
func (r *reporter) send(ctx context.Context, key statesync.Key, content, rpc string, call func(context.Context) error) error {
	version := r.registry.desired(key).version
	r.mu.Lock()
	before, ok := r.accepted[key]
	r.mu.Unlock()
	same := ok && before.content == content && (!before.unknown || before.version == version)
	if same && time.Since(before.at) < before.holds {
		r.metrics.deduped.Inc()
		r.paid(key)
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	began := time.Now()
	err := r.breakers.Do(ctx, rpc, call)
	r.contact.call(ctx, rpc, err)
	r.metrics.report(key.Collection, began, err)
	unknown := err != nil && connect.CodeOf(err) == connect.CodeNotFound
	if unknown {
		// Nothing was stored: a later check for unreported changes sends it again.
		r.logger.DebugContext(ctx, "reported key unknown to the control plane", slog.String("key", key.String()))
		err = nil
	}
	r.session.refused(err)
	if err != nil {
		r.logger.DebugContext(ctx, "report failed", slog.String("key", key.String()), slog.Any("error", err))
		return err
	}
	now := accepted{content: content, at: time.Now(), holds: r.inventory, unknown: unknown, version: version}
	if unknown {
		now.holds = time.Second
		if same && before.unknown {
			now.holds = min(2*before.holds, r.inventory)
		}
	}
	r.mu.Lock()
	r.accepted[key] = now
	r.mu.Unlock()
	r.paid(key)
	return nil
}

// paid drops a debt that is paid, or void because the deployment is back.
func (r *reporter) paid(key statesync.Key) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.owed, key)
	r.metrics.unreported.Set(float64(len(r.owed)))
}
