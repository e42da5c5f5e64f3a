package simtest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/seed-9e1ffd66/trueup/apply/applytest"
)

// World is one history of a [Scenario] while it happens: an API server, the
// program before it, and what goes wrong. The functions of a Scenario receive it.
//
// Create, Update and Delete act as a user with a client of its own. All methods see
// the newest state. Only the functions of the Scenario may call them.
type World struct {
	// Random is for Start and Edit. Nothing else draws from it, so a seed stands
	// for the same edits whatever the program does.
	Random *rand.Rand

	scenario *Scenario
	plan     plan
	server   *Server
	agenda   *agenda
	start    time.Time
	users    map[string]bool // UIDs of what the user has created

	mu    sync.Mutex
	trace strings.Builder
	rolls map[string]int
	paths map[string]*path
	calm  bool
	lag   time.Duration // of views, at most
	short bool          // watches end early
	// faults and deaths are what may happen at a request, and how likely.
	faults, deaths       []applytest.Disturbance
	faultRate, deathRate float64
	life                 int
	process              *process // the last life
	requests             []string // whose turn has come
	writes               []string
	watches              int
	gc                   bool // planned
	reached              string
	wrong                []string
}

// plan is which history is simulated.
type plan struct {
	seed uint64
	// calm has no faults but the cut.
	calm bool
	cut  Cut
}

// path is one view of a program: what it lists and watches.
type path struct {
	ends int // in a row
	last time.Time
}

func newWorld(s *Scenario, p plan) *World {
	w := &World{
		scenario: s, plan: p, agenda: newAgenda(), start: time.Now(), calm: p.calm,
		rolls: map[string]int{}, paths: map[string]*path{}, users: map[string]bool{},
	}
	w.Random = w.dice("edits")
	w.rates(w.dice("rates"))
	w.server = &Server{Kinds: s.Kinds, Admit: s.Admit, Fields: s.Fields, WatchList: s.WatchList}
	w.server.schedule, w.server.opened, w.server.changed, w.server.stale = w.deliver, w.opened, w.changed, w.stale
	return w
}

// rates draws how bad a history is. Each kind of fault is in half of the histories:
// one hides what another would show.
func (w *World) rates(dice *rand.Rand) {
	for _, each := range w.scenario.disturbances() {
		switch {
		case dice.IntN(2) == 0:
		case kills(each):
			w.deaths = append(w.deaths, each)
		default:
			w.faults = append(w.faults, each)
		}
	}
	w.faultRate, w.deathRate = dice.Float64()*0.3, dice.Float64()*0.05
	w.short = dice.IntN(2) == 0
	if dice.IntN(2) == 0 {
		w.lag = time.Duration(dice.Int64N(int64(20 * time.Second)))
	}
}

// dice returns a source for one decision. It depends on the seed, the decision,
// and how often that was decided before, not on what happens beside it.
func (w *World) dice(about string) *rand.Rand {
	w.mu.Lock()
	defer w.mu.Unlock()
	sum := fnv.New64a()
	_, _ = fmt.Fprintf(sum, "%s#%d", about, w.rolls[about]) // a hash takes everything
	w.rolls[about]++
	return rand.New(rand.NewPCG(w.plan.seed, sum.Sum64())) //nolint:gosec // no secret
}

func (w *World) log(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, _ = fmt.Fprintf(&w.trace, "%v "+format+"\n", append([]any{time.Since(w.start)}, args...)...) // a Builder takes everything
}

func (w *World) blame(format string, args ...any) {
	w.log("WRONG: "+format, args...)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.wrong = append(w.wrong, fmt.Sprintf(format, args...))
}

func (w *World) failed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.wrong) > 0
}

func (w *World) faulty() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.calm
}

// Objects returns copies of the objects of a resource, such as "pods" or
// "widgets.example.com", sorted by namespace and name.
func (w *World) Objects(resource string) []Object {
	name, group, _ := strings.Cut(resource, ".")
	w.server.mu.Lock()
	defer w.server.mu.Unlock()
	var all []Object
	for _, k := range w.server.keys(w.server.objects, selector{group: group, resource: name}) {
		all = append(all, clone(w.server.objects[k]))
	}
	return all
}

// Object returns a copy of an object, nil if it does not exist. namespace is empty
// for kinds without one.
func (w *World) Object(resource, namespace, name string) Object {
	k := keyTo(resource, namespace, name)
	w.server.mu.Lock()
	defer w.server.mu.Unlock()
	return clone(w.server.objects[k])
}

func keyTo(resource, namespace, name string) key {
	plural, group, _ := strings.Cut(resource, ".")
	return key{group, plural, namespace, name}
}

// Create creates an object, with apiVersion, kind and metadata. The error is the
// answer of the server.
func (w *World) Create(o Object) error {
	k, err := w.server.keyOf(o)
	if err != nil {
		return err
	}
	a, err := w.write("user", "create", k, o)
	if err == nil && !a.failed() {
		w.users[a.body.UID()] = true
	}
	return cmp.Or(err, a.err())
}

// Update changes an object, its status included. It creates no object: the error
// reports if there is none.
func (w *World) Update(resource, namespace, name string, edit func(Object)) error {
	return w.update("user", keyTo(resource, namespace, name), edit)
}

func (w *World) update(by string, k key, edit func(Object)) error {
	w.server.mu.Lock()
	o := clone(w.server.objects[k])
	w.server.mu.Unlock()
	if o == nil {
		return fmt.Errorf("simtest: %s does not exist", k)
	}
	status := clone(o)
	edit(o)
	status.keep(o, "status")
	a, err := w.write(by, "update", k, o)
	if err := cmp.Or(err, a.err()); err != nil {
		return err
	}
	c := w.server.local(by, "update", k, nil)
	if !c.kind.Status {
		return nil
	}
	status.Set(a.body.ResourceVersion(), "metadata", "resourceVersion")
	c.Subresource = "status"
	if c.body, err = json.Marshal(status); err != nil {
		return err
	}
	return w.server.serve(c).err()
}

