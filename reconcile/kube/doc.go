// Package kube is the Kubernetes side of package reconcile: a controller that
// starts passes ([Controller]), finalizers ([Finalizer]), status writes
// ([Status]), leader election ([Lease]) and names of children ([Name]).
//
// The parts do not depend on each other and are joined by plain functions. All
// use the dynamic client. None needs generated code, a scheme or a REST mapper.
//
// # Passes
//
// A [Controller] watches the objects of one kind, their children and the objects
// that they refer to. It calls one function for each object that may need work.
// It guarantees:
//
//   - No pass runs before every kind is synced. A kind that is missing or
//     forbidden is logged, reported by Synced, and tried again.
//   - Each change is followed by a pass that sees it or a newer state, however
//     often watches break, expire or are listed again. Changes during a pass cause
//     one more pass. Two passes never run at a time for one key.
//   - Absence is reported only when a list or a watch has shown it, never because
//     of an error. Each Start begins with a consistent list, so a new leader never
//     starts behind the writes of its predecessor.
//   - A pass never decides on a state older than the writes for its key that were
//     passed to Wrote or WroteChild. That wait is bounded by a minute.
//   - An object that fails, hangs (given a second worker, or a Timeout), panics or
//     does not fit the type delays no other object.
//   - The objects that a pass receives, and that the cache returns, are copies that
//     the caller may change.
//
// At rest a Controller sends no request except the open watches, one for each
// kind. The server ends a watch after 5 to 10 minutes, and it is opened again. A
// start costs one list for each kind, or one watch that begins with the state.
// The cache holds JSON without managedFields, decoded at each read. Of children
// and referenced objects it holds the metadata, unless Whole is set.
//
// Events without a change, such as from a repeated list, start no pass.
// Events of the operator's own writes start one, which then has no work.
// IgnoreStatus avoids it for writes of the status.
//
// References are followed to any depth: an object named by References may itself
// refer to others by ReferencesOf. The cost of a change grows with the number of
// its users, not with the size of the cache. A reference takes about 55 bytes when
// each object has ten.
//
// A Controller writes no objects, records no Events, does not follow an owner of
// an owner, maps no other kind to keys (a second Controller can, with Add), and
// shares no cache with another Controller.
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
//   - Another live view watches them, such as the one of package apply, and Owned
//     is empty. The view reports each changed or deleted child, and the program
//     passes the UID of the parent to [Controller.AddUID]: from the controller
//     ownerReference of the child, or from a label that holds it.
//
// A kind in both views is listed, watched and stored twice, and starts the same
// passes. [Controller.WroteChild] belongs to the first way. In the second, the
// other view is responsible for showing its own writes.
//
// The other view reports a deleted child with the UID of its last observed parent,
// and a child that moved between parents with both UIDs. A view that is filled
// later than the Controller calls AddUID for each child that it finds.
//
// # Finalizers and status
//
// [Finalizer] and [Status] send one merge patch for each change and no request
// without one. Each patch carries the resourceVersion that it was computed from. A
// concurrent write of another client is never lost: the object is read again, the
// change is merged and the write repeated, at most five times within one call.
// Neither needs a Controller, and both work in a pass of controller-runtime.
//
// The conditions are Ready, Reconciling and Stalled of kstatus, set by [SetState].
//
// # One at a time
//
// A [Lease] runs its work only while it holds a Lease object of
// coordination.k8s.io/v1. The record is the one that kubectl shows and that the
// electors of client-go read and write, so both kinds can compete for one object.
// It guarantees:
//
//   - The work never runs in two processes at a time, if work whose ctx ends
//     returns within Duration - RenewDeadline. Until it has returned, the lease is
//     renewed while the API server can be reached, even when the program is stopping.
//   - Losing the lease ends the work's ctx with the cause [ErrLeaseLost], and the
//     elector waits until the work has returned. Taking the lease starts the work
//     again from the beginning: a Controller lists, and starts a pass for each
//     object. The work must drop what it remembers, such as the generations that it
//     has handled.
//   - A graceful stop releases the lease, and a waiting elector takes it at once.
//     After a crash, it takes the lease when the record has not changed for its
//     duration.
//   - Times written by other machines are never compared with a local clock. Each
//     elector measures how long the record has stayed the same.
//   - A record counts as held here only if this very elector wrote it. Two
//     processes that share an identity by mistake never work at the same time.
//
// A process that was paused (a stopped process, a suspended machine) detects it
// when it resumes: the Err method of the work's ctx compares the clock with the
// last renewal at each call, and does not wait for a timer to run. A
// reconcile.Loop and a reconcile.Queue call it before each pass. Contexts derived
// from it end a moment later, when the timer has run. Requests already on their
// way cannot be called back; the resourceVersion that they carry fences them.
//
// # Names
//
// [Name] makes one valid name of several parts. Different parts give different
// names, and the same parts always give the same name.
package kube
