package operator_test

import (
	"testing"

	application "github.com/seed-9e1ffd66/trueup/cmd/application/operator"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/metrictest"
)

func TestTheMetricsAreThoseOfTheList(t *testing.T) {
	t.Parallel()
	metrictest.Check(t, "application", application.Metrics())
}
