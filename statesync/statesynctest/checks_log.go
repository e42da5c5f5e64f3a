package statesynctest

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/seed-9e1ffd66/trueup/statesync"
)

func consecutive(ctx context.Context, s Store) error {
	if err := addScope(ctx, s, scope); err != nil {
		return err
	}
	var want []statesync.Item
	for n := range 25 {
		c := put("item-"+strconv.Itoa(n), n)
		if err := commit(ctx, s, c); err != nil {
			return err
		}
		want = append(want, item(uint64(n+1), c))
	}
	page, err := all(ctx, s, scope, 0)
	return errors.Join(err, holds(page, want...), stays(ctx, s, scope, 25))
}

func newestPerKey(ctx context.Context, s Store) error {
	if err := addScope(ctx, s, scope); err != nil {
		return err
	}
	a, b, a2, c, b2, b3 := put("a", 1), put("b", 2), put("a", 3), put("c", 4), put("b", 5), put("b", 6)
	for _, group := range [][]statesync.Change{{a, b}, {a2}, {c, b2, b3}} {
		if err := commit(ctx, s, group...); err != nil {
			return err
		}
	}
	page, err := all(ctx, s, scope, 0)
	if err := errors.Join(err, holds(page, item(3, a2), item(4, c), item(6, b3)), stays(ctx, s, scope, 6)); err != nil {
		return err
	}
	page, err = all(ctx, s, scope, 4)
	return errors.Join(err, holds(page, item(6, b3)))
}

func tombstones(ctx context.Context, s Store) error {
	if err := addScope(ctx, s, scope); err != nil {
		return err
	}
	a, gone, never, back := put("a", 1), remove("a"), remove("never-there"), put("a", 2)
	if err := errors.Join(commit(ctx, s, a), commit(ctx, s, gone, never)); err != nil {
		return err
	}
	page, err := all(ctx, s, scope, 0)
	if err := errors.Join(err, holds(page, item(2, gone), item(3, never))); err != nil {
		return err
	}
	if err := commit(ctx, s, back); err != nil {
		return err
	}
	page, err = all(ctx, s, scope, 0)
	return errors.Join(err, holds(page, item(3, never), item(4, back)))
}

func values(ctx context.Context, s Store) error {
	if err := addScope(ctx, s, scope); err != nil {
		return err
	}
	var changes []statesync.Change
	var want []statesync.Item
	texts := []string{
		`null`, `0`, `""`, `{}`, `[]`, ` { "b" : 1.0 , "a" : 1e3, "b": 2 } `, `"\u0000\ud800 é \\"`, "\"\u2028 €\"", `12345678901234567890.10`,
		`"` + strings.Repeat("x", 100_000) + `"`,
	}
	for n, text := range texts {
		c := put("item "+strconv.Itoa(n)+" é/%'\"\\", nil)
		c.Value = []byte(text)
		changes, want = append(changes, c), append(want, item(uint64(n+1), c))
	}
	if err := commit(ctx, s, changes...); err != nil {
		return err
	}
	page, err := all(ctx, s, scope, 0)
	return errors.Join(err, holds(page, want...))
}

func largeCommit(ctx context.Context, s Store) error {
	if err := addScope(ctx, s, scope); err != nil {
		return err
	}
	const many = 1001
	var changes []statesync.Change
	for n := range many {
		changes = append(changes, put(strconv.Itoa(n), n))
	}
	if err := commit(ctx, s, changes...); err != nil {
		return err
	}
	page, err := all(ctx, s, scope, 0)
	if err != nil {
		return err
	}
	if len(page.Items) != many {
		return fmt.Errorf("%d of %d items are there", len(page.Items), many)
	}
	for n, got := range page.Items {
		if !equal(got, item(uint64(n+1), changes[n])) {
			return fmt.Errorf("item %d of a commit is %s", n, list(page.Items[n:n+1]))
		}
	}
	return nil
}

// atomic has a reader that reads all the time while pairs of keys, far apart in the
// commit, get the same value.
func atomic(ctx context.Context, s Store) error {
	if err := addScope(ctx, s, scope); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	const width, rounds = 30, 40
	failure := make(chan error, 1)
	var reader sync.WaitGroup
	reader.Go(func() {
		for ctx.Err() == nil {
			if err := whole(ctx, s, width); err != nil && ctx.Err() == nil {
				failure <- err
				return
			}
		}
	})
	err := func() error {
		for n := range rounds {
			var changes []statesync.Change
			for i := range width {
				changes = append(changes, put(strconv.Itoa(i), n))
			}
			if err := s.Commit(ctx, changes); err != nil {
				return err
			}
		}
		return reaches(ctx, s, scope, width*rounds)
	}()
	stop()
	reader.Wait()
	select {
	case found := <-failure:
		return found
	default:
		return err
	}
}

