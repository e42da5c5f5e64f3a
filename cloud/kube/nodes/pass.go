package nodes

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// StartupTimeout is how long a machine that was started keeps its startup taints at most: pods
// then learn from the network itself that it is not ready.
const StartupTimeout = 2 * time.Minute

// runtimeWarning is how long before the end of its runtime a machine is announced.
const runtimeWarning = 5 * time.Minute

// The triggers of [Removed].
const (
	NetworkReady = "network-ready"
	TimedOut     = "timeout"
)

// A Pass keeps one Node of a pool as its template says, and opens it for pods once its machine
// is ready after a start. It waits for no pass of the pool.
type Pass struct {
	Marks *Marks // required
	// MaxRuntime is how long a machine runs at most, zero without a limit.
	MaxRuntime time.Duration
	// AttestReady records the warm-up of a machine whose image runs no script: it is ready, and
	// there are no images to wait for.
	AttestReady bool
	// Deleting says that the pool is being deleted: the Node is kept closed, and nothing else.
	Deleting bool
	// Once reports whether it is called with the text for the first time. Nil: it always is.
	Once func(text string) bool
}

// PassResult is what a [Pass] did. After an error it is the zero value.
type PassResult struct {
	// Wake is when the next pass is needed although nothing changes; zero: never.
	Wake time.Time
	// Events are about the Node.
	Events []Event
	// Open reports that pods may come to the machine.
	Open bool
	// Removed is set if startup taints were removed.
	Removed *Removed
}

// An Event is one of Kubernetes, about a Node or a pool.
type Event struct{ Type, Reason, Note string }

// Removed says why startup taints were removed, and how long after the start.
type Removed struct {
	Trigger string // NetworkReady or TimedOut
	After   time.Duration
}

// Run does one pass for the Node of v. It writes once, and not at all if nothing changed.
func (p *Pass) Run(ctx context.Context, v View) (PassResult, error) {
	var step nodeStep
	// A Node that the server does not have is still one of the watch, which has just started this
	// pass: another one at once would see the same.
	marks := *p.Marks
	marks.Look = nil
	err := marks.change(ctx, v.Status.Name, func(n *corev1.Node) error {
		// After a conflict all steps run again on the newer Node: none acts outside of it.
		step = nodeStep{pass: p, domain: p.Marks.Pool.Domain, pool: &p.Marks.Pool, view: v, now: p.Marks.time()}
		return step.run(n)
	})
	if err != nil {
		return PassResult{}, err
	}
	return step.result, nil
}
