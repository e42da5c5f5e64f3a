// Package kube is the Kubernetes side of package reconcile: who may run
// (Lease), and what things are called (Name).
//
// # One at a time
//
// A [Lease] runs something only while it holds a Lease object of
// coordination.k8s.io/v1, with the record that kubectl shows and that the
// electors of client-go read and write, so that both kinds can compete for one
// object. What it promises:
//
//   - The work runs in no two processes at a time, as long as work that is told
//     to stop does so within Duration - RenewDeadline. Until it has stopped, the
//     lease is renewed for it as far as the API server can be reached, also
//     when the program is told to stop.
//   - Losing the lease ends the work's ctx with the cause [ErrLeaseLost], and
//     nothing else is done before the work has returned. Taking the lease
//     starts the work anew, so that it looks at everything again.
//   - A graceful stop gives the lease back, and a waiting elector takes it at
//     once. After a crash it takes it when the record has not changed for its
//     duration.
//   - The times that other machines write are never compared with a clock. Each
//     elector measures for itself how long the record has stayed the same.
//   - A record counts as ours only if this very elector wrote it. Two processes
//     that were given one identity by mistake do not run at the same time.
//
// A process that was paused (a stopped process, a suspended machine) finds out
// when it goes on: the Err method of the work's ctx compares the clock with the
// last renewal at each call, and does not wait for a timer to run. A
// reconcile.Loop and a reconcile.Queue ask it before each pass. Contexts derived
// from it end a moment later, when the timer has run; requests already on their
// way cannot be called back, and a fence against those is the resourceVersion
// that they carry.
//
// # Names
//
// [Name] makes one valid name of several parts. Different parts give different
// names, and the same parts always the same name.
package kube
