package agent_test

import (
	"testing"

	"github.com/seed-9e1ffd66/trueup/cmd/internal/metrictest"
	"github.com/seed-9e1ffd66/trueup/cmd/krane/agent"
)

func TestTheMetricsAreThoseOfTheList(t *testing.T) {
	t.Parallel()
	metrictest.Check(t, "krane", agent.Metrics())
}
