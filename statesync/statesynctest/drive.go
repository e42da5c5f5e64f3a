package statesynctest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/seed-9e1ffd66/trueup/statesync"
)

const scope = "scope-1"

// put is a change of a key in the scope that most checks use.
func put(id string, value any) statesync.Change { return putIn(scope, id, value) }

func putIn(scope, id string, value any) statesync.Change {
	text, err := json.Marshal(value)
	if err != nil {
		text = []byte("null")
	}
	return statesync.Change{Scope: scope, Key: statesync.Key{Collection: "things", ID: id}, Value: text}
}

func remove(id string) statesync.Change {
	return statesync.Change{Scope: scope, Key: statesync.Key{Collection: "things", ID: id}, Deleted: true}
}

// again calls try until it returns true or an error, or ctx ends.
func again(ctx context.Context, what string, try func() (bool, error)) error {
	pause := time.NewTicker(2 * time.Millisecond)
	defer pause.Stop()
	for {
		done, err := try()
		if err != nil || done {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: not in time", what)
		case <-pause.C:
		}
	}
}

// addScope returns when the scope can be read.
func addScope(ctx context.Context, s Store, scopes ...string) error {
	for _, scope := range scopes {
		if err := s.AddScope(ctx, scope); err != nil {
			return fmt.Errorf("add scope %s: %w", scope, err)
		}
	}
	for _, scope := range scopes {
		err := again(ctx, "a new scope "+scope, func() (bool, error) {
			_, err := s.Log.Read(ctx, scope, 0, 1)
			if errors.Is(err, statesync.ErrUnknownScope) {
				return false, nil
			}
			return err == nil, err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// commit returns when the changes are readable: when the head of each scope has
// risen by the number of its changes. A head that rises by more is noticed by
// the next check of it.
func commit(ctx context.Context, s Store, changes ...statesync.Change) error {
	heads := map[string]uint64{}
	for _, c := range changes {
		if _, ok := heads[c.Scope]; !ok {
			page, err := s.Log.Read(ctx, c.Scope, 0, 1)
			if err != nil {
				return fmt.Errorf("read: %w", err)
			}
			heads[c.Scope] = page.Head
		}
		heads[c.Scope]++
	}
	if err := s.Commit(ctx, changes); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	for scope, head := range heads {
		if err := reaches(ctx, s, scope, head); err != nil {
			return err
		}
	}
	return nil
}

// reaches waits until the head of a scope is head: a store may number commits a while after
// they have returned.
func reaches(ctx context.Context, s Store, scope string, head uint64) error {
	return again(ctx, fmt.Sprintf("the head of %s being %d", scope, head), func() (bool, error) {
		page, err := s.Log.Read(ctx, scope, 0, 1)
		if err == nil && page.Head > head {
			err = fmt.Errorf("the head of %s is %d, above the %d changes that were committed", scope, page.Head, head)
		}
		return page.Head == head, err
	})
}

// all returns everything above after, read in one page.
func all(ctx context.Context, s Store, scope string, after uint64) (statesync.Page, error) {
	page, err := s.Log.Read(ctx, scope, after, 1<<20)
	if err != nil {
		return page, fmt.Errorf("read %s: %w", scope, err)
	}
	if page.More {
		return page, fmt.Errorf("read %s: a page of %d items below its limit reports more", scope, len(page.Items))
	}
	return page, ascending(page, after)
}

// ascending returns an error unless the versions of a page grow and are above after.
func ascending(page statesync.Page, after uint64) error {
	last := after
	for _, item := range page.Items {
		if item.Version <= last {
			return fmt.Errorf("items do not ascend: version %d comes after %d", item.Version, last)
		}
		last = item.Version
	}
	if len(page.Items) > 0 && last > page.Head {
		return fmt.Errorf("version %d is above the head, %d", last, page.Head)
	}
	return nil
}

// holds returns an error unless the page has exactly these items.
func holds(page statesync.Page, want ...statesync.Item) error {
	same := len(page.Items) == len(want)
	for i := 0; same && i < len(want); i++ {
		same = equal(page.Items[i], want[i])
	}
	if !same {
		return fmt.Errorf("the log has %s, not %s", list(page.Items), list(want))
	}
	return nil
}

func equal(a, b statesync.Item) bool {
	return a.Version == b.Version && a.Key == b.Key && a.Deleted == b.Deleted && bytes.Equal(a.Value, b.Value) &&
		(a.Value == nil) == (b.Value == nil)
}

func list(items []statesync.Item) string {
	var text bytes.Buffer
	for _, i := range items {
		fmt.Fprintf(&text, "[%d %s deleted=%t %.60s]", i.Version, i.Key, i.Deleted, i.Value)
	}
	return text.String()
}

// item is change at version.
func item(version uint64, c statesync.Change) statesync.Item {
	return statesync.Item{Version: version, Key: c.Key, Deleted: c.Deleted, Value: c.Value}
}

// stays returns an error if the head of the scope is not head.
func stays(ctx context.Context, s Store, scope string, head uint64) error {
	page, err := s.Log.Read(ctx, scope, 0, 1)
	if err == nil && page.Head != head {
		err = fmt.Errorf("the head of %s is %d, not %d", scope, page.Head, head)
	}
	return err
}
