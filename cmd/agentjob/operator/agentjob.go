// Package operator is the agent-run operator: it makes each AgentJob one run of an AI
// agent, or a recurring one.
//
// A pass for one job resolves its references, renders the config, makes the children
// with package apply (config, identity, rights, volume, CronJob), and then decides about
// the run by a pure function: see run.go for why no run is started twice. At rest a pass
// sends no request.
//
// What the references name, Secrets included, is watched: a change starts a pass for the
// jobs that use it, and for no other. Of Secrets only metadata is kept; the names of
// their keys are read once for each version.
package operator

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/seed-9e1ffd66/trueup/cmd/internal/program"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/serve"
	"github.com/seed-9e1ffd66/trueup/reconcile"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube"
)

// LeaseName is the Lease of the replica that works.
const LeaseName = "thurkube-controller"

const stopTimeout = 15 * time.Second

// Operator is the operator as a program has it. Start works.
type Operator struct {
	// Kubernetes is the access to the cluster. Required.
	Kubernetes *rest.Config
	// Namespace is where the Lease is. Required unless Alone is set.
	Namespace string
	// WatchNamespace is where the jobs are. Empty: everywhere. Operators of two
	// namespaces need two Leases.
	WatchNamespace string
	// Alone works without a Lease.
	Alone bool
	// Address is where /healthz, /readyz and /metrics are served.
	Address string
	// AccessEverywhere lets jobs of all namespaces have rights in the whole cluster;
	// otherwise only jobs of namespaces with the label
	// thurkube.thurbeen.eu/allow-cluster-access=true.
	AccessEverywhere bool
	// Ceiling is the ClusterRole that holds what may be granted to jobs, and nothing else
	// does. Default [Ceiling].
	Ceiling string
	// KeepFinished is how long a finished Job stays. Zero: 24 hours.
	KeepFinished time.Duration
	// Instance is the name of this process in Events: the name of its pod.
	Instance string
	// Logger receives what happens. Required.
	Logger *slog.Logger
	// MetricsAddress is where /metrics is served. Empty: at Address.
	MetricsAddress string
	// OnListen is called with the address, if set.
	OnListen func(net.Addr)
}

func (o *Operator) keep() time.Duration { return cmp.Or(o.KeepFinished, 24*time.Hour) }

func (o *Operator) ceiling() string { return cmp.Or(o.Ceiling, Ceiling) }

// Start works until ctx ends; then it returns nil.
func (o *Operator) Start(ctx context.Context) error {
	if o.Kubernetes == nil || o.Logger == nil || o.Namespace == "" && !o.Alone {
		return errors.New("agentjob: Kubernetes, Logger and Namespace: required")
	}
	config := rest.CopyConfig(o.Kubernetes)
	config.QPS, config.UserAgent = -1, "thurkube/"+program.Version() // the server has a limit of its own
	registry, metrics := program.NewRegistry("agentjob"), newMetrics()
	registry.MustRegister(metrics)
	var current atomic.Pointer[operator]
	var ready atomic.Bool
	var work reconcile.Starter = reconcile.StarterFunc(func(ctx context.Context) error {
		w, err := newOperator(config, *o, metrics)
		if err != nil {
			return err
		}
		current.Store(w)
		defer func() {
			current.Store(nil)
			metrics.reset()
		}()
		return w.start(ctx)
	})
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	if !o.Alone {
		work = &kube.Lease{Client: client, Namespace: o.Namespace, Name: LeaseName, Starter: work, Logger: o.Logger}
	}
	standby := &reachable{client: client}
	server := &serve.Server{
		Address: o.Address, MetricsAddress: o.MetricsAddress, Gatherer: registry, Logger: o.Logger, StopTimeout: stopTimeout,
		Checks: []serve.Check{{Name: "watches", Func: func(ctx context.Context) error {
			if w := current.Load(); w != nil && !ready.Load() {
				if err := w.ready(); err != nil {
					return err
				}
				ready.Store(true)
			}
			switch {
			case ready.Load():
				return nil
			case o.Alone: // it works, or is about to
				return errNotSeen
			default:
				return standby.check(ctx)
			}
		}}},
		OnListen: o.OnListen,
	}
	group := reconcile.Group{StopTimeout: stopTimeout + 2*time.Second, Members: []reconcile.Member{
		{Name: "server", Starter: server}, {Name: "operator", Starter: work},
	}}
	return group.Start(ctx)
}

// errNotSeen is why the process is not ready.
var errNotSeen = errors.New("not everything is seen yet")

// reachable is ready once the API server has served the kind: while another replica
// works, that is all that is asked of this one.
type reachable struct {
	client dynamic.Interface
	was    atomic.Bool
}

func (r *reachable) check(ctx context.Context) error {
	if r.was.Load() {
		return nil
	}
	_, err := r.client.Resource(resourceOf(jobsPlural)).List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return errors.New("the API server does not list AgentJobs")
	}
	r.was.Store(true)
	return nil
}
