package statesync

import (
	"context"
	"time"
)

// Source is where frames come from: a [Server] in the same process, a [Client]
// on the other side of a network, or another transport's client.
type Source interface {
	// Watch calls receive with the frames of one stream, one after another,
	// until the stream ends. It always returns an error with the reason:
	//
	//   - the error that receive returned: the reader has ended the stream;
	//   - an EndError: the other side ended it, and the reader may come back;
	//   - ErrResync, ErrUnknownScope, ErrUnauthenticated or ErrInvalid, wrapped;
	//   - ctx.Err();
	//   - anything else: a failure that may be temporary.
	//
	// The frame is shared and must not be changed. Its slice of items is valid only
	// until receive returns.
	Watch(ctx context.Context, w Watch, receive func(Frame) error) error
}

// Watch asks for one stream.
type Watch struct {
	// Scope is the scope to read. Required.
	Scope string
	// Cursor is the reader's position. The zero Cursor asks for everything.
	Cursor Cursor
	// Collections are the collections to read. None means all.
	Collections []string
}

// FrameType is the meaning of a Frame.
type FrameType string

// The types of frames, in the order of a stream.
const (
	// FrameHeader begins every stream. It reports the log's position and how often to
	// expect a frame.
	FrameHeader FrameType = "header"
	// FrameItems carries a part of the whole state, in a stream that began
	// with the zero Cursor and has not synced. Keys that were not sent yet are unknown,
	// not absent.
	FrameItems FrameType = "items"
	// FrameSynced ends the items: the reader now has everything up to Version, and a
	// key that it does not have is absent. This holds only if the reader has Count live
	// items with Digest.
	FrameSynced FrameType = "synced"
	// FrameChanges carries changes after the reader's cursor.
	FrameChanges FrameType = "changes"
	// FrameBookmark moves the cursor past changes that the reader does not
	// want, states what it must have, and is the heartbeat of an idle stream.
	FrameBookmark FrameType = "bookmark"
)

// Next returns the cursor from which to continue after f.
func (f Frame) Next() Cursor {
	return Cursor{Epoch: f.Epoch, Version: f.Version, Floor: f.Floor, Mark: f.Mark}
}

// Frame is one message of a stream. Each frame but the header moves the reader
// from After to Version, and After is the end of the frame before it: a frame that
// begins elsewhere proves a loss.
type Frame struct {
	Type FrameType `json:"type"`
	// Epoch is the log's epoch, the same in all frames of a stream.
	Epoch string `json:"epoch"`
	// After and Version are the reader's positions before and after the frame.
	After   uint64 `json:"after"`
	Version uint64 `json:"version"`
	// Head is the log's newest version. Head less Version is the reader's lag.
	Head uint64 `json:"head"`
	// More reports that Version is no consistent point: further parts of a commit or of
	// a list may follow.
	More bool `json:"more,omitempty"`
	// Floor, in a page with more, goes into the cursor of the next.
	Floor uint64 `json:"floor,omitempty"`
	// Heartbeat, in the header, is the max time between two frames, in nanoseconds. A
	// stream silent for twice as long is dead.
	Heartbeat time.Duration `json:"heartbeat,omitempty"`
	// Count and Digest are the number and the digest of the live items in the requested
	// collections at Version, in synced and wherever else Version is a consistent
	// point. A reader finds a lost item at once.
	Count  int    `json:"count,omitempty"`
	Digest Digest `json:"digest,omitzero"`
	// Mark is the log's mark at Version, in synced and wherever else Version is a
	// consistent point. It goes into the cursor. Zero if the log has no marks.
	Mark Mark `json:"mark,omitzero"`
	// Items, in items and changes, ascend by version.
	Items []Item `json:"items,omitempty"`
}

// EndReason is why a server ended a healthy stream.
type EndReason string

// The reasons of an EndError.
const (
	// EndOfAge is a stream that reached MaxAge. Reconnecting is routine then, so it
	// also works after a failure.
	EndOfAge EndReason = "age"
	// EndOfServer is a server that shuts down.
	EndOfServer EndReason = "shutdown"
	// EndOfLog is a log that cannot be read at the moment.
	EndOfLog EndReason = "log"
)

// EndError is a stream that the server ended with a reason.
type EndError struct {
	Reason EndReason
	// Cause is the server's description of it, empty if it gave none.
	Cause error
}

// Error returns why the stream ended.
func (e *EndError) Error() string {
	if e.Cause != nil {
		return "stream ended: " + string(e.Reason) + ": " + e.Cause.Error()
	}
	return "stream ended: " + string(e.Reason)
}

// Unwrap returns the cause.
func (e *EndError) Unwrap() error { return e.Cause }
