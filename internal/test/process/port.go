package process

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"syscall"
	"time"
)

// The ports of [Port] are below those that systems hand out to a listener or a connection
// that asks for any: 32768 and up on Linux, 49152 and up elsewhere.
const firstPort, endOfPorts = 10000, 32768

// Port returns a port of 127.0.0.1 on which nothing listens. A program that takes its
// port as an argument may start much later, or again after it was killed, and finds it free:
// no other listener or connection is given it unless it asks for just this one.
func Port(ctx context.Context) (int, error) {
	// It connects, and does not listen: a child that is just being started would keep a
	// listener for a moment after it is closed.
	dialer := net.Dialer{Timeout: time.Second}
	for range 100 {
		port := firstPort + rand.IntN(endOfPorts-firstPort) //nolint:gosec // no secret
		connection, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		switch {
		case errors.Is(err, syscall.ECONNREFUSED):
			return port, nil
		case ctx.Err() != nil:
			return 0, fmt.Errorf("choose a port: %w", ctx.Err())
		case err == nil:
			connection.Close() //nolint:errcheck // nothing was sent
		}
	}
	return 0, fmt.Errorf("no free port of %d to %d", firstPort, endOfPorts-1)
}
