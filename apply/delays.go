package apply

import "time"

// The first and the maximum delay after a rejection.
const (
	firstDelay = 30 * time.Second
	maxDelay   = 5 * time.Minute
)

// minSwept is how much is remembered before it is swept.
const minSwept = 1024

// cureDelay is the first delay after an attempt that a changed cause has started: the
// change may take effect a moment later.
const cureDelay = time.Second
