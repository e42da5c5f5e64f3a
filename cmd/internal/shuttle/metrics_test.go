package shuttle_test

import (
	"testing"

	"github.com/seed-9e1ffd66/trueup/cmd/internal/metrictest"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/shuttle"
)

func TestTheMetricsAreThoseOfTheList(t *testing.T) {
	t.Parallel()
	metrictest.Check(t, "shuttle", shuttle.Metrics())
}
