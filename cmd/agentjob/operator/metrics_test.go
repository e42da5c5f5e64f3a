package operator //nolint:testpackage // metrics is not exported

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed-9e1ffd66/trueup/cmd/api/thurkube/v1alpha1"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/metrictest"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/program"
	"github.com/seed-9e1ffd66/trueup/reconcile"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube"
)

func TestTheMetricsAreThoseOfTheList(t *testing.T) {
	t.Parallel()
	metrictest.Check(t, "agentjob", program.NewRegistry("agentjob"), newMetrics())
}

func TestJobsAreCountedByTheirState(t *testing.T) {
	t.Parallel()
	m := newMetrics()
	job := func(name string, phase v1alpha1.Phase, reason string) *v1alpha1.AgentJob {
		return &v1alpha1.AgentJob{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name}, Status: v1alpha1.AgentJobStatus{
			Phase: phase, Conditions: []metav1.Condition{{Type: conditionReady, Reason: reason}},
		}}
	}
	first := job("first", v1alpha1.Pending, reasonResolve)
	m.observed(first)
	m.observed(job("second", v1alpha1.Running, reasonReconciled))
	m.observed(job("third", v1alpha1.Pending, reasonReconciled))
	m.observed(job("third", v1alpha1.Running, reasonReconciled))
	require.Equal(
		t,
		[]string{`thurkube_agentjobs{phase="Pending",reason="ResolveFailed"} 1`, `thurkube_agentjobs{phase="Running",reason="Reconciled"} 2`},
		series(t, m, "thurkube_agentjobs"),
	)
	m.forget(kube.KeyOf(first))
	require.Equal(t, []string{`thurkube_agentjobs{phase="Running",reason="Reconciled"} 2`}, series(t, m, "thurkube_agentjobs"))
}

func TestARunIsCountedOnceWhenItHasEnded(t *testing.T) {
	t.Parallel()
	m := newMetrics()
	active, done := &v1alpha1.Run{UID: "a"}, &v1alpha1.Run{UID: "a", Outcome: v1alpha1.RunFailed}
	next := &v1alpha1.Run{UID: "b", Outcome: v1alpha1.RunSucceeded}
	for _, step := range [][2]*v1alpha1.Run{{nil, active}, {active, active}, {active, done}, {done, done}, {done, nil}, {done, next}, {nil, next}} {
		m.recorded(step[0], step[1])
	}
	require.Equal(
		t,
		[]string{`thurkube_runs_total{outcome="Failed"} 1`, `thurkube_runs_total{outcome="Succeeded"} 2`},
		series(t, m, "thurkube_runs_total"),
	)
}

func TestPassesAreCountedByTheirResult(t *testing.T) {
	t.Parallel()
	m := newMetrics()
	m.passed(reconcile.KeyPass[types.NamespacedName]{Duration: 2 * time.Second})
	m.passed(reconcile.KeyPass[types.NamespacedName]{Duration: time.Second})
	m.passed(reconcile.KeyPass[types.NamespacedName]{Duration: time.Second, Err: errors.New("refused")})
	require.Equal(
		t,
		[]string{`thurkube_reconcile_total{result="error"} 1`, `thurkube_reconcile_total{result="success"} 2`},
		series(t, m, "thurkube_reconcile_total"),
	)
	require.Contains(t, series(t, m, "thurkube_reconcile_duration_seconds"), "thurkube_reconcile_duration_seconds_sum 4")
}

// series returns the lines of a metric, as a scrape has them.
func series(t *testing.T, m *metrics, name string) (lines []string) {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(m)
	families, err := registry.Gather()
	require.NoError(t, err)
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		var text strings.Builder
		_, err := expfmt.MetricFamilyToText(&text, f)
		require.NoError(t, err)
		lines = strings.Split(strings.TrimSpace(text.String()), "\n")
	}
	return slices.DeleteFunc(lines, func(line string) bool { return strings.HasPrefix(line, "#") })
}
