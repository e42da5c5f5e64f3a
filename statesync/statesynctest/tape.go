package statesynctest

import (
	"fmt"
	"maps"
	"slices"

	"github.com/seed-9e1ffd66/trueup/statesync"
)

// Tape checks the frames of one stream against the contract of [statesync.Frame]: it
// keeps every item, and compares count and digest whenever the stream states them. The
// zero Tape is at the beginning of a stream that lists everything; a tape for a stream
// that resumes begins with the reader's state.
type Tape struct {
	// Cursor is the position of the stream.
	Cursor statesync.Cursor
	// Items are the newest item of each key.
	Items map[statesync.Key]statesync.Item
	// Resumed reports that the stream began at Cursor, not with a list.
	Resumed bool
	// Headed is set once the header has come, Synced once the reader has everything,
	// and Consistent while it has no partial commit.
	Headed, Synced, Consistent bool
}

// Resume returns a tape for a stream that continues from t.
func (t *Tape) Resume() *Tape {
	return &Tape{Cursor: t.Cursor, Items: maps.Clone(t.Items), Resumed: true, Synced: true}
}

// Add checks one frame, and returns an error that describes what is wrong with it.
func (t *Tape) Add(f statesync.Frame) error {
	if err := t.place(f); err != nil {
		return fmt.Errorf("%s frame from %d to %d: %w", f.Type, f.After, f.Version, err)
	}
	last := f.After
	for _, i := range f.Items {
		if i.Version <= last || i.Version > f.Version {
			return fmt.Errorf("%s frame from %d to %d: ordered: version %d comes after %d", f.Type, f.After, f.Version, i.Version, last)
		}
		last = i.Version
		if old, ok := t.Items[i.Key]; ok && i.Version <= old.Version {
			return fmt.Errorf("per-key order: %s at version %d comes after %d", i.Key, i.Version, old.Version)
		}
		if i.Deleted && i.Value != nil || !i.Deleted && i.Value == nil {
			return fmt.Errorf("tombstone: %s at version %d is deleted: %t, and has a value: %t", i.Key, i.Version, i.Deleted, i.Value != nil)
		}
		t.Items[i.Key] = i
	}
	if f.Mark != (statesync.Mark{}) {
		if f.Mark.Version != f.Version || f.More {
			return fmt.Errorf("%s frame from %d to %d: mark: is %s", f.Type, f.After, f.Version, f.Mark)
		}
		t.Cursor.Mark = f.Mark
	}
	t.Cursor.Version = f.Version
	t.Consistent = !f.More && t.Synced
	if f.Type == statesync.FrameSynced {
		t.Synced, t.Consistent = true, true
	}
	if t.Consistent && f.Type != statesync.FrameHeader {
		digest, count := statesync.DigestOf(slices.Collect(maps.Values(t.Items)))
		if count != f.Count || digest != f.Digest {
			return fmt.Errorf(
				"reliable: at version %d the reader has %d items with digest %s, the %s frame states %d with %s",
				f.Version,
				count,
				digest,
				f.Type,
				f.Count,
				f.Digest,
			)
		}
	}
	return nil
}

// place checks that a frame may come at this point.
func (t *Tape) place(f statesync.Frame) error {
	if t.Items == nil {
		t.Items = map[statesync.Key]statesync.Item{}
	}
	switch {
	case f.Epoch == "":
		return fmt.Errorf("epoch: is empty")
	case f.Type == statesync.FrameHeader:
		if t.Headed {
			return fmt.Errorf("header: comes twice")
		}
		if t.Resumed && f.Epoch != t.Cursor.Epoch {
			return fmt.Errorf("epoch: is %q in a stream that resumes %q", f.Epoch, t.Cursor.Epoch)
		}
		if f.Version != t.Cursor.Version || f.Heartbeat <= 0 || len(f.Items) > 0 {
			return fmt.Errorf(
				"header: is at %d instead of %d, with heartbeat %v and %d items",
				f.Version,
				t.Cursor.Version,
				f.Heartbeat,
				len(f.Items),
			)
		}
		t.Headed, t.Cursor.Epoch = true, f.Epoch
		return nil
	case !t.Headed:
		return fmt.Errorf("header: has not come")
	case f.Epoch != t.Cursor.Epoch:
		return fmt.Errorf("epoch: changes to %q from %q within a stream", f.Epoch, t.Cursor.Epoch)
	case f.After != t.Cursor.Version || f.Version < f.After:
		return fmt.Errorf("resumable: does not follow version %d", t.Cursor.Version)
	case f.Head < f.Version:
		return fmt.Errorf("head: %d is below the version", f.Head)
	}
	switch f.Type {
	case statesync.FrameItems:
		if t.Synced {
			return fmt.Errorf("synced: items come after the end of the list")
		}
	case statesync.FrameChanges:
		if !t.Synced {
			return fmt.Errorf("synced: changes come before the end of the list")
		}
	case statesync.FrameSynced:
		if t.Synced || f.More || f.Version != f.After {
			return fmt.Errorf("synced: comes twice, with more to come, or moves the cursor")
		}
	case statesync.FrameBookmark:
		if len(f.Items) > 0 {
			return fmt.Errorf("bookmark: carries items")
		}
	default:
		return fmt.Errorf("type: is unknown")
	}
	return nil
}
