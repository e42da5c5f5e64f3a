package agent

import (
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics returns all metrics of the agent.
func Metrics() *prometheus.Registry { return newMetrics().registry }

// RefusedTokens returns how often a contact has a heartbeat sent because a stream that
// fails with these errors, one after the other, was refused its token.
func RefusedTokens(failures ...error) (n int) {
	c := newContact("", newMetrics(), slog.New(slog.DiscardHandler))
	c.refusedToken = func() { n++ }
	for _, err := range failures {
		c.failed("stream", err)
	}
	return n
}
