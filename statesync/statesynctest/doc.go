// Package statesynctest checks whether a store keeps what [statesync.Log] and
// [statesync.Readers] promise.
//
// [Run] is the conformance suite: call it from a test of the store. It commits
// changes, alone and at the same time, and looks at what a reader gets.
//
// [History] is for simulations and for tests with faults of their own: it is
// given what writers commit and what readers get, in whatever order and under
// whatever failures that happens, and returns an error that names the first
// promise that was broken: a change that was skipped, delivered twice, out of its
// order, in part, or never committed.
package statesynctest
