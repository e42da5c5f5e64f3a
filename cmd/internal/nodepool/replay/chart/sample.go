package chart

import "time"

// A Sample is what was counted at a time.
type Sample struct {
	// At is the time from the beginning.
	At time.Duration
	// Counts are the machines in each state, in the order of the states.
	Counts []int
	// Line is what is drawn as a line: pods that wait.
	Line int
}
