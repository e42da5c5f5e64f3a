package kubewatch //nolint:testpackage // what a reflector gets is not to be seen from outside

import (
	"net"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
)

func TestARefusedWatchWithItsListIsAnErrorThatReflectorsDoNotWaitFor(t *testing.T) {
	t.Parallel()
	refused := &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	busy := apierrors.NewTooManyRequests("later", 1)
	initial := true
	for _, err := range []error{refused, busy} {
		hidden := refusal(err, metav1.ListOptions{SendInitialEvents: &initial})
		require.EqualError(t, hidden, err.Error())
		require.False(t, utilnet.IsConnectionRefused(hidden) || apierrors.IsTooManyRequests(hidden))
		require.Equal(t, err, refusal(err, metav1.ListOptions{}), "a watch alone is waited for in a way that ends")
	}
	gone := apierrors.NewResourceExpired("too old")
	require.Equal(t, gone, refusal(gone, metav1.ListOptions{SendInitialEvents: &initial}))
	require.NoError(t, refusal(nil, metav1.ListOptions{SendInitialEvents: &initial}))
}
