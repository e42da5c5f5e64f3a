// Package apply makes a Kubernetes cluster match a desired state and keeps it
// so: objects are created, repaired and pruned, with one request for each real
// change and none when nothing changed.
//
// # Three parts
//
// A [Set] is the desired state: validated, labelled, ordered and hashed once,
// applied any number of times. A [Live] is the actual state: a watch of the
// metadata of the owner's objects, some hundred bytes each, that also says when
// somebody else has changed one. An [Applier] compares the two and sends what
// is missing: [Applier.Apply] creates and repairs, [Applier.Prune] deletes,
// [Applier.Plan] says what they would do, and [Applier.Execute] does that and
// nothing else.
//
//	set, err := apply.NewSet(owner, objects)       // when the desired state changes
//	report, err := applier.Apply(ctx, set)         // on every pass
//	pruned, err := applier.Prune(ctx, set, apply.PruneOptions{Complete: true})
//
// # What is promised
//
// At rest:
//
//   - An object that is as our last apply left it costs no request: that is read
//     off the server's own record of who owns which field (package diff), so
//     neither defaulting nor rewritten quantities nor foreign fields matter.
//   - That memory outlives a restart: the hash of the desired object is kept in
//     an annotation, and what we own is compared with what is stated. A
//     restarted program sends its lists and watches and nothing else.
//   - Our own writes are visible at once. Of what the watch tells and what a write
//     answered, the newer counts, so a slow watch causes neither a second create
//     nor a repair of what is right. A watch that is silent for three minutes is
//     begun anew.
//
// When something is to be done:
//
//   - One server-side apply creates, one repairs. It takes back the fields that
//     the set states, and no other.
//   - A foreign object of a wanted name is not taken over unless asked
//     ([AdoptionPolicy]). The apply that creates carries a resourceVersion that
//     no object has, so that the server itself refuses it if the object exists;
//     an apply that repairs carries the UID. Who the object belongs to is then
//     decided with it at hand.
//   - Kinds come in order, definitions and namespaces first, and an object may
//     state what it depends on: it waits until that is ready ([ReadinessOf]). What
//     it waits for is watched, not polled: its change calls for the pass.
//   - A field that cannot be changed leads to a new object only for kinds that are
//     named ([Applier.Recreate]), only if nothing else is wrong with it, with one
//     deletion however long finalizers hold it.
//
// When something is to be deleted:
//
//   - Nothing is deleted on doubt: only what carries the owner's labels and our
//     applied fields, only against a set that is stated to be complete, below a
//     limit, with UID and resourceVersion preconditions, and never a namespace or
//     definition that something needs which stays.
//
// When something goes wrong:
//
//   - One object's failure is its own result. It holds back only what lives in it,
//     a namespace its objects, and what depends on it.
//   - An object that the server finds invalid, or whose name is taken, stays
//     reported, and is tried again when it changes, or after 30 seconds, then a
//     minute, up to five.
//   - An object that is changed back after each repair is fought over: after five
//     repairs the other side is named by field and manager ([FightError]), and the
//     object is left alone for 30 seconds, then a minute, up to five. Before that,
//     five changes of one object within a minute stop starting passes early.
//   - A server that is busy (429, 503) is asked less: [Budget], shared by
//     everything in the process that talks to it.
//   - A program that is killed at any request goes on where it was. A test kills
//     one before and after each request of a scenario with 60 objects.
//
// # What it costs
//
// A pass over unchanged objects takes well under a microsecond for each and
// allocates nothing for them; the first after a restart some tens of
// microseconds. BenchmarkSweep and BenchmarkFirstPassAfterRestart measure both.
//
// # Without server-side apply
//
// For servers and teams that cannot use it, [Applier.Upsert] names kinds that are
// created, and where they exist read and replaced in the version that was read.
// What is not stated stays, be it assigned by the server or set by others; what
// was stated once and no longer is goes, as long as it lies outside of lists,
// which are replaced as wholes. A restart reads each such object once. A kind whose
// server keeps no managedFields is compared by content ([diff.States]) whenever it
// changed, and never pruned, because nothing shows whose it is.
//
// # What it does not do
//
// It does not build objects (kustomize, Helm), does not wait for hooks, and keeps
// no history. One Live has one owner; its kinds are fixed when it starts.
package apply
