package operator //nolint:testpackage // the number of disruptions is not exported

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed-9e1ffd66/trueup/cmd/api/stratos/v1alpha1"
)

func TestTheLeastBudgetThatAppliesCounts(t *testing.T) {
	t.Parallel()
	friday := time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)
	during := func(nodes, schedule string, d time.Duration) v1alpha1.DisruptionBudget {
		return v1alpha1.DisruptionBudget{Nodes: nodes, Schedule: schedule, Duration: &v1alpha1.Duration{Duration: metav1.Duration{Duration: d}}}
	}
	always := func(nodes string) v1alpha1.DisruptionBudget { return v1alpha1.DisruptionBudget{Nodes: nodes} }
	const none = -1
	for name, c := range map[string]struct {
		budgets []v1alpha1.DisruptionBudget
		running int32
		at      time.Time // friday if zero
		want    int
		err     string
	}{
		"without one it is one":               {running: 50, want: 1},
		"a number":                            {budgets: []v1alpha1.DisruptionBudget{always("3")}, want: 3},
		"none":                                {budgets: []v1alpha1.DisruptionBudget{always("0")}, running: 9, want: none},
		"a share is rounded up":               {budgets: []v1alpha1.DisruptionBudget{always("10%")}, running: 11, want: 2},
		"an even share is not":                {budgets: []v1alpha1.DisruptionBudget{always("10%")}, running: 10, want: 1},
		"all":                                 {budgets: []v1alpha1.DisruptionBudget{always("100%")}, running: 7, want: 7},
		"a share of none":                     {budgets: []v1alpha1.DisruptionBudget{always("50%")}, want: none},
		"the least":                           {budgets: []v1alpha1.DisruptionBudget{always("50%"), always("2"), always("3")}, running: 10, want: 2},
		"none is the least":                   {budgets: []v1alpha1.DisruptionBudget{always("0"), always("2")}, running: 10, want: none},
		"its time has just begun":             {budgets: []v1alpha1.DisruptionBudget{during("0", "0 12 * * mon-fri", time.Hour)}, want: none},
		"it has not begun":                    {budgets: []v1alpha1.DisruptionBudget{during("0", "1 12 * * *", time.Hour)}, want: 1},
		"it is over":                          {budgets: []v1alpha1.DisruptionBudget{during("0", "0 11 * * *", time.Hour)}, want: 1},
		"it is nearly over":                   {budgets: []v1alpha1.DisruptionBudget{during("0", "0 11 * * *", time.Hour+time.Second)}, want: none},
		"not on this day":                     {budgets: []v1alpha1.DisruptionBudget{during("0", "0 12 * * sat,sun", time.Hour)}, want: 1},
		"one that does not apply leaves them": {budgets: []v1alpha1.DisruptionBudget{during("0", "0 1 * * *", time.Hour), always("4")}, want: 4},
		"a name":                              {budgets: []v1alpha1.DisruptionBudget{during("0", "@daily", 13*time.Hour)}, want: none},
		"in UTC": {
			budgets: []v1alpha1.DisruptionBudget{during("0", "0 12 * * *", time.Hour)},
			at:      friday.In(time.FixedZone("east", 5*3600)), want: none,
		},
		"a time that never comes": {
			budgets: []v1alpha1.DisruptionBudget{during("0", "0 0 31 2 *", time.Hour)}, want: none,
			err: `spec.disruption.budgets[0].schedule: is "0 0 31 2 *", must match a time within five years`,
		},
		"a leap day": {budgets: []v1alpha1.DisruptionBudget{during("0", "0 0 29 2 *", time.Hour)}, want: 1},
		"no schedule": {
			budgets: []v1alpha1.DisruptionBudget{always("1"), during("0", "every day", time.Hour)}, want: none,
			err: `spec.disruption.budgets[1].schedule: is "every day", must be in the syntax of cron, such as "0 9 * * mon-fri"`,
		},
		"six fields": {
			budgets: []v1alpha1.DisruptionBudget{during("0", "0 0 12 * * *", time.Hour)}, want: none, err: "budgets[0].schedule: is ",
		},
		"a time zone": {
			budgets: []v1alpha1.DisruptionBudget{during("0", "TZ=Asia/Tokyo 0 9 * * *", time.Hour)}, want: none, err: "a time zone and @every are not supported",
		},
		"every minute": {
			budgets: []v1alpha1.DisruptionBudget{during("0", "@every 1m", time.Hour)}, want: none, err: "a time zone and @every are not supported",
		},
		"no number": {
			budgets: []v1alpha1.DisruptionBudget{always("many")}, want: none,
			err: `spec.disruption.budgets[0].nodes: is "many", must be a number or a share, such as 2 or 10%`,
		},
		"a number below": {budgets: []v1alpha1.DisruptionBudget{always("-1")}, want: none, err: `budgets[0].nodes: is "-1", must be a number`},
		"no number in a budget that does not apply": {
			budgets: []v1alpha1.DisruptionBudget{during("many", "0 1 * * *", time.Hour)}, want: none, err: `budgets[0].nodes: is "many"`,
		},
		"a schedule without a duration": {
			budgets: []v1alpha1.DisruptionBudget{{Nodes: "1", Schedule: "@daily"}}, want: none, err: "spec.disruption.budgets[0].duration: is required",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := &v1alpha1.NodePool{}
			p.Spec.Disruption.Budgets, p.Status.Running = c.budgets, c.running
			if c.at.IsZero() {
				c.at = friday
			}
			got, err := disruptions(p, c.at)
			require.Equal(t, c.want, got)
			if c.err == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, c.err)
			}
		})
	}
}
