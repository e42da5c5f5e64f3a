package process_test

import (
	"fmt"
	"net"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/internal/test/process"
)

func TestAPortIsFreeAndNotHandedOutToOthers(t *testing.T) {
	t.Parallel()
	low := 32768
	if text, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range"); err == nil {
		_, err := fmt.Sscan(string(text), &low)
		require.NoError(t, err)
	}
	for range 50 {
		port, err := process.Port(t.Context())
		require.NoError(t, err)
		require.Less(t, port, low, "the system gives ports from here on to anything that asks for any")
		l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", fmt.Sprintf("127.0.0.1:%d", port))
		require.NoError(t, err)
		defer l.Close()
	}
}
