package simtest

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"
)

// noWrite is why a history of a program that is made to write is wrong.
const noWrite = "the server accepted no write of the program: nothing was tested (a program that is made to write nothing has ReadOnly)"

// simulate runs one history, and the same desired state without one.
func simulate(ctx context.Context, scenario func() Scenario, p plan) *Report {
	s := new(scenario())
	w := newWorld(s, p)
	r := &Report{Seed: p.seed, Cut: p.cut}
	running, stop := context.WithCancel(ctx)
	if s.Start != nil {
		s.Start(w)
	}
	wait := w.operate(running)
	pauses := w.dice("pauses")
	edits := cmp.Or(s.Edits, 20)
	if p.story != nil {
		edits = 0
		for _, e := range p.story.edits {
			edits = max(edits, e.n)
		}
	}
	for n := range edits {
		longest := []time.Duration{200 * time.Millisecond, cmp.Or(s.Pause, 30*time.Second)}[pauses.IntN(2)]
		w.agenda.advance(ctx, time.Duration(pauses.Int64N(int64(longest))))
		w.edit(n + 1)
		if w.failed() {
			break
		}
	}
	if !w.failed() {
		w.converge(ctx, r)
	}
	w.timing.stop()
	stop()
	wait()
	if !w.failed() {
		r.State, r.desired = s.state(w), w.desired()
		if end := p.end; end != nil && reflect.DeepEqual(r.desired, end.desired) {
			w.same(r.State, end.State) // the world to compare with is the one of the history without the cut
		} else {
			compare(ctx, scenario, w, r)
		}
	}
	// What ends a moment after the program ends here.
	w.agenda.advance(ctx, 5*time.Minute)
	w.end()
	w.mu.Lock()
	defer w.mu.Unlock()
	r.Wrong, r.Trace, r.Steps, r.Lives, r.Virtual = w.wrong, w.trace.String(), w.agenda.steps, w.life, time.Since(w.start)
	r.Requests, r.reached = len(w.requests), w.reached
	if p.cut.Request == 0 && !p.calm {
		r.story = w.told()
	}
	return r
}

// end releases what the scenario holds.
func (w *World) end() {
	if w.scenario.End != nil {
		w.scenario.End(w)
	}
}

// edit lets the user make an edit, unless the story leaves it out.
func (w *World) edit(n int) {
	if told := w.plan.story; told != nil {
		i := slices.IndexFunc(told.edits, func(e edit) bool { return e.n == n })
		if i < 0 {
			return
		}
		_ = w.random.UnmarshalBinary(told.edits[i].random) // parseStory has tried it
	}
	before, _ := w.random.MarshalBinary() // a PCG has no error
	w.edits = append(w.edits, edit{n, before})
	w.scenario.Edit(w)
}

// told returns the story of a history that has ended. The lock is held.
func (w *World) told() *story {
	s := &story{seed: w.plan.seed, edits: w.edits, happenings: w.happened, prompt: w.plan.story != nil && w.plan.story.prompt}
	for _, h := range slices.Concat(Habits(), w.scenario.Habits) {
		if w.always[h.Name] {
			s.always = append(s.always, h.Name)
		}
	}
	return s
}

// converge stops the faults, and checks the state that the program reaches.
func (w *World) converge(ctx context.Context, r *Report) {
	s := w.scenario
	w.agenda.advance(ctx, 30*time.Second)
	w.mu.Lock()
	w.calm = true
	w.mu.Unlock()
	w.Log("no more faults")
	w.calmDown(ctx)
	if w.failed() {
		return
	}
	w.mu.Lock()
	before := len(w.writes)
	r.served = slices.Clone(w.requests)
	w.mu.Unlock()
	if s.Converged != nil {
		if err := s.Converged(w); err != nil {
			w.Blame("not converged: %v%s", err, w.endings())
			return
		}
	}
	if w.plan.cut.Request > 0 || w.plan.calm {
		return
	}
	half := cmp.Or(s.Rest, 24*time.Hour) / 2
	w.Log("rest")
	w.idle(ctx, half, before)
	w.mu.Lock()
	w.process.stop()
	w.reannounces = s.Reannounces
	w.mu.Unlock()
	w.idle(ctx, half, before)
	w.mu.Lock()
	accepted, refused := w.accepted, w.refused
	w.mu.Unlock()
	written := w.restWrites(before)
	if r.accepted = accepted; accepted == 0 && !s.ReadOnly && (refused > 0 || len(w.desired()) > 0 && !w.leads) {
		w.Blame("%s%s", noWrite, w.endings())
	}
	if r.RestWrites = len(written); r.RestWrites > 0 {
		w.Blame("%d writes at rest, the first of them: %s", len(written), written[0])
	}
}

