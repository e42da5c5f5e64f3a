package statesynctest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/seed-9e1ffd66/trueup/statesync"
)

// History records what was written to one scope of a log, and checks what readers get.
// Make it with NewHistory. It is safe for concurrent use.
//
// Writers call Begin, for each key in the order in which the changes take effect:
// before they commit, while they hold the lock that decides that order. Each value
// should be used once: equal items, such as tombstones, cannot be told apart, and then
// only errors in every reading are found.
type History struct {
	scope string

	mu      sync.Mutex
	keys    map[statesync.Key][]*written // in their order of effect
	commits []*Commit
	readers []*Reader
}

// written is one change.
type written struct {
	statesync.Change
	commit *Commit
	at     int // its position in its key's order
}

// outcome is what the writer knows of a commit. Readers may see the changes of an unknown
// one, but then all of them.
type outcome int

const (
	unknownOutcome outcome = iota
	committed
	rolledBack
)

// Commit is one transaction of a History. Until Committed or RolledBack is called,
// it may have happened or not, as when a writer is killed.
type Commit struct {
	history *History
	changes []*written
	outcome outcome
}

// NewHistory returns the empty history of scope.
func NewHistory(scope string) *History {
	return &History{scope: scope, keys: map[statesync.Key][]*written{}}
}

// Begin records changes that are about to be committed together.
func (h *History) Begin(changes ...statesync.Change) *Commit {
	h.mu.Lock()
	defer h.mu.Unlock()
	c := &Commit{history: h}
	for _, change := range changes {
		w := &written{Change: change, commit: c, at: len(h.keys[change.Key])}
		h.keys[change.Key] = append(h.keys[change.Key], w)
		c.changes = append(c.changes, w)
	}
	h.commits = append(h.commits, c)
	return c
}

// Committed records that the commit has succeeded.
func (c *Commit) Committed() { c.end(committed) }

// RolledBack records that the changes must never be seen.
func (c *Commit) RolledBack() { c.end(rolledBack) }

func (c *Commit) end(o outcome) {
	c.history.mu.Lock()
	defer c.history.mu.Unlock()
	c.outcome = o
}

// Reader checks the pages of one reader, from the empty state on.
type Reader struct {
	history *History
	name    string
	at      statesync.Position
	after   uint64
	// seen is the last state seen of each key.
	seen map[statesync.Key]places
	// touched are commits seen in part since the reader last had everything.
	touched map[*Commit]bool
}

// places are the first and the last change of a key that the seen item may be.
type places struct{ first, last int }

// nowhere is the state of a key that was never seen.
func nowhere() places { return places{-1, -1} }

// Reader returns a reader that has nothing yet. Its methods are called by one
// goroutine at a time.
func (h *History) Reader(name string) *Reader {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := &Reader{history: h, name: name, seen: map[statesync.Key]places{}, touched: map[*Commit]bool{}}
	h.readers = append(h.readers, r)
	return r
}

// After is the version after which the reader has to read on.
func (r *Reader) After() uint64 { return r.after }

// Page takes the page that a read after r.After returned.
func (r *Reader) Page(page statesync.Page) error {
	r.history.mu.Lock()
	defer r.history.mu.Unlock()
	if err := r.page(page); err != nil {
		return fmt.Errorf("reader %s after %d: %w", r.name, r.after, err)
	}
	return nil
}

func (r *Reader) page(page statesync.Page) error {
	switch {
	case r.at.Epoch != "" && page.Epoch != r.at.Epoch:
		return fmt.Errorf("the epoch was %q and is %q", r.at.Epoch, page.Epoch)
	case page.Head < r.at.Head:
		return fmt.Errorf("the head was %d and is %d", r.at.Head, page.Head)
	case page.Floor < r.at.Floor:
		return fmt.Errorf("the floor was %d and is %d", r.at.Floor, page.Floor)
	}
	if err := ascending(page, r.after); err != nil {
		return err
	}
	r.at = page.Position
	for _, i := range page.Items {
		at, err := r.match(i)
		if err != nil {
			return fmt.Errorf("version %d: %w", i.Version, err)
		}
		r.seen[i.Key] = at
		if at.first == at.last {
			r.touched[r.history.keys[i.Key][at.first].commit] = true
		}
		r.after = i.Version
	}
	switch {
	case page.More && r.after >= page.Head:
		return fmt.Errorf("there is more above the head, %d", page.Head)
	case page.More:
		return nil
	case r.after < page.Head && page.Floor < page.Head:
		return fmt.Errorf("nothing more, and the head is %d: versions were skipped", page.Head)
	}
	r.after = page.Head // even if its item is a tombstone that was pruned
	for c := range r.touched {
		if err := r.whole(c); err != nil {
			return err
		}
	}
	clear(r.touched)
	return nil
}

