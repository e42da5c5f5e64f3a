package apply_test

import (
	"context"
	"net"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"

	"github.com/seed-9e1ffd66/trueup/apply"
	"github.com/seed-9e1ffd66/trueup/internal/test/await"
)

// downServer answers everything with an error.
type downServer struct {
	metadata.Getter

	err     error
	watched atomic.Int64
}

func (s *downServer) Resource(schema.GroupVersionResource) metadata.Getter { return s }

func (s *downServer) List(context.Context, metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
	return nil, s.err
}

func (s *downServer) Watch(context.Context, metav1.ListOptions) (watch.Interface, error) {
	s.watched.Add(1)
	return nil, s.err
}

// TestALiveEndsAtOnceWhileTheServerIsDown runs in real time: client-go remembers
// for the whole process when it last had an error.
func TestALiveEndsAtOnceWhileTheServerIsDown(t *testing.T) {
	t.Parallel()
	for name, err := range map[string]error{
		"refused":           &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED},
		"too many requests": apierrors.NewTooManyRequests("later", 1),
		"internal":          apierrors.NewInternalError(syscall.EIO),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			kind := schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}
			known := meta.NewDefaultRESTMapper(nil)
			known.Add(kind, meta.RESTScopeNamespace)
			server := &downServer{err: err}
			live := &apply.Live{Client: server, Mapper: known, Owner: owner, Kinds: []schema.GroupVersionKind{kind}}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			done := make(chan error, 1)
			go func() { done <- live.Start(ctx) }()
			// After five the reflector waits for more than ten seconds.
			await.Eventually(t, "five attempts", func() bool { return server.watched.Load() >= 5 })
			synced, failed := live.Synced(kind.GroupKind())
			require.False(t, synced)
			require.ErrorContains(t, failed, err.Error())
			cancel()
			select {
			case err := <-done:
				require.NoError(t, err)
			case <-time.After(8 * time.Second):
				require.Fail(t, "it waits on, whatever its context says")
			}
		})
	}
}
