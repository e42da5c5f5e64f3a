package statesync_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-9e1ffd66/trueup/reconcile"
	"github.com/seed-9e1ffd66/trueup/statesync"
)

var (
	seed  = flag.Uint64("seed", 0, "the seed of the one history to simulate; 0 simulates many")
	worth = flag.Int("histories", 60, "how many histories to simulate")
)

// TestAReplicaNeverLiesAndAlwaysArrives simulates histories in virtual time: two
// servers on one log, a reader that is sent from one to the other over streams
// that break in every way, handlers that fail, a log that is restored, pruned
// and unreadable. What must never be is checked all the time; in the end, once
// the faults stop, everything must have arrived.
func TestAReplicaNeverLiesAndAlwaysArrives(t *testing.T) {
	seeds := []uint64{*seed}
	if *seed == 0 {
		seeds = nil
		for n := range *worth {
			seeds = append(seeds, uint64(n)+1)
		}
	}
	for _, seed := range seeds {
		synctest.Test(t, func(t *testing.T) {
			s := newSimulation(seed)
			s.run(t.Context())
			for _, wrong := range s.wrong {
				t.Error(wrong)
			}
			if t.Failed() {
				t.Fatalf("reproduce: go test ./statesync -run AReplicaNeverLies -seed %d", seed)
			}
		})
	}
}

const scope = "eu"

// simulation is one history.
type simulation struct {
	random *rand.Rand
	log    statesync.Memory
	// down makes the log unreadable; calm stops all faults.
	down, calm bool

	mu sync.Mutex
	// states has the live values at each position of the log, by cursor.
	states map[statesync.Cursor]map[statesync.Key]string
	// deleted has every key that was ever ordered to be deleted.
	deleted map[statesync.Key]bool
	head    statesync.Cursor
	live    map[statesync.Key]string
	// items has what is at each version of the log's epoch, newest the version
	// of each key.
	items  map[uint64]string
	newest map[statesync.Key]uint64

	// world is what the handlers made, handled the newest item of each key that
	// one of them was given, and busy the keys that are being handled.
	world   map[statesync.Key]string
	handled map[statesync.Key]statesync.Item
	busy    map[statesync.Key]bool
	wrong   []string
}

func newSimulation(seed uint64) *simulation {
	return &simulation{
		random: rand.New(rand.NewPCG(seed, 1)), //nolint:gosec // no secret
		states: map[statesync.Cursor]map[statesync.Key]string{}, deleted: map[statesync.Key]bool{},
		live: map[statesync.Key]string{}, items: map[uint64]string{}, newest: map[statesync.Key]uint64{}, world: map[statesync.Key]string{},
		handled: map[statesync.Key]statesync.Item{}, busy: map[statesync.Key]bool{},
	}
}

func (s *simulation) fail(format string, args ...any) {
	s.wrong = append(s.wrong, fmt.Sprintf(format, args...))
}

func (s *simulation) chance(percent int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.calm && s.random.IntN(100) < percent
}

func (s *simulation) number(n int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.random.IntN(n)
}

func (s *simulation) run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	if err := s.log.AddScope(scope); err != nil {
		s.fail("%v", err)
	}
	s.position(ctx)
	source := &broken{simulation: s}
	var parts sync.WaitGroup
	for range 2 {
		server := &statesync.Server{Log: unreliable{s}, Batch: 7, MaxAge: 3 * time.Minute}
		source.servers = append(source.servers, server)
		parts.Go(func() { s.check(server.Start(ctx)) })
	}
	replica := &statesync.Replica{
		Source: source, Scope: scope, Handle: s.handle, Workers: 3, Relist: 5 * time.Minute,
		Retry: reconcile.Backoff{Min: 100 * time.Millisecond, Max: 5 * time.Second, Retries: 4},
	}
	parts.Go(func() { s.check(replica.Start(ctx)) })
	for range 150 {
		s.act(ctx)
		time.Sleep(time.Duration(s.number(4000)) * time.Millisecond)
		s.inspect(replica)
	}
	s.mu.Lock()
	s.calm, s.down = true, false
	s.mu.Unlock()
	// A key that was given up is tried again after the next list.
	time.Sleep(10 * time.Minute)
	for range 60 {
		// There may be no stream just now: they get old.
		if _, complete := replica.Complete(); complete {
			break
		}
		time.Sleep(time.Second)
	}
	synctest.Wait()
	s.inspect(replica)
	s.arrived(replica)
	cancel()
	parts.Wait()
}