func whole(ctx context.Context, s Store, width int) error {
	page, err := all(ctx, s, scope, 0)
	if err != nil || len(page.Items) == 0 {
		return err
	}
	if len(page.Items) != width {
		return fmt.Errorf("half a commit is readable: %d of its %d changes", len(page.Items), width)
	}
	for _, i := range page.Items {
		if string(i.Value) != string(page.Items[0].Value) {
			return fmt.Errorf("half a commit is readable: %s has %s and %s has %s", page.Items[0].Key, page.Items[0].Value, i.Key, i.Value)
		}
	}
	if page.Head%uint64(width) != 0 {
		return fmt.Errorf("half a commit is readable: the head is %d, and commits have %d changes", page.Head, width)
	}
	return nil
}

// concurrentWriters lets writers write keys of their own, whose order is known.
func concurrentWriters(ctx context.Context, s Store) error {
	if err := addScope(ctx, s, scope); err != nil {
		return err
	}
	const writers, rounds = 8, 30
	h := NewHistory(scope)
	var mu sync.Mutex
	var errs []error
	var writing sync.WaitGroup
	for w := range writers {
		writing.Go(func() {
			for n := range rounds {
				changes := []statesync.Change{put(fmt.Sprintf("own-%d", w), n), put(fmt.Sprintf("%d-%d", w, n), n)}
				told := h.Begin(changes...)
				err := s.Commit(ctx, changes)
				if err == nil {
					told.Committed()
					continue
				}
				mu.Lock()
				errs = append(errs, err)
				mu.Unlock()
				return
			}
		})
	}
	reader := h.Reader("reader")
	err := reader.Follow(ctx, s.Log, 7, func(p statesync.Position) bool { return p.Head >= writers*rounds*2 })
	writing.Wait()
	return errors.Join(err, errors.Join(errs...), h.Check(ctx, s.Log))
}

func paging(ctx context.Context, s Store) error {
	if err := addScope(ctx, s, scope); err != nil {
		return err
	}
	var want []statesync.Item
	for n := range 10 {
		c := put(strconv.Itoa(n), n)
		if n == 4 {
			c = remove(strconv.Itoa(n))
		}
		if err := commit(ctx, s, c); err != nil {
			return err
		}
		want = append(want, item(uint64(n+1), c))
	}
	for _, limit := range []int{1, 3, 5, 9, 10, 11} {
		var after uint64
		var got []statesync.Item
		for more := true; more; {
			page, err := s.Log.Read(ctx, scope, after, limit)
			if err := errors.Join(err, ascending(page, after)); err != nil {
				return err
			}
			more = page.More
			switch {
			case len(page.Items) > limit:
				return fmt.Errorf("a page has %d items, its limit is %d", len(page.Items), limit)
			case len(page.Items) == 0:
				return fmt.Errorf("limit %d: a page after %d of %d is empty", limit, after, page.Head)
			case page.Head != 10:
				return fmt.Errorf("limit %d: the head is %d, not 10", limit, page.Head)
			}
			got = append(got, page.Items...)
			after = got[len(got)-1].Version
			if wantMore := after < 10; more != wantMore {
				return fmt.Errorf("limit %d: a page that ends at %d of 10 has more=%t", limit, after, more)
			}
		}
		if err := holds(statesync.Page{Items: got}, want...); err != nil {
			return fmt.Errorf("limit %d: %w", limit, err)
		}
	}
	for _, after := range []uint64{10, 11, 1 << 40, 1<<64 - 1} {
		page, err := s.Log.Read(ctx, scope, after, 5)
		if err == nil && page.More {
			err = fmt.Errorf("there is more after %d of 10", after)
		}
		if err := errors.Join(err, holds(page)); err != nil {
			return err
		}
	}
	return nil
}

