package controllerruntime

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"k8s.io/client-go/rest"
)

// A Manager that was stopped, such as by a debugger or a machine that was suspended, may have lost its
// election meanwhile, and notices it up to its RenewDeadline after it goes on. By the defaults of a
// Manager another is elected at the earliest after a pause of LeaseDuration less RenewDeadline.
const (
	pulseInterval = time.Second
	longestPause  = 5 * time.Second
	writesHeld    = 15 * time.Second
)

// pulse notices that the process was stopped, and holds back its writes until the Manager has found
// out whether it is still elected. It is safe for concurrent use.
type pulse struct {
	mu   sync.Mutex
	last time.Time // of the last beat or write
	held time.Time // until when nothing is written
}

// run beats until ctx ends.
func (p *pulse) run(ctx context.Context) {
	for {
		p.beat()
		select {
		case <-ctx.Done():
			return
		case <-time.After(pulseInterval):
		}
	}
}

// beat returns for how long nothing may be written, 0 or less if something may.
func (p *pulse) beat() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	// The monotonic clock may stand still while a machine is suspended.
	if paused := max(now.Sub(p.last), now.Round(0).Sub(p.last.Round(0))); !p.last.IsZero() && paused > longestPause {
		p.held = now.Add(writesHeld)
	}
	p.last = now
	return p.held.Sub(now)
}

// guard has the connections of an operator refuse writes while they are held back.
func (p *pulse) guard(config **rest.Config, client **http.Client) {
	if *client == nil {
		*config = rest.CopyConfig(*config)
		(*config).Wrap(p.over)
		return
	}
	guarded := **client
	guarded.Transport = p.over(guarded.Transport)
	*client = &guarded
}

// over returns a transport that refuses writes while they are held back.
func (p *pulse) over(transport http.RoundTripper) http.RoundTripper {
	if transport == nil {
		transport = http.DefaultTransport
	}
	return guarded{p, transport}
}

// guarded is the transport of an operator in a Manager.
type guarded struct {
	pulse     *pulse
	transport http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (g guarded) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodGet {
		if left := g.pulse.beat(); left > 0 {
			if r.Body != nil {
				_ = r.Body.Close() // it was not read
			}
			const why = "the process was stopped for a while and may not be elected any more: nothing is written for %s"
			return nil, fmt.Errorf(why, left.Round(time.Second))
		}
	}
	return g.transport.RoundTrip(r)
}

// WrappedRoundTripper returns the transport below.
func (g guarded) WrappedRoundTripper() http.RoundTripper { return g.transport }
