// Package operator is the application operator: it gives each Application a database
// schema, buckets, a login realm and a workload, and removes them again.
//
// A pass records the external objects (outside of the cluster) before it makes them, makes
// the children with package apply, and writes the status. External objects are checked when
// something has changed, and every five minutes ([Operator.CheckInterval]); at rest nothing
// is written anywhere. An object that exists under a wanted name and was made for another is
// never touched.
//
// One service that fails holds up the applications that use it, and no other: its calls
// have deadlines, and the passes that use it at a time are bounded.
package operator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/jackc/pgx/v5"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/seed-9e1ffd66/trueup/cmd/internal/program"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/serve"
	"github.com/seed-9e1ffd66/trueup/reconcile"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube"
)

// LeaseName is the Lease of the replica that works. It lasts for 15 s and is renewed every
// 5 s.
const LeaseName = "plattr-operator-leader"

const stopTimeout = 15 * time.Second

// Operator is the operator as a program has it. Start works.
type Operator struct {
	// Kubernetes is the access to the cluster. Required.
	Kubernetes *rest.Config
	// Namespace is where the Lease is (OPERATOR_NAMESPACE). Required.
	Namespace string
	// Address is where /healthz, /readyz and /metrics are served. Required.
	Address string
	// Settings are the services that applications use.
	Settings Settings
	// CheckInterval is the time between two looks at what an application has outside of
	// the cluster and was found as it should: no event reports a change there. Default 5
	// minutes, at least a second.
	CheckInterval time.Duration
	// S3Credentials are those for S3. Nil: as the SDK of AWS finds them.
	S3Credentials aws.CredentialsProvider
	// Instance is the name of this process in Events: the name of its pod.
	Instance string
	// Logger receives what happens. Required.
	Logger *slog.Logger
	// MetricsAddress is where /metrics is served. Empty: at Address.
	MetricsAddress string
	// Alone works without a Lease: only one replica may run then.
	Alone bool
	// OnListen is called with the address, if set.
	OnListen func(net.Addr)

	now func() time.Time // time.Now, but in tests
	tap tap
}

// tap carries the requests to the services. The zero value uses the services' own transports;
// only tests set another.
type tap struct {
	sql      pgx.QueryTracer
	database func(databases) databases
	s3       aws.HTTPClient
	keycloak http.RoundTripper
}

// Start works until ctx ends; then it returns nil.
func (o *Operator) Start(ctx context.Context) error {
	if o.Kubernetes == nil || o.Logger == nil || o.Namespace == "" || o.Address == "" {
		return errors.New("application: Kubernetes, Logger, Namespace and Address: required")
	}
	if err := o.Settings.check(); err != nil {
		return err
	}
	if o.CheckInterval != 0 && o.CheckInterval < time.Second {
		return fmt.Errorf("application: CheckInterval: is %s, must be at least 1s", o.CheckInterval)
	}
	config := rest.CopyConfig(o.Kubernetes)
	config.QPS, config.UserAgent = -1, "plattr-operator/"+program.Version() // the server has a limit of its own
	registry := program.NewRegistry("application")
	metrics := newMetrics(registry)
	probe, err := newOperator(ctx, config, *o, metrics) // a wrong setting is reported at once
	if err != nil {
		return err
	}
	probe.close()
	var current atomic.Pointer[operator]
	var ready atomic.Bool
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	var work reconcile.Starter = reconcile.StarterFunc(func(ctx context.Context) error {
		w, err := newOperator(ctx, config, *o, metrics)
		if err != nil {
			return err
		}
		current.Store(w)
		defer current.Store(nil)
		return w.start(ctx)
	})
	if !o.Alone {
		work = &kube.Lease{Client: client, Namespace: o.Namespace, Name: LeaseName, RetryPeriod: 5 * time.Second, Starter: work, Logger: o.Logger}
	}
	standby := &reachable{client: client}
	server := &serve.Server{
		Address: o.Address, MetricsAddress: o.MetricsAddress, Gatherer: registry, Logger: o.Logger, StopTimeout: stopTimeout,
		Checks: []serve.Check{{Name: "watches", Func: func(ctx context.Context) error {
			w := current.Load()
			if w == nil {
				return standby.check(ctx)
			}
			if !ready.Load() {
				if err := w.ready(); err != nil {
					return err
				}
				ready.Store(true)
			}
			return nil
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

// reachable is ready once the API server has served the kind: while another replica works,
// that is all that is asked of this one.
type reachable struct {
	client dynamic.Interface
	was    atomic.Bool
}

func (r *reachable) check(ctx context.Context) error {
	if r.was.Load() {
		return nil
	}
	if _, err := r.client.Resource(appsResource).List(ctx, metav1.ListOptions{Limit: 1}); err != nil {
		return errors.New("the API server does not list Applications")
	}
	r.was.Store(true)
	return nil
}