func (s *simulation) check(err error) {
	if err != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.fail("%v", err)
	}
}

// position notes where the log stands.
func (s *simulation) position(ctx context.Context) {
	page, err := s.log.Read(ctx, scope, 0, 1)
	s.check(err)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.head = statesync.Cursor{Epoch: page.Epoch, Version: page.Head, Mark: page.Mark}
	s.states[s.head] = maps.Clone(s.live)
}

// act does one thing to the log.
func (s *simulation) act(ctx context.Context) {
	switch roll := s.number(100); {
	case roll < 75:
		s.commit(ctx)
	case roll < 80:
		s.forget()
	case roll < 84:
		s.restore(ctx)
	case roll < 92:
		s.mu.Lock()
		s.down = !s.down
		s.mu.Unlock()
	}
}

func (s *simulation) commit(ctx context.Context) {
	var changes []statesync.Change
	for range 1 + s.number(12) {
		c := statesync.Change{Scope: scope, Key: statesync.Key{Collection: "things", ID: fmt.Sprint(s.number(40))}}
		if c.Deleted = s.number(4) == 0; !c.Deleted {
			c.Value = json.RawMessage(fmt.Sprint(s.number(1 << 30)))
		}
		changes = append(changes, c)
	}
	s.mu.Lock()
	for n, c := range changes {
		version := s.head.Version + uint64(n) + 1
		s.items[version], s.newest[c.Key] = c.String()+string(c.Value), version
		if c.Deleted {
			delete(s.live, c.Key)
			s.deleted[c.Key] = true
		} else {
			s.live[c.Key] = string(c.Value)
		}
	}
	s.mu.Unlock()
	s.check(s.log.Commit(changes...))
	s.position(ctx)
}

// forget drops all tombstones.
func (s *simulation) forget() {
	s.mu.Lock()
	for key := range s.newest {
		if _, ok := s.live[key]; !ok {
			delete(s.newest, key)
		}
	}
	s.mu.Unlock()
	s.check(s.log.Forget(scope, s.head.Version))
}

// restore puts the log back to what it is, in another epoch, and loses some
// items without a word, as a backup would that was made before them.
func (s *simulation) restore(ctx context.Context) {
	page, err := s.log.Read(ctx, scope, 0, 1<<20)
	s.check(err)
	lost := s.number(len(page.Items) + 1)
	s.mu.Lock()
	for _, i := range page.Items[lost:] {
		delete(s.live, i.Key)
	}
	s.items, s.newest = map[uint64]string{}, map[statesync.Key]uint64{}
	for _, i := range page.Items[:lost] {
		s.items[i.Version] = i.String() + string(i.Value)
		if !i.Deleted {
			// The floor is at the head: tombstones need not be sent.
			s.newest[i.Key] = i.Version
		}
	}
	s.mu.Unlock()
	s.check(s.log.Restore(scope, page.Items[:lost]))
	s.position(ctx)
}

// handle is the replica's handler.
func (s *simulation) handle(ctx context.Context, i statesync.Item) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.busy[i.Key] {
		s.fail("%s is handled twice at a time", i.Key)
	}
	if i.Deleted && !s.deleted[i.Key] {
		s.fail("%s is deleted without an order", i.Key)
	}
	s.busy[i.Key] = true
	pause := time.Duration(s.random.IntN(300)) * time.Millisecond
	s.mu.Unlock()
	select {
	case <-time.After(pause):
	case <-ctx.Done():
	}
	s.mu.Lock()
	s.busy[i.Key] = false
	if !s.calm && s.random.IntN(100) < 20 {
		return errors.New("not this time")
	}
	if old, ok := s.handled[i.Key]; ok && i.Version < old.Version && s.current(old) && s.current(i) {
		s.fail("%s is handled at version %d after %d", i.Key, i.Version, old.Version)
	}
	s.handled[i.Key] = i
	delete(s.world, i.Key)
	if !i.Deleted {
		s.world[i.Key] = string(i.Value)
	}
	return nil
}

