// Package operator is the node-pool operator: it keeps machines that were booted once and
// stopped, and starts them when pods need them.
//
// Package cloud decides what happens to machines, and carries it out; nodes has what the
// cluster says of them, and records the decisions there; pools ties the two, and buffers serves
// CapacityBuffers. This package has the kinds, the classes and the regions:
//
//	pods, Nodes -> nodes.Cluster -> pools.ScaleUp -> starts (its own loop, never behind a drain)
//	                             -> a pass of the pool: pools.Pass -> cloud.Executor.Pass -> status
//	                             -> nodes.Pass of the Node -> startup taints, labels
//	CapacityBuffers -> buffers.Controller -> standby machines that a pass of the pool keeps
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

	"github.com/seed-9e1ffd66/trueup/cloud"
	"github.com/seed-9e1ffd66/trueup/cloud/kube/nodes"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/kubeaccess"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/program"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube"
	kit "github.com/seed-9e1ffd66/trueup/reconcile/operator"
)

// LeaseName is the Lease of the replica that works.
const LeaseName = "stratos.sh"

// Operator is the operator as a program has it. Start works.
type Operator struct {
	// Kubernetes is the access to the cluster. Required.
	Kubernetes *rest.Config
	// Namespace is where the Lease is. Required unless Alone is set.
	Namespace string
	// Alone works without a Lease.
	Alone bool
	// ClusterName distinguishes the machines of clusters that share an account. Required.
	ClusterName string
	// ClusterEndpoint, ClusterCA (base64) and ClusterCIDR are what machines join with.
	ClusterEndpoint, ClusterCA, ClusterCIDR string
	// Platform is how the machines show on Nodes. Zero: as those of EC2 do.
	Platform nodes.Platform
	// Region is the region of classes that name none. Required.
	Region string
	// OpenRegion opens a region, once. It must call called after each call to the
	// cloud. Required.
	OpenRegion func(ctx context.Context, region string, called Called) (Region, error)
	// Notices are what the cloud announces of machines, such as that one ends. It may be nil.
	Notices cloud.Notices
	// Address and MetricsAddress are where /healthz and /readyz, and /metrics, are served.
	Address, MetricsAddress string
	// StopTimeout bounds the end of the work. Zero: 30 s.
	StopTimeout time.Duration
	// Transition is how old a list of machines may be while some of them are on their way.
	// Zero: 5 s.
	Transition time.Duration
	// Instance is the name of this process in Events and in the Lease: the name of its pod or host, and what no
	// other process there has.
	Instance string
	// Logger receives what happens. Required.
	Logger *slog.Logger
	// OnListen is called with the address of /healthz, if set.
	OnListen func(net.Addr)
	// OnListenMetrics is called with the address of /metrics, if set.
	OnListenMetrics func(net.Addr)
}

// Called observes each call to a cloud when it has ended: the provider ("aws"), the
// operation ("RunInstances"), the time it took, including the wait at the limiter and the
// retries, and the error, nil if it succeeded. It may be called from several goroutines at
// once, and the call does not return before it does.
type Called func(provider, operation string, took time.Duration, err error)

func (o *Operator) transition() time.Duration { return cmp.Or(o.Transition, 5*time.Second) }

func (o *Operator) validate() error {
	var errs []error
	for _, f := range []struct {
		name    string
		missing bool
	}{
		{"Kubernetes", o.Kubernetes == nil},
		{"Logger", o.Logger == nil},
		{"Namespace", o.Namespace == "" && !o.Alone},
		{"ClusterName", o.ClusterName == ""},
		{"Region", o.Region == ""},
		{"OpenRegion", o.OpenRegion == nil},
	} {
		if f.missing {
			errs = append(errs, errors.New("nodepool: "+f.name+" is required"))
		}
	}
	return errors.Join(errs...)
}

// Start works until ctx ends; then it returns nil.
func (o *Operator) Start(ctx context.Context) error {
	if err := o.validate(); err != nil {
		return err
	}
	registry := program.NewRegistry("nodepool")
	process := &kit.Process{
		Config: kubeaccess.As("stratos", o.Kubernetes), Resource: poolsResource, Logger: o.Logger,
		Address: o.Address, MetricsAddress: o.MetricsAddress, Metrics: program.Metrics(registry),
		OnListen: o.OnListen, OnListenMetrics: o.OnListenMetrics, StopTimeout: cmp.Or(o.StopTimeout, 30*time.Second),
		Work: program.Terms(registry, func(_ context.Context, config *rest.Config, own prometheus.Registerer) (kit.Work, error) {
			return newOperator(config, *o, own)
		}),
	}
	if !o.Alone {
		process.Lease = &kube.Lease{Namespace: o.Namespace, Name: LeaseName, Identity: o.Instance}
	}
	return process.Start(ctx)
}
