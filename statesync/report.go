package statesync

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"
)

// Report is a reader's report: how far it has applied the log, and a body of the
// program's own.
type Report struct {
	// Reader is the identity of the reader, unique in its scope.
	Reader string `json:"reader"`
	// Session rises with every start of the reader, such as the nanoseconds since 1970.
	Session uint64 `json:"session"`
	// Sequence rises with every report of a session.
	Sequence uint64 `json:"sequence"`
	// Applied is the acknowledged cursor: everything up to it is applied.
	Applied Cursor `json:"applied"`
	// Body is one JSON value of at most [MaxValue] bytes, or nil.
	Body json.RawMessage `json:"body,omitempty"`
}

// Validate returns an error, an ErrInvalid, that names every field of r out of
// its limits, and nil if a store can take r.
func (r Report) Validate() error {
	errs := []error{validName("reader", r.Reader)}
	if r.Session == 0 {
		errs = append(errs, errors.New("session: must be above 0"))
	}
	for field, n := range map[string]uint64{"session": r.Session, "sequence": r.Sequence, "applied.version": r.Applied.Version} {
		if n > math.MaxInt64 {
			errs = append(errs, fmt.Errorf("%s: is %d, above %d", field, n, math.MaxInt64))
		}
	}
	if r.Applied.Epoch != "" {
		errs = append(errs, validName("applied.epoch", r.Applied.Epoch))
	}
	if err := r.Applied.Mark.Validate(); err != nil {
		errs = append(errs, fmt.Errorf("applied.%w", err))
	}
	switch {
	case r.Body == nil:
	case len(r.Body) > MaxValue:
		errs = append(errs, fmt.Errorf("body: has %d bytes, more than %d", len(r.Body), MaxValue))
	case !json.Valid(r.Body):
		errs = append(errs, errors.New("body: must be one JSON value"))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("%w: report: %w", ErrInvalid, err)
	}
	return nil
}

// After reports whether r was made after other by the same reader, whatever the order
// of their arrival.
func (r Report) After(other Report) bool {
	if r.Session != other.Session {
		return r.Session > other.Session
	}
	return r.Sequence > other.Sequence
}

// Reader is the last report of a reader.
type Reader struct {
	Report
	// At is when the report came in, by the clock of the store.
	At time.Time
}

// Alive reports whether the reader's lease of the given length still runs at now. The
// state of a reader whose lease has expired is unknown.
func (r Reader) Alive(now time.Time, lease time.Duration) bool {
	return now.Sub(r.At) < lease
}

// Readers stores the reports of readers. A store that implements it beside [Log] keeps
// tombstones until the readers that are alive have applied them.
type Readers interface {
	// Report stores r unless the stored report is as new or newer: then stored is false
	// and nothing changes. It returns ErrUnknownScope, wrapped, for a scope that does
	// not exist. The log was restored if it once made the reader's mark and no longer
	// has it, or if two readers have applied more than the log of their epoch has: a
	// store may begin another epoch then.
	Report(ctx context.Context, scope string, r Report) (stored bool, err error)
	// Readers returns the last report of every reader of scope, sorted by
	// Reader.
	Readers(ctx context.Context, scope string) ([]Reader, error)
}

// Horizon returns the greatest version up to which tombstones of a log at p may
// be forgotten: every reader that is alive has applied them. A reader of another epoch
// must start again in any case, so it holds back nothing.
func Horizon(p Position, readers []Reader, now time.Time, lease time.Duration) uint64 {
	horizon := p.Head
	for _, r := range readers {
		if r.Alive(now, lease) && r.Applied.Epoch == p.Epoch {
			horizon = min(horizon, r.Applied.Version)
		}
	}
	return max(horizon, p.Floor)
}
