package statesync

import (
	"context"
	"errors"
	"fmt"
)

// Log is a change log as a [Server] reads it. [Memory] is one; package sqlstore
// is one on a database. Package statesynctest checks whether an implementation
// keeps what is promised here.
//
// A scope's log holds the newest state of each key, tombstones included, each
// at the version of its last change. Versions of a scope are consecutive: the
// n-th committed change has version n, so a head that rises by more than the
// changes that were committed, or by less, is a proven defect. All changes of
// one commit become readable at once. The item at the head is there unless the
// floor has reached it, so a log with a head and nothing there has lost it.
//
// A log that can lose what it has streamed, as any that is restored from a backup,
// should leave [Marks].
//
// Implementations are safe for concurrent use.
type Log interface {
	// Read returns the items of scope whose version is above after, in
	// ascending order, at most limit of them, and where the log stands, all as
	// of one moment. It returns ErrUnknownScope, wrapped, for a scope that was
	// never made, and no error for an empty one. A limit below 1 is an error.
	Read(ctx context.Context, scope string, after uint64, limit int) (Page, error)

	// Wait returns nil as soon as something may have changed since at: the
	// head is above at.Head, or the epoch, the floor or the mark is another. It
	// may return early. It returns ctx.Err() when ctx ends, ErrUnknownScope,
	// wrapped, for a scope that does not exist, and another error once it cannot
	// confirm any more where the log stands: a reader must not take an old head
	// for the newest. A store may need something of its own to run for that; see
	// there.
	Wait(ctx context.Context, scope string, at Position) error
}

// Position is where the log of one scope stands.
type Position struct {
	// Epoch names one unbroken history. It is another after a restore from a
	// backup, a failover that lost commits, or a replacement: versions of
	// different epochs must never be compared.
	Epoch string `json:"epoch"`
	// Head is the version of the newest change, 0 if there was none.
	Head uint64 `json:"head"`
	// Floor is the oldest version from which a reader can resume: tombstones
	// up to it may have been forgotten. 0 if nothing was.
	Floor uint64 `json:"floor"`
	// Mark is that of the head. Zero in a log that leaves none.
	Mark Mark `json:"mark,omitzero"`
}

// Page is one step through a scope's log.
type Page struct {
	Position
	// Items ascend by version.
	Items []Item
	// More reports that the log holds further items above the last of Items. If
	// it is false, the reader has everything up to Head.
	More bool
	// Since is the mark that the log has at the version after which the page was
	// read, as of the same moment. Zero if there is none.
	Since Mark
}

// Cursor is how far a reader got: everything up to Version, in Epoch. The zero
// Cursor asks for everything.
type Cursor struct {
	Epoch   string `json:"epoch,omitempty"`
	Version uint64 `json:"version"`
	// Floor is the log's floor when the list began of which this is the middle.
	// It is 0 for a reader that has finished its list.
	Floor uint64 `json:"floor,omitempty"`
	// Mark is the newest mark that the reader has seen. The log must have it for
	// the cursor to be resumed. Zero if the reader has seen none: then a history
	// that was lost is noticed by the epoch and the head alone.
	Mark Mark `json:"mark,omitzero"`
}

// String returns version@epoch.
func (c Cursor) String() string { return fmt.Sprintf("%d@%s", c.Version, c.Epoch) }

// Resumable returns nil if everything after c can be had from a log at p, and
// a [ResyncError] if the reader has to begin anew. The zero Cursor always can.
func (p Position) Resumable(c Cursor) error {
	switch {
	case c.Version == 0:
		return nil
	case c.Epoch != p.Epoch:
		return &ResyncError{Reason: OtherEpoch, Cursor: c, Position: p}
	case c.Version > p.Head:
		return &ResyncError{Reason: FromTheFuture, Cursor: c, Position: p}
	case c.Version < p.Floor && c.Floor < p.Floor:
		return &ResyncError{Reason: BelowFloor, Cursor: c, Position: p}
	}
	return nil
}

// Conditions that callers branch on.
var (
	// ErrUnknownScope is a scope that does not exist, or that the reader may
	// not know of. It proves nothing about what the scope should contain: a
	// reader that gets it deletes nothing.
	ErrUnknownScope = errors.New("unknown scope")
	// ErrUnauthenticated is a credential that is missing, wrong or revoked.
	ErrUnauthenticated = errors.New("unauthenticated")
	// ErrResync is in the chain of every ResyncError.
	ErrResync = errors.New("resync required")
	// ErrInvalid is a request that can never succeed as it is.
	ErrInvalid = errors.New("invalid request")
)

// ResyncReason is why a cursor cannot be resumed.
type ResyncReason string

// The reasons of a ResyncError.
const (
	OtherEpoch    ResyncReason = "other-epoch"
	FromTheFuture ResyncReason = "cursor-ahead"
	BelowFloor    ResyncReason = "below-floor"
	// OtherHistory is a cursor whose mark the log does not have: what the reader
	// has seen was lost, as by a restore, and its versions were given again. It is
	// also a mark that is too old to be kept.
	OtherHistory ResyncReason = "other-history"
)

// ResyncError reports that the changes after a cursor are no longer known.
// The reader begins anew with the zero Cursor, and until that has synced it
// does not know what is absent.
type ResyncError struct {
	Reason   ResyncReason
	Cursor   Cursor
	Position Position
}

// Error names the cursor and where the log stands.
func (e *ResyncError) Error() string {
	return fmt.Sprintf("%v: %s: cursor %s, log %d@%s with floor %d", ErrResync, e.Reason, e.Cursor, e.Position.Head, e.Position.Epoch, e.Position.Floor)
}

// Unwrap returns ErrResync.
func (e *ResyncError) Unwrap() error { return ErrResync }
