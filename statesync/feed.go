package statesync

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
)

// feed is the one reader of a scope's log. It keeps the scope's state in memory
// and any number of streams read it from there.
type feed struct {
	log   Log
	scope string
	page  int

	mu sync.RWMutex
	// state is what was read so far: complete if read is its Head.
	state state
	read  uint64
	// mark is that of the last page's head. The next page must come from a log
	// that has it.
	mark Mark
	// history counts the times that it did not: what was read before is of a
	// history that the log has lost, also when the epoch is the same.
	history uint64
	// given are marks that the log is known to have, and order the versions of
	// them, the oldest first.
	given map[uint64]string
	order []uint64
	// err is why the log cannot be read at the moment.
	err error
	// changed is closed, and replaced, when anything above changes.
	changed chan struct{}

	// asking holds a token while a stream asks the log for a mark: of a thousand
	// that come back with the same, one asks.
	asking chan struct{}
	// hasten holds at most one call for the log to be read again soon, after it
	// could not be.
	hasten chan struct{}

	// The rest is guarded by the server's mutex: how many streams there are, and
	// how many there ever were.
	streams int
	joined  uint64
	stop    context.CancelFunc
}

// errBroken is a log that does not keep what Log promises.
var errBroken = errors.New("log breaks its promise")

// run reads the log until ctx ends. It returns ctx.Err() or the error of the log.
func (f *feed) run(ctx context.Context) error {
	for {
		f.mu.RLock()
		at, read, mark := f.state.Position, f.read, f.mark
		f.mu.RUnlock()
		page, err := f.log.Read(ctx, f.scope, read, f.page)
		if err != nil {
			return err
		}
		lost, err := f.lost(ctx, page, at, read, mark)
		if err != nil {
			return err
		}
		if lost {
			f.forget(page.Position)
			continue
		}
		again, err := f.take(page, at)
		if err != nil {
			return err
		}
		if again {
			continue
		}
		if err := f.log.Wait(ctx, f.scope, page.Position); err != nil {
			return err
		}
	}
}

// take adds page to the state and reports whether to read on at once.
func (f *feed) take(page Page, at Position) (again bool, err error) {
	// What was read is worth nothing in another epoch, nor once tombstones
	// above it are forgotten that were there when the reading began.
	if at.Epoch != "" && page.Epoch != at.Epoch || page.Floor > at.Floor && f.read > 0 && f.read < page.Floor {
		f.update(func() { f.clear(page.Position) })
		return true, nil
	}
	through := page.Head
	if page.More {
		if len(page.Items) == 0 {
			return false, fmt.Errorf("%w: a page without items has more", errBroken)
		}
		through = page.Items[len(page.Items)-1].Version
	}
	entries := make([]*entry, len(page.Items))
	last := f.read
	for n, i := range page.Items {
		if i.Version <= last || i.Version > page.Head {
			return false, fmt.Errorf("%w: version %d of %s after %d, with head %d", errBroken, i.Version, i.Key, last, page.Head)
		}
		last = i.Version
		entries[n] = encoded(i)
	}
	// The change that made the head is the newest of its key, so it is there
	// unless it was forgotten. A store that lost rows shows here.
	if !page.More && page.Head > max(last, page.Floor) {
		return false, fmt.Errorf("%w: head is %d, but nothing follows version %d", errBroken, page.Head, last)
	}
	if page.Head < f.read {
		return false, fmt.Errorf("%w: head fell from %d to %d in one epoch", errBroken, f.read, page.Head)
	}
	f.update(func() {
		for _, e := range entries {
			f.state.put(e)
		}
		if page.Floor > f.state.Floor {
			f.state.forget(page.Floor)
		}
		f.state.Position, f.read, f.err = page.Position, through, nil
		if f.mark != page.Mark {
			f.mark = page.Mark
			f.give(page.Mark)
		}
	})
	return page.More, nil
}

// lost reports whether page comes from a log that has lost the head of the page
// before it, which had the mark. A head that is below it is an error and no proof:
// the page may come from a store that lags.
func (f *feed) lost(ctx context.Context, page Page, at Position, read uint64, mark Mark) (bool, error) {
	switch {
	case mark == (Mark{}), page.Epoch != at.Epoch:
		return false, nil
	case page.Head < mark.Version:
		return false, fmt.Errorf("%w: head fell from %d to %d in one epoch", errBroken, mark.Version, page.Head)
	case page.Floor > mark.Version:
		// The mark is no longer kept. What was read below the floor is read anew in
		// any case.
		return read >= page.Floor, nil
	case page.Head == mark.Version:
		return page.Mark != mark, nil
	case read == mark.Version:
		return page.Since != mark, nil
	}
	has, err := marked(ctx, f.log, f.scope, mark)
	return !has, err
}

// forget drops all that was read, as of a history that the log has lost.
func (f *feed) forget(at Position) {
	f.update(func() {
		f.clear(at)
		f.history++
	})
}

// clear drops all that was read. The mutex is held.
func (f *feed) clear(at Position) {
	// With the head: what is not read yet is there.
	f.state, f.read, f.mark = state{Position: Position{Epoch: at.Epoch, Head: at.Head, Floor: at.Floor}}, 0, Mark{}
	f.given, f.order = nil, nil
}

