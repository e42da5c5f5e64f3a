package statesynctest_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/statesync"
	"github.com/seed-9e1ffd66/trueup/statesync/statesynctest"
)

// logFuncs is a log of which single methods are replaced.
type logFuncs struct {
	read func(ctx context.Context, scope string, after uint64, limit int) (statesync.Page, error)
	wait func(ctx context.Context, scope string, at statesync.Position) error
	// marked is nil where marks do not matter.
	marked func(ctx context.Context, scope string, mark statesync.Mark) (bool, error)
}

func (l logFuncs) Read(ctx context.Context, scope string, after uint64, limit int) (statesync.Page, error) {
	return l.read(ctx, scope, after, limit)
}

func (l logFuncs) Marked(ctx context.Context, scope string, mark statesync.Mark) (bool, error) {
	if l.marked == nil {
		return false, errors.ErrUnsupported
	}
	return l.marked(ctx, scope, mark)
}

func (l logFuncs) Wait(ctx context.Context, scope string, at statesync.Position) error {
	return l.wait(ctx, scope, at)
}

// pages edits every page that is read.
func pages(edit func(p *statesync.Page)) func(*statesynctest.Store) {
	return func(s *statesynctest.Store) {
		log := s.Log
		marks, _ := log.(statesync.Marks)
		s.Log = logFuncs{
			wait:   log.Wait,
			marked: marks.Marked,
			read: func(ctx context.Context, scope string, after uint64, limit int) (statesync.Page, error) {
				p, err := log.Read(ctx, scope, after, limit)
				p.Items = slices.Clone(p.Items)
				edit(&p)
				return p, err
			},
		}
	}
}

func waiting(wait func(ctx context.Context, scope string, log statesync.Log, at statesync.Position) error) func(*statesynctest.Store) {
	return func(s *statesynctest.Store) {
		log := s.Log
		s.Log = logFuncs{
			read: log.Read,
			wait: func(ctx context.Context, scope string, at statesync.Position) error { return wait(ctx, scope, log, at) },
		}
	}
}

func commits(
	commit func(ctx context.Context, right func(...statesync.Change) error, changes []statesync.Change) error,
) func(*statesynctest.Store) {
	return func(s *statesynctest.Store) {
		right := s.Commit
		s.Commit = func(ctx context.Context, changes []statesync.Change) error {
			return commit(ctx, func(c ...statesync.Change) error { return right(ctx, c) }, changes)
		}
	}
}

// tx is a transaction that calls what it has.
type tx struct {
	append           func(...statesync.Change) error
	commit, rollback func() error
}

func (t tx) Append(_ context.Context, changes ...statesync.Change) error { return t.append(changes...) }
func (t tx) Commit() error                                               { return t.commit() }
func (t tx) Rollback() error                                             { return t.rollback() }

func nothing() error { return nil }

