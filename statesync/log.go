package statesync

import (
	"context"
	"errors"
	"fmt"
)

// Log is a change log as a [Server] reads it. [Memory] is one; package sqlstore
// is one on a database. Package statesynctest checks whether an implementation fulfils
// this contract.
//
// A scope's log holds the newest state of each key, tombstones included, each
// at the version of its last change. Versions of a scope are consecutive: the
// n-th committed change has version n, so a head that rises by more or less than the
// number of committed changes is a defect. All changes of one commit become readable at
// once. The log has the item at the head unless the floor has reached it: if it is
// missing, the log has lost rows.
//
// A log that can lose changes that it has streamed, such as by a restore from a backup,
// should leave [Marks].
//
// Implementations are safe for concurrent use.
type Log interface {
	// Read returns the items of scope whose version is above after, in
	// ascending order, at most limit of them, and the log's position, all as of one
	// moment. It returns ErrUnknownScope, wrapped, for a scope that was never made, and
	// no error for an empty one. A limit below 1 is an error.
	Read(ctx context.Context, scope string, after uint64, limit int) (Page, error)

	// Wait returns nil as soon as the position may differ from at: the head is above
	// at.Head, or the epoch, the floor or the mark differs. It may return early. It
	// returns ctx.Err() when ctx ends, ErrUnknownScope, wrapped, for a scope that does
	// not exist, and another error once it can no longer confirm the log's position: a
	// reader must not mistake an old head for the newest. A store may need a goroutine
	// of its own for that; see its documentation.
	Wait(ctx context.Context, scope string, at Position) error
}

// Position is the state of the log of one scope.
type Position struct {
	// Epoch names one unbroken history. It changes with a restore from a backup, a
	// failover that lost commits, or a replacement: versions of different epochs must
	// never be compared.
	Epoch string `json:"epoch"`
	// Head is the version of the newest change, 0 if there was none.
	Head uint64 `json:"head"`
	// Floor is the oldest version from which a reader can resume: tombstones up to it
	// may have been pruned. 0 if none were.
	Floor uint64 `json:"floor"`
	// Mark is the mark of the head. Zero if the log has no marks.
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
	// Since is the log's mark at the version after which the page was read, as of the
	// same moment. Zero if there is none.
	Since Mark
}

// Cursor is a reader's position: everything up to Version, in Epoch. The zero
// Cursor asks for everything.
type Cursor struct {
	Epoch   string `json:"epoch,omitempty"`
	Version uint64 `json:"version"`
	// Floor, within a list, is the log's floor when the list began. It is 0 for a
	// reader that has finished its list.
	Floor uint64 `json:"floor,omitempty"`
	// Mark is the newest mark that the reader has seen. The log must have it for
	// the cursor to be resumed. Zero if the reader has seen none: then only the epoch
	// and the head can reveal a lost history.
	Mark Mark `json:"mark,omitzero"`
}

// String returns version@epoch.
func (c Cursor) String() string { return fmt.Sprintf("%d@%s", c.Version, c.Epoch) }

// Resumable returns nil if a log at p has everything after c, and a [ResyncError] if
// the reader must start again from the zero Cursor. For the zero Cursor it returns nil.
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
	// ErrUnknownScope is a scope that does not exist, or that the reader may not read.
	// It proves nothing about the scope's content: a reader that gets it deletes
	// nothing.
	ErrUnknownScope = errors.New("unknown scope")
	// ErrUnauthenticated is a credential that is missing, wrong or revoked, or that a proxy
	// does not let pass.
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
	// OtherHistory is a cursor whose mark the log does not have: commits that the
	// reader has seen were lost, as by a restore, and their versions were assigned
	// again. It is also a mark that is too old and was pruned.
	OtherHistory ResyncReason = "other-history"
)

// ResyncError reports that the log no longer has the changes after a cursor. The reader
// starts again with the zero Cursor. Until that has synced, it does not know which keys
// are absent.
type ResyncError struct {
	Reason   ResyncReason
	Cursor   Cursor
	Position Position
}

// Error names the cursor and the log's position.
func (e *ResyncError) Error() string {
	return fmt.Sprintf(
		"%v: %s: cursor %s, log %d@%s with floor %d",
		ErrResync,
		e.Reason,
		e.Cursor,
		e.Position.Head,
		e.Position.Epoch,
		e.Position.Floor,
	)
}

// Unwrap returns ErrResync.
func (e *ResyncError) Unwrap() error { return ErrResync }