// maxGiven bounds the marks that a feed remembers. Readers that come back have
// one of the newest.
const maxGiven = 4096

// give remembers a mark that the log has. The mutex is held.
func (f *feed) give(m Mark) {
	if m == (Mark{}) || f.given[m.Version] == m.ID {
		return
	}
	if f.given == nil {
		f.given = map[uint64]string{}
	}
	if _, known := f.given[m.Version]; !known {
		f.order = append(f.order, m.Version)
	}
	f.given[m.Version] = m.ID
	if len(f.order) > maxGiven {
		delete(f.given, f.order[0])
		f.order = f.order[1:]
	}
}

// has reports whether the log has the mark. A mark that it is known to have costs
// no query.
func (f *feed) has(ctx context.Context, m Mark) (bool, error) {
	known := func() (known bool, history uint64) {
		f.mu.RLock()
		defer f.mu.RUnlock()
		return f.given[m.Version] == m.ID, f.history
	}
	if ok, _ := known(); ok {
		return true, nil
	}
	select {
	case f.asking <- struct{}{}:
		defer func() { <-f.asking }()
	case <-ctx.Done():
		return false, ctx.Err()
	}
	ok, history := known()
	if ok {
		return true, nil
	}
	has, err := marked(ctx, f.log, f.scope, m)
	if has && err == nil {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.history == history {
			f.give(m)
		}
	}
	return has, err
}

func (f *feed) update(do func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	do()
	close(f.changed)
	f.changed = make(chan struct{})
}

// fail informs the streams that the log cannot be read. What was read stays: it
// is no less true, but no reader is told that it is complete.
func (f *feed) fail(err error) { f.update(func() { f.err = err }) }

// view is what a stream sees of a feed at one moment.
type view struct {
	Position
	entries []*entry
	// through is the version up to which the entries are complete.
	through uint64
	// more reports that there is more than that.
	more bool
	// mark is that of through, if more is false and it is known.
	mark Mark
	// history is that of the feed.
	history uint64
	total   tally
	err     error
	changed <-chan struct{}
}

// look returns what follows version. A stream that reads from zero has nothing
// to lose by a floor that rises meanwhile; one that is above zero has.
func (f *feed) look(version uint64, limit, size int, want filter) view {
	f.mu.RLock()
	defer f.mu.RUnlock()
	v := view{Position: f.state.Position, history: f.history, err: f.err, changed: f.changed}
	if version < f.read {
		v.entries, v.through, v.more = f.state.page(version, limit, size, want)
	} else {
		v.through = version
	}
	// The log's head is known before all up to it is read, and a reader that
	// comes from another server may know more than this one.
	v.through = min(v.through, max(f.read, version))
	v.more = v.more || f.read < max(v.Head, version)
	if !v.more {
		v.total = f.state.total(want)
		if f.mark.Version == v.through {
			v.mark = f.mark
		}
	}
	return v
}

// resumable returns nil if a stream can go on from cursor: the log has its mark.
// What seems to be from the future may be from another server of the same log,
// which read it a moment earlier: then the log itself is asked.
func (f *feed) resumable(ctx context.Context, at Position, cursor Cursor) error {
	err := at.Resumable(cursor)
	if fromTheFuture(err) {
		page, readErr := f.log.Read(ctx, f.scope, cursor.Version, 1)
		if readErr != nil {
			return ended(readErr)
		}
		at, err = page.Position, page.Resumable(cursor)
	}
	if cursor.Mark == (Mark{}) || cursor.Version == 0 || err != nil && !fromTheFuture(err) {
		return err
	}
	// The log is asked also for a cursor above its head: it may learn from that.
	has, markErr := f.has(ctx, cursor.Mark)
	switch {
	case markErr != nil:
		return ended(markErr)
	case err == nil && !has:
		return &ResyncError{Reason: OtherHistory, Cursor: cursor, Position: at}
	}
	return err
}

func fromTheFuture(err error) bool {
	var resync *ResyncError
	return errors.As(err, &resync) && resync.Reason == FromTheFuture
}

// encoded makes an entry with the item as one line of JSON. The value was
// checked when it was committed, so only line breaks are looked for.
func encoded(i Item) *entry {
	if i.Value != nil && bytes.IndexByte(i.Value, '\n') >= 0 {
		var line bytes.Buffer
		if json.Compact(&line, i.Value) == nil {
			i.Value = line.Bytes()
		}
	}
	line := make([]byte, 0, 64+len(i.Collection)+len(i.ID)+len(i.Value))
	line = append(line, `{"version":`...)
	line = strconv.AppendUint(line, i.Version, 10)
	line = append(line, `,"collection":`...)
	line = appendString(line, i.Collection)
	line = append(line, `,"id":`...)
	line = appendString(line, i.ID)
	if i.Deleted {
		line = append(line, `,"deleted":true`...)
	}
	if i.Value != nil {
		line = append(line, `,"value":`...)
		from := len(line)
		line = append(line, i.Value...)
		// One copy of the value, not two, for as long as the entry lives.
		i.Value = line[from:len(line):len(line)]
	}
	return &entry{Item: i, encoded: append(line, '}')}
}

func appendString(line []byte, text string) []byte {
	quoted, err := json.Marshal(text)
	if err != nil {
		// Strings cannot fail.
		return strconv.AppendQuote(line, text)
	}
	return append(line, quoted...)
}
