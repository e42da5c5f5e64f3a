// Package kube is the Kubernetes side of package reconcile: what starts a pass
// ([Controller]), how an object waits for what was made for it ([Finalizer]),
// what people see of it ([Status]), who may run ([Lease]), and what things are
// called ([Name]).
//
// The parts know nothing of each other and fit together by plain functions. All
// use the dynamic client; none needs generated code, a scheme or a REST mapper.
//
// # Passes
//
// A [Controller] watches the objects of one kind, their children and what they
// refer to, and calls one function for each object for which something may have
// to be done. What it promises:
//
//   - Nothing runs before the state of every kind is known. A kind that is
//     missing or forbidden is said, by the log and by Synced, and tried again.
//   - Each change is followed by a pass that sees it, or something newer, however
//     often watches break, expire or are listed anew. Changes during a pass cause
//     one more. A pass is never run twice at a time for one key.
//   - Absence is told only when a list or a watch has shown it, never because of
//     an error. Each Start begins with a consistent list, so that a new leader is
//     not behind what its predecessor wrote.
//   - A pass does not decide on a state that is older than what was written for
//     its key and told to Wrote or WroteChild. That wait is bounded.
//   - One object that fails, hangs (given a second worker, or a Timeout), panics
//     or does not fit the type delays no other.
//   - What a pass gets, and what the cache returns, is a copy that it may change.
//
// At rest it costs no request beside the open watches, one for each kind, which
// the server ends and which are opened again every 5 to 10 minutes. A start costs
// one list, or one watch that begins with the state, for each kind. The cache
// holds JSON without managedFields for whole objects and for metadata alike,
// decoded at each read: for children and references it is metadata unless Whole
// is asked for.
//
// Events that do not differ, such as those of a repeated list, start no pass.
// Those of our own writes do: by then the pass finds nothing to do. IgnoreStatus
// avoids it for writes of the status.
//
// References are followed to any depth: what an object refers to by References
// may itself refer to more by ReferencesOf. A change costs what its users cost,
// not what the cache holds; a reference costs 32 bytes beside its two objects.
//
// What it does not do: it writes nothing, records no Events, follows no owner of
// an owner, maps no other kind to keys (a second Controller can, with Add), and
// shares no cache between Controllers.
//
// # Children
//
// The children of an object need one view, never two. There are two ways to have
// it:
//
//   - The Controller watches the kinds of the children, which are its Owned. A
//     change of a child starts a pass for the object that its controller
//     ownerReference names, and [Controller.Children] reads the cache. This fits
//     an operator that writes its children with a client of its own.
//   - Another live view watches them, such as that of package apply, and Owned is
//     empty. The view reports each child that it saw change or go, and the program
//     hands the UID of the parent to [Controller.AddUID]: from the controller
//     ownerReference of the child, or from a label that holds it.
//
// Kinds that are in both cost each of their events, lists and bytes twice, and
// start the same passes. [Controller.WroteChild] belongs to the first way: with
// the second, the other view is what has to show its own writes.
//
// A deleted child must be reported with the UID of its parent as it was last
// observed. A child that moves from one parent to another must be reported with
// both. A view that is filled later than the Controller calls AddUID for each
// child that it finds, so that no pass has to wait for it.
//
// # Finalizers and status
//
// [Finalizer] and [Status] send one merge patch for each change and nothing
// without one. Each patch carries the resourceVersion that it was made for: what
// somebody else writes at the same time is never lost, but read and merged, and
// the write repeated, five times at most within one call. Neither needs a
// Controller, and both work in a pass of controller-runtime as they are.
//
// The conditions are those of kstatus, Ready, Reconciling and Stalled, set by
// [SetState].
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
//     starts the work anew, so that it looks at everything again: a Controller
//     lists, and starts a pass for each object. What the work itself remembers,
//     such as reconcile.Generations, it must Reset.
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
