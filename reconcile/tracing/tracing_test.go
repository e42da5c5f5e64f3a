package tracing_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/seed-9e1ffd66/trueup/internal/test/httpfunc"
	"github.com/seed-9e1ffd66/trueup/reconcile"
	"github.com/seed-9e1ffd66/trueup/reconcile/operator"
	"github.com/seed-9e1ffd66/trueup/reconcile/simtest"
	"github.com/seed-9e1ffd66/trueup/reconcile/tracing"
	"github.com/seed-9e1ffd66/trueup/statesync"
)

// spans returns a provider and what it has recorded.
func spans(t *testing.T, sampler sdk.Sampler) (trace.TracerProvider, func() tracetest.SpanStubs) {
	t.Helper()
	recorder := tracetest.NewSpanRecorder()
	provider := sdk.NewTracerProvider(sdk.WithSpanProcessor(recorder), sdk.WithSampler(sampler))
	return provider, func() tracetest.SpanStubs { return tracetest.SpanStubsFromReadOnlySpans(recorder.Ended()) }
}

func attributes(s tracetest.SpanStub) map[string]any {
	all := map[string]any{}
	for _, a := range s.Attributes {
		all[string(a.Key)] = a.Value.AsInterface()
	}
	return all
}

// TestTheRequestsOfAPassAreInItsTrace: a pass and its request to an API server are one trace, and
// the server gets its id.
func TestTheRequestsOfAPassAreInItsTrace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		provider, recorded := spans(t, sdk.AlwaysSample())
		server := &simtest.Server{Kinds: []simtest.Kind{{Version: "v1", Resource: "configmaps", Kind: "ConfigMap"}}}
		var parents []string
		config := &rest.Config{Host: "http://simtest", Transport: httpfunc.Transport(func(r *http.Request) (*http.Response, error) {
			parents = append(parents, r.Header.Get("Traceparent"))
			return server.RoundTrip(r)
		})}
		tracing.Requests(provider, config)
		client, err := dynamic.NewForConfig(config)
		require.NoError(t, err)

		ctx, stop := context.WithCancel(t.Context())
		q := &reconcile.Queue[types.NamespacedName]{
			Name: "maps", Backoff: reconcile.Backoff{Min: time.Minute},
			Reconcile: func(ctx context.Context, key types.NamespacedName) (reconcile.Result, error) {
				_, err := client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}).
					Namespace(key.Namespace).Get(ctx, key.Name, metav1.GetOptions{})
				return reconcile.Result{RequeueAfter: time.Hour}, err
			},
		}
		tracing.Queue(provider, q)
		q.Add(types.NamespacedName{Namespace: "shop", Name: "web"})
		done := make(chan error)
		go func() { done <- q.Start(ctx) }()
		synctest.Wait()
		stop()
		require.NoError(t, <-done)

		all := recorded()
		require.Len(t, all, 2)
		request, pass := all[0], all[1]
		require.Equal(t, "pass maps", pass.Name)
		require.Equal(t, map[string]any{"trueup.key": "shop/web", "trueup.requeue_after_ms": int64(3600000)}, attributes(pass))
		require.Equal(t, codes.Error, pass.Status.Code)
		require.Contains(t, pass.Status.Description, `configmaps "web" not found`)
		require.Equal(t, pass.SpanContext.SpanID(), request.Parent.SpanID(), "the request belongs to the pass")
		require.Equal(t, []string{fmt.Sprintf("00-%s-%s-01", request.SpanContext.TraceID(), request.SpanContext.SpanID())}, parents)
	})
}

