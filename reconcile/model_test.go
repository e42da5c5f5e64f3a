package reconcile_test

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-9e1ffd66/trueup/reconcile"
)

// op is one call on a queue.
type op struct {
	at   time.Duration
	name string // Add, Resync, AddAfter or Forget
	key  int
	d    time.Duration // of AddAfter
}

// outcome is what a pass takes and returns.
type outcome struct {
	takes   time.Duration
	requeue time.Duration
	err     error
}

// outcomeOf decides the outcome of the nth pass of all.
func outcomeOf(seed uint64, n int) outcome {
	r := rand.New(rand.NewPCG(seed, uint64(n)))
	o := outcome{takes: time.Duration(1 + r.Int64N(int64(3*time.Second)))}
	if n > 150 {
		return o // an end to it
	}
	switch r.IntN(6) {
	case 0:
		o.requeue = time.Duration(1 + r.Int64N(int64(20*time.Second)))
	case 1, 2:
		o.err = errBoom
	case 3:
		o.err = reconcile.Terminal(errBoom)
	}
	return o
}

func opsOf(seed uint64) []op {
	r := rand.New(rand.NewPCG(seed, 1<<63))
	var ops []op
	var at time.Duration
	for range 1 + r.IntN(60) {
		if r.IntN(3) > 0 { // else at the same time as the one before
			at += time.Duration(1 + r.Int64N(int64(4*time.Second)))
		}
		ops = append(ops, op{
			at: at, key: r.IntN(5), d: time.Duration(1 + r.Int64N(int64(15*time.Second))),
			name: []string{"Add", "Add", "Resync", "Resync", "AddAfter", "Forget"}[r.IntN(6)],
		})
	}
	return ops
}

// modelKey is what the model knows of one key.
type modelKey struct {
	waits    string // "", "fresh" or "resync"
	since    int    // order among those that wait
	rank     string // of the last event
	failures int
	parked   bool
	retry    time.Duration // 0 is none
	add      time.Duration // 0 is none
}

// model is a queue with one worker, as simple as can be: time is a number, and
// everything is found by looking at all keys.
type model struct {
	keys  [5]modelKey
	clock time.Duration
	waits int // how often a key began to wait
	trace []string
}

func (m *model) wait(k *modelKey, rank string) {
	m.waits++
	k.waits, k.since, k.rank, k.retry, k.parked = rank, m.waits, rank, 0, false
}

// next is the key whose turn it is, -1 if none waits.
func (m *model) next() int {
	next := -1
	for i, k := range m.keys {
		if k.waits == "" {
			continue
		}
		if next < 0 || cmp.Or(cmp.Compare(k.waits, m.keys[next].waits), cmp.Compare(k.since, m.keys[next].since)) < 0 {
			next = i // "fresh" sorts before "resync"
		}
	}
	return next
}

func (m *model) event(k *modelKey, rank string) {
	switch {
	case rank == "resync" && (k.waits != "" || k.failures > 0 && k.retry > 0):
	case k.waits == rank:
		k.failures = 0
	default:
		k.failures = 0
		m.wait(k, rank)
	}
}

// run plays ops and returns false if two things happen at the same time, so
// that their order is not promised.
func (m *model) run(seed uint64, backoff reconcile.Backoff, ops []op) bool {
	active := -1
	var ends time.Duration
	var result outcome
	var events []op // during the pass
	for {
		if next := m.next(); active < 0 && next >= 0 {
			active, events, result = next, nil, outcomeOf(seed, len(m.trace))
			m.keys[active].waits = ""
			ends = m.clock + result.takes
			m.trace = append(m.trace, fmt.Sprintf("%v key %d", m.clock, active))
		}
		// What happens next?
		var moments []time.Duration
		if active >= 0 {
			moments = append(moments, ends)
		}
		if len(ops) > 0 {
			moments = append(moments, ops[0].at)
		}
		for _, k := range m.keys {
			for _, at := range []time.Duration{k.retry, k.add} {
				if at > 0 {
					moments = append(moments, at)
				}
			}
		}
		if len(moments) == 0 {
			return true
		}
		slices.Sort(moments)
		if len(moments) > 1 && moments[0] == moments[1] {
			return false
		}
		now := moments[0]
		m.clock = now
		switch {
		case active >= 0 && ends == now:
			k := &m.keys[active]
			m.settle(k, result, backoff, events)
			active = -1
		case len(ops) > 0 && ops[0].at == now:
			o := ops[0]
			ops = ops[1:]
			k := &m.keys[o.key]
			switch {
			case o.name == "AddAfter":
				if k.add == 0 || now+o.d < k.add {
					k.add = now + o.d
				}
			case o.name == "Forget":
				*k = modelKey{}
				if o.key == active {
					events = []op{o}
				}
			case o.key == active:
				events = append(events, o)
			default:
				m.event(k, map[string]string{"Add": "fresh", "Resync": "resync"}[o.name])
			}
		default:
			for i := range m.keys {
				k := &m.keys[i]
				if k.retry == now {
					k.retry = 0
					m.wait(k, k.rank)
				}
				if k.add == now {
					k.add = 0
					if i == active {
						events = append(events, op{name: "Add"})
					} else {
						m.event(k, "fresh")
					}
				}
			}
		}
	}
}

