package operator //nolint:testpackage // missed is not exported

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed-9e1ffd66/trueup/cmd/api/thurkube/v1alpha1"
)

// TestMissedStarts is the part of C9 that counts the times of a schedule at which nothing
// was started. The CronJob was made at midnight UTC of the first of January.
func TestMissedStarts(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		schedule, zone  string
		last            int // minute of the last start; 0 is never
		now             int
		suspended, held bool
		want            int32
	}{
		"on time":                       {schedule: "*/5 * * * *", last: 60, now: 64},
		"due, and the server may start": {schedule: "*/5 * * * *", last: 60, now: 66},
		"one":                           {schedule: "*/5 * * * *", last: 60, now: 67, want: 1},
		"three":                         {schedule: "*/5 * * * *", last: 60, now: 77, want: 3},
		"never started":                 {schedule: "*/5 * * * *", now: 12, want: 2},
		"suspended":                     {schedule: "*/5 * * * *", last: 60, now: 77, suspended: true},
		"held back":                     {schedule: "*/5 * * * *", last: 60, now: 77, held: true},
		"no more than a hundred":        {schedule: "* * * * *", last: 60, now: 9999, want: 100},
		"nine o'clock in Berlin":        {schedule: "0 9 * * *", zone: "Europe/Berlin", now: 8*60 + 5, want: 1},
		"not yet nine in New York":      {schedule: "0 9 * * *", zone: "America/New_York", now: 8*60 + 5},
		"a zone of another world":       {schedule: "0 9 * * *", zone: "Mars/Olympus", now: 9999},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := &pass{
				op:   &operator{now: func() time.Time { return at(c.now).Time }},
				job:  &v1alpha1.AgentJob{Spec: v1alpha1.AgentJobSpec{Schedule: c.schedule, Timezone: c.zone, Suspend: c.suspended}},
				cron: &batchv1.CronJob{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: *at(0)}, Spec: batchv1.CronJobSpec{Suspend: &c.held}},
			}
			if c.last > 0 {
				p.cron.Status.LastScheduleTime = at(c.last)
			}
			require.Equal(t, c.want, p.missed())
		})
	}
}
