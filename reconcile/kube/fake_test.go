package kube_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
)

var errNetwork = errors.New("connection refused")

// server holds one Lease in memory, with the few rules of an API server that an
// elector relies on. The tests on a real one show that they are its rules.
type server struct {
	mu       sync.Mutex
	version  int
	lease    *unstructured.Unstructured
	watchers map[*watch.FakeWatcher]bool
}

func newServer() *server { return &server{watchers: map[*watch.FakeWatcher]bool{}} }

// set changes the lease as another client would. Nil deletes it.
func (s *server) set(lease *unstructured.Unstructured) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.store(lease)
}

func (s *server) get() *unstructured.Unstructured {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lease.DeepCopy()
}

func (s *server) spec() map[string]any {
	if lease := s.get(); lease != nil {
		return lease.Object["spec"].(map[string]any)
	}
	return nil
}

func (s *server) store(lease *unstructured.Unstructured) {
	s.version++
	event := watch.Event{Type: watch.Deleted, Object: s.lease}
	if lease != nil {
		lease = lease.DeepCopy()
		lease.SetResourceVersion(strconv.Itoa(s.version))
		event = watch.Event{Type: watch.Modified, Object: lease.DeepCopy()}
	}
	s.lease = lease
	for w := range s.watchers {
		w.Action(event.Type, event.Object)
	}
}

// client is one process's way to the server. It implements the calls that an
// elector makes, and breaks as told.
type client struct {
	dynamic.Interface
	dynamic.NamespaceableResourceInterface

	server *server

	mu      sync.Mutex
	down    bool          // requests fail
	deaf    bool          // answers are lost
	denied  bool          // watch is forbidden
	latency time.Duration // of each way
	chaos   *rand.Rand
	writes  int
}

func (s *server) client() *client { return &client{server: s} }

func (c *client) Resource(schema.GroupVersionResource) dynamic.NamespaceableResourceInterface {
	return c
}
func (c *client) Namespace(string) dynamic.ResourceInterface { return c }

func (c *client) breaks(change func(c *client)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change(c)
}

// request does one request with the faults of the moment.
func (c *client) request(ctx context.Context, do func() (*unstructured.Unstructured, error)) (*unstructured.Unstructured, error) {
	roll := func() (down, deaf bool, latency time.Duration) {
		c.mu.Lock()
		defer c.mu.Unlock()
		down, deaf, latency = c.down, c.deaf, c.latency
		if c.chaos != nil {
			down = down || c.chaos.IntN(10) == 0
			deaf = deaf || c.chaos.IntN(10) == 0
			latency += time.Duration(c.chaos.Int64N(int64(time.Second)))
			if c.chaos.IntN(20) == 0 {
				latency += 20 * time.Second
			}
		}
		return down, deaf, latency
	}
	down, _, latency := roll()
	if down {
		return nil, errNetwork
	}
	// The request goes on to the server even if the caller gives up meanwhile.
	type result struct {
		object *unstructured.Unstructured
		err    error
	}
	done := make(chan result, 1)
	go func() {
		time.Sleep(latency)
		c.server.mu.Lock()
		object, err := do()
		c.server.mu.Unlock()
		_, deaf, latency := roll()
		time.Sleep(latency)
		if deaf {
			object, err = nil, errNetwork
		}
		done <- result{object.DeepCopy(), err}
	}()
	select {
	case r := <-done:
		return r.object, r.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

var leases = schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}

func (c *client) Get(ctx context.Context, name string, _ metav1.GetOptions, _ ...string) (*unstructured.Unstructured, error) {
	return c.request(ctx, func() (*unstructured.Unstructured, error) {
		if c.server.lease == nil {
			return nil, apierrors.NewNotFound(leases, name)
		}
		return c.server.lease, nil
	})
}

func (c *client) Create(
	ctx context.Context,
	lease *unstructured.Unstructured,
	_ metav1.CreateOptions,
	_ ...string,
) (*unstructured.Unstructured, error) {
	return c.request(ctx, func() (*unstructured.Unstructured, error) {
		if c.server.lease != nil {
			return nil, apierrors.NewAlreadyExists(leases, lease.GetName())
		}
		c.writes++
		c.server.store(lease)
		return c.server.lease, nil
	})
}

func (c *client) Update(
	ctx context.Context,
	lease *unstructured.Unstructured,
	_ metav1.UpdateOptions,
	_ ...string,
) (*unstructured.Unstructured, error) {
	return c.request(ctx, func() (*unstructured.Unstructured, error) {
		switch {
		case c.server.lease == nil:
			return nil, apierrors.NewNotFound(leases, lease.GetName())
		case c.server.lease.GetResourceVersion() != lease.GetResourceVersion():
			return nil, apierrors.NewConflict(leases, lease.GetName(), errors.New("the object has been modified"))
		}
		c.writes++
		c.server.store(lease)
		return c.server.lease, nil
	})
}

func (c *client) Watch(ctx context.Context, _ metav1.ListOptions) (watch.Interface, error) {
	c.mu.Lock()
	down, denied := c.down, c.denied
	c.mu.Unlock()
	if down || denied || ctx.Err() != nil {
		return nil, errNetwork
	}
	w := watch.NewFakeWithChanSize(10_000, false)
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	if c.server.lease != nil {
		w.Add(c.server.lease.DeepCopy())
	}
	c.server.watchers[w] = true
	return stopper{w, c.server}, nil
}

type stopper struct {
	*watch.FakeWatcher
	server *server
}

func (s stopper) Stop() {
	s.server.mu.Lock()
	defer s.server.mu.Unlock()
	delete(s.server.watchers, s.FakeWatcher)
}
