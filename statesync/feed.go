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
	// state is the state read so far: complete if read is its Head.
	state state
	read  uint64
	// mark is the mark of the last page's head. The next page must come from a log that
	// has it.
	mark Mark
	// history counts the pages that came from a log without it. State read before such
	// a page belongs to a history that the log has lost, even if the epoch is the same.
	history uint64
	// knownMarks are marks that the log has, by version; markVersions are their versions,
	// oldest first.
	knownMarks   map[uint64]string
	markVersions []uint64
	// err is the reason why the log cannot be read at the moment.
	err error
	// changed is closed, and replaced, when anything above changes.
	changed chan struct{}

	// asking holds a token while a stream asks the log for a mark: of a thousand
	// streams that come back with the same mark, one asks.
	asking chan struct{}
	// hasten holds at most one request to retry a failed log soon.
	hasten chan struct{}
	// onRead is the server's OnRead, or nil.
	onRead func(scope string, page Page)

	// The server's mutex guards the rest: the number of streams now, and ever.
	streams int
	joined  uint64
	stop    context.CancelFunc
}

// errBroken is a log that breaks the contract of Log.
var errBroken = errors.New("log breaks its contract")

// run reads the log until ctx ends. It returns ctx.Err() or the error of the log.
func (f *feed) run(ctx context.Context) error {
	listed := false // everything was read once, so what comes is new
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
			listed = false
			continue
		}
		again, err := f.take(page, at)
		if err != nil {
			return err
		}
		if listed = listed && (f.read > 0 || !again); listed && len(page.Items) > 0 && f.onRead != nil {
			f.onRead(f.scope, page)
		}
		if again {
			continue
		}
		listed = true
		if err := f.log.Wait(ctx, f.scope, page.Position); err != nil {
			return err
		}
	}
}

// take adds page to the state and reports whether to read on at once.
func (f *feed) take(page Page, at Position) (again bool, err error) {
	// State read in one epoch is discarded when the epoch changes, and when tombstones
	// above it, which existed when the reading began, have been pruned.
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
	// The change that made the head is the newest of its key, so the log has it unless
	// it was pruned. This finds a store that has lost rows.
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
// before it, which had the mark. A lower head is an error and no proof: the page may
// come from a store that lags.
func (f *feed) lost(ctx context.Context, page Page, at Position, read uint64, mark Mark) (bool, error) {
	switch {
	case mark == (Mark{}), page.Epoch != at.Epoch:
		return false, nil
	case page.Head < mark.Version:
		return false, fmt.Errorf("%w: head fell from %d to %d in one epoch", errBroken, mark.Version, page.Head)
	case page.Floor > mark.Version:
		// The mark is no longer kept. State below the floor is read again in any case.
		return read >= page.Floor, nil
	case page.Head == mark.Version:
		return page.Mark != mark, nil
	case read == mark.Version:
		return page.Since != mark, nil
	}
	has, err := marked(ctx, f.log, f.scope, mark)
	return !has, err
}

// forget drops the state, because it belongs to a history that the log has lost.
func (f *feed) forget(at Position) {
	f.update(func() {
		f.clear(at)
		f.history++
	})
}

// clear drops the state. The mutex is held.
func (f *feed) clear(at Position) {
	// The head stays: it shows that there is state to read.
	f.state, f.read, f.mark = state{Position: Position{Epoch: at.Epoch, Head: at.Head, Floor: at.Floor}}, 0, Mark{}
	f.knownMarks, f.markVersions = nil, nil
}

// maxGiven bounds the marks that a feed remembers. Readers that come back have
// one of the newest.
const maxGiven = 4096

// give records a mark that the log has. The mutex is held.
func (f *feed) give(m Mark) {
	if m == (Mark{}) || f.knownMarks[m.Version] == m.ID {
		return
	}
	if f.knownMarks == nil {
		f.knownMarks = map[uint64]string{}
	}
	if _, known := f.knownMarks[m.Version]; !known {
		f.markVersions = append(f.markVersions, m.Version)
	}
	f.knownMarks[m.Version] = m.ID
	if len(f.markVersions) > maxGiven {
		delete(f.knownMarks, f.markVersions[0])
		f.markVersions = f.markVersions[1:]
	}
}

// has reports whether the log has the mark. A known mark costs no query.
func (f *feed) has(ctx context.Context, m Mark) (bool, error) {
	known := func() (known bool, history uint64) {
		f.mu.RLock()
		defer f.mu.RUnlock()
		return f.knownMarks[m.Version] == m.ID, f.history
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

// fail informs the streams that the log cannot be read. The state stays; streams stop
// reporting it as complete.
func (f *feed) fail(err error) { f.update(func() { f.err = err }) }

// view is a stream's snapshot of a feed.
type view struct {
	Position
	entries []*entry
	// through is the version up to which the entries are complete.
	through uint64
	// more reports that there is more above through.
	more bool
	// mark is the mark of through, if more is false and the mark is known.
	mark Mark
	// history is the feed's.
	history uint64
	total   tally
	err     error
	changed <-chan struct{}
}

// look returns the entries after version. A floor that rises meanwhile does not harm a
// stream that reads from zero, but one that is above zero.
func (f *feed) look(version uint64, limit, size int, want filter) view {
	f.mu.RLock()
	defer f.mu.RUnlock()
	v := view{Position: f.state.Position, history: f.history, err: f.err, changed: f.changed}
	if version < f.read {
		v.entries, v.through, v.more = f.state.page(version, limit, size, want)
	} else {
		v.through = version
	}
	// The head is known before all entries up to it are read, and a reader that comes
	// from another server may be ahead of this one.
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

// resumable returns nil if a stream can continue from cursor: the log has its mark. A
// cursor ahead of this server may come from another server of the same log, which read
// it a moment earlier: then the log itself is asked.
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
	// The log is asked also for a cursor above its head: a store may detect a loss by
	// it.
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
