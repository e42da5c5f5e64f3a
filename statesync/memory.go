package statesync

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// Memory is a [Log] in memory, for tests and for programs that rebuild their desired
// state at every start. It also keeps [Readers]. The zero Memory is empty and ready;
// its scopes are made with AddScope. It is safe for concurrent use and must not be
// copied after first use.
type Memory struct {
	mu     sync.Mutex
	scopes map[string]*memoryScope
}

type memoryScope struct {
	state
	// changed is closed, and replaced, when the position changes.
	changed chan struct{}
	readers map[string]Reader
	// marks has the ID of each mark by version, and order the versions, ascending.
	marks map[uint64]string
	order []uint64
}

// maxMarks bounds the marks that a Memory keeps for a scope.
const maxMarks = 1 << 16

// leave leaves a mark at the head.
func (s *memoryScope) leave() {
	s.Mark = Mark{Version: s.Head, ID: rand.Text()}
	if s.marks == nil {
		s.marks = map[uint64]string{}
	}
	s.marks[s.Head] = s.Mark.ID
	s.order = append(s.order, s.Head)
	for len(s.order) > maxMarks || s.order[0] < s.Floor {
		delete(s.marks, s.order[0])
		s.order = s.order[1:]
	}
}

// AddScope makes the scope, with an epoch of its own, unless it exists.
func (m *Memory) AddScope(scope string) error {
	if err := ValidScope(scope); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.scopes == nil {
		m.scopes = map[string]*memoryScope{}
	}
	if m.scopes[scope] == nil {
		m.scopes[scope] = &memoryScope{
			state:   state{Position: Position{Epoch: rand.Text()}},
			changed: make(chan struct{}),
			readers: map[string]Reader{},
		}
	}
	return nil
}

// Commit adds the changes, all or none, in their order. They become readable at
// once. It returns ErrInvalid or ErrUnknownScope, wrapped, for an invalid change.
func (m *Memory) Commit(changes ...Change) error {
	var errs []error
	for _, c := range changes {
		errs = append(errs, c.Validate())
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range changes {
		if m.scopes[c.Scope] == nil {
			errs = append(errs, fmt.Errorf("change of %s: %w %q", c.Key, ErrUnknownScope, c.Scope))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	touched := map[*memoryScope]bool{}
	for _, c := range changes {
		scope := m.scopes[c.Scope]
		scope.Head++
		scope.put(&entry{Item: Item{Version: scope.Head, Key: c.Key, Deleted: c.Deleted, Value: slices.Clone(c.Value)}})
		touched[scope] = true
	}
	for scope := range touched {
		scope.leave()
		scope.announce()
	}
	return nil
}

func (s *memoryScope) announce() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// Forget drops the tombstones of scope up to version, at most up to its head:
// that is the new floor. See [Horizon] for a safe version.
func (m *Memory) Forget(scope string, version uint64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	s, err := m.scope(scope)
	if err != nil {
		return err
	}
	s.forget(min(version, s.Head))
	for len(s.order) > 0 && s.order[0] < s.Floor {
		delete(s.marks, s.order[0])
		s.order = s.order[1:]
	}
	s.announce()
	return nil
}

// Restore replaces the content of scope with items, as a restored backup would: in a
// new epoch, with the versions of the items. The floor is at the head, because
// tombstones that are not among items are lost.
func (m *Memory) Restore(scope string, items []Item) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	s, err := m.scope(scope)
	if err != nil {
		return err
	}
	s.state, s.marks, s.order = state{Position: Position{Epoch: rand.Text()}}, nil, nil
	for _, i := range slices.SortedFunc(slices.Values(items), func(a, b Item) int { return cmp.Compare(a.Version, b.Version) }) {
		s.put(&entry{Item: i})
		s.Head = i.Version
	}
	// Tombstones that are not in the backup are lost.
	s.Floor = s.Head
	if s.Head > 0 {
		s.leave()
	}
	s.announce()
	return nil
}

func (m *Memory) scope(scope string) (*memoryScope, error) {
	if s := m.scopes[scope]; s != nil {
		return s, nil
	}
	return nil, fmt.Errorf("%w %q", ErrUnknownScope, scope)
}

// Read implements [Log].
func (m *Memory) Read(ctx context.Context, scope string, after uint64, limit int) (Page, error) {
	if limit < 1 {
		return Page{}, fmt.Errorf("%w: limit: is %d, must be at least 1", ErrInvalid, limit)
	}
	if err := ctx.Err(); err != nil {
		return Page{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	s, err := m.scope(scope)
	if err != nil {
		return Page{}, err
	}
	entries, _, more := s.page(after, limit, 1<<30, nil)
	page := Page{Position: s.Position, Items: items(entries), More: more}
	if id, ok := s.marks[after]; ok {
		page.Since = Mark{Version: after, ID: id}
	}
	return page, nil
}

// Marked implements [Marks]. Each Commit leaves a mark; the newest 65,536 of a
// scope are kept.
func (m *Memory) Marked(ctx context.Context, scope string, mark Mark) (bool, error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	s, err := m.scope(scope)
	if err != nil {
		return false, err
	}
	id, ok := s.marks[mark.Version]
	return ok && id == mark.ID, nil
}

func items(entries []*entry) []Item {
	list := make([]Item, len(entries))
	for i, e := range entries {
		list[i] = e.Item
	}
	return list
}

// Wait implements [Log].
func (m *Memory) Wait(ctx context.Context, scope string, at Position) error {
	m.mu.Lock()
	s, err := m.scope(scope)
	if err != nil {
		m.mu.Unlock()
		return err
	}
	moved, changed := s.Position != at, s.changed
	m.mu.Unlock()
	if moved {
		return ctx.Err()
	}
	select {
	case <-changed:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Report implements [Readers].
func (m *Memory) Report(ctx context.Context, scope string, r Report) (bool, error) {
	if err := errors.Join(ctx.Err(), r.Validate()); err != nil {
		return false, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	s, err := m.scope(scope)
	if err != nil {
		return false, err
	}
	if old, ok := s.readers[r.Reader]; ok && !r.After(old.Report) {
		return false, nil
	}
	r.Body = slices.Clone(r.Body)
	s.readers[r.Reader] = Reader{Report: r, At: time.Now()}
	return true, nil
}

// Readers implements [Readers].
func (m *Memory) Readers(ctx context.Context, scope string) ([]Reader, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	s, err := m.scope(scope)
	if err != nil {
		return nil, err
	}
	list := make([]Reader, 0, len(s.readers))
	for _, r := range s.readers {
		list = append(list, r)
	}
	slices.SortFunc(list, func(a, b Reader) int { return strings.Compare(a.Reader, b.Reader) })
	return list, nil
}