// settle ends the pass of k, during which events came.
func (m *model) settle(k *modelKey, o outcome, backoff reconcile.Backoff, events []op) {
	came := func(name string) bool {
		return slices.ContainsFunc(events, func(o op) bool { return o.name == name })
	}
	if came("Forget") {
		o = outcome{}
	}
	transient := o.err == errBoom //nolint:errorlint // a terminal error wraps it
	delay, retry := backoff.Delay(k.failures+1), transient && k.failures < backoff.Retries
	switch {
	case came("Add"):
		k.failures = 0
		m.wait(k, "fresh")
	case came("Resync") && !retry:
		k.failures = 0
		m.wait(k, "resync")
	case retry:
		k.failures++
		k.retry = m.clock + delay
	case o.err != nil:
		k.parked = true
	default:
		k.failures = 0
		if o.requeue > 0 {
			k.retry = m.clock + o.requeue
		}
	}
}

func TestQueueWithOneWorkerDoesWhatTheModelDoes(t *testing.T) {
	first := rand.Uint64()
	compared := 0
	for seed := first; seed < first+300 && !t.Failed(); seed++ {
		backoff := reconcile.Backoff{Retries: 2}
		ops := opsOf(seed)
		var m model
		if !m.run(seed, backoff, ops) {
			continue
		}
		compared++
		synctest.Test(t, func(t *testing.T) {
			trace := newDiary[string]()
			queue := &reconcile.Queue[int]{
				Backoff: backoff,
				Reconcile: func(_ context.Context, key int) (reconcile.Result, error) {
					o := outcomeOf(seed, len(trace.read()))
					trace.note(fmt.Sprintf("%v key %d", trace.elapsed(), key))
					time.Sleep(o.takes)
					return reconcile.Result{RequeueAfter: o.requeue}, o.err
				},
			}
			stop := start(t, queue)
			synctest.Wait()
			for _, o := range ops {
				time.Sleep(o.at - trace.elapsed())
				synctest.Wait()
				map[string]func(){
					"Add":      func() { queue.Add(o.key) },
					"Resync":   func() { queue.Resync(o.key) },
					"AddAfter": func() { queue.AddAfter(o.key, o.d) },
					"Forget":   func() { queue.Forget(o.key) },
				}[o.name]()
				synctest.Wait()
			}
			time.Sleep(time.Hour)
			for key, k := range m.keys {
				if _, parked := queue.Parked()[key]; parked != k.parked {
					t.Errorf("key %d is parked: %v, want %v", key, parked, k.parked)
				}
			}
			same(t, "waiting", queue.Len(), 0)
			stopped(t, stop)
			if got, want := strings.Join(trace.read(), "\n"), strings.Join(m.trace, "\n"); got != want {
				t.Errorf("passes:\n%s\nwant:\n%s", got, want)
			}
			if t.Failed() {
				t.Logf("seed %d: %v", seed, ops)
			}
		})
	}
	if compared < 250 && !t.Failed() {
		t.Errorf("only %d of 300 seeds could be compared", compared)
	}
}

// Many goroutines, real time, all methods: the last Add of each key is seen by
// a pass that begins after it, and no key is in two passes.
func TestEveryKeyAddedIsReconciledWhateverElseHappens(t *testing.T) {
	const workers, adders, changes, keys = 4, 4, 3000, 10
	seed := rand.Uint64()
	var (
		mu     sync.Mutex
		wanted [keys]int // changes so far
		seen   [keys]int // changes seen by a pass that succeeded
		inside [keys]int
		twice  bool
	)
	queue := &reconcile.Queue[int]{
		Workers: workers,
		Backoff: reconcile.Backoff{Min: time.Microsecond, Max: time.Millisecond, Retries: 3},
	}
	dice := rand.New(rand.NewPCG(seed, 0))
	queue.Reconcile = func(_ context.Context, key int) (reconcile.Result, error) {
		mu.Lock()
		inside[key]++
		twice = twice || inside[key] > 1
		saw, fate := wanted[key], dice.IntN(20)
		mu.Unlock()
		defer func() {
			mu.Lock()
			defer mu.Unlock()
			inside[key]--
		}()
		switch fate {
		case 0:
			return reconcile.Result{}, errBoom
		case 1:
			panic(errBoom)
		case 2:
			return reconcile.Result{}, reconcile.Terminal(errBoom)
		case 3:
			return reconcile.Result{RequeueAfter: time.Microsecond}, nil
		}
		mu.Lock()
		defer mu.Unlock()
		seen[key] = max(seen[key], saw)
		return reconcile.Result{}, nil
	}

	stop := start(t, queue)
	var all sync.WaitGroup
	for adder := range adders {
		all.Go(func() {
			r := rand.New(rand.NewPCG(seed, uint64(1+adder)))
			for range changes {
				key := r.IntN(keys)
				mu.Lock()
				wanted[key]++
				mu.Unlock()
				switch r.IntN(5) {
				case 0:
					queue.Resync(key)
				case 1:
					queue.AddAfter(key, time.Duration(r.IntN(1000)))
				case 2:
					queue.Forget(key)
					queue.Add(key)
				default:
					queue.Add(key)
				}
			}
		})
	}
	all.Wait()
	converged := func() bool {
		for key := range queue.Parked() {
			queue.Resync(key) // as a periodic sweep would
		}
		mu.Lock()
		defer mu.Unlock()
		return seen == wanted
	}
	for deadline := time.Now().Add(20 * time.Second); !converged(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("seed %d: changes seen %v, want %v; waiting %d, parked %v", seed, seen, wanted, queue.Len(), queue.Parked())
		}
	}
	stopped(t, stop)
	if twice {
		t.Errorf("seed %d: a key was in two passes at a time", seed)
	}
}
