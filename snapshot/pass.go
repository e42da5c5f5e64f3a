package snapshot

import (
	"errors"
	"time"
)

// ErrStale is wrapped by the error of a [Pass] that recorded nothing, because the view
// is not proven to be current.
var ErrStale = errors.New("view is not current")

// Source is what the records of a [Recorder] come from.
type Source interface {
	// Seen returns when the view was last proven to be current: the time of the last
	// event or bookmark of a watch, say, or of a whole list. Zero: it is not complete.
	// It must not block.
	Seen() time.Time
}

// Pass is the account of one pass of a [Recorder]. The numbers are of records, and of
// this pass alone.
type Pass struct {
	// At is the instant, in UTC.
	At time.Time
	// Collected were recorded at that instant.
	Collected int
	// Accepted and Duplicates were delivered, records of earlier instants included.
	Accepted, Duplicates int
	// Rejected can never be delivered: the sink rejected or refused them, they could
	// not be encoded, or are too large.
	Rejected int
	// Lost were never delivered: not taken by the sink, without a spool; or dropped
	// from the spool for its bounds, or because the disk damaged them, where a stretch
	// that cannot be read counts as one.
	Lost int
	// Spooled are on disk after the pass, and wait for delivery.
	Spooled int
	// SpoolBytes is the size of the spool on disk after the pass.
	SpoolBytes int64
	// Missed is the number of instants since the pass before that had no pass: the
	// process was suspended, or Collect took longer than a period.
	Missed int
	// Rejections are the reasons of the sink, of at most 100 records.
	Rejections []Rejection
	// Err is what went wrong, nil for nothing. It wraps [ErrStale] if nothing was
	// recorded because the view is stale; the instant is then tried again, and has a
	// second pass if that succeeds.
	Err error

	recorded bool
	early    bool // the view was not complete yet
}

// maxRejections bounds the Rejections of a Pass.
const maxRejections = 100

func (p *Pass) reject(list []Rejection) {
	p.Rejected += len(list)
	p.Rejections = append(p.Rejections, list[:min(len(list), maxRejections-len(p.Rejections))]...)
}

func (p *Pass) failed(err error) { p.Err = errors.Join(p.Err, err) }
