package operator //nolint:testpackage // what is decided is decided within

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed-9e1ffd66/trueup/cmd/api/thurkube/v1alpha1"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func at(minutes int) *metav1.Time {
	return new(metav1.NewTime(start.Add(time.Duration(minutes) * time.Minute)))
}

func TestDecide(t *testing.T) {
	t.Parallel()
	a, b := want{hash: "aaaa"}, want{hash: "bbbb"}
	job := func(w want, outcome v1alpha1.Outcome) observedJob {
		j := observedJob{name: "j-" + w.jobSuffix(), uid: "u-" + w.jobSuffix(), run: w, held: true, started: at(0), outcome: outcome}
		if outcome != "" {
			j.finished = at(1)
		}
		return j
	}
	run := func(w want, outcome v1alpha1.Outcome) *v1alpha1.Run { j := job(w, outcome); return j.toRun() }
	released := func(j observedJob) observedJob { j.held = false; return j }
	deleting := func(j observedJob) observedJob { j.deleting = true; return j }
	again := want{"aaaa", "1"}
	for name, c := range map[string]struct {
		facts   facts
		outcome v1alpha1.Outcome // of the last run that is recorded
		last    want
		release []string
		remove  []string
		start   bool
		after   time.Duration
	}{
		"nothing yet":                       {facts: facts{want: a}, start: true},
		"something is missing":              {facts: facts{want: a, onChange: "late"}},
		"suspended":                         {facts: facts{want: a, suspended: true}},
		"scheduled":                         {facts: facts{want: a, scheduled: true}},
		"it runs":                           {facts: facts{want: a, last: run(a, ""), jobs: []observedJob{job(a, "")}}, last: a},
		"its answer was lost":               {facts: facts{want: a, jobs: []observedJob{job(a, "")}}, last: a},
		"it has ended":                      {facts: facts{want: a, last: run(a, ""), jobs: []observedJob{job(a, v1alpha1.RunSucceeded)}}, last: a, outcome: v1alpha1.RunSucceeded, release: []string{"j-aaaa"}, after: 21 * time.Minute},
		"it ended before it was recorded":   {facts: facts{want: a, jobs: []observedJob{job(a, v1alpha1.RunFailed)}}, last: a, outcome: v1alpha1.RunFailed, release: []string{"j-aaaa"}, after: 21 * time.Minute},
		"it ended long ago":                 {facts: facts{want: a, last: run(a, v1alpha1.RunFailed), jobs: []observedJob{released(job(a, v1alpha1.RunFailed))}, keep: time.Minute}, last: a, outcome: v1alpha1.RunFailed, remove: []string{"j-aaaa"}},
		"it ended and is gone":              {facts: facts{want: a, last: run(a, v1alpha1.RunSucceeded)}, last: a, outcome: v1alpha1.RunSucceeded},
		"another hand deletes it":           {facts: facts{want: a, last: run(a, ""), jobs: []observedJob{deleting(job(a, ""))}}, last: a, outcome: v1alpha1.RunDeleted, release: []string{"j-aaaa"}},
		"it is gone without a trace":        {facts: facts{want: a, last: run(a, "")}, last: a, outcome: v1alpha1.RunDeleted},
		"a change while it runs, Replace":   {facts: facts{want: b, last: run(a, ""), jobs: []observedJob{job(a, "")}}, last: a, outcome: v1alpha1.RunReplaced, release: []string{"j-aaaa"}, remove: []string{"j-aaaa"}},
		"what is replaced is not gone yet":  {facts: facts{want: b, last: run(a, v1alpha1.RunReplaced), jobs: []observedJob{deleting(job(a, ""))}}, last: a, outcome: v1alpha1.RunReplaced, release: []string{"j-aaaa"}},
		"what is replaced is gone":          {facts: facts{want: b, last: run(a, v1alpha1.RunReplaced)}, last: a, outcome: v1alpha1.RunReplaced, start: true},
		"back to what was replaced":         {facts: facts{want: a, last: run(a, v1alpha1.RunReplaced)}, last: a, outcome: v1alpha1.RunReplaced, start: true},
		"a change while it runs, Wait":      {facts: facts{want: b, onChange: v1alpha1.Wait, last: run(a, ""), jobs: []observedJob{job(a, "")}}, last: a},
		"a change after it ended, Wait":     {facts: facts{want: b, onChange: v1alpha1.Wait, last: run(a, v1alpha1.RunFailed)}, last: a, outcome: v1alpha1.RunFailed, start: true},
		"a change while it runs, Keep":      {facts: facts{want: b, onChange: v1alpha1.Keep, last: run(a, ""), jobs: []observedJob{job(a, "")}}, last: a},
		"a change after it ended, Keep":     {facts: facts{want: b, onChange: v1alpha1.Keep, last: run(a, v1alpha1.RunSucceeded)}, last: a, outcome: v1alpha1.RunSucceeded},
		"the annotation, Keep":              {facts: facts{want: again, onChange: v1alpha1.Keep, last: run(a, v1alpha1.RunSucceeded)}, last: a, outcome: v1alpha1.RunSucceeded, start: true},
		"the annotation is taken away":      {facts: facts{want: a, last: run(again, v1alpha1.RunSucceeded)}, last: again, outcome: v1alpha1.RunSucceeded},
		"a schedule appears while it runs":  {facts: facts{want: a, scheduled: true, last: run(a, ""), jobs: []observedJob{job(a, "")}}, last: a, outcome: v1alpha1.RunReplaced, release: []string{"j-aaaa"}, remove: []string{"j-aaaa"}},
		"a change while it is suspended":    {facts: facts{want: b, suspended: true, last: run(a, ""), jobs: []observedJob{job(a, "")}}, last: a},
		"resumed after it ended":            {facts: facts{want: a, last: run(a, v1alpha1.RunSucceeded)}, last: a, outcome: v1alpha1.RunSucceeded},
		"the Job of an earlier run is left": {facts: facts{want: b, last: run(b, v1alpha1.RunSucceeded), jobs: []observedJob{released(job(a, v1alpha1.RunFailed))}}, last: b, outcome: v1alpha1.RunSucceeded, remove: []string{"j-aaaa"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := c.facts
			f.now, f.ready = start.Add(40*time.Minute), f.onChange != "late"
			if f.onChange == "" {
				f.onChange = v1alpha1.Replace
			}
			if f.keep == 0 {
				f.keep = time.Hour
			}
			if c.after != 0 {
				f.now, f.keep = start.Add(40*time.Minute), time.Hour
			}
			d := decide(f)
			got := want{}
			var outcome v1alpha1.Outcome
			if d.last != nil {
				got, outcome = want{d.last.RunHash, d.last.Rerun}, d.last.Outcome
			}
			require.Equal(t, c.last, got)
			require.Equal(t, c.outcome, outcome)
			require.Equal(t, c.release, d.release)
			require.Equal(t, c.remove, d.remove)
			require.Equal(t, c.start, d.start)
			if c.after != 0 {
				require.Equal(t, c.after, d.after)
			}
		})
	}
}