// TestAChangeIsOneTraceInServerAndReader, also across two processes that share nothing but the
// stream. What the server read first is no change.
func TestAChangeIsOneTraceInServerAndReader(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ofServer, served := spans(t, sdk.AlwaysSample())
		ofReader, handled := spans(t, sdk.AlwaysSample())
		ctx, stop := context.WithCancel(t.Context())
		log := &statesync.Memory{}
		require.NoError(t, log.AddScope("eu"))
		web, db := statesync.Key{Collection: "deployments", ID: "web"}, statesync.Key{Collection: "deployments", ID: "db"}
		require.NoError(t, log.Commit(statesync.Change{Scope: "eu", Key: web, Value: []byte(`1`)}))
		pages := 0
		server := &statesync.Server{Log: log, OnRead: func(string, statesync.Page) { pages++ }}
		tracing.Server(ofServer, server)
		var inside []trace.SpanContext
		refused := errors.New("refused")
		replica := &statesync.Replica{
			Source: server, Scope: "eu", Retry: reconcile.Backoff{Min: time.Hour}, Workers: 1,
			Handle: func(ctx context.Context, item statesync.Item) error {
				inside = append(inside, trace.SpanContextFromContext(ctx))
				if item.Deleted {
					return refused
				}
				return nil
			},
		}
		tracing.Replica(ofReader, replica)
		done := make(chan error)
		go func() { done <- server.Start(ctx) }()
		go func() { done <- replica.Start(ctx) }()
		synctest.Wait()
		require.Empty(t, served(), "it was there before")
		require.Len(t, handled(), 1)
		require.NoError(t, log.Commit(
			statesync.Change{Scope: "eu", Key: db, Value: []byte(`1`)}, statesync.Change{Scope: "eu", Key: web, Deleted: true}))
		synctest.Wait()
		stop()
		require.NoError(t, errors.Join(<-done, <-done))

		changes, handles := served(), handled()
		require.Len(t, changes, 2)
		require.Len(t, handles, 3)
		require.Equal(t, 1, pages, "the OnRead that was there before is called, too")
		for n, change := range changes {
			handle := handles[n+1]
			require.Equal(t, [2]string{"change", "handle"}, [2]string{change.Name, handle.Name})
			require.Equal(t, change.SpanContext.TraceID(), handle.SpanContext.TraceID())
			require.NotEqual(t, change.SpanContext.SpanID(), handle.SpanContext.SpanID())
			require.Equal(t, attributes(change), attributes(handle))
			require.Equal(t, handle.SpanContext, inside[n+1], "what Handle does is below it")
			require.Equal(t, [2]trace.SpanKind{trace.SpanKindProducer, trace.SpanKindConsumer}, [2]trace.SpanKind{change.SpanKind, handle.SpanKind})
		}
		require.NotEqual(t, changes[0].SpanContext.TraceID(), changes[1].SpanContext.TraceID(), "two changes are two traces")
		got := attributes(changes[1])
		require.NotEmpty(t, got["trueup.epoch"])
		require.Equal(t, tracing.Change(got["trueup.epoch"].(string), "eu", 3).TraceID(), changes[1].SpanContext.TraceID())
		delete(got, "trueup.epoch")
		require.Equal(t, map[string]any{
			"trueup.scope": "eu", "trueup.version": int64(3), "trueup.key": "deployments/web", "trueup.deleted": true,
		}, got)
		require.Equal(t, sdk.Status{Code: codes.Error, Description: "refused"}, handles[2].Status)
		require.Equal(t, codes.Unset, handles[1].Status.Code)
	})
}

// TestTheDefaultSamplerTakesNoChange: the package documentation says so, and what to use.
func TestTheDefaultSamplerTakesNoChange(t *testing.T) {
	t.Parallel()
	for want, options := range map[int][]sdk.TracerProviderOption{0: nil, 1: {sdk.WithSampler(sdk.TraceIDRatioBased(1))}} {
		exporter := tracetest.NewInMemoryExporter()
		server := &statesync.Server{}
		tracing.Server(sdk.NewTracerProvider(append(options, sdk.WithSyncer(exporter))...), server)
		server.OnRead("eu", statesync.Page{Position: statesync.Position{Epoch: "e"}, Items: []statesync.Item{{Version: 1}}})
		require.Len(t, exporter.GetSpans(), want)
	}
}