func (r *Reader) saw(key statesync.Key) places {
	if at, ok := r.seen[key]; ok {
		return at
	}
	return nowhere()
}

// match finds the changes that the item may show.
func (r *Reader) match(i statesync.Item) (places, error) {
	all, before := r.history.keys[i.Key], r.saw(i.Key)
	same := func(w *written) bool { return w.Deleted == i.Deleted && bytes.Equal(w.Value, i.Value) }
	found, undone := nowhere(), false
	for _, w := range all[before.first+1:] {
		switch {
		case !same(w):
		case w.commit.outcome == rolledBack:
			undone = true
		case found == nowhere():
			found = places{w.at, w.at}
		default:
			found.last = w.at
		}
	}
	switch {
	case found != nowhere():
		return found, nil
	case undone:
		return found, fmt.Errorf("%s was rolled back", list([]statesync.Item{i}))
	case slices.ContainsFunc(all[:before.first+1], same):
		return found, fmt.Errorf("%s is not newer than the item before it of that key: %.60s", list([]statesync.Item{i}), all[before.first].Value)
	default:
		return found, fmt.Errorf("%s was never written", list([]statesync.Item{i}))
	}
}

// whole checks that a reader which has everything up to a head has the whole commit, or
// newer items.
func (r *Reader) whole(c *Commit) error {
	for _, w := range c.changes {
		if w.Deleted && r.at.Floor > 0 {
			continue // it may be pruned
		}
		if r.saw(w.Key).last < w.at {
			return fmt.Errorf("half a commit: at head %d a part of it is readable, but not %s=%.60s", r.at.Head, w.Key, w.Value)
		}
	}
	return nil
}

// Follow reads and waits, limit items at a time, until the reader has everything up to
// a position for which done returns true.
func (r *Reader) Follow(ctx context.Context, log statesync.Log, limit int, done func(statesync.Position) bool) error {
	for {
		page, err := log.Read(ctx, r.history.scope, r.after, limit)
		if err != nil {
			return fmt.Errorf("reader %s: %w", r.name, err)
		}
		if err := r.Page(page); err != nil {
			return err
		}
		switch {
		case page.More:
			continue
		case done(page.Position):
			return nil
		}
		if err := log.Wait(ctx, r.history.scope, page.Position); err != nil {
			return fmt.Errorf("reader %s: %w", r.name, err)
		}
	}
}

// Check compares the whole log with the history, when all writers have ended and
// everything that was committed is readable: every key is at its last change,
// the head is the number of changes, and every reader that has read up to the
// head has the same. Pruned tombstones may be missing.
func (h *History) Check(ctx context.Context, log statesync.Log) error {
	fresh := h.Reader("fresh")
	if err := fresh.Follow(ctx, log, 1000, func(statesync.Position) bool { return true }); err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	var least, most uint64
	for _, c := range h.commits {
		switch c.outcome {
		case committed:
			least += uint64(len(c.changes))
			most += uint64(len(c.changes))
		case unknownOutcome:
			most += uint64(len(c.changes))
		case rolledBack:
		}
	}
	var errs []error
	if head := fresh.at.Head; head < least || head > most {
		errs = append(
			errs,
			fmt.Errorf("the head is %d, and %d to %d changes were committed: versions are missing or given twice", head, least, most),
		)
	}
	byText := func(a, b statesync.Key) int { return bytes.Compare([]byte(a.String()), []byte(b.String())) }
	for _, key := range slices.SortedFunc(maps.Keys(h.keys), byText) {
		for _, r := range h.readers {
			if r.after == fresh.at.Head {
				errs = append(errs, h.final(r, key, fresh.at.Floor))
			}
		}
	}
	return errors.Join(errs...)
}

// final checks that the reader has seen the last change of a key.
func (h *History) final(r *Reader, key statesync.Key, floor uint64) error {
	last := r.saw(key).last
	for _, w := range slices.Backward(h.keys[key][last+1:]) {
		if w.commit.outcome == committed && (!w.Deleted || floor == 0) {
			return fmt.Errorf("reader %s has skipped %s=%.60s (change %d of that key; it saw %d)", r.name, key, w.Value, w.at, last)
		}
	}
	return nil
}
