package snapshot

import (
	"context"
	"encoding/json"
	"errors"
)

// ErrRefused is wrapped by the error of a [Sink] that refuses a whole batch in a way
// that sending it again cannot cure. The records of the batch are given up.
var ErrRefused = errors.New("batch refused")

// Sink takes records to where they are kept.
type Sink interface {
	// Send delivers a batch of records, each one JSON value, and reports what became
	// of them. It must not keep them. With an error none of them counts as delivered,
	// although some may be: they are sent again if a [Spool] has them, unless the
	// error wraps [ErrRefused]. Retries within a period are the sink's.
	Send(ctx context.Context, records []json.RawMessage) (Receipt, error)
}

// Receipt is what became of the records of a batch. The three add up to their number;
// a [Recorder] takes one that does not for a failure of the sink.
type Receipt struct {
	// Accepted is the number of records that were stored.
	Accepted int
	// Duplicates is the number of records whose identity was stored before.
	Duplicates int
	// Rejected are the records that can never be stored.
	Rejected []Rejection
}

// Rejection is one record that was rejected.
type Rejection struct {
	// ID is the identity of the record, as the sink read it. It may be empty.
	ID string
	// Reason is for people.
	Reason string
}
