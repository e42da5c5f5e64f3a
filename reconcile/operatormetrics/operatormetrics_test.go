package operatormetrics //nolint:testpackage // what an operator tells it is not exported

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed-9e1ffd66/trueup/reconcile"
	"github.com/seed-9e1ffd66/trueup/reconcile/operator"
)

// TestMetricsAreThoseOfATerm: passes are counted and handed on, and what an operator has shown
// is not shown after it has stopped, nor by its next term.
func TestMetricsAreThoseOfATerm(t *testing.T) {
	t.Parallel()
	before := 0
	o := &operator.Operator[*unstructured.Unstructured]{
		Name: "boards", Conditions: func(*unstructured.Unstructured) *[]metav1.Condition { return nil },
		OnPass: func(reconcile.KeyPass[types.NamespacedName]) { before++ },
	}
	c := New(o)
	require.Zero(t, testutil.CollectAndCount(c), "it has not started")

	var reasons map[string]int
	c.reasons = func() map[string]int { return reasons }
	reasons = map[string]int{"Ready": 2, "NotOurs": 1}
	o.OnPass(reconcile.KeyPass[types.NamespacedName]{Duration: 2 * time.Millisecond})
	o.OnPass(reconcile.KeyPass[types.NamespacedName]{Duration: time.Minute, Err: errors.New("refused")})
	require.Equal(t, 2, before)
	require.NoError(t, testutil.CollectAndCompare(c, strings.NewReader(`
# HELP trueup_operator_objects Objects, by the reason of their condition Ready.
# TYPE trueup_operator_objects gauge
trueup_operator_objects{operator="boards",reason="NotOurs"} 1
trueup_operator_objects{operator="boards",reason="Ready"} 2
`), "trueup_operator_objects"))
	require.Equal(t, 2, testutil.CollectAndCount(c, "trueup_operator_pass_duration_seconds"), "one of each result")

	reasons = nil
	require.Zero(t, testutil.CollectAndCount(c), "another replica works")
	reasons = map[string]int{}
	require.Zero(t, testutil.CollectAndCount(c), "a term begins at zero")
}

// TestTheHandlerAnswersWithAllMetrics: of the operator, with the seconds of each result, of Go and of
// the process.
func TestTheHandlerAnswersWithAllMetrics(t *testing.T) {
	t.Parallel()
	o := &operator.Operator[*unstructured.Unstructured]{Name: "boards"}
	c := New(o)
	c.reasons = func() map[string]int { return map[string]int{"Ready": 2} }
	o.OnPass(reconcile.KeyPass[types.NamespacedName]{Duration: 2 * time.Millisecond})
	o.OnPass(reconcile.KeyPass[types.NamespacedName]{Duration: time.Minute, Err: errors.New("refused")})
	answer := httptest.NewRecorder()
	c.Handler().ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", http.NoBody))
	for _, line := range []string{
		`trueup_operator_pass_duration_seconds_sum{operator="boards",result="success"} 0.002`,
		`trueup_operator_pass_duration_seconds_sum{operator="boards",result="error"} 60`,
		`trueup_operator_objects{operator="boards",reason="Ready"} 2`,
		"go_goroutines ", "process_start_time_seconds ",
	} {
		require.Contains(t, answer.Body.String(), "\n"+line)
	}
}