// TestServerAndReaderSampleTheSameChanges by TraceIDRatioBased, with no word between them.
func TestServerAndReaderSampleTheSameChanges(t *testing.T) {
	t.Parallel()
	sampled := map[string][]uint64{}
	for _, name := range []string{"server", "reader"} {
		provider, recorded := spans(t, sdk.TraceIDRatioBased(0.25))
		server := &statesync.Server{}
		tracing.Server(provider, server)
		for version := range uint64(400) {
			server.OnRead("eu", statesync.Page{Position: statesync.Position{Epoch: "e"}, Items: []statesync.Item{{Version: version + 1}}})
		}
		for _, s := range recorded() {
			sampled[name] = append(sampled[name], uint64(attributes(s)["trueup.version"].(int64)))
		}
	}
	require.Equal(t, sampled["server"], sampled["reader"])
	require.InDelta(t, 100, len(sampled["server"]), 40)
}

// TestTheTraceOfAChangeHasItsVector: a program in another language finds the trace of a change.
func TestTheTraceOfAChangeHasItsVector(t *testing.T) {
	t.Parallel()
	c := tracing.Change("e1", "eu", 3)
	// printf 'trueup change\0e1\0eu\0\0\0\0\0\0\0\0\003' | sha256sum
	require.Equal(t, "338ea0797b303fcd8ed6ce38667633097b4b6aae1ab7dc9a", c.TraceID().String()+c.SpanID().String())
	require.NotEqual(t, c.TraceID(), tracing.Change("e2", "eu", 3).TraceID(), "a restored log numbers its changes again")
}

// TestAPassThatPanicsEndsItsSpanAndTheProgram: the trace holds back no panic.
func TestAPassThatPanicsEndsItsSpanAndTheProgram(t *testing.T) {
	t.Parallel()
	provider, recorded := spans(t, sdk.AlwaysSample())
	loop := &reconcile.Loop{Reconciler: reconcile.Func(func(context.Context) (reconcile.Result, error) { panic("broken") })}
	tracing.Loop(provider, loop)
	require.PanicsWithValue(t, "broken", func() { _, _ = loop.Reconciler.Reconcile(t.Context()) })
	require.Len(t, recorded(), 1)
}

// TestPassesOfLoopsAndOperatorsAreSpans, and what a program had around them is kept.
func TestPassesOfLoopsAndOperatorsAreSpans(t *testing.T) {
	t.Parallel()
	provider, recorded := spans(t, sdk.AlwaysSample())
	loop := &reconcile.Loop{Name: "usage", Reconciler: reconcile.Func(func(ctx context.Context) (reconcile.Result, error) {
		require.True(t, trace.SpanFromContext(ctx).IsRecording())
		return reconcile.Result{}, nil
	})}
	tracing.Loop(provider, loop)
	_, err := loop.Reconciler.Reconcile(t.Context())
	require.NoError(t, err)

	var order []string
	o := &operator.Operator[*metav1.PartialObjectMetadata]{
		Name: "boards",
		Around: func(ctx context.Context, key types.NamespacedName, pass reconcile.Func) (reconcile.Result, error) {
			order = append(order, "around "+key.Name)
			return pass(ctx)
		},
	}
	tracing.Operator(provider, o)
	failure := errors.New("no such board")
	result, err := o.Around(t.Context(), types.NamespacedName{Name: "a"}, func(ctx context.Context) (reconcile.Result, error) {
		order = append(order, fmt.Sprint("pass ", trace.SpanFromContext(ctx).IsRecording()))
		return reconcile.Result{RequeueAfter: time.Second}, failure
	})
	require.Equal(t, failure, err)
	require.Equal(t, time.Second, result.RequeueAfter)
	require.Equal(t, []string{"around a", "pass true"}, order)
	all := recorded()
	require.Len(t, all, 2)
	require.Equal(t, "pass usage", all[0].Name)
	require.Empty(t, all[0].Attributes)
	require.Equal(t, "pass boards", all[1].Name)
	require.Contains(t, all[1].Attributes, attribute.String("trueup.key", "/a"))
	require.Len(t, all[1].Events, 1)
}
