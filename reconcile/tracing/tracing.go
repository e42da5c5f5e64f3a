package tracing

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"net/http"

	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/seed-9e1ffd66/trueup/reconcile"
	"github.com/seed-9e1ffd66/trueup/reconcile/operator"
	"github.com/seed-9e1ffd66/trueup/statesync"
)

// scope is the instrumentation scope of all spans.
const scope = "github.com/seed-9e1ffd66/trueup/reconcile/tracing"

// Loop makes a span of each pass of a loop that has not started.
func Loop(provider trace.TracerProvider, l *reconcile.Loop) {
	tracer, name, next := provider.Tracer(scope), "pass "+l.Name, l.Reconciler
	l.Reconciler = reconcile.Func(func(ctx context.Context) (reconcile.Result, error) {
		return pass(ctx, tracer, name, "", next.Reconcile)
	})
}

// Queue makes a span of each pass of a queue that has not started.
func Queue[K comparable](provider trace.TracerProvider, q *reconcile.Queue[K]) {
	tracer, name, next := provider.Tracer(scope), "pass "+q.Name, q.Reconcile
	q.Reconcile = func(ctx context.Context, key K) (reconcile.Result, error) {
		return pass(ctx, tracer, name, fmt.Sprint(key), func(ctx context.Context) (reconcile.Result, error) { return next(ctx, key) })
	}
}

// Operator makes a span of each pass of an operator that has not started. It sets Around.
func Operator[T metav1.Object](provider trace.TracerProvider, o *operator.Operator[T]) {
	tracer, name := provider.Tracer(scope), "pass "+o.Name
	next := o.Around
	o.Around = func(ctx context.Context, key types.NamespacedName, do reconcile.Func) (reconcile.Result, error) {
		return pass(ctx, tracer, name, key.String(), func(ctx context.Context) (reconcile.Result, error) {
			if next != nil {
				return next(ctx, key, do)
			}
			return do(ctx)
		})
	}
}

// Requests makes a span of each request of the clients that are made of config from now on, and
// sends its id (traceparent), which an API server with tracing takes up. A watch is one request.
func Requests(provider trace.TracerProvider, config *rest.Config) {
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return otelhttp.NewTransport(next, otelhttp.WithTracerProvider(provider), otelhttp.WithPropagators(propagation.TraceContext{}))
	})
}

// Server makes a span of each change that a server reads, and calls the OnRead that was there
// before. The server has not started.
func Server(provider trace.TracerProvider, s *statesync.Server) {
	tracer, next := provider.Tracer(scope), s.OnRead
	s.OnRead = func(scope string, changes statesync.Page) {
		for _, item := range changes.Items {
			background := context.Background() //nolint:forbidigo // the span has a parent that no context holds
			_, span := change(background, tracer, "change", scope, changes.Epoch, item, trace.SpanKindProducer)
			span.End()
		}
		if next != nil {
			next(scope, changes)
		}
	}
}

// Replica makes a span of each change that a replica handles. The requests of Handle are its
// children. The replica has not started.
func Replica(provider trace.TracerProvider, r *statesync.Replica) {
	tracer, next := provider.Tracer(scope), r.Handle
	r.Handle = func(ctx context.Context, item statesync.Item) error {
		ctx, span := change(ctx, tracer, "handle", r.Scope, r.Status().Cursor.Epoch, item, trace.SpanKindConsumer)
		defer span.End()
		err := next(ctx, item)
		failed(span, err)
		return err
	}
}

// change starts a span in the trace of a change.
func change(
	ctx context.Context, tracer trace.Tracer, name, of, epoch string, item statesync.Item, kind trace.SpanKind,
) (context.Context, trace.Span) {
	ctx = trace.ContextWithRemoteSpanContext(ctx, Change(epoch, of, item.Version))
	return tracer.Start(ctx, name, trace.WithSpanKind(kind), trace.WithAttributes(
		attribute.String("trueup.scope", of), attribute.String("trueup.epoch", epoch),
		attribute.Int64("trueup.version", int64(item.Version)), //nolint:gosec // versions count commits
		attribute.String("trueup.key", item.Key.String()), attribute.Bool("trueup.deleted", item.Deleted),
	))
}

// Change returns the trace of the change that has this version in the log of the scope, for a
// program that adds spans to it, or looks it up. It is the same in every process: the first 24
// bytes of a SHA-256 are the trace's id and the id of the span above all others.
func Change(epoch, scope string, version uint64) trace.SpanContext {
	text := binary.BigEndian.AppendUint64([]byte("trueup change\x00"+epoch+"\x00"+scope+"\x00"), version)
	sum := sha256.Sum256(text)
	return trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID(sum[:16]), SpanID: trace.SpanID(sum[16:24]), Remote: true,
	})
}

// pass runs one pass in a span.
func pass(ctx context.Context, tracer trace.Tracer, name, key string, do reconcile.Func) (reconcile.Result, error) {
	var attributes []attribute.KeyValue
	if key != "" {
		attributes = append(attributes, attribute.String("trueup.key", key))
	}
	ctx, span := tracer.Start(ctx, name, trace.WithAttributes(attributes...))
	defer span.End() // also after a panic, which the SDK records
	result, err := do(ctx)
	if after := result.RequeueAfter; after > 0 {
		span.SetAttributes(attribute.Int64("trueup.requeue_after_ms", after.Milliseconds()))
	}
	failed(span, err)
	return result, err
}

func failed(span trace.Span, err error) {
	if err == nil {
		return
	}
	span.RecordError(err)
	span.SetStatus(codes.Error, err.Error())
}
