package operator

import (
	"context"
	"net/http"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-9e1ffd66/trueup/cmd/application/internal/external"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/program"
	outside "github.com/seed-9e1ffd66/trueup/reconcile/external"
)

// Metrics returns all metrics of the operator.
func Metrics() *prometheus.Registry {
	registry := program.NewRegistry("application")
	newMetrics(registry)
	return registry
}

// BytesOf reads a size.
var BytesOf = bytesOf

// SetNow lets the operator take another time for now.
func (o *Operator) SetNow(now func() time.Time) { o.now = now }

// Tap lets what the operator sends to the services pass by these. It is called before
// Start.
func (o *Operator) Tap(sql pgx.QueryTracer, s3 aws.HTTPClient, keycloak http.RoundTripper) {
	o.tap = tap{sql: sql, s3: s3, keycloak: keycloak}
}

// Databases is what the operator asks of a server of PostgreSQL.
type Databases = databases

// TapDatabase puts another in the place of the server of PostgreSQL. It is called before Start,
// after Tap.
func (o *Operator) TapDatabase(other func(Databases) Databases) { o.tap.database = other }

// Retry calls do as a pass does, with nothing else under way.
func Retry(ctx context.Context, do func(context.Context) error, early func(error)) error {
	part := &outside.Part{Name: "part", Wanted: true, Gate: outside.NewGate(1)}
	part.Make = func(ctx context.Context) error { return external.Judged(do(ctx)) }
	part.Early = func(context.Context) { early(part.Err) }
	p := outside.Pass{Parts: []*outside.Part{part}, Checks: &outside.Checks{Interval: time.Minute}}
	p.Make(ctx)
	return part.Err
}
