package statesync

import (
	"errors"
	"fmt"
	"maps"
)

// Errors of a stream that breaks the contract, as errBroken is for a log.
var (
	errChain  = errors.New("stream breaks its contract")
	errBehind = errors.New("server is behind its earlier state")
	errDigest = errors.New("state differs from the server's digest")
)

// pending is an item that waits to be handled, and its position.
type pending struct {
	Item
	at place
}

// place is a version of one history.
type place struct {
	epoch   string
	version uint64
	// history is the mirror's history when the item came.
	history uint64
}

// mirror is a reader's copy of the state of one scope. It checks every frame. It is not
// safe for concurrent use.
type mirror struct {
	// cursor is the copy's position. Its version is 0 until the first list
	// has synced.
	cursor Cursor
	items  map[Key]Item
	tally  tally
	// proven is the last consistent point, where count and digest were right.
	proven Cursor
	// pending has the newest item of each key that is not handled. An item stays
	// pending across lists: a key handled with a newer item must not end with an older
	// one.
	pending map[Key]pending
	// head is the highest known head of the log. seen is the furthest position of any
	// stream, broken ones included, and past are the earlier epochs: a server that lags
	// behind the log would send outdated state.
	head uint64
	seen Cursor
	past map[string]bool
	// newest is the version of each key's newest item in the epoch of seen. A list may
	// bring an older item first, and then the newer one again.
	newest map[Key]uint64
	// history counts the histories that the log has lost: their versions are not
	// comparable, even within one epoch.
	history uint64

	// The rest is about the stream: epoch is empty until its header has come, at is its
	// position, next is its list, nil once that has synced.
	epoch string
	at    uint64
	// partial is set inside a commit.
	next    map[Key]Item
	sum     tally
	partial bool
}

// begin prepares for a stream. A list asks for everything again; the old state stays
// until it has synced.
func (m *mirror) begin(list bool) (from Cursor) {
	m.epoch = ""
	if list || m.cursor.Version == 0 {
		m.next, m.sum = map[Key]Item{}, tally{}
		return Cursor{}
	}
	m.next = nil
	return m.cursor
}

// take adds one frame and returns the keys whose items must be handled. After an error
// the stream must end; the frames before it remain valid.
func (m *mirror) take(f Frame) (changed []Key, err error) {
	switch {
	case (f.Type == FrameHeader) != (m.epoch == ""):
		return nil, fmt.Errorf("%w: %s frame in the wrong place, header received: %t", errChain, f.Type, m.epoch != "")
	case f.Type == FrameHeader:
		return nil, m.open(f)
	case f.Epoch != m.epoch || f.After != m.at || f.Version < f.After:
		return nil, fmt.Errorf(
			"%w: %s frame from %d to %d in epoch %q, expected from %d in epoch %q",
			errChain,
			f.Type,
			f.After,
			f.Version,
			f.Epoch,
			m.at,
			m.epoch,
		)
	}
	last := f.After
	for _, i := range f.Items {
		if i.Version <= last || i.Version > f.Version {
			return nil, fmt.Errorf("%w: %s at version %d, after %d, in a frame to %d", errChain, i.Key, i.Version, last, f.Version)
		}
		last = i.Version
	}
	m.see(Cursor{Epoch: m.epoch, Version: f.Version})
	switch {
	case f.Type == FrameItems && m.next != nil:
		for _, i := range f.Items {
			replace(m.next, &m.sum, i)
			changed = m.offer(changed, i)
		}
	case f.Type == FrameSynced && m.next != nil && f.Version == f.After && !f.More:
		err = m.sync(f)
	case f.Type == FrameChanges && m.next == nil:
		for _, i := range f.Items {
			replace(m.items, &m.tally, i)
			changed = m.offer(changed, i)
		}
	case f.Type == FrameBookmark:
	default:
		err = fmt.Errorf("%w: %s frame in the wrong place, list complete: %t", errChain, f.Type, m.next == nil)
	}
	if m.partial = f.More; err == nil && m.next == nil && !f.More {
		err = agree(f, m.tally)
	}
	if err != nil {
		return changed, err
	}
	m.at, m.head = f.Version, f.Head
	if m.next == nil {
		m.cursor.Version = f.Version
		if !f.More {
			if f.Mark != (Mark{}) {
				m.cursor.Mark = f.Mark
			}
			m.proven = m.cursor
		}
	}
	return changed, nil
}