// world is the API server as far as runs go: it holds the status, the Jobs with their
// finalizers, and what the controller was asked for.
type world struct {
	t    *testing.T
	r    *rand.Rand
	now  time.Time
	want want

	ready, scheduled, suspended bool
	onChange                    v1alpha1.OnChange

	last    *v1alpha1.Run
	jobs    map[string]*serverJob
	uids    int
	started []startedRun
	trace   []string
}

type serverJob struct {
	observedJob
}

type startedRun struct {
	want want
	uid  string
}

// pass is one of the controller, which crashes before its nth write.
func (w *world) pass(crash int) {
	f := facts{
		want: w.want, ready: w.ready, scheduled: w.scheduled, suspended: w.suspended, onChange: w.onChange,
		last: w.last, now: w.now, keep: 24 * time.Hour,
	}
	for _, j := range w.jobs {
		f.jobs = append(f.jobs, j.observedJob)
	}
	d := decide(f)
	writes := 0
	write := func(do func()) bool {
		if writes++; writes > crash {
			return false
		}
		do()
		return true
	}
	if d.last != f.last && !write(func() { w.last = d.last }) {
		return
	}
	for _, name := range d.release {
		j := w.jobs[name]
		if j.held && !write(func() { j.held = false; w.collect(name) }) {
			return
		}
	}
	for _, name := range d.remove {
		if j := w.jobs[name]; j != nil && !j.deleting && !write(func() { w.deleted(name) }) {
			return
		}
	}
	if !d.start {
		return
	}
	name := "j-" + w.want.jobSuffix()
	if w.jobs[name] != nil {
		return // the creation finds the first
	}
	if !write(func() {
		for _, j := range w.jobs {
			require.False(w.t, j.outcome == "" && !j.deleting, "two run at once: %v", w.trace)
		}
		w.uids++
		uid := fmt.Sprint("uid-", w.uids)
		w.jobs[name] = &serverJob{observedJob{name: name, uid: uid, run: w.want, held: true, started: new(metav1.NewTime(w.now))}}
		w.started = append(w.started, startedRun{w.want, uid})
	}) {
		return
	}
	j := w.jobs[name]
	write(func() { w.last = j.toRun() })
}

