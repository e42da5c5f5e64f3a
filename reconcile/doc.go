// Package reconcile runs the code that makes the world match a desired state:
// loops, keyed queues, ordered steps, backoff and a lifecycle that stops cleanly.
//
// The package knows nothing about Kubernetes, clouds or databases. It decides when a
// pass runs; the caller decides what a pass does.
//
// # Level-driven
//
// A pass compares the whole desired state with the whole actual state. Events
// only make a pass start early, so they may be repeated, merged or lost: a
// [Loop] runs on its interval anyway, and a [Queue] is swept with
// [Queue.Resync].
//
// # Lifecycle
//
// Everything that runs has one method, Start(ctx) error. It blocks, returns nil
// when ctx ends, and has waited for every goroutine it started. This is the
// shape of controller-runtime's manager.Runnable, so a Loop, a Queue or a
// [Group] can be handed to a manager's Add as it is, with no import in either
// direction. A Group starts many of them, and reports those that did not stop.
//
// # Outcomes
//
// A pass returns a [Result] and an error, and they mean the same everywhere:
//
//   - nil and the zero Result: done until the next event or interval.
//   - nil and [Result.RequeueAfter]: done for now, look again after that long.
//   - an error: failed; retried after the waits of [Backoff]. The Result is ignored.
//   - an error marked by [Terminal]: failed in a way no retry can cure. It waits
//     for the next event, or for the next interval or resync.
//   - a panic: failed, with a [PanicError] that carries the stack.
//
// # Guarantees
//
//   - Passes of one Loop never overlap; neither do passes of one key of a Queue.
//   - An event that arrives during a pass causes one more pass after it. Any
//     number of events that arrive before a pass begins cause one pass.
//   - No method that announces an event blocks, whether the Loop or Queue has
//     not started yet, is running, or has stopped.
//   - A failing key delays no other key. A panic takes down neither its worker
//     nor the program.
//   - Nothing is logged unless a Logger is set, and there are no globals.
//
// Configuration is in struct fields whose zero values work. They are read when
// Start is called and must not change afterwards; a value out of range is
// reported by Start, naming the field, before anything runs. Loop and Queue must not be
// copied after first use.
//
// All time comes from package time, so tests of code built on this package can run in a
// testing/synctest bubble.
package reconcile