// planted are defects, each with a check that has to find it.
var planted = []struct {
	name, check string
	plant       func(*statesynctest.Store)
}{
	{"skips an item", "versions are consecutive and follow the order of commits", pages(func(p *statesync.Page) {
		p.Items = slices.DeleteFunc(p.Items, func(i statesync.Item) bool { return i.Version == 3 })
	})},
	{"gives a version twice", "versions are consecutive and follow the order of commits", pages(func(p *statesync.Page) {
		for n := range p.Items {
			if p.Items[n].Version == 4 {
				p.Items[n].Version = 3
			}
		}
	})},
	{"counts from 0", "versions are consecutive and follow the order of commits", pages(func(p *statesync.Page) {
		for n := range p.Items {
			p.Items[n].Version--
		}
	})},
	{"leaves holes", "versions are consecutive and follow the order of commits", pages(func(p *statesync.Page) { p.Head *= 2 })},
	{"forgets tombstones", "a deletion leaves a tombstone", pages(func(p *statesync.Page) {
		p.Items = slices.DeleteFunc(p.Items, func(i statesync.Item) bool { return i.Deleted })
	})},
	{"takes a tombstone for a value", "a deletion leaves a tombstone", pages(func(p *statesync.Page) {
		for n := range p.Items {
			p.Items[n].Deleted = false
		}
	})},
	{"gives a tombstone a value", "a deletion leaves a tombstone", pages(func(p *statesync.Page) {
		for n := range p.Items {
			if p.Items[n].Deleted {
				p.Items[n].Value = []byte("null")
			}
		}
	})},
	{"rewrites JSON", "values come back byte for byte", pages(func(p *statesync.Page) {
		for n := range p.Items {
			var text bytes.Buffer
			if json.Compact(&text, p.Items[n].Value) == nil && !p.Items[n].Deleted {
				p.Items[n].Value = text.Bytes()
			}
		}
	})},
	{"descends", "versions are consecutive and follow the order of commits", pages(func(p *statesync.Page) { slices.Reverse(p.Items) })},
	{"reports no more", "pages are complete and report whether there is more", pages(func(p *statesync.Page) { p.More = false })},
	{"reports more", "pages are complete and report whether there is more", pages(func(p *statesync.Page) { p.More = true })},
	{"has no epoch", "an unknown scope is not an empty one", pages(func(p *statesync.Page) { p.Epoch = "" })},
	{"returns more than the limit", "pages are complete and report whether there is more", func(s *statesynctest.Store) {
		log := s.Log
		s.Log = logFuncs{wait: log.Wait, read: func(ctx context.Context, scope string, after uint64, limit int) (statesync.Page, error) {
			if limit > 0 {
				limit++
			}
			return log.Read(ctx, scope, after, limit)
		}}
	}},
	{"takes any limit", "a limit must be above zero", func(s *statesynctest.Store) {
		log := s.Log
		s.Log = logFuncs{wait: log.Wait, read: func(ctx context.Context, scope string, after uint64, limit int) (statesync.Page, error) {
			return log.Read(ctx, scope, after, max(1, limit))
		}}
	}},
	{"reads the last item again", "pages are complete and report whether there is more", func(s *statesynctest.Store) {
		log := s.Log
		s.Log = logFuncs{wait: log.Wait, read: func(ctx context.Context, scope string, after uint64, limit int) (statesync.Page, error) {
			return log.Read(ctx, scope, max(1, after)-1, limit)
		}}
	}},
	{"takes the unknown for the empty", "an unknown scope is not an empty one", func(s *statesynctest.Store) {
		log := s.Log
		s.Log = logFuncs{wait: log.Wait, read: func(ctx context.Context, scope string, after uint64, limit int) (statesync.Page, error) {
			p, err := log.Read(ctx, scope, after, limit)
			if errors.Is(err, statesync.ErrUnknownScope) {
				return statesync.Page{}, nil
			}
			return p, err
		}}
	}},
	{"mixes scopes", "scopes do not influence each other", func(s *statesynctest.Store) {
		log := s.Log
		s.Log = logFuncs{wait: log.Wait, read: func(ctx context.Context, scope string, after uint64, limit int) (statesync.Page, error) {
			if scope == "three" {
				scope = "two"
			}
			return log.Read(ctx, scope, after, limit)
		}}
	}},
	{
		"splits a commit",
		"a commit is readable as a whole or not at all",
		commits(func(_ context.Context, right func(...statesync.Change) error, changes []statesync.Change) error {
			for _, c := range changes {
				if err := right(c); err != nil {
					return err
				}
				time.Sleep(10 * time.Microsecond)
			}
			return nil
		}),
	},
	{
		"reverses a commit",
		"only the newest state of a key is kept",
		commits(func(_ context.Context, right func(...statesync.Change) error, changes []statesync.Change) error {
			changes = slices.Clone(changes)
			slices.Reverse(changes)
			return right(changes...)
		}),
	},
	{
		"cuts a large commit",
		"a large commit is complete",
		commits(func(_ context.Context, right func(...statesync.Change) error, changes []statesync.Change) error {
			return right(changes[:min(len(changes), 500)]...)
		}),
	},
	{
		"numbers keys, not changes",
		"only the newest state of a key is kept",
		commits(func(_ context.Context, right func(...statesync.Change) error, changes []statesync.Change) error {
			var newest []statesync.Change
			for n, c := range changes {
				if !slices.ContainsFunc(changes[n+1:], func(later statesync.Change) bool { return later.Scope == c.Scope && later.Key == c.Key }) {
					newest = append(newest, c)
				}
			}
			return right(newest...)
		}),
	},
	{
		"commits again what it has committed",
		"concurrent writers skip nothing",
		commits(func(_ context.Context, right func(...statesync.Change) error, changes []statesync.Change) error {
			if err := right(changes...); err != nil || len(changes) != 2 {
				return err
			}
			return right(changes...)
		}),
	},
	{
		"stores what stands before a bad change",
		"what cannot be taken is refused as a whole",
		commits(func(_ context.Context, right func(...statesync.Change) error, changes []statesync.Change) error {
			for _, c := range changes {
				if err := right(c); err != nil {
					return err
				}
			}
			return nil
		}),
	},
	{
		"passes over a bad change",
		"what cannot be taken is refused as a whole",
		commits(func(_ context.Context, right func(...statesync.Change) error, changes []statesync.Change) error {
			return right(slices.DeleteFunc(slices.Clone(changes), func(c statesync.Change) bool { return c.Validate() != nil })...)
		}),
	},
	{
		"hides why a change is bad",
		"what cannot be taken is refused as a whole",
		commits(func(_ context.Context, right func(...statesync.Change) error, changes []statesync.Change) error {
			err := right(changes...)
			if errors.Is(err, statesync.ErrInvalid) {
				return statesync.ErrInvalid
			}
			return err
		}),
	},
	{
		"never wakes",
		"wait returns when something is committed",
		waiting(func(ctx context.Context, _ string, _ statesync.Log, _ statesync.Position) error {
			<-ctx.Done()
			return ctx.Err()
		}),
	},
	{"wakes one of many", "wait serves many", func(s *statesynctest.Store) {
		var calls atomic.Int64
		log := s.Log
		s.Log = logFuncs{read: log.Read, wait: func(ctx context.Context, scope string, at statesync.Position) error {
			if calls.Add(1) > 1 {
				<-ctx.Done()
				return ctx.Err()
			}
			return log.Wait(ctx, scope, at)
		}}
	}},
	{
		"never sleeps",
		"wait ends with its context",
		waiting(func(ctx context.Context, scope string, log statesync.Log, _ statesync.Position) error {
			return log.Wait(ctx, scope, statesync.Position{})
		}),
	},
	{
		"sleeps through what has happened",
		"wait returns at once when the log has moved on",
		waiting(func(ctx context.Context, scope string, log statesync.Log, at statesync.Position) error {
			p, err := log.Read(ctx, scope, 0, 1)
			if err != nil {
				return err
			}
			p.Head = max(p.Head, at.Head)
			return log.Wait(ctx, scope, p.Position)
		}),
	},
	{
		"waits beyond its context",
		"wait ends with its context",
		waiting(func(ctx context.Context, scope string, log statesync.Log, at statesync.Position) error {
			if err := log.Wait(ctx, scope, at); !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) {
				return err
			}
			return errors.New("gave up")
		}),
	},
	{
		"waits for an unknown scope",
		"an unknown scope is not an empty one",
		waiting(func(ctx context.Context, scope string, log statesync.Log, at statesync.Position) error {
			err := log.Wait(ctx, scope, at)
			if errors.Is(err, statesync.ErrUnknownScope) {
				<-ctx.Done()
				return ctx.Err()
			}
			return err
		}),
	},
	{
		"does not wake for a floor",
		"wait returns when the floor rises",
		waiting(func(ctx context.Context, scope string, log statesync.Log, at statesync.Position) error {
			return awaits(ctx, scope, log, func(p statesync.Position) bool { return p.Head != at.Head || p.Epoch != at.Epoch })
		}),
	},
	{
		"does not wake for an epoch",
		"wait returns when the epoch changes",
		waiting(func(ctx context.Context, scope string, log statesync.Log, at statesync.Position) error {
			return awaits(ctx, scope, log, func(p statesync.Position) bool { return p.Head != at.Head })
		}),
	},
	{"commits a rollback", "a rollback leaves no trace", func(s *statesynctest.Store) {
		begin := s.Begin
		s.Begin = func(ctx context.Context) (statesynctest.Tx, error) {
			open, err := begin(ctx)
			return tx{append: func(c ...statesync.Change) error { return open.Append(ctx, c...) }, commit: open.Commit, rollback: open.Commit}, err
		}
	}},
	{"shows uncommitted changes", "an open transaction is invisible", func(s *statesynctest.Store) {
		commit := s.Commit
		s.Begin = func(ctx context.Context) (statesynctest.Tx, error) {
			return tx{append: func(c ...statesync.Change) error { return commit(ctx, c) }, commit: nothing, rollback: nothing}, nil
		}
	}},
	{"numbers before the commit", "a late commit is not skipped", func(s *statesynctest.Store) {
		n := &naive{}
		s.Log, s.Begin = n, n.begin
		s.AddScope = func(context.Context, string) error { return nil }
		s.Commit = func(ctx context.Context, changes []statesync.Change) error {
			open, err := n.begin(ctx)
			return errors.Join(err, open.Append(ctx, changes...), open.Commit())
		}
	}},
	{"waits for older transactions", "a stalled transaction delays no other", func(s *statesynctest.Store) {
		var mu sync.RWMutex
		begin := s.Begin
		s.Begin = func(ctx context.Context) (statesynctest.Tx, error) {
			open, err := begin(ctx)
			mu.RLock()
			return tx{
				append:   func(c ...statesync.Change) error { return open.Append(ctx, c...) },
				commit:   func() error { defer mu.RUnlock(); return open.Commit() },
				rollback: func() error { defer mu.RUnlock(); return open.Rollback() },
			}, err
		}
		right := s.Commit
		s.Commit = func(ctx context.Context, changes []statesync.Change) error {
			for !mu.TryLock() {
				if ctx.Err() != nil {
					return ctx.Err()
				}
			}
			defer mu.Unlock()
			return right(ctx, changes)
		}
	}},
	{"takes every report", "of two reports the later one stays", func(s *statesynctest.Store) {
		var sequence uint64
		s.Readers = reporting{s.Readers, func(r *statesync.Report) { sequence++; r.Session, r.Sequence = 1, sequence }, nil}
	}},
	{"compares sequences of different sessions", "of two reports the later one stays", func(s *statesynctest.Store) {
		s.Readers = reporting{s.Readers, func(r *statesync.Report) { r.Session = 1 }, nil}
	}},
	{"loses the body", "of two reports the later one stays", func(s *statesynctest.Store) {
		s.Readers = reporting{s.Readers, func(r *statesync.Report) { r.Body = nil }, nil}
	}},
	{"takes bad reports", "reports are checked", func(s *statesynctest.Store) {
		s.Readers = reporting{s.Readers, func(r *statesync.Report) { r.Session = max(r.Session, 1) }, nil}
	}},
	{"lists readers as they come", "readers are listed by scope, sorted", func(s *statesynctest.Store) {
		s.Readers = reporting{s.Readers, nil, func(l []statesync.Reader) { slices.Reverse(l) }}
	}},
	{"does not know when", "readers are listed by scope, sorted", func(s *statesynctest.Store) {
		s.Readers = reporting{s.Readers, nil, func(l []statesync.Reader) {
			for n := range l {
				l[n].At = time.Time{}
			}
		}}
	}},
	{
		"prunes without asking readers",
		"pruning waits for readers",
		pruning(func(m *statesync.Memory, scope string, head uint64) error { return m.Forget(scope, head) }),
	},
	{"never prunes", "pruning waits for readers", pruning(func(*statesync.Memory, string, uint64) error { return nil })},
	{"prunes and leaves the floor", "pruning waits for readers", pages(func(p *statesync.Page) { p.Floor = 0 })},
	{
		"keeps its epoch",
		"another epoch keeps the items",
		func(s *statesynctest.Store) { s.NewEpoch = func(context.Context, string) error { return nil } },
	},
	{"leaves no marks", "each batch leaves a mark", pages(func(p *statesync.Page) { p.Mark = statesync.Mark{} })},
	{"leaves one mark for all", "each batch leaves a mark", pages(func(p *statesync.Page) {
		if p.Mark != (statesync.Mark{}) {
			p.Mark.ID = "the-same"
		}
	})},
	{"does not say since which mark", "each batch leaves a mark", pages(func(p *statesync.Page) { p.Since = statesync.Mark{} })},
	{"has every mark", "each batch leaves a mark", func(s *statesynctest.Store) { s.Log = marking{s.Log, true} }},
	{"forgets marks", "marks are kept from the floor up", func(s *statesynctest.Store) { s.Log = marking{s.Log, false} }},
	{"uses an epoch again", "another epoch keeps the items", func(s *statesynctest.Store) {
		var n atomic.Int64
		right := s.NewEpoch
		s.NewEpoch = func(ctx context.Context, scope string) error { n.Add(1); return right(ctx, scope) }
		pages(func(p *statesync.Page) { p.Epoch = []string{"even", "odd"}[n.Load()%2] })(s)
	}},
}

