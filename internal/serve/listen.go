package serve

import (
	"net"
	"time"
)

// silence is how long the kernel waits for an acknowledgement of the peer. Streams
// send a heartbeat every 15 s; a connection on which one is not acknowledged for as
// long again is dead. HTTP/2 has pings of its own, HTTP/1.1 has only this.
const silence = 15 * time.Second

// listening sets what connections inherit from their listener.
func listening() net.ListenConfig {
	const probe = 5 * time.Second
	return net.ListenConfig{
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: probe, Interval: probe, Count: int(silence / probe)},
		Control:         userTimeout,
	}
}