func (m *mirror) open(f Frame) error {
	if f.Epoch == m.seen.Epoch && f.Head < m.seen.Version || m.past[f.Epoch] {
		return fmt.Errorf("%w: head %d@%s, was %s: restored without a new epoch?", errBehind, f.Head, f.Epoch, m.seen)
	}
	want := m.cursor
	if m.next != nil {
		want = Cursor{Epoch: f.Epoch}
	}
	if f.Epoch == "" || f.Epoch != want.Epoch || f.Version != want.Version {
		return fmt.Errorf("%w: header at %d@%s, expected %s", errChain, f.Version, f.Epoch, want)
	}
	m.epoch, m.at, m.head = f.Epoch, f.Version, f.Head
	return nil
}

// disown prepares for a list of another history: the old state is not comparable with
// the new one, even where version and epoch are the same.
func (m *mirror) disown() {
	m.history++
	m.cursor, m.proven, m.seen, m.newest = Cursor{}, Cursor{}, Cursor{}, nil
}

func (m *mirror) see(at Cursor) {
	if m.seen.Epoch != "" && m.seen.Epoch != at.Epoch {
		if m.past == nil {
			m.past = map[string]bool{}
		}
		m.past[m.seen.Epoch] = true
		m.newest = nil
	} else {
		// A list begins below it: one that is cut must not let an older server in.
		at.Version = max(at.Version, m.seen.Version)
	}
	m.seen = at
}

// sync makes the list the state, if count and digest match the server's.
func (m *mirror) sync(f Frame) error {
	if err := agree(f, m.sum); err != nil {
		return err
	}
	for key := range m.pending {
		// A key that the list lacks is no longer desired, but there is no order to
		// delete it.
		if _, wanted := m.next[key]; !wanted {
			delete(m.pending, key)
		}
	}
	m.items, m.tally, m.next = m.next, m.sum, nil
	maps.DeleteFunc(m.newest, func(key Key, _ uint64) bool { _, wanted := m.items[key]; return !wanted })
	m.cursor = Cursor{Epoch: m.epoch}
	return nil
}

func agree(f Frame, have tally) error {
	if digest := have.digest.sealed(); f.Count != have.count || f.Digest != digest {
		return fmt.Errorf(
			"%w at version %d: %d items with digest %s, expected %d with %s",
			errDigest,
			f.Version,
			have.count,
			digest,
			f.Count,
			f.Digest,
		)
	}
	return nil
}

// offer adds the key of i to changed unless i was handled before.
func (m *mirror) offer(changed []Key, i Item) []Key {
	at := place{m.epoch, i.Version, m.history}
	if _, waits := m.pending[i.Key]; !waits && m.next != nil {
		if known, ok := m.items[i.Key]; ok && m.cursor.Epoch == m.epoch && known.Version == i.Version {
			return changed
		}
	}
	if i.Version < m.newest[i.Key] {
		return changed
	}
	if m.newest == nil {
		m.newest = map[Key]uint64{}
	}
	m.newest[i.Key] = i.Version
	if m.pending == nil {
		m.pending = map[Key]pending{}
	}
	m.pending[i.Key] = pending{i, at}
	return append(changed, i.Key)
}

// handled records that the item of key at that cursor was handled.
func (m *mirror) handled(key Key, at place) {
	if m.pending[key].at == at {
		delete(m.pending, key)
	}
}

// applied returns the cursor up to which everything is proven and handled.
func (m *mirror) applied() Cursor {
	at := m.proven
	for _, p := range m.pending {
		if p.at.epoch == at.Epoch && p.Version <= at.Version {
			at.Version = p.Version - 1
		}
	}
	return at
}

func replace(items map[Key]Item, t *tally, i Item) {
	if old, ok := items[i.Key]; ok && !old.Deleted {
		t.count--
		t.digest.remove(old)
	}
	items[i.Key] = i
	if !i.Deleted {
		t.count++
		t.digest.add(i)
	}
}