// pruning replaces a store by one whose Prune is wrong.
func pruning(prune func(m *statesync.Memory, scope string, head uint64) error) func(*statesynctest.Store) {
	return func(s *statesynctest.Store) {
		m, _ := s.Log.(*statesync.Memory)
		s.Prune = func(ctx context.Context, scope string) error {
			page, err := m.Read(ctx, scope, 0, 1)
			return errors.Join(err, prune(m, scope, page.Head))
		}
	}
}

func awaits(ctx context.Context, scope string, log statesync.Log, moved func(statesync.Position) bool) error {
	for {
		p, err := log.Read(ctx, scope, 0, 1)
		if err != nil || moved(p.Position) {
			return err
		}
		if err := log.Wait(ctx, scope, p.Position); err != nil {
			return err
		}
	}
}

// marking is a log that gives one answer for every mark.
type marking struct {
	statesync.Log
	has bool
}

func (m marking) Marked(context.Context, string, statesync.Mark) (bool, error) { return m.has, nil }

// reporting edits reports on their way in, and readers on their way out.
type reporting struct {
	right statesync.Readers
	in    func(*statesync.Report)
	out   func([]statesync.Reader)
}

func (r reporting) Readers(ctx context.Context, scope string) ([]statesync.Reader, error) {
	list, err := r.right.Readers(ctx, scope)
	if r.out != nil {
		r.out(list)
	}
	return list, err
}

