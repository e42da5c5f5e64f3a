package serve

import (
	"cmp"
	"syscall"

	"golang.org/x/sys/unix"
)

// userTimeout makes the kernel close a connection whose data is not acknowledged.
// By default it tries for a quarter of an hour.
func userTimeout(_, _ string, c syscall.RawConn) error {
	var failed error
	err := c.Control(func(fd uintptr) {
		failed = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(silence.Milliseconds())) //nolint:gosec // it fits
	})
	return cmp.Or(err, failed)
}