// current reports whether i is of the log's epoch: versions of two epochs cannot
// be compared. Of a tombstone, which is like others, it is not known.
func (s *simulation) current(i statesync.Item) bool {
	return !i.Deleted && s.items[i.Version] == i.String()+string(i.Value)
}

// inspect looks whether the replica claims anything that is not true.
func (s *simulation) inspect(r *statesync.Replica) {
	snapshot, complete := r.Complete()
	status := r.Status()
	s.mu.Lock()
	defer s.mu.Unlock()
	if complete {
		have := live(snapshot.Items)
		if want, ok := s.states[snapshot.Cursor]; ok && !maps.Equal(have, want) {
			s.fail("complete at %s with %v, which was %v", snapshot.Cursor, have, want)
		}
	}
	for key, version := range s.newest {
		if status.Applied.Epoch == s.head.Epoch && version <= status.Applied.Version && s.handled[key].Version < version {
			s.fail("applied %s, but of %s version %d is handled, not %d", status.Applied, key, s.handled[key].Version, version)
		}
	}
	if status.Applied.Version > status.Cursor.Version && status.Applied.Epoch == status.Cursor.Epoch {
		s.fail("applied %s is ahead of the received cursor, %s", status.Applied, status.Cursor)
	}
}

func live(items map[statesync.Key]statesync.Item) map[statesync.Key]string {
	values := map[statesync.Key]string{}
	for key, i := range items {
		if !i.Deleted {
			values[key] = string(i.Value)
		}
	}
	return values
}

// arrived looks whether everything has come to an end.
func (s *simulation) arrived(r *statesync.Replica) {
	snapshot, complete := r.Complete()
	status := r.Status()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !complete || snapshot.Cursor != s.head || status.Applied != s.head || status.Pending > 0 {
		s.fail(
			"the log is at %s, the replica is complete: %t, at %s, applied %s, with %d pending",
			s.head,
			complete,
			snapshot.Cursor,
			status.Applied,
			status.Pending,
		)
	}
	for key, value := range s.live {
		if s.world[key] != value {
			s.fail("%s is %q in the world, not %q", key, s.world[key], value)
		}
	}
}

// unreliable is the simulation's log, which may not be readable.
type unreliable struct{ *simulation }

func (u unreliable) Read(ctx context.Context, scope string, after uint64, limit int) (statesync.Page, error) {
	u.mu.Lock()
	down := u.down
	u.mu.Unlock()
	if down {
		return statesync.Page{}, errors.New("the log is down")
	}
	return u.log.Read(ctx, scope, after, 1+limit%17)
}

func (u unreliable) Wait(ctx context.Context, scope string, at statesync.Position) error {
	return u.log.Wait(ctx, scope, at)
}

// broken is a source whose streams go wrong.
type broken struct {
	*simulation
	servers []*statesync.Server
}

func (b *broken) Watch(ctx context.Context, w statesync.Watch, receive func(statesync.Frame) error) error {
	if b.chance(18) {
		return []error{
			fmt.Errorf("%w: %s", statesync.ErrUnknownScope, w.Scope),
			statesync.ErrUnauthenticated,
			errors.New("connection refused"),
		}[b.number(3)]
	}
	server := b.servers[b.number(len(b.servers))]
	return server.Watch(ctx, w, func(f statesync.Frame) error {
		if b.chance(30) {
			time.Sleep(time.Duration(b.number(2000)) * time.Millisecond)
		}
		if b.chance(10) {
			return b.bend(f, receive)
		}
		return receive(f)
	})
}

// bend does one thing to a frame that must not be.
func (b *broken) bend(f statesync.Frame, receive func(statesync.Frame) error) error {
	switch b.number(5) {
	case 0:
		return io.ErrUnexpectedEOF
	case 1:
		// It is lost.
		return nil
	case 2:
		// It comes twice.
		if err := receive(f); err != nil {
			return err
		}
	case 3:
		// An item of it is lost. (The loss of a tombstone shows only if the
		// reader has what it would delete.)
		if len(f.Items) > 0 && !f.Items[0].Deleted {
			f.Items = slices.Delete(slices.Clone(f.Items), 0, 1)
		}
	case 4:
		// The list ends early, and says that it was all.
		if f.Type == statesync.FrameItems {
			f.Type, f.Items = statesync.FrameSynced, nil
		}
	}
	return receive(f)
}