func (r reporting) Report(ctx context.Context, scope string, report statesync.Report) (bool, error) {
	if r.in != nil {
		r.in(&report)
	}
	return r.right.Report(ctx, scope, report)
}

// naive is a log whose versions are taken from a sequence at the write.
type naive struct {
	mu       sync.Mutex
	sequence uint64
	items    []statesync.Item
}

func (n *naive) begin(context.Context) (statesynctest.Tx, error) {
	var mine []statesync.Item
	return tx{
		append: func(changes ...statesync.Change) error {
			n.mu.Lock()
			defer n.mu.Unlock()
			for _, c := range changes {
				n.sequence++
				mine = append(mine, statesync.Item{Version: n.sequence, Key: c.Key, Deleted: c.Deleted, Value: c.Value})
			}
			return nil
		},
		commit: func() error {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.items = append(n.items, mine...)
			slices.SortFunc(n.items, func(a, b statesync.Item) int { return cmp.Compare(a.Version, b.Version) })
			return nil
		},
		rollback: nothing,
	}, nil
}

func (n *naive) Read(_ context.Context, _ string, after uint64, limit int) (statesync.Page, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	p := statesync.Page{Position: statesync.Position{Epoch: "naive"}}
	for _, i := range n.items {
		p.Head = i.Version
		if i.Version > after && len(p.Items) < limit {
			p.Items = append(p.Items, i)
		}
	}
	p.More = len(p.Items) > 0 && p.Items[len(p.Items)-1].Version < p.Head
	return p, nil
}

func (n *naive) Wait(ctx context.Context, _ string, _ statesync.Position) error { return ctx.Err() }

func TestEveryPlantedDefectIsFound(t *testing.T) {
	t.Parallel()
	var found atomic.Int64
	t.Cleanup(func() { fmt.Printf("figure log_planted_found %d/%d\n", found.Load(), len(planted)) })
	for _, p := range planted {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			s := memory()
			require.NoError(t, statesynctest.Check(t.Context(), p.check, s))
			s = memory()
			p.plant(&s)
			// Some are found by what does not happen in time.
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			err := statesynctest.Check(ctx, p.check, s)
			require.Error(t, err)
			found.Add(1)
			t.Log(err)
		})
	}
}
