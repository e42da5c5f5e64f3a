package view //nolint:testpackage // plays a client whose request ends late

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientmetadata "k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
)

// TestAListThatEndsLateSpoilsNoLaterOne has a definition change while its kind is listed: the
// list is given up, and a second reflector lists and watches. The first request ends after
// that, as it does on a machine with much to do, and the kind stays known.
func TestAListThatEndsLateSpoilsNoLaterOne(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := &lateServer{release: make(chan struct{})}
		client, err := clientmetadata.NewForConfigAndClient(&rest.Config{Host: "http://server", QPS: -1}, &http.Client{Transport: server})
		require.NoError(t, err)
		mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{{Version: "v1"}})
		mapper.Add(schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}, meta.RESTScopeNamespace)
		k := New(schema.GroupKind{Kind: "ConfigMap"}, me, Hooks{})
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			k.Watch(ctx, Source{Client: client, Mapper: mapper})
		}()
		synctest.Wait()
		require.Equal(t, 1, server.lists, "the first is under way")

		k.Nudge()
		synctest.Wait()
		require.Equal(t, 2, server.lists)
		require.Equal(t, Known{State: Served}, k.Known())

		close(server.release)
		synctest.Wait()
		require.Equal(t, 1, server.late, "the first has ended")
		require.Equal(t, Known{State: Served}, k.Known())

		stop()
		<-done
	})
}

// lateServer answers lists and watches. The first list does not end with its context.
type lateServer struct {
	release     chan struct{}
	lists, late int
}

func (s *lateServer) RoundTrip(r *http.Request) (*http.Response, error) {
	query := r.URL.Query()
	switch {
	case query.Get("sendInitialEvents") != "":
		return s.answer(
			http.StatusUnprocessableEntity,
			strings.NewReader(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Invalid","code":422}`),
		), nil
	case query.Get("watch") != "":
		return s.answer(http.StatusOK, silent{r.Context()}), nil
	}
	s.lists++
	if s.lists == 1 {
		<-s.release
		s.late++
		return nil, r.Context().Err()
	}
	return s.answer(
		http.StatusOK,
		strings.NewReader(`{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"7"},"items":[]}`),
	), nil
}

func (s *lateServer) answer(status int, body io.Reader) *http.Response {
	return &http.Response{
		StatusCode: status, Status: http.StatusText(status), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(body),
	}
}

// silent is the body of a watch without events.
type silent struct{ ctx context.Context } //nolint:containedctx // the request's

func (s silent) Read([]byte) (int, error) {
	<-s.ctx.Done()
	return 0, s.ctx.Err()
}
