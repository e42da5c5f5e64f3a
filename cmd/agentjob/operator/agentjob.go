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
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"

	"github.com/seed-9e1ffd66/trueup/cmd/internal/kubeaccess"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/program"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube"
	kit "github.com/seed-9e1ffd66/trueup/reconcile/operator"
)

// LeaseName is the Lease of the replica that works.
const LeaseName = "thurkube-controller"

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
	registry := program.NewRegistry("agentjob")
	process := &kit.Process{
		Config: kubeaccess.As("thurkube", o.Kubernetes), Resource: resourceOf(jobsPlural), Logger: o.Logger,
		Address: o.Address, MetricsAddress: o.MetricsAddress, Metrics: program.Metrics(registry), OnListen: o.OnListen,
		Work: program.Terms(registry, func(_ context.Context, config *rest.Config, own prometheus.Registerer) (kit.Work, error) {
			metrics := newMetrics()
			own.MustRegister(metrics)
			return newOperator(config, *o, metrics)
		}),
	}
	if !o.Alone {
		process.Lease = &kube.Lease{Namespace: o.Namespace, Name: LeaseName}
	}
	return process.Start(ctx)
}
