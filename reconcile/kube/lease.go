package kube

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/dynamic"

	"github.com/seed-9e1ffd66/trueup/reconcile"
)

// ErrLeaseLost is the cause (context.Cause) of the work's ctx when the lease is
// lost: another elector has taken it, or it could not be renewed in time.
var ErrLeaseLost = errors.New("lease lost")

// Lease runs a Starter in one of several processes at a time: the one that holds
// the Lease object. It is itself a Starter, and fits into a reconcile.Group, or into
// a controller-runtime manager whose own election is off.
//
// It needs get, create, update and watch on leases.coordination.k8s.io. Without
// watch, a standby detects a released lease at its next read instead of at once.
//
// A Lease must not be copied after first use.
type Lease struct {
	// Client reaches the API server. Its own limits on requests delay renewals,
	// so a busy program gives the Lease a client of its own. Required.
	Client dynamic.Interface

	// Namespace and Name identify the Lease object. It is created when missing and
	// never deleted. Required.
	Namespace string
	Name      string

	// Identity names this process in the record. It is for people: an elector
	// recognises its own record by the times that it wrote. Two processes with one
	// Identity therefore never work at the same time, and a process restarted after a
	// crash waits until its old lease expires. Default the host name and a random
	// suffix.
	Identity string

	// Duration is how long other electors wait after the last observed renewal
	// before they take the lease. The record holds it in whole seconds, rounded up.
	// Default 15s.
	Duration time.Duration

	// RenewDeadline is the age of the last renewal at which the holder counts the
	// lease as lost. The work has Duration - RenewDeadline to stop. Default two
	// thirds of Duration.
	RenewDeadline time.Duration

	// RetryPeriod is the time between two renewals, or between two reads of a lease
	// that another elector holds, with a jitter of 20 %. Default two fifteenths of
	// Duration.
	RetryPeriod time.Duration

	// Starter is the work. It is started each time the lease is taken, never twice
	// at a time. If it returns while the lease is held, with or without an error,
	// the lease is released and Start returns the same. A panic in it becomes a
	// reconcile.PanicError. Required.
	Starter reconcile.Starter

	// OnChange is called for each observed change of the holder, and right before
	// and after the work runs. Calls are made one at a time, on the goroutine of
	// Start. A panic in it is logged and has no other effect. Default nil.
	OnChange func(LeaseState)

	// Logger receives taken and lost leases and, once each, the processes that this one
	// waits for, at level info, and failed requests at level warn. Default nil, which is silent.
	Logger *slog.Logger

	mu      sync.Mutex
	running bool
}

// LeaseState is the state of a lease as its elector observes it.
type LeaseState struct {
	// Holder is the identity in the record, empty if the lease is not held.
	Holder string
	// Held is whether the work runs in this process. It becomes false only after
	// the work has returned.
	Held bool
}

// Start waits for the lease and runs the work while it is held, repeatedly until ctx
// ends. It then waits for the work, releases the lease and returns nil, or the error
// of the work. It returns an error at once if the configuration is invalid or the
// Lease is running already.
//
// Failing requests are never an error, however long they fail. Work that does not
// stop is one (a reconcile.StuckError): Start returns it and lets the lease expire,
// because the work must not start elsewhere while it still runs here.
func (l *Lease) Start(ctx context.Context) error {
	e, err := l.elector()
	if err != nil {
		return err
	}
	if !l.enter() {
		return fmt.Errorf("kube: lease %s/%s is running already", l.Namespace, l.Name)
	}
	defer l.leave()
	for e.acquire(ctx) {
		lost, err := l.lead(ctx, e)
		if _, stuck := errors.AsType[*reconcile.StuckError](err); stuck {
			e.report(ctx, false)
			return err
		}
		if err != nil || !lost {
			e.release(ctx)
			return err
		}
		e.report(ctx, false)
	}
	e.release(ctx)
	return nil
}

// lead runs the work for one term, and waits until it has returned.
func (l *Lease) lead(ctx context.Context, e *elector) (lost bool, err error) {
	t := newTerm(ctx, e.deadline, e.renewed)
	defer t.end(nil)
	e.logger.InfoContext(ctx, "lease taken", e.attrs()...)
	e.report(ctx, true)

	// The lease is renewed until the work has returned, for any reason.
	renewing, stop := context.WithCancel(context.WithoutCancel(ctx))
	var renewer sync.WaitGroup
	renewer.Go(func() { e.renew(renewing, t) })
	err = work(t, l.Starter) //nolint:contextcheck // t is made from ctx
	stop()
	renewer.Wait()

	if lost = t.lost(); lost {
		e.logger.InfoContext(ctx, "lease lost, work stopped", e.attrs()...)
	}
	return lost, err
}

func work(ctx context.Context, starter reconcile.Starter) error {
	return contain(func() error { return starter.Start(ctx) })
}

// contain calls a function of the caller and converts its panic to an error.
func contain(call func() error) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = &reconcile.PanicError{Value: value, Stack: debug.Stack()}
		}
	}()
	return call()
}

// elector validates the configuration and returns the state of one Start.
func (l *Lease) elector() (*elector, error) {
	duration := cmp.Or(l.Duration, 15*time.Second)
	e := &elector{
		name:     l.Name,
		identity: cmp.Or(l.Identity, identity()),
		duration: duration,
		deadline: cmp.Or(l.RenewDeadline, duration*2/3),
		retry:    cmp.Or(l.RetryPeriod, duration*2/15),
		logger:   cmp.Or(l.Logger, slog.New(slog.DiscardHandler)),
		onChange: l.OnChange,
	}
	switch {
	case l.Client == nil:
		return nil, errors.New("kube: Lease.Client: is required")
	case l.Starter == nil:
		return nil, errors.New("kube: Lease.Starter: is required")
	case l.Namespace == "":
		return nil, errors.New("kube: Lease.Namespace: is required")
	case l.Name == "":
		return nil, errors.New("kube: Lease.Name: is required")
	case l.Duration < 0:
		return nil, fmt.Errorf("kube: Lease.Duration: is %v, must be 0 (15s) or more", l.Duration)
	case e.deadline < 0 || e.deadline >= duration:
		return nil, fmt.Errorf(
			"kube: Lease.RenewDeadline: is %v, must be 0 (two thirds of Duration) or more, and less than Duration, %v",
			e.deadline,
			duration,
		)
	case e.retry <= 0 || e.longestRetry() >= e.deadline:
		return nil, fmt.Errorf(
			"kube: Lease.RetryPeriod: is %v, must be 0 (two fifteenths of Duration) or more, and with 20 %% added less than RenewDeadline, %v",
			e.retry,
			e.deadline,
		)
	}
	for _, problem := range validation.IsDNS1123Label(l.Namespace) {
		return nil, fmt.Errorf("kube: Lease.Namespace: is %q, must be a DNS label: %s", l.Namespace, problem)
	}
	for _, problem := range validation.IsDNS1123Subdomain(l.Name) {
		return nil, fmt.Errorf("kube: Lease.Name: is %q, must be a DNS subdomain: %s", l.Name, problem)
	}
	e.namespace, e.leases = l.Namespace, l.Client.Resource(leaseResource()).Namespace(l.Namespace)
	return e, nil
}

func identity() string {
	random := strings.ToLower(rand.Text()[:10])
	if host, err := os.Hostname(); err == nil {
		return host + "_" + random
	}
	return random
}

func (l *Lease) enter() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	entered := !l.running
	l.running = true
	return entered
}

func (l *Lease) leave() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.running = false
}
