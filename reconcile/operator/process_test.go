package operator_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/seed-9e1ffd66/trueup/internal/test/await"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube/kubetest"
	"github.com/seed-9e1ffd66/trueup/reconcile/operator"
)

// term is work that is synced once the test sets synced.
type term struct {
	synced, failing atomic.Bool
	end             chan error
}

func (w *term) Start(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case err := <-w.end:
		return err
	}
}

func (w *term) Synced() (bool, error) {
	switch {
	case w.failing.Load():
		return true, errors.New("watch pods: forbidden")
	case w.synced.Load():
		return true, nil
	}
	return false, errors.New("list pods: forbidden")
}

// replica is a process whose works are seen by the test.
type replica struct {
	*testing.T

	url   string
	works chan *term
	stop  func() error
}

func (r *replica) answers(status int, body string) {
	r.Helper()
	have, text := r.get()
	require.Equal(r, status, have, text)
	require.Contains(r, text, body)
}

func (r *replica) get() (int, string) {
	request, err := http.NewRequestWithContext(r.Context(), http.MethodGet, r.url+"/readyz", nil)
	require.NoError(r, err)
	response, err := http.DefaultClient.Do(request)
	require.NoError(r, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	require.NoError(r, err)
	return response.StatusCode, string(body)
}

func run(t *testing.T, config *rest.Config, lease *kube.Lease, resource string) *replica {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r := &replica{T: t, works: make(chan *term, 8)}
	address, ended := make(chan net.Addr, 1), make(chan error, 1)
	p := &operator.Process{
		Config: config, Lease: lease, Resource: schema.GroupVersionResource{Version: "v1", Resource: resource},
		OnListen: func(a net.Addr) { address <- a },
		Work: func(context.Context, *rest.Config) (operator.Work, error) {
			w := &term{end: make(chan error, 1)}
			r.works <- w
			return w, nil
		},
	}
	go func() { ended <- p.Start(ctx) }()
	r.url = "http://" + (<-address).String()
	r.stop = func() error {
		cancel()
		err := <-ended
		ended <- err
		return err
	}
	t.Cleanup(func() { _ = r.stop() })
	return r
}

func TestAProcess(t *testing.T) {
	t.Parallel()
	cluster := kubetest.Start(t, kubetest.Options{})
	lease := func(name string) *kube.Lease {
		return &kube.Lease{Namespace: "default", Name: name, Duration: 3 * time.Second, RetryPeriod: 200 * time.Millisecond}
	}
	t.Run("of two replicas one works, and both are ready", func(t *testing.T) {
		t.Parallel()
		first := run(t, cluster.Config, lease("two"), "pods")
		work := <-first.works
		first.answers(503, "watches: not ready: not everything is seen yet\nlist pods: forbidden")
		second := run(t, cluster.Config, lease("two"), "pods")
		second.answers(200, "watches: ok")
		first.answers(503, "forbidden")
		work.synced.Store(true)
		first.answers(200, "watches: ok")
		work.synced.Store(false)
		first.answers(200, "watches: ok")
		require.Empty(t, second.works)

		require.NoError(t, first.stop())
		<-second.works
		second.answers(200, "watches: ok")
		require.NoError(t, second.stop())
		require.Empty(t, second.works)
		require.Empty(t, first.works)
	})
	t.Run("each term has work of its own", func(t *testing.T) {
		t.Parallel()
		r := run(t, cluster.Config, lease("terms"), "pods")
		work := <-r.works
		// Another takes the Lease without asking.
		_, err := cluster.Kubectl(t.Context(), "patch", "lease", "terms", "--type=merge", "-p",
			`{"spec":{"holderIdentity":"another","renewTime":"2020-01-01T00:00:00.000000Z"}}`)
		require.NoError(t, err)
		await.Eventually(t, "a second term", func() bool { return len(r.works) == 1 })
		require.NotSame(t, work, <-r.works)
		require.NoError(t, r.stop())
	})
	t.Run("a replica that may not list is not ready", func(t *testing.T) {
		t.Parallel()
		first := run(t, cluster.Config, lease("unknown"), "pods")
		<-first.works
		second := run(t, cluster.Config, lease("unknown"), "widgets")
		second.answers(503, "the API server does not list widgets: the server could not find the requested resource")
	})
	t.Run("without a Lease it is ready when its work is", func(t *testing.T) {
		t.Parallel()
		r := run(t, cluster.Config, nil, "pods")
		work := <-r.works
		r.answers(503, "not everything is seen yet")
		work.failing.Store(true)
		r.answers(503, "watches: not ready: watch pods: forbidden")
		work.failing.Store(false)
		work.synced.Store(true)
		r.answers(200, "watches: ok")
	})
	t.Run("work that ends, ends the process", func(t *testing.T) {
		t.Parallel()
		r := run(t, cluster.Config, lease("ends"), "pods")
		work := <-r.works
		work.end <- errors.New("database is gone")
		require.ErrorContains(t, r.stop(), "database is gone")
	})
}

func TestAProcessNeedsItsFields(t *testing.T) {
	t.Parallel()
	work := func(context.Context, *rest.Config) (operator.Work, error) { return nil, errors.New("no such cloud") }
	pods := schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	for want, p := range map[string]*operator.Process{
		"operator: Process.Config: is required":   {Work: work, Resource: pods},
		"operator: Process.Work: is required":     {Config: &rest.Config{}, Resource: pods},
		"operator: Process.Resource: is required": {Config: &rest.Config{}, Work: work},
		"kube: ":        {Config: &rest.Config{}, Work: work, Resource: pods, Lease: &kube.Lease{Name: "x"}, Address: "0"},
		"no such cloud": {Config: &rest.Config{}, Work: work, Resource: pods, Address: "0"},
	} {
		require.ErrorContains(t, p.Start(t.Context()), want)
	}
}

// TestMetricsHaveAListenerOfTheirOwn: the end waits for no request longer than StopTimeout.
func TestMetricsHaveAListenerOfTheirOwn(t *testing.T) {
	t.Parallel()
	addresses, asked := make(chan net.Addr, 2), make(chan struct{})
	p := &operator.Process{
		Config: &rest.Config{QPS: 5}, Resource: schema.GroupVersionResource{Version: "v1", Resource: "pods"},
		MetricsAddress: "127.0.0.1:0", OnListenMetrics: func(a net.Addr) { addresses <- a }, StopTimeout: time.Millisecond,
		Metrics: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			close(asked)
			<-r.Context().Done()
		}),
		Work: func(_ context.Context, config *rest.Config) (operator.Work, error) {
			require.Negative(t, config.QPS, "the server's own limit is the limit")
			return &term{}, nil
		},
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.Start(ctx) }()
	go func() {
		address := <-addresses
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address.String()+"/metrics", nil)
		if err != nil {
			return
		}
		if response, err := http.DefaultClient.Do(request); err == nil {
			_ = response.Body.Close()
		}
	}()
	select {
	case <-asked:
	case <-time.After(time.Minute):
		require.Fail(t, "metrics are not listened for")
	}
	cancel()
	require.NoError(t, <-ended)
}
