package nodepool_test

import (
	"testing"

	"github.com/seed-9e1ffd66/trueup/cmd/internal/metrictest"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/nodepool"
)

func TestTheMetricsAreThoseOfTheList(t *testing.T) {
	t.Parallel()
	metrictest.Check(t, "nodepool", nodepool.Metrics())
}
