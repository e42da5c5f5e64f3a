package agent_test

import (
	"testing"

	"github.com/seed-9e1ffd66/trueup/cmd/internal/metrictest"
	shuttle "github.com/seed-9e1ffd66/trueup/cmd/shuttle/agent"
)

func TestTheMetricsAreThoseOfTheList(t *testing.T) {
	t.Parallel()
	metrictest.Check(t, "shuttle", shuttle.Metrics())
}
