package reflectors_test

import (
	"net"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/seed-9e1ffd66/trueup/internal/reflectors"
)

func TestARefusedWatchWithItsListIsAnErrorThatReflectorsDoNotWaitFor(t *testing.T) {
	t.Parallel()
	refused := &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	busy := apierrors.NewTooManyRequests("later", 1)
	initial := true
	for _, err := range []error{refused, busy} {
		hidden := reflectors.WatchError(err, metav1.ListOptions{SendInitialEvents: &initial})
		require.EqualError(t, hidden, err.Error())
		require.False(t, utilnet.IsConnectionRefused(hidden) || apierrors.IsTooManyRequests(hidden))
		require.Equal(t, err, reflectors.WatchError(err, metav1.ListOptions{}), "a watch alone is waited for in a way that ends")
	}
	gone := apierrors.NewResourceExpired("too old")
	require.Equal(t, gone, reflectors.WatchError(gone, metav1.ListOptions{SendInitialEvents: &initial}))
	require.NoError(t, reflectors.WatchError(nil, metav1.ListOptions{SendInitialEvents: &initial}))
}