// Delete deletes an object. Finalizers hold it, as on a real server.
func (w *World) Delete(resource, namespace, name string) error {
	a, err := w.write("user", "delete", keyTo(resource, namespace, name), nil)
	return cmp.Or(err, a.err())
}

func (w *World) write(by, verb string, k key, o Object) (*answer, error) {
	var body []byte
	if o != nil {
		var err error
		if body, err = json.Marshal(o); err != nil {
			return &answer{}, err
		}
	}
	a := w.server.serve(w.server.local(by, verb, k, body))
	w.log("%s: %s %s: %d", by, verb, k, a.code)
	return a, nil
}

func (a *answer) err() error {
	if a.failed() {
		return fmt.Errorf("simtest: %d: %s", a.code, a.message())
	}
	return nil
}

// changed is called after each write.
func (w *World) changed(c Change) {
	w.mu.Lock()
	planned := w.gc
	w.gc = true
	w.mu.Unlock()
	if !planned {
		w.agenda.after(time.Duration(1+w.dice("gc").IntN(5000))*time.Millisecond, "gc", func() {
			w.mu.Lock()
			w.gc = false
			w.mu.Unlock()
			if n := w.server.collect(); n > 0 {
				w.log("garbage collector: deleted %d", n)
			}
		})
	}
	if w.scenario.Check == nil {
		return
	}
	if err := w.scenario.Check(w, c); err != nil {
		w.blame("%v", err)
	}
}

// deliver plans when a watch gets an event. The lock of the server is held.
func (w *World) deliver(st *stream, e event) {
	dice := w.dice(fmt.Sprintf("event %d %d", st.number, e.version))
	lag := time.Duration(1+dice.IntN(20_000)) * time.Microsecond
	if w.faulty() && dice.IntN(4) == 0 {
		lag = time.Duration(dice.Int64N(int64(w.lag) + 1))
	}
	st.due = later(st.due.Add(time.Microsecond), time.Now().Add(lag))
	w.agenda.at(st.due, fmt.Sprintf("event %06d %09d", st.number, e.version), func() {
		if st.ended() {
			return
		}
		w.log("watch %d: %s %s at %d", st.number, st.send(e), e.key, e.version)
		if w.faulty() && dice.IntN(20) == 0 {
			w.log("watch %d: %s %s at %d again", st.number, st.send(e), e.key, e.version)
		}
	})
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// opened plans the bookmarks and the end of a watch. The lock of the server is held.
func (w *World) opened(st *stream) {
	w.mu.Lock()
	w.watches++
	st.number = w.watches
	w.mu.Unlock()
	dice := w.dice(fmt.Sprintf("watch %d", st.number))
	life := 4*time.Minute + time.Duration(dice.IntN(60_000))*time.Millisecond
	why := io.EOF
	if w.faulty() && w.short && dice.IntN(2) == 0 {
		life, why = time.Duration(1+dice.IntN(120_000))*time.Millisecond, applytest.ErrLost
	}
	w.agenda.after(life, fmt.Sprintf("end %06d", st.number), func() {
		if st.ended() {
			return
		}
		w.log("watch %d: ends", st.number)
		st.end(why)
	})
	if st.call.option("allowWatchBookmarks") == "true" {
		w.bookmark(st)
	}
}

func (w *World) bookmark(st *stream) {
	w.agenda.after(time.Minute, fmt.Sprintf("bookmark %06d", st.number), func() {
		if st.ended() {
			return
		}
		st.mark()
		w.bookmark(st)
	})
}

// stale is how old a state a read of any state gets.
func (w *World) stale(r applytest.Request) time.Duration {
	if !w.faulty() {
		return 0
	}
	return time.Duration(w.dice("stale " + r.String()).Int64N(int64(w.lag) + 1))
}

// State is what a scenario with no State of its own compares: all objects without
// what differs from history to history, one on a line. Fields that differ are the
// UIDs, versions, generations and times of the metadata, and of the status
// observedGeneration and lastTransitionTime. A generated name is its prefix, and the
// UID of an object that exists is its name, wherever it stands. Leases and Events are
// left out.
func (w *World) State() string {
	w.server.mu.Lock()
	defer w.server.mu.Unlock()
	var lines, names []string
	for k, o := range w.server.objects {
		names = append(names, o.UID(), "uid of "+k.String())
	}
	uids := strings.NewReplacer(names...)
	for k, o := range w.server.objects {
		if k.group == "coordination.k8s.io" || k.resource == "events" {
			continue
		}
		line, err := json.Marshal(canonical(clone(o)))
		if err != nil {
			line = []byte(err.Error())
		}
		lines = append(lines, uids.Replace(string(line)))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

func canonical(o Object) Object {
	for _, field := range []string{"uid", "resourceVersion", "generation", "creationTimestamp", "managedFields"} {
		o.drop("metadata", field)
	}
	o.drop("metadata", "annotations", touched)
	if prefix := o.text("metadata", "generateName"); prefix != "" {
		o.Set(prefix+"*", "metadata", "name")
	}
	o.drop("status", "observedGeneration")
	for _, each := range o.list("status", "conditions") {
		if condition, ok := each.(map[string]any); ok {
			delete(condition, "lastTransitionTime")
			delete(condition, "observedGeneration")
		}
	}
	for _, path := range [][]string{{"metadata", "annotations"}, {"status"}} {
		if m, ok := o.Field(path...).(map[string]any); ok && len(m) == 0 {
			o.drop(path...)
		}
	}
	return o
}
