// Package apply makes a Kubernetes cluster match a desired state and keeps it
// so: objects are created, repaired and pruned, with one request for each real
// change and none when nothing changed.
//
// # Three parts
//
// A [Set] is the desired state: validated, labelled, ordered and hashed once,
// applied any number of times. A [Live] is the actual state: a watch of the
// metadata of the owner's objects, some hundred bytes each, that also calls for a
// pass when another program has changed one. An [Applier] compares the two and sends
// the changes: [Applier.Apply] creates and repairs, [Applier.Prune] deletes objects
// that left the set, [Applier.Delete] deletes by name, [Applier.Plan] returns what
// these would do, and [Applier.Execute] does exactly that.
//
//	set, err := apply.NewSet(owner, objects, apply.SetOptions{}) // when the desired state changes
//	report, err := applier.Apply(ctx, set)                       // on every pass
//	pruned, err := applier.Prune(ctx, set, apply.PruneOptions{Complete: true})
//
// An agent has one set. An operator has one for each parent object: its Owner has a
// [Owner.PartLabel], each set is a part, named by the parent's UID, and all share one
// Live and one Applier:
//
//	set, err := apply.NewSet(owner, children, apply.SetOptions{Part: string(parent.UID)})
//	live.OnChange = func(o apply.Observed) { controller.AddUID(types.UID(o.Part)) }
//
// Package readiness reads the status of an object, package budget bounds the requests
// of a process, and package applytest tests a program.
//
// # Guarantees
//
// At rest:
//
//   - An object that is as our last apply left it costs no request: the server's
//     managedFields prove it (package diff), so defaults, rewritten quantities and
//     fields of other managers do not matter.
//   - The proof survives a restart: the hash of the desired object is kept in
//     an annotation, and the fields that we own are compared with the fields that the
//     set states. A restarted program sends its lists and watches and nothing else. The
//     hash also shows the write of an older replica that still runs, although it has our
//     manager's name.
//   - The proof may be wrong about a field that the schema of a definition lacked for a
//     while, and about an admission plugin that changed a field on another manager's
//     write. So "unchanged" is bounded: each object is applied again once a day, spread
//     over the day, which changes nothing when all is well ([Live.ReapplyInterval]).
//   - Our own writes are visible at once. The newer of the watch's state and a write's
//     answer counts, so a slow watch causes neither a second create nor a needless
//     repair. A watch that is silent for three minutes is restarted.
//   - No wait polls. The event itself ends the wait for a kind to be listed, for an
//     object to be ready, for a finalizer to end.
//
// With many sets:
//
//   - Any number of goroutines may use an Applier. Calls that write to different
//     objects never wait for each other; those that write to one take turns, and each
//     decides again when its turn comes.
//   - An object belongs to one part. A second one that states it is refused, with the
//     name of the first ([ErrClaimed]). A part label that another manager has changed
//     moves no object: its own part puts the label back, and no other part deletes it
//     ([PruneReport.Unproven]).
//   - The cost of pruning a part depends on the size of the part, not on the owner's
//     other parts.
//   - The memory of a rejection, a fight or readiness is kept per object: a pass over
//     another set never drops it.
//   - A wake-up carries the observed state, labels and controller included, also for a
//     deleted object.
//   - A set may bring kinds that are not watched yet, each in any version. The watch of
//     a kind ends when no set states the kind and no object of it is left. With an
//     [Owner.ApplySet], the cluster remembers the kinds for the next start. If its parent
//     was deleted meanwhile, every kind of the server is looked at once, and a prune fails
//     until that has succeeded.
//
// When something changes:
//
//   - One server-side apply creates, one repairs. It takes back the fields that
//     the set states, and no other.
//   - A foreign object with a desired name is not adopted unless asked for
//     ([AdoptionPolicy]). The apply that creates carries a resourceVersion that no
//     object has, so that the server itself refuses it if the object exists; an apply
//     that repairs carries the UID. An apply that restores a label carries the version
//     without the label. Ownership is decided on that very version.
//   - What was made from a read of an object may hold for that version only
//     ([SetOptions.From]): a later edit is not overwritten.
//   - Kinds come in order, definitions and namespaces first, admission webhooks last,
//     and an object may state what it depends on: it waits until that is ready.
//     Workloads may be held back until the policies that isolate them are in force
//     ([SetOptions.Gate]).
//   - A change of an immutable field recreates the object only for kinds that are named
//     ([Applier.Recreate]), only if nothing else is wrong with it, and with a single
//     deletion, however long finalizers hold it.
//   - A field that is left to others ([SetOptions.Ignore]) is sent with the create
//     only, and keeps its value when another manager takes it. One that is handed over
//     ([SetOptions.Handover]) is left to a controller while an object of ours configures
//     that controller, and comes back once this object is gone, so the two never fight.
//   - A few fields of an object of others are stated and given back by an [Overlay],
//     which owns nothing else of it.
//   - The fields of a superseded manager ([Owner.Supersedes]) become ours, whether it
//     updated or applied them: so a program may change its manager's name. If the server
//     cannot read an entry in the desired version, because a field of the one is not in
//     the schema of the other, all entries are moved to that version, those of other
//     managers, too. Each takes one patch of managedFields, which changes no other field.
//
// When something is deleted:
//
//   - In doubt, nothing is deleted. An object is deleted only if it carries the owner's
//     labels and fields that we applied, only against a set that the caller declares
//     complete, not if a set that was applied later states it, within the limits of a
//     [Guard], and with UID and resourceVersion preconditions. A namespace or definition that a
//     remaining object needs, ours or another owner's, is never deleted.
//   - If a kind cannot be listed, the call fails and names it: an unreadable kind never
//     counts as empty. A 404 counts for an object only if it names the object.
//
// When something goes wrong:
//
//   - One object's failure is its own result. It holds back only the objects in it, if
//     it is a namespace, and those that depend on it.
//   - An object that the server rejects for its content (invalid, forbidden, beyond a
//     quota, in an absent namespace, its name taken) stays reported. It is tried again
//     when the object, the policy or a possible cause of ours changes, or after 30
//     seconds, then a minute, up to five minutes. One beyond a quota, which may be another
//     program's and is not watched then, is tried every 30 seconds.
//   - While a webhook does not answer, its kind is written in that namespace a few objects
//     at a time, with pauses of one to five seconds, so that a pass does not wait out the
//     timeout for each. The first success ends the pauses and starts a pass. While the
//     server refuses our credentials, the same holds for all writes, and a kind whose
//     watch is refused for that reason is not written at all.
//   - An object that is changed back after each repair, or deleted after each
//     creation, is fought over: after five repairs the error names the other manager as
//     far as it is known ([FightError]), and the object is left alone for 30 seconds,
//     then a minute, up to five. Before that, five changes of one object within a
//     minute stop starting passes early.
//   - A Job that completed and that its ttlSecondsAfterFinished removed is done: it counts
//     as unchanged and as ready until its desired state changes. Nothing in the cluster
//     shows that after a restart, nor if the watch missed the deletion: the Job is created
//     and runs once more. A Job that failed, or that was deleted before its time, is
//     created again. Leave the TTL out for a Job that must run once.
//   - Objects whose watch fails are reported [Waiting], with the reason, never
//     unchanged.
//   - A program that is killed at any request continues there after a restart. A test
//     kills one before and after each request of a scenario with 60 objects.
//
// Each of these is a story in testdata/*.txtar: objects, edits by others, and
// the requests that follow.
//
// # What it costs
//
// A pass over unchanged objects takes well under a microsecond for each, among a million
// as among a thousand, and allocates nothing for them; the first after a restart some tens
// of microseconds. BenchmarkSweep and BenchmarkFirstPassAfterRestart measure both, and
// "make bench-growth" measures what grows with the number of objects.
//
// # Without server-side apply
//
// For servers and teams that cannot use it, [Applier.Upsert] names kinds that are
// created, and, if they exist, read and replaced in the version that was read.
// Fields that are not stated stay, assigned by the server or set by others; a field
// that was stated once and no longer is, is removed, unless it lies in a list. Lists
// are replaced as a whole, and a field inside of a list cannot be left to others
// ([SetOptions.Ignore]). A restart reads each such object once. A kind whose server
// keeps no managedFields is compared by content ([diff.States]) whenever it changed,
// and never pruned, because nothing shows which owner applied it.
//
// # What it does not do
//
// It does not build objects (kustomize, Helm), does not wait for hooks, and keeps
// no history. One Live has one owner.
package apply
