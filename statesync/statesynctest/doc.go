// Package statesynctest checks whether a store fulfils the contracts of [statesync.Log]
// and [statesync.Readers].
//
// [Run] is the conformance suite: call it from a test of the store. It commits
// changes, alone and at the same time, and checks what a reader gets.
//
// [RunServer] does the same for a source of frames, and [RunReader] for a reader in any
// language, which may be a process: see docs/protocol.md and [RunVectors].
//
// [History] is for simulations and for tests with faults of their own: it records what
// writers commit and what readers get, in any order and under any failures, and returns
// an error that names the first violation: a change that was skipped, delivered twice,
// out of its order, in part, or never committed.
package statesynctest
