package stream

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"strings"

	"github.com/seed-9e1ffd66/trueup/statesync"
)

// unmarkedEpoch stands for the epoch of a server that sends none. It differs for
// each stream: versions of two such streams must not be compared.
func unmarkedEpoch() string { return unmarked + rand.Text() }

const unmarked = "unmarked-"

// Unmarked reports whether the epoch stands for a server without markers.
func Unmarked(epoch string) bool { return strings.HasPrefix(epoch, unmarked) }

// batch is the most items in a frame.
const batch = 500

// reading is one stream on its way from messages to frames.
type reading struct {
	source  *Source
	receive func(statesync.Frame) error
	// epoch is empty before the first marker. Until then items wait.
	epoch   string
	waiting []statesync.Item
	// at is where the last frame ended, last the version of the last message.
	at, last, head uint64
	// list is true until the list is complete.
	list       bool
	contents   *contents
	transcript *transcript
}

// begin sends the header, and the items that waited for it.
func (r *reading) begin(epoch string, head uint64) error {
	r.epoch, r.head = epoch, max(r.head, head)
	if err := r.receive(
		statesync.Frame{Type: statesync.FrameHeader, Epoch: epoch, After: r.at, Version: r.at, Head: r.head, Heartbeat: heartbeat},
	); err != nil {
		return err
	}
	for len(r.waiting) > 0 {
		n := min(batch, len(r.waiting))
		if err := r.send(statesync.Frame{Type: statesync.FrameItems, Version: r.waiting[n-1].Version, Items: r.waiting[:n]}); err != nil {
			return err
		}
		r.waiting = r.waiting[n:]
	}
	return nil
}

// send sends a frame that moves the reader to its version. It sets what all frames
// of the stream have in common.
func (r *reading) send(f statesync.Frame) error {
	r.head = max(r.head, f.Version)
	f.Epoch, f.After, f.Head = r.epoch, r.at, r.head
	if r.contents != nil {
		for _, i := range f.Items {
			r.contents.put(i)
		}
		// Before the reader has it: should it refuse, the two disagree, and it
		// has to list again.
		r.contents.cursor = statesync.Cursor{Epoch: r.epoch, Version: f.Version}
		if f.Type != statesync.FrameItems {
			f.Count, f.Digest = len(r.contents.live), r.contents.digest
		}
	}
	r.at = f.Version
	return r.receive(f)
}

// take deals with one message.
func (r *reading) take(e event) error {
	switch {
	case e.synced != nil:
		if err := r.transcript.same(e.synced); err != nil {
			return err
		}
		return r.mark(e.synced, e.synced.GetVersion(), true)
	case e.bookmark != nil:
		return r.mark(e.bookmark, e.bookmark.GetHead(), false)
	}
	if e.version <= r.last {
		return fmt.Errorf("%w: version %d after %d", ErrBroken, e.version, r.last)
	}
	r.last, r.source.greatest = e.version, e.version
	var items []statesync.Item
	if e.id != "" { // else it is of an unknown kind, and skipped
		r.transcript.add(e)
		items = []statesync.Item{{
			Version: e.version, Key: statesync.Key{Collection: string(r.source.Collection), ID: e.id}, Deleted: e.deleted, Value: e.value,
		}}
	}
	switch {
	case r.epoch == "":
		r.waiting = append(r.waiting, items...)
		return nil
	case r.list:
		return r.send(statesync.Frame{Type: statesync.FrameItems, Version: e.version, Items: items})
	default:
		return r.send(statesync.Frame{Type: statesync.FrameChanges, Version: e.version, Items: items})
	}
}

// anyMarker is what both markers state.
type anyMarker interface {
	GetEpoch() string
	GetVersion() uint64
	GetMark() string
}

// mark handles what all markers promise: everything up to their version was sent or
// skipped. A synced one also ends the list.
func (r *reading) mark(m anyMarker, head uint64, synced bool) error {
	r.source.marked = true
	epoch, version := m.GetEpoch(), m.GetVersion()
	var mark statesync.Mark
	if err := mark.UnmarshalText([]byte(m.GetMark())); err != nil {
		return fmt.Errorf("%w: %w", ErrBroken, err)
	}
	switch {
	case epoch == "":
		return fmt.Errorf("%w: a marker without an epoch", ErrBroken)
	case r.source.unmarked:
		r.source.unmarked = false
		return fmt.Errorf("%w: a marker, from a server that seemed to have none", ErrBroken)
	case r.epoch == "":
		if refused := r.source.refused; refused.Epoch == epoch && head >= refused.Version {
			// Only the mark differs between the two histories. The Replica must
			// forget the first before it lists the second.
			r.source.refused = statesync.Cursor{}
			return &statesync.ResyncError{Reason: statesync.OtherHistory, Cursor: refused}
		}
		if err := r.begin(epoch, head); err != nil {
			return err
		}
	case epoch != r.epoch:
		return &statesync.ResyncError{Reason: statesync.OtherEpoch, Cursor: statesync.Cursor{Epoch: r.epoch, Version: r.at}}
	}
	if version < r.last {
		return fmt.Errorf("%w: a marker at version %d after %d", ErrBroken, version, r.last)
	}
	r.last, r.head = version, max(r.head, head)
	if !r.list {
		return r.send(statesync.Frame{Type: statesync.FrameBookmark, Version: version, Mark: mark})
	}
	if version > r.at {
		if err := r.send(statesync.Frame{Type: statesync.FrameItems, Version: version}); err != nil {
			return err
		}
	}
	if !synced {
		return nil
	}
	r.list, r.source.held, r.source.refused = false, r.contents, statesync.Cursor{}
	return r.send(statesync.Frame{Type: statesync.FrameSynced, Version: version, Mark: mark})
}

// giveUpMarkers takes the server for one without markers, unless it has shown
// some.
func (r *reading) giveUpMarkers(ctx context.Context) error {
	if r.epoch != "" || r.source.marked {
		return nil // it is only slow
	}
	r.source.unmarked, r.contents = true, nil
	if r.source.Logger != nil {
		r.source.Logger.WarnContext(ctx, "server sends no markers: lists are never proven complete, absent objects are never deleted",
			slog.String("collection", string(r.source.Collection)))
	}
	return r.begin(unmarkedEpoch(), r.source.greatest)
}
