package statesync

import "time"

// ErrRelist is a stream that was ended because it is time to list again.
var ErrRelist = errRelist

// NewPause returns the pauses of one reader.
func NewPause() func(Stream) time.Duration {
	p := &pause{}
	return p.after
}
