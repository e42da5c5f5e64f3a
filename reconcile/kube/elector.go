package kube

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/seed-9e1ffd66/trueup/reconcile"
)

// elector reads and writes the record of a lease. It is used by one goroutine at a
// time.
type elector struct {
	leases                    dynamic.ResourceInterface
	namespace, name, identity string
	duration, deadline, retry time.Duration
	logger                    *slog.Logger
	onChange                  func(LeaseState)
	reported                  LeaseState

	// lease is the last observed object, and gone is whether it was deleted since. A
	// deleted record binds as long as an existing one.
	lease *unstructured.Unstructured
	gone  bool
	// changed is the local time at which the last change of the record was observed.
	changed time.Time
	// renewed is the time at which the last successful write was sent.
	renewed time.Time
	// sent are the renewTimes of the writes that succeeded or may have succeeded,
	// because an answer can be lost. unsure is whether the last answer was lost.
	sent   []string
	unsure bool
}

// errTaken means that another elector wrote the record.
var errTaken = errors.New("another elector holds the lease")

// acquire waits for the lease. It returns false when ctx ended first.
func (e *elector) acquire(ctx context.Context) bool {
	watch := leaseWatch{leases: e.leases, name: e.name, identity: e.identity, retry: e.retry}
	defer watch.stop()
	var holder string // that the log has named
	for ctx.Err() == nil {
		err := e.try(ctx)
		if err == nil {
			return ctx.Err() == nil
		}
		e.report(ctx, false)
		wait := e.jittered()
		if !errors.Is(err, errTaken) && ctx.Err() == nil {
			e.logger.WarnContext(ctx, "lease not read or taken", e.attrs(slog.Any("error", err))...)
		} else if remaining := e.remaining(); remaining > 0 {
			wait = min(wait, remaining)
			if holder != e.holder() {
				holder = e.holder()
				e.logger.InfoContext(ctx, "waiting, another process holds the lease", e.attrs()...)
			}
		}
		pause(ctx, wait, watch.freed(ctx))
	}
	return false
}

// try takes the lease if it is free.
func (e *elector) try(ctx context.Context) error {
	ctx, cancel := e.bounded(ctx)
	defer cancel()
	if err := e.read(ctx); err != nil {
		return err
	}
	if e.remaining() > 0 {
		return errTaken
	}
	err := e.write(ctx, e.identity)
	if outdated(err) {
		return errTaken // by an elector that was faster
	}
	return err
}

// renew renews the lease periodically until ctx ends or another elector has taken it.
func (e *elector) renew(ctx context.Context, t *term) {
	for pause(ctx, e.jittered(), nil) {
		err := e.overwrite(ctx, e.identity)
		switch {
		case err == nil:
			t.renew(e.renewed)
		case errors.Is(err, errTaken):
			t.end(ErrLeaseLost)
			e.logger.WarnContext(ctx, "lease taken by another process", e.attrs()...)
			return
		case ctx.Err() == nil:
			e.logger.WarnContext(ctx, "lease not renewed", e.attrs(slog.Any("error", err), slog.Duration("age", elapsed(e.renewed)))...)
		}
	}
}

// release releases the lease if this elector holds it.
func (e *elector) release(ctx context.Context) {
	var err error
	ctx = context.WithoutCancel(ctx)
	if e.unsure {
		bounded, cancel := e.bounded(ctx)
		err = e.read(bounded)
		cancel()
	}
	if err == nil && e.ours() && !e.gone {
		err = e.overwrite(ctx, "")
	}
	if err != nil && !errors.Is(err, errTaken) {
		e.logger.WarnContext(ctx, "lease not released", e.attrs(slog.Any("error", err))...)
	}
	e.report(ctx, false)
}

// overwrite replaces the last record that this elector wrote.
func (e *elector) overwrite(ctx context.Context, holder string) error {
	ctx, cancel := e.bounded(ctx)
	defer cancel()
	err := e.write(ctx, holder)
	if !outdated(err) {
		return err
	}
	// Another client has changed the object, or the last answer was lost.
	if err := e.read(ctx); err != nil {
		return err
	}
	if !e.ours() {
		return errTaken
	}
	return e.write(ctx, holder)
}

// read gets the record.
func (e *elector) read(ctx context.Context) error {
	lease, err := e.leases.Get(ctx, e.name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		e.gone = true
		return nil
	case err != nil:
		return err
	}
	e.observe(lease)
	return nil
}

func (e *elector) observe(lease *unstructured.Unstructured) {
	if e.lease == nil || !reflect.DeepEqual(e.lease.Object["spec"], lease.Object["spec"]) {
		e.changed = time.Now()
	}
	e.lease, e.gone = lease, false
}

