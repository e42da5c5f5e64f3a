package kube

import (
	"context"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"

	"github.com/seed-9e1ffd66/trueup/reconcile"
)

// leaseWatch watches for the release of a lease. It only makes the next read
// earlier: without it, the lease is read once in each retry period.
type leaseWatch struct {
	leases dynamic.ResourceInterface
	name   string
	// identity is that of the elector.
	identity string
	retry    time.Duration

	found   chan struct{}
	cancel  context.CancelFunc
	watcher sync.WaitGroup
}

// freed returns a channel that receives when the lease is released. The first call
// starts the watch.
func (l *leaseWatch) freed(ctx context.Context) <-chan struct{} {
	if l.found == nil {
		l.found = make(chan struct{}, 1)
		ctx, l.cancel = context.WithCancel(ctx)
		l.watcher.Go(func() { l.run(ctx) })
	}
	return l.found
}

// stop ends the watch and waits for it.
func (l *leaseWatch) stop() {
	if l.cancel != nil {
		l.cancel()
		l.watcher.Wait()
	}
}

func (l *leaseWatch) run(ctx context.Context) {
	backoff := reconcile.Backoff{Min: l.retry, Max: max(time.Minute, 2*l.retry), Jitter: 0.2, Seed: l.identity}
	for failures := 1; ctx.Err() == nil; failures++ {
		// Without a resourceVersion the watch begins with the current state, so no
		// release between a read and the watch is missed.
		options := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", l.name).String()}
		if w, err := l.leases.Watch(ctx, options); err == nil {
			if l.follow(ctx, w) {
				failures = 1
			}
			w.Stop()
		}
		delay, _ := backoff.Next(failures)
		pause(ctx, delay, nil)
	}
}

// follow reads the watch until it ends, and reports whether it had an event.
func (l *leaseWatch) follow(ctx context.Context, w watch.Interface) (some bool) {
	for {
		select {
		case <-ctx.Done():
			return some
		case event, ok := <-w.ResultChan():
			if !ok || event.Type == watch.Error {
				return some
			}
			some = true
			lease, ok := event.Object.(*unstructured.Unstructured)
			if !ok || event.Type == watch.Deleted {
				continue // a deleted record still binds for its duration
			}
			if holder, _, _ := unstructured.NestedString(lease.Object, "spec", "holderIdentity"); holder == "" {
				select {
				case l.found <- struct{}{}:
				default:
				}
			}
		}
	}
}
