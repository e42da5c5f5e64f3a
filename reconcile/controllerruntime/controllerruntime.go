package controllerruntime

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"reflect"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/seed-9e1ffd66/trueup/reconcile/operator"
	"github.com/seed-9e1ffd66/trueup/reconcile/operatormetrics"
)

// Add adds an operator to a Manager that has not started. The fields Config, HTTPClient, Kind,
// Scheme and Logger of the operator default to the values of the Manager; the default of
// Kind is the kind that the scheme has for T. The operator watches the objects and the children
// itself. Add returns an error if a field is missing or wrong.
func Add[T client.Object](mgr manager.Manager, o *operator.Operator[T]) error {
	if mgr == nil || o == nil {
		return errors.New("controllerruntime: Add: a Manager and an Operator are required")
	}
	if t := reflect.TypeFor[T](); t.Kind() != reflect.Pointer {
		return fmt.Errorf("controllerruntime: the type of the Operator is %s; want a pointer to a struct", t)
	}
	if err := fill(mgr, o); err != nil {
		return fmt.Errorf("controllerruntime: %w", err)
	}
	p := &pulse{}
	p.guard(&o.Config, &o.HTTPClient)
	r := &runnable{start: o.Start, pulse: p, figures: operatormetrics.New(o), logger: o.Logger}
	if err := mgr.AddReadyzCheck(o.Name, ready(mgr.Elected(), o.Synced)); err != nil {
		return fmt.Errorf("controllerruntime: %s: %w", o.Name, err)
	}
	return mgr.Add(r)
}

// fill sets the fields that the Manager has a value for.
func fill[T client.Object](mgr manager.Manager, o *operator.Operator[T]) error {
	if o.Config == nil {
		o.Config, o.HTTPClient = mgr.GetConfig(), mgr.GetHTTPClient()
	}
	if o.Scheme == nil {
		o.Scheme = mgr.GetScheme()
	}
	if o.Logger == nil {
		o.Logger = slog.New(logr.ToSlogHandler(mgr.GetLogger().WithName(o.Name)))
	}
	if o.Kind.Empty() {
		var err error
		if o.Kind, err = apiutil.GVKForObject(object[T](), o.Scheme); err != nil {
			return fmt.Errorf("the field Operator.Kind is not set: %w", err)
		}
	}
	return o.Validate()
}

// object returns a new T.
func object[T client.Object]() T {
	o, _ := reflect.New(reflect.TypeFor[T]().Elem()).Interface().(T)
	return o
}

// ready is the check of an operator that works once its Manager is elected.
func ready(elected <-chan struct{}, synced func() (bool, error)) func(*http.Request) error {
	return func(*http.Request) error {
		select {
		case <-elected:
			_, err := synced()
			return err
		default:
			return nil
		}
	}
}

// runnable is an operator as a Manager runs it.
type runnable struct {
	pulse   *pulse
	start   func(context.Context) error
	figures prometheus.Collector
	logger  *slog.Logger
}

var _ manager.LeaderElectionRunnable = (*runnable)(nil)

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (*runnable) NeedLeaderElection() bool { return true }

// Start implements manager.Runnable. What the registry has of the operator ends with it.
func (r *runnable) Start(ctx context.Context) error {
	if err := metrics.Registry.Register(r.figures); err != nil {
		// Another Manager of the process, as tests have several, runs an operator of that name.
		r.logger.WarnContext(ctx, "operator works without metrics", slog.Any("error", err))
	} else {
		defer metrics.Registry.Unregister(r.figures)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go r.pulse.run(ctx)
	return r.start(ctx)
}