// write sends one request. Its error is outdated if the object is not the one that
// was last observed.
func (e *elector) write(ctx context.Context, holder string) error {
	next := &unstructured.Unstructured{Object: map[string]any{}}
	if e.lease != nil {
		next = e.lease.DeepCopy()
	}
	stamp := e.fill(next, holder)
	e.sent = append(e.sent, stamp)
	// 64 writes take longer than an API server needs to answer or drop a request.
	e.sent = e.sent[max(0, len(e.sent)-64):]

	e.unsure = true
	start := time.Now()
	var answer *unstructured.Unstructured
	var err error
	if e.lease == nil || e.gone {
		next.Object["metadata"] = map[string]any{"namespace": e.namespace, "name": e.name}
		next.SetGroupVersionKind(leaseResource().GroupVersion().WithKind("Lease"))
		answer, err = e.leases.Create(ctx, next, metav1.CreateOptions{})
	} else {
		answer, err = e.leases.Update(ctx, next, metav1.UpdateOptions{})
	}
	if err != nil {
		if status, ok := errors.AsType[*apierrors.StatusError](err); ok && status.ErrStatus.Code < 500 {
			e.unsure = false
		}
		return err
	}
	e.unsure = false
	e.observe(answer)
	// Other electors can have observed the record no earlier than it was sent.
	e.renewed, e.sent = start, []string{stamp}
	return nil
}

// outdated reports whether a write failed because the object had changed.
func outdated(err error) bool {
	return apierrors.IsConflict(err) || apierrors.IsNotFound(err) || apierrors.IsAlreadyExists(err)
}

// fill sets the fields of the record as client-go does, and returns its renewTime.
func (e *elector) fill(lease *unstructured.Unstructured, holder string) string {
	spec, ok := lease.Object["spec"].(map[string]any)
	if !ok {
		spec = map[string]any{}
		lease.Object["spec"] = spec
	}
	stamp := e.stamp()
	transitions, _ := spec["leaseTransitions"].(int64)
	switch {
	case holder == "": // released
		spec["acquireTime"], spec["leaseDurationSeconds"] = stamp, int64(1)
	case !e.ours():
		if e.lease != nil {
			transitions++
		}
		spec["acquireTime"] = stamp
		fallthrough
	default:
		spec["leaseDurationSeconds"] = int64((e.duration + time.Second - 1) / time.Second)
	}
	spec["holderIdentity"], spec["renewTime"], spec["leaseTransitions"] = holder, stamp, transitions
	return stamp
}

// stamp returns the current time in the format of the API, distinct from the times
// sent before.
func (e *elector) stamp() string {
	for now := time.Now().UTC(); ; now = now.Add(time.Microsecond) {
		if stamp := now.Format(metav1.RFC3339Micro); !slices.Contains(e.sent, stamp) {
			return stamp
		}
	}
}

// ours reports whether this elector wrote the last observed record.
func (e *elector) ours() bool {
	return e.holder() == e.identity && slices.Contains(e.sent, e.field("renewTime"))
}

// remaining returns how long the record must stay the same before it may be
// overwritten. Zero or less means now.
func (e *elector) remaining() time.Duration {
	if e.holder() == "" || e.ours() {
		return 0
	}
	duration := e.duration
	spec, _ := e.lease.Object["spec"].(map[string]any)
	if seconds, ok := spec["leaseDurationSeconds"].(int64); ok && seconds > 0 {
		duration = time.Duration(seconds) * time.Second
	}
	return duration - time.Since(e.changed)
}

func (e *elector) holder() string { return e.field("holderIdentity") }

func (e *elector) field(name string) string {
	if e.lease == nil {
		return ""
	}
	value, _, _ := unstructured.NestedString(e.lease.Object, "spec", name)
	return value
}

// report calls OnChange if the state has changed.
func (e *elector) report(ctx context.Context, held bool) {
	state := LeaseState{Holder: e.holder(), Held: held}
	if e.onChange == nil || state == e.reported {
		return
	}
	e.reported = state
	if err := contain(func() error { e.onChange(state); return nil }); err != nil {
		e.logger.ErrorContext(ctx, "callback failed", e.attrs(slog.Any("error", err))...)
	}
}

func (e *elector) attrs(more ...slog.Attr) []any {
	list := []any{
		slog.String("lease", fmt.Sprintf("%s/%s", e.namespace, e.name)),
		slog.String("identity", e.identity),
		slog.String("holder", e.holder()),
	}
	for _, a := range more {
		list = append(list, a)
	}
	return list
}

// bounded returns a ctx that leaves time for a second attempt before the deadline.
func (e *elector) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, e.deadline/2)
}

func (e *elector) jittered() time.Duration {
	delay, _ := reconcile.Backoff{Min: e.retry, Max: e.longestRetry(), Factor: 1, Jitter: 0.2, Seed: e.identity}.Next(1)
	return delay
}

func (e *elector) longestRetry() time.Duration { return e.retry + e.retry/5 }

// pause waits for d, or until early receives. It returns false when ctx ended.
func pause(ctx context.Context, d time.Duration, early <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-early:
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}

func leaseResource() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}
}