// endings says whether the program has ended by itself.
func (w *World) endings() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended == 0 {
		return ""
	}
	return fmt.Sprintf("; the program has ended by itself %d times, the last time with: %v", w.ended, w.ending)
}

// calmDown gives the program its time to converge, and counts its requests.
func (w *World) calmDown(ctx context.Context) {
	minute, first, limit := time.Now(), w.served(), cmp.Or(w.scenario.Requests, 1000)
	for end := time.Now().Add(cmp.Or(w.scenario.Settle, 30*time.Minute)); time.Now().Before(end) && !w.failed(); {
		w.agenda.advance(ctx, min(2*time.Second, time.Until(end)))
		if w.served()-first > limit {
			w.Blame("more than %d requests in a minute without faults", limit)
		}
		if time.Since(minute) >= time.Minute {
			minute, first = time.Now(), w.served()
		}
	}
}

// served is how many requests have been served.
func (w *World) served() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.requests)
}

// idle lets time pass, until there are writes beyond the first ones.
func (w *World) idle(ctx context.Context, d time.Duration, first int) {
	for end := time.Now().Add(d); time.Now().Before(end); {
		w.agenda.advance(ctx, min(time.Minute, time.Until(end)))
		if len(w.restWrites(first)) > 0 {
			return
		}
	}
}

// restWrites returns the writes beyond the first ones, without those that the scenario allows
// at rest.
func (w *World) restWrites(first int) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	refreshed := map[string]int{}
	var all []string
	for _, each := range w.writes[first:] {
		idle := strings.HasSuffix(each, changedNothing) || strings.HasSuffix(each, changedOwners)
		if refreshed[each]++; !idle || refreshed[each] > w.scenario.Refreshes {
			all = append(all, each)
		}
	}
	return all
}

func (s *Scenario) state(w *World) string {
	if s.State != nil {
		return s.State(w)
	}
	return w.State()
}

// compare gives what the user wants to a program in a world of its own, where
// nothing else happens, and compares the ends.
func compare(ctx context.Context, scenario func() Scenario, w *World, r *Report) {
	s := new(scenario())
	other := newWorld(s, plan{seed: r.Seed, calm: true, beats: w.plan.beats})
	defer other.end()
	for _, o := range w.desired() {
		if err := other.Create(o); err != nil {
			w.Blame("the desired state cannot be created again: %v", err)
			return
		}
	}
	running, stop := context.WithCancel(ctx)
	wait := other.operate(running)
	other.agenda.advance(ctx, cmp.Or(s.Settle, 30*time.Minute))
	if s.Converged != nil {
		if err := s.Converged(other); err != nil {
			other.Blame("not converged: %v", err)
		}
	}
	other.timing.stop()
	stop()
	wait()
	other.agenda.advance(ctx, 5*time.Minute)
	for _, wrong := range other.wrong {
		w.Blame("without a history, of the same desired state: %s", wrong)
	}
	if state := s.state(other); len(other.wrong) == 0 {
		w.same(r.State, state)
	}
}

// same blames the program for an end that is another one than without a history.
func (w *World) same(state, without string) {
	if state != without {
		w.Blame("the end differs from the same desired state without a history:\n%s", differences(state, without))
	}
}

// desired returns what the user has made, as the user would make it again.
func (w *World) desired() []Object {
	w.server.mu.Lock()
	defer w.server.mu.Unlock()
	var all []Object
	for k, live := range w.server.objects {
		if !w.users[live.UID()] || live.Deleting() {
			continue
		}
		o := clone(live)
		meta := map[string]any{}
		for _, field := range []string{"name", "namespace", "labels", "annotations"} {
			if value := live.Field("metadata", field); value != nil {
				meta[field] = value
			}
		}
		o["metadata"] = meta
		if kind, _ := w.server.kind(k.group, "", k.resource); kind.Status {
			delete(o, "status")
		}
		all = append(all, o)
	}
	first := func(o Object) int { // what others are in
		if o["kind"] == "Namespace" {
			return 0
		}
		return 1
	}
	slices.SortFunc(all, func(a, b Object) int {
		return cmp.Or(
			cmp.Compare(first(a), first(b)), cmp.Compare(a.text("kind"), b.text("kind")),
			cmp.Compare(a.Namespace(), b.Namespace()), cmp.Compare(a.Name(), b.Name()),
		)
	})
	return all
}

// differences returns the lines that only one of two states has.
func differences(got, want string) string {
	var b strings.Builder
	has, wants := strings.Split(got, "\n"), strings.Split(want, "\n")
	for _, line := range has {
		if !slices.Contains(wants, line) {
			b.WriteString("got  " + line + "\n")
		}
	}
	for _, line := range wants {
		if !slices.Contains(has, line) {
			b.WriteString("want " + line + "\n")
		}
	}
	if b.Len() == 0 {
		return fmt.Sprintf("got %d lines, want %d", len(has), len(wants))
	}
	return b.String()
}
