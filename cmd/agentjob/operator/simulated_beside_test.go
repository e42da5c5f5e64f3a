package operator //nolint:testpackage // it shares the scenario of the program

import (
	"errors"
	"fmt"
	"testing"

	"github.com/seed-9e1ffd66/trueup/cmd/api/thurkube/v1alpha1"
	"github.com/seed-9e1ffd66/trueup/reconcile/simtest"
)

const simulatedJobs = "agentjobs.thurkube.thurbeen.eu"

// besideSchedule has one AgentJob with a schedule, and a user who asks for runs beside it.
func besideSchedule() simtest.Scenario {
	s := simulated()
	begin, asked := s.Start, 0
	s.Start = func(w *simtest.World) {
		begin(w)
		if err := w.Create(ours("AgentJob", "cron", map[string]any{
			"runtimeRef": "runtime", "authRef": "auth", "roleRef": "role", "prompt": "work", "schedule": "0 0 1 1 *",
		})); err != nil {
			panic(err)
		}
	}
	s.Edit = func(w *simtest.World) {
		switch w.Random.IntN(4) {
		case 0:
			_ = w.Update("agentroles.thurkube.thurbeen.eu", "team", "role", func(o simtest.Object) { // it exists
				o.Set([]any{fmt.Sprint("Bash(", w.Random.IntN(3), ")")}, "spec", "allowedTools")
			})
		case 1:
			_ = w.Update(simulatedJobs, "team", "cron", func(o simtest.Object) { // it exists
				o.Set(o.Field("spec", "suspend") != true, "spec", "suspend")
			})
		default:
			asked++
			_ = w.Update(simulatedJobs, "team", "cron", func(o simtest.Object) { // it exists
				o.Set(fmt.Sprint("run ", asked), "metadata", "annotations", v1alpha1.AnnotationRerun)
			})
		}
	}
	s.Check = simtest.Checks(oneRun(), simtest.NeverTwice("jobs.batch", rerunOf))
	s.Converged = func(w *simtest.World) (err error) {
		cron := w.Stored(simulatedJobs, "team", "cron")
		rerun := rerunOf(cron)
		if cron.Field("spec", "suspend") == true || rerun == "" {
			return nil
		}
		if cron.Field("status", "rerun") != rerun {
			err = fmt.Errorf("%s is asked for, and status.rerun is %v", rerun, cron.Field("status", "rerun"))
		}
		for _, run := range w.AllStored("jobs.batch") {
			if rerunOf(run) == rerun {
				return err
			}
		}
		return errors.Join(err, fmt.Errorf("%s has no Job", rerun))
	}
	return s
}

func rerunOf(o simtest.Object) string {
	rerun, _ := o.Field("metadata", "annotations", v1alpha1.AnnotationRerun).(string)
	return rerun
}

// TestRunsBesideAScheduleInASimulatedWorld: each run that is asked for starts once, whatever fails.
func TestRunsBesideAScheduleInASimulatedWorld(t *testing.T) {
	t.Parallel()
	simtest.Histories(t, func() simtest.Scenario {
		s := besideSchedule()
		if s.Histories = 8; testing.Short() {
			s.Histories = 1
		}
		return s
	})
}
