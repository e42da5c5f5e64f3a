package agentjob_test

import (
	"testing"

	"github.com/seed-9e1ffd66/trueup/cmd/internal/metrictest"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/program"
)

// TestTheMetricsAreThoseOfTheList has what every program has: the operator has none of its
// own.
func TestTheMetricsAreThoseOfTheList(t *testing.T) {
	t.Parallel()
	metrictest.Check(t, "agentjob", program.NewRegistry("agentjob"))
}
