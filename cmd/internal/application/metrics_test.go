package application_test

import (
	"testing"

	"github.com/seed-9e1ffd66/trueup/cmd/internal/application"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/metrictest"
)

func TestTheMetricsAreThoseOfTheList(t *testing.T) {
	t.Parallel()
	metrictest.Check(t, "application", application.Metrics())
}