func (w *world) deleted(name string) {
	if j := w.jobs[name]; j != nil {
		j.deleting = true
		w.collect(name)
	}
}

// collect removes a Job that is deleted and has no finalizer.
func (w *world) collect(name string) {
	if j := w.jobs[name]; j != nil && j.deleting && !j.held {
		delete(w.jobs, name)
	}
}

// happen is something that happens beside the controller.
func (w *world) happen() {
	var names []string
	for name := range w.jobs {
		names = append(names, name)
	}
	switch n := w.r.IntN(12); n {
	case 0, 1:
		w.want.hash = string(rune('a' + w.r.IntN(3)))
	case 2:
		w.want.rerun = strconv.Itoa(w.r.IntN(3))
	case 3:
		w.suspended = !w.suspended
	case 4:
		w.scheduled = w.r.IntN(4) == 0
	case 5:
		w.ready = w.r.IntN(3) > 0
	case 6:
		w.onChange = []v1alpha1.OnChange{v1alpha1.Replace, v1alpha1.Wait, v1alpha1.Keep}[w.r.IntN(3)]
	case 7:
		w.now = w.now.Add(time.Duration(w.r.IntN(40)-10) * time.Hour) // a clock may run backwards
	case 8, 9, 10:
		for _, name := range names {
			if j := w.jobs[name]; j.outcome == "" && !j.deleting {
				j.outcome, j.finished = v1alpha1.RunSucceeded, new(metav1.NewTime(w.now))
			}
		}
	case 11:
		for _, name := range names {
			w.deleted(name) // by hand, or by a garbage collector
		}
	}
	w.trace = append(w.trace, fmt.Sprintf("%+v %v %v %v %v", w.want, w.ready, w.scheduled, w.suspended, w.onChange))
}

// TestThereIsOneRunForWhatIsAsked goes through histories of edits, crashes, lost
// answers, deletions and clocks that jump. A run follows one of the same only if that
// was replaced, and in peace the last run is the one that is wanted.
func TestThereIsOneRunForWhatIsAsked(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	if given, err := strconv.ParseUint(os.Getenv("TRUEUP_SEED"), 10, 64); err == nil {
		seed = given
	}
	t.Logf("TRUEUP_SEED=%d", seed)
	runs := 0
	for n := range uint64(20_000) {
		w := &world{
			t: t, r: rand.New(rand.NewPCG(seed, n)), now: start, want: want{hash: "a"}, ready: true,
			onChange: v1alpha1.Replace, jobs: map[string]*serverJob{},
		}
		replaced := map[string]bool{}
		step := func(crash int) {
			w.pass(crash)
			if w.last != nil && w.last.Outcome == v1alpha1.RunReplaced {
				replaced[w.last.UID] = true
			}
			for i := 1; i < len(w.started); i++ {
				before, run := w.started[i-1], w.started[i]
				require.False(t, before.want == run.want && !replaced[before.uid], "history %d: %v ran twice: %v", n, run.want, w.trace)
			}
		}
		for range 40 {
			if w.r.IntN(2) == 0 {
				w.happen()
			}
			step(w.r.IntN(5))
		}
		// Without faults: runs end, and held-back Jobs are released.
		w.ready, w.scheduled, w.suspended, w.onChange = true, false, false, v1alpha1.Replace
		for range 20 {
			for _, j := range w.jobs {
				if j.outcome == "" && !j.deleting && j.run == w.want {
					j.outcome, j.finished = v1alpha1.RunSucceeded, new(metav1.NewTime(w.now))
				}
			}
			step(100)
		}
		require.NotNil(t, w.last, "history %d", n)
		require.Equal(t, w.want.hash, w.last.RunHash, "history %d: %v", n, w.trace)
		require.NotContains(t, []v1alpha1.Outcome{"", v1alpha1.RunReplaced}, w.last.Outcome, "history %d: %v", n, w.trace)
		for _, j := range w.jobs {
			require.False(t, j.held, "history %d: %s would stay for ever", n, j.name)
		}
		runs += len(w.started)
	}
	t.Logf("%d runs in 20000 histories", runs)
}