func unknownScope(ctx context.Context, s Store) error {
	if err := addScope(ctx, s, scope); err != nil {
		return err
	}
	if err := s.AddScope(ctx, scope); err != nil {
		return fmt.Errorf("a scope cannot be added again: %w", err)
	}
	page, err := all(ctx, s, scope, 0)
	if err := errors.Join(err, holds(page)); err != nil {
		return err
	}
	switch {
	case page.Epoch == "":
		return errors.New("an empty scope has no epoch")
	case page.Head != 0 || page.Floor != 0:
		return fmt.Errorf("an empty scope has head %d and floor %d", page.Head, page.Floor)
	}
	if _, err := s.Log.Read(ctx, "never-made", 0, 1); !errors.Is(err, statesync.ErrUnknownScope) {
		return fmt.Errorf("reading a scope that was never made: %w, not ErrUnknownScope", orNone(err))
	}
	if err := s.Log.Wait(ctx, "never-made", statesync.Position{}); !errors.Is(err, statesync.ErrUnknownScope) {
		return fmt.Errorf("waiting for a scope that was never made: %w, not ErrUnknownScope", orNone(err))
	}
	return nil
}

func separateScopes(ctx context.Context, s Store) error {
	if err := addScope(ctx, s, "one", "two", "three"); err != nil {
		return err
	}
	a, b, c, d := putIn("one", "k", 1), putIn("two", "k", 2), putIn("one", "l", 3), putIn("two", "k", 4)
	if err := errors.Join(commit(ctx, s, a, b, c), commit(ctx, s, d)); err != nil {
		return err
	}
	var errs []error
	for scope, want := range map[string][]statesync.Item{"one": {item(1, a), item(2, c)}, "two": {item(2, d)}, "three": nil} {
		page, err := all(ctx, s, scope, 0)
		errs = append(errs, err, holds(page, want...), stays(ctx, s, scope, 2*uint64(min(1, len(want)))))
	}
	return errors.Join(errs...)
}

// refuses commits a bad change among good ones: none may be stored.
func refuses(ctx context.Context, s Store) error {
	if err := addScope(ctx, s, scope); err != nil {
		return err
	}
	long := strings.Repeat("n", statesync.MaxName+1)
	good := put("good", 1)
	with := func(edit func(c *statesync.Change)) statesync.Change {
		c := put("bad", 1)
		edit(&c)
		return c
	}
	for _, bad := range []struct {
		field  string
		change statesync.Change
	}{
		{"scope", with(func(c *statesync.Change) { c.Scope = "" })},
		{"scope", with(func(c *statesync.Change) { c.Scope = long })},
		{"collection", with(func(c *statesync.Change) { c.Collection = "" })},
		{"collection", with(func(c *statesync.Change) { c.Collection = "a\x00b" })},
		{"id", with(func(c *statesync.Change) { c.ID = "" })},
		{"id", with(func(c *statesync.Change) { c.ID = long })},
		{"id", with(func(c *statesync.Change) { c.ID = "\xff" })},
		{"value", with(func(c *statesync.Change) { c.Value = nil })},
		{"value", with(func(c *statesync.Change) { c.Value = []byte(`{"a":`) })},
		{"value", with(func(c *statesync.Change) { c.Value = []byte(`1 2`) })},
		{"value", with(func(c *statesync.Change) { c.Value = []byte(`"` + strings.Repeat("v", statesync.MaxValue) + `"`) })},
		{"value", with(func(c *statesync.Change) { c.Deleted = true })},
	} {
		err := s.Commit(ctx, []statesync.Change{good, bad.change})
		switch {
		case !errors.Is(err, statesync.ErrInvalid):
			return fmt.Errorf("a change with a bad %s: %w, not ErrInvalid", bad.field, orNone(err))
		case !strings.Contains(err.Error(), bad.field):
			return fmt.Errorf("the error of a bad %s does not name it: %w", bad.field, err)
		}
	}
	// The next change has the first version.
	if err := commit(ctx, s, good); err != nil {
		return err
	}
	page, err := all(ctx, s, scope, 0)
	return errors.Join(err, holds(page, item(1, good)))
}

func refusesLimit(ctx context.Context, s Store) error {
	if err := addScope(ctx, s, scope); err != nil {
		return err
	}
	for _, limit := range []int{0, -1} {
		if _, err := s.Log.Read(ctx, scope, 0, limit); !errors.Is(err, statesync.ErrInvalid) {
			return fmt.Errorf("limit %d: %w, not ErrInvalid", limit, orNone(err))
		}
	}
	return nil
}

var errNone = errors.New("no error")

func orNone(err error) error {
	if err == nil {
		return errNone
	}
	return err
}
