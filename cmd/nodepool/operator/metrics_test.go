package operator_test

import (
	"testing"

	"github.com/seed-9e1ffd66/trueup/cmd/internal/metrictest"
	nodepool "github.com/seed-9e1ffd66/trueup/cmd/nodepool/operator"
)

func TestTheMetricsAreThoseOfTheList(t *testing.T) {
	t.Parallel()
	metrictest.Check(t, "nodepool", nodepool.Metrics())
}
