package serve_test

import (
	"net"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed-9e1ffd66/trueup/internal/serve"
)

// TestAConnectionWithoutAcknowledgementsIsClosed reads the option back: to lose
// packets takes more rights than a test has.
func TestAConnectionWithoutAcknowledgementsIsClosed(t *testing.T) {
	millis := make(chan int, 1)
	url, stop := start(t, &serve.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		tcp, ok := conn.(*net.TCPConn)
		if !ok {
			t.Errorf("connection is a %T", conn)
			return
		}
		raw, err := tcp.SyscallConn()
		if err != nil {
			t.Error(err)
			return
		}
		err = raw.Control(func(fd uintptr) {
			value, err := unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT)
			if err != nil {
				t.Error(err)
			}
			millis <- value
		})
		if err != nil {
			t.Error(err)
		}
	})})
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/stream", http.NoBody)
	require.NoError(t, err)
	response, err := http.DefaultClient.Do(request)
	if err == nil {
		response.Body.Close()
	}
	require.Error(t, err, "the connection was taken over")
	require.Equal(t, 15_000, <-millis)
	require.NoError(t, stop())
}
