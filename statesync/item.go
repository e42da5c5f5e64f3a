package statesync

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// Limits of a [Log]. They keep a change, its frame and a database
// index row small enough for every store and transport.
const (
	// MaxName is the max length of a scope, collection or ID, in bytes.
	MaxName = 253
	// MaxValue is the max length of a value, in bytes.
	MaxValue = 1 << 20
)

// Key names one entry of a scope.
type Key struct {
	// Collection is the kind of entry, as "deployments". 1 to [MaxName] bytes
	// of UTF-8 without control characters.
	Collection string `json:"collection"`
	// ID is unique in its collection. The same limits.
	ID string `json:"id"`
}

// String returns collection/id.
func (k Key) String() string { return k.Collection + "/" + k.ID }

// Item is the newest state of one key. Items are shared by many readers: none
// may change Value.
type Item struct {
	// Version is the position of the last change of this key in its scope's log,
	// counted from 1. It is unique in the scope.
	Version uint64 `json:"version"`
	Key
	// Deleted marks a tombstone: the key must be absent. Only a tombstone is an order
	// to delete; a missing item never is.
	Deleted bool `json:"deleted,omitempty"`
	// Value is the desired state of the key as JSON. It is nil in a tombstone.
	Value json.RawMessage `json:"value,omitempty"`
}

// Change is a write: Value becomes the state of Key in Scope, or Key is deleted. The
// log gives it a version once it is committed.
type Change struct {
	// Scope is the unit that a reader reads, as a region or a cluster. 1 to [MaxName]
	// bytes of UTF-8 without control characters.
	Scope string
	Key
	// Deleted asks for the absence of Key. Value must be nil then.
	Deleted bool
	// Value is one JSON value of at most [MaxValue] bytes.
	Value json.RawMessage
}

// Validate returns an error, an ErrInvalid, that names every field of c out of
// its limits, and nil if a log can take c.
func (c Change) Validate() error {
	errs := []error{
		validName("scope", c.Scope),
		validName("collection", c.Collection),
		validName("id", c.ID),
	}
	switch {
	case c.Deleted && c.Value != nil:
		errs = append(errs, errors.New("value: must be absent from a deletion"))
	case c.Deleted:
	case len(c.Value) > MaxValue:
		errs = append(errs, fmt.Errorf("value: has %d bytes, more than %d", len(c.Value), MaxValue))
	case !json.Valid(c.Value):
		errs = append(errs, errors.New("value: must be one JSON value"))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("%w: change of %s in scope %q: %w", ErrInvalid, c.Key, c.Scope, err)
	}
	return nil
}

// ValidScope returns an error if scope cannot be the name of a scope.
func ValidScope(scope string) error { return validName("scope", scope) }

func validName(field, name string) error {
	switch {
	case name == "":
		return fmt.Errorf("%s: must not be empty", field)
	case len(name) > MaxName:
		return fmt.Errorf("%s: has %d bytes, more than %d", field, len(name), MaxName)
	case !utf8.ValidString(name):
		return fmt.Errorf("%s: %q is not UTF-8", field, name)
	case strings.ContainsFunc(name, control):
		return fmt.Errorf("%s: %q contains a control character", field, name)
	}
	return nil
}

func control(r rune) bool { return r < 0x20 || r == 0x7f }

// wrong returns an error about the configuration in the form TYPE.FIELD: REASON.
func wrong(field, format string, args ...any) error {
	return fmt.Errorf("statesync: "+field+": "+format, args...)
}
