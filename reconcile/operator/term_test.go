package operator //nolint:testpackage // a term is begun without a Lease

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/seed-9e1ffd66/trueup/reconcile/kube"
)

// seeing is work that has seen what the test says, and calls a function while it works.
type seeing struct {
	synced bool
	err    error
	works  func()
}

func (s *seeing) Start(context.Context) error { s.works(); return nil }

func (s *seeing) Synced() (bool, error) { return s.synced, s.err }

// empty is a server without pods.
type empty struct{}

func (empty) RoundTrip(r *http.Request) (*http.Response, error) {
	body := io.NopCloser(strings.NewReader(`{"apiVersion":"v1","kind":"PodList","metadata":{},"items":[]}`))
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: body, Request: r}, nil
}

// TestReadinessIsOfTheTerm: what a term lacked says nothing once it has ended.
func TestReadinessIsOfTheTerm(t *testing.T) {
	t.Parallel()
	pods := schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	process := func(lease *kube.Lease) *Process {
		client, err := dynamic.NewForConfigAndClient(&rest.Config{Host: "http://server"}, &http.Client{Transport: empty{}})
		require.NoError(t, err)
		return &Process{Lease: lease, Resource: pods, client: client}
	}
	p := process(nil)
	require.ErrorIs(t, p.check(t.Context()), errNotSeen, "without a Lease the work is about to begin")

	p = process(&kube.Lease{})
	config := &rest.Config{QPS: -1}
	first := &seeing{err: errors.New("pods: forbidden")}
	p.Work = func(_ context.Context, config *rest.Config) (Work, error) {
		config.QPS = 5
		return first, nil
	}
	first.works = func() { require.ErrorContains(t, p.check(t.Context()), "pods: forbidden") }
	require.NoError(t, p.term(t.Context(), config))
	require.InDelta(t, -1, config.QPS, 0, "each term has a copy")
	require.NoError(t, p.check(t.Context()), "another replica works, and pods are listed")

	p = process(&kube.Lease{})
	failed := errors.New("pods: the watch has failed")
	second := &seeing{synced: true, err: failed}
	second.works = func() {
		require.ErrorIs(t, p.check(t.Context()), failed, "what was seen is not current")
		second.err = nil
		require.NoError(t, p.check(t.Context()))
		second.err = failed
		require.NoError(t, p.check(t.Context()), "once ready, it stays so")
	}
	p.Work = func(context.Context, *rest.Config) (Work, error) { return second, nil }
	require.NoError(t, p.term(t.Context(), config))
}
