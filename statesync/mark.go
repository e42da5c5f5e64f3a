package statesync

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Mark names one point of a log's history: the version at which a commit, or a batch of
// commits, ended, and a random ID. A log that was restored, or that has lost its newest
// commits, assigns those versions again with other IDs. A cursor whose mark the log
// does not have therefore belongs to another history, whatever its version and epoch. A
// mark is like a term beside an index in Raft.
//
// A log without marks has the zero Mark.
type Mark struct {
	// Version is the last version of the commit or batch.
	Version uint64
	// ID is 1 to 64 letters, digits, or one of "_-".
	ID string
}

// maxMarkID bounds the ID of a Mark, in bytes.
const maxMarkID = 64

// String returns version-id, and an empty string for the zero Mark.
func (m Mark) String() string {
	if m == (Mark{}) {
		return ""
	}
	return strconv.FormatUint(m.Version, 10) + "-" + m.ID
}

// MarshalText returns the text of String.
func (m Mark) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// UnmarshalText parses the text of MarshalText. It returns ErrInvalid, wrapped,
// for anything else.
func (m *Mark) UnmarshalText(text []byte) error {
	if len(text) == 0 {
		*m = Mark{}
		return nil
	}
	number, id, ok := strings.Cut(string(text), "-")
	version, err := strconv.ParseUint(number, 10, 64)
	read := Mark{Version: version, ID: id}
	if !ok || err != nil || version == 0 {
		return fmt.Errorf("%w: mark: %q must be a version and an ID", ErrInvalid, text)
	}
	if err := read.Validate(); err != nil {
		return err
	}
	*m = read
	return nil
}

// Validate returns an ErrInvalid if m is neither zero nor within the limits of
// its fields.
func (m Mark) Validate() error {
	switch {
	case m == (Mark{}):
		return nil
	case m.ID == "" || len(m.ID) > maxMarkID || !utf8.ValidString(m.ID) || strings.ContainsFunc(m.ID, notOfMark):
		return fmt.Errorf("%w: mark: the ID must be 1 to %d letters, digits, _ or -", ErrInvalid, maxMarkID)
	case m.Version == 0:
		return fmt.Errorf("%w: mark: the version must be above 0", ErrInvalid)
	}
	return nil
}

func notOfMark(r rune) bool {
	return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '_' && r != '-'
}

// Marks is a [Log] that leaves a mark at the end of each batch. Its Read returns
// the mark of the head, and the mark at the version after which it reads. It keeps the
// marks from the floor up, or fewer: a reader whose mark is no longer kept must start
// again.
type Marks interface {
	// Marked reports whether the log of scope has the mark. It returns
	// ErrUnknownScope, wrapped, for a scope that does not exist. If the log once made
	// the mark and no longer has it, history was lost: a store may begin another epoch
	// then.
	Marked(ctx context.Context, scope string, mark Mark) (bool, error)
}

// marked reports whether log has the mark, false for a log without marks.
func marked(ctx context.Context, log Log, scope string, mark Mark) (bool, error) {
	marks, ok := log.(Marks)
	if !ok {
		return false, nil
	}
	has, err := marks.Marked(ctx, scope, mark)
	if errors.Is(err, errors.ErrUnsupported) {
		return false, nil
	}
	return has, err
}
