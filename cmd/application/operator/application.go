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
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"

	"github.com/seed-9e1ffd66/trueup/cmd/internal/kubeaccess"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/program"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube"
	kit "github.com/seed-9e1ffd66/trueup/reconcile/operator"
)

// LeaseName is the Lease of the replica that works. It lasts for 15 s and is renewed every
// 5 s.
const LeaseName = "plattr-operator-leader"

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
	registry := program.NewRegistry("application")
	process := &kit.Process{
		Config: kubeaccess.As("plattr-operator", o.Kubernetes), Resource: appsResource, Logger: o.Logger,
		Address: o.Address, MetricsAddress: o.MetricsAddress, Metrics: program.Metrics(registry), OnListen: o.OnListen,
	}
	probe, err := newOperator(ctx, process.Config, *o, newMetrics(prometheus.NewRegistry())) // a wrong setting is reported at once
	if err != nil {
		return err
	}
	probe.close()
	process.Work = program.Terms(registry, func(ctx context.Context, config *rest.Config, own prometheus.Registerer) (kit.Work, error) {
		return newOperator(ctx, config, *o, newMetrics(own))
	})
	if !o.Alone {
		process.Lease = &kube.Lease{Namespace: o.Namespace, Name: LeaseName, RetryPeriod: 5 * time.Second}
	}
	return process.Start(ctx)
}
