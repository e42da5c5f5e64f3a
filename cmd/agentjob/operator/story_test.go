package operator //nolint:testpackage // what is decided is decided within

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed-9e1ffd66/trueup/cmd/api/thurkube/v1alpha1"
	"github.com/seed-9e1ffd66/trueup/internal/test/storytest"
)

// TestStoriesOfRuns runs testdata/stories/*.txtar on the decisions alone: an AgentJob, its
// status, and the Jobs that were made for it. The commands:
//
//	want HASH [RERUN]        the run that the AgentJob asks for; RERUN is its annotation
//	set NAME...              suspended, scheduled, unready, keep (on a change); others are off
//	pass [STEP]              one pass; it is killed after that step: record, release, remove, start
//	end succeeded|failed     the Job that runs ends
//	delete                   another hand deletes the Job that runs
//	wait DURATION            let time pass
//	state                    the status and the Jobs
func TestStoriesOfRuns(t *testing.T) {
	t.Parallel()
	storytest.Each(t, "testdata/stories/*.txtar", func(t *testing.T, s *storytest.Story) { //nolint:thelper // a test
		r := &runStory{t: t, facts: facts{ready: true, onChange: v1alpha1.Replace, now: start, keep: time.Hour}}
		s.Play(t, r.run)
	})
}

// runStory is a running script.
type runStory struct {
	t     *testing.T
	facts facts // its jobs and last are the world
	made  int
}

func (r *runStory) run(line string) string {
	words := strings.Fields(line)
	command, args := words[0], words[1:]
	switch command {
	case "want":
		r.facts.want = want{hash: args[0]}
		if len(args) > 1 {
			r.facts.want.rerun = args[1]
		}
	case "set":
		r.facts.suspended, r.facts.scheduled = slices.Contains(args, "suspended"), slices.Contains(args, "scheduled")
		r.facts.ready, r.facts.onChange = !slices.Contains(args, "unready"), v1alpha1.Replace
		if slices.Contains(args, "keep") {
			r.facts.onChange = v1alpha1.Keep
		}
	case "pass":
		return r.pass(strings.Join(args, ""))
	case "end":
		j := r.active()
		j.outcome, j.finished = v1alpha1.RunSucceeded, r.facts.second()
		if args[0] == "failed" {
			j.outcome, j.exitCode = v1alpha1.RunFailed, new(int32(3))
		}
	case "delete":
		r.active().deleting = true
		r.collect()
	case "wait":
		d, err := time.ParseDuration(args[0])
		require.NoError(r.t, err)
		r.facts.now = r.facts.now.Add(d)
	case "state":
		return r.state()
	default:
		require.Fail(r.t, "no such command", line)
	}
	return ""
}

func (r *runStory) active() *observedJob {
	i := slices.IndexFunc(r.facts.jobs, func(j observedJob) bool { return j.outcome == "" })
	require.GreaterOrEqual(r.t, i, 0, "no Job runs")
	return &r.facts.jobs[i]
}

// collect removes the Jobs that are deleted and not held.
func (r *runStory) collect() {
	r.facts.jobs = slices.DeleteFunc(r.facts.jobs, func(j observedJob) bool { return j.deleting && !j.held })
}

// pass carries a decision out, up to and with the last step.
func (r *runStory) pass(last string) string {
	d := decide(r.facts)
	var lines []string
	say := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	steps := []struct {
		name string
		do   func()
	}{
		{"record", func() {
			if text := status(d.last); text != status(r.facts.last) {
				say("record %s", text)
			}
			r.facts.last = d.last
		}},
		{"release", func() {
			for _, name := range d.release {
				say("release %s", name)
				r.job(name).held = false
			}
			r.collect()
		}},
		{"remove", func() {
			for _, name := range d.remove {
				if j := r.job(name); j != nil { // a deleting one is removed once it is released
					say("remove %s", name)
					j.deleting = true
				}
			}
			r.collect()
		}},
		{"start", func() {
			if d.start {
				r.begin(say)
			}
		}},
	}
	for _, step := range steps {
		step.do()
		if step.name == last {
			say("killed")
			break
		}
	}
	if last == "" && d.after > 0 {
		say("again in %s", d.after)
	}
	return strings.Join(lines, "\n")
}

// begin creates the Job of the wanted run. The server refuses a second one of its name.
func (r *runStory) begin(say func(format string, args ...any)) {
	name := "job-" + r.facts.want.jobSuffix()[:4]
	if r.job(name) != nil {
		say("start %s: it is there", name)
		return
	}
	r.made++
	say("start %s", name)
	r.facts.jobs = append(
		r.facts.jobs,
		observedJob{name: name, uid: fmt.Sprint("uid-", r.made), run: r.facts.want, held: true, started: new(metav1.NewTime(r.facts.now))},
	)
}

func (r *runStory) job(name string) *observedJob {
	i := slices.IndexFunc(r.facts.jobs, func(j observedJob) bool { return j.name == name })
	if i < 0 {
		return nil
	}
	return &r.facts.jobs[i]
}

func (r *runStory) state() string {
	lines := []string{"status: " + status(r.facts.last)}
	for _, j := range r.facts.jobs {
		text := "runs"
		if j.outcome != "" {
			text = string(j.outcome)
		}
		if j.held {
			text += ", held"
		}
		lines = append(lines, j.name+": "+text)
	}
	return strings.Join(append(lines, fmt.Sprint("runs started: ", r.made)), "\n")
}

func status(run *v1alpha1.Run) string {
	switch {
	case run == nil:
		return "no run"
	case run.Outcome == "":
		return run.Job + " runs"
	case run.ExitCode != nil:
		return fmt.Sprintf("%s %s with %d", run.Job, run.Outcome, *run.ExitCode)
	default:
		return fmt.Sprintf("%s %s", run.Job, run.Outcome)
	}
}
