package serve

import (
	"net"
	"time"
)

// silence is how long the kernel waits for an answer of the other side. Streams
// send a heartbeat every 15 s; one that nobody confirms within another one's time
// goes to nobody. HTTP/2 has its own pings, HTTP/1.1 has only this.
const silence = 15 * time.Second

// listening sets what connections inherit from their listener.
func listening() net.ListenConfig {
	const probe = 5 * time.Second
	return net.ListenConfig{
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: probe, Interval: probe, Count: int(silence / probe)},
		Control:         userTimeout,
	}
}
