package tracing_test

import (
	"context"
	"fmt"

	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/seed-9e1ffd66/trueup/reconcile"
	"github.com/seed-9e1ffd66/trueup/reconcile/tracing"
)

// A program chooses exporter and sampler; here, spans are kept in memory.
func Example() {
	exporter := tracetest.NewInMemoryExporter() // in a program otlptracegrpc.New(ctx)
	provider := sdk.NewTracerProvider(sdk.WithSyncer(exporter), sdk.WithSampler(sdk.TraceIDRatioBased(1)))

	ctx, stop := context.WithCancel(context.Background())
	queue := &reconcile.Queue[string]{
		Name: "sites",
		Reconcile: func(context.Context, string) (reconcile.Result, error) {
			stop()
			return reconcile.Result{}, nil
		},
	}
	tracing.Queue(provider, queue) // and tracing.Requests(provider, config) for the requests of its passes
	queue.Add("web")
	if err := queue.Start(ctx); err != nil {
		fmt.Println(err)
	}
	for _, span := range exporter.GetSpans() {
		fmt.Println(span.Name, span.Attributes[0].Value.AsString())
	}
	// Output: pass sites web
}
