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
// is missing: [Applier.Apply] creates and repairs, [Applier.Prune] deletes.
//
//	set, err := apply.NewSet(owner, objects)       // when the desired state changes
//	report, err := applier.Apply(ctx, set)         // on every pass
//	pruned, err := applier.Prune(ctx, set, apply.PruneOptions{Complete: true})
//
// # What is promised
//
//   - An object that is as our last apply left it costs no request: that is read
//     off the server's own record of who owns which field (package diff), so
//     neither defaulting nor rewritten quantities nor foreign fields matter.
//   - That memory outlives a restart: the hash of the desired object is kept in
//     an annotation, and what we own is compared with what is stated. A
//     restarted program sends its lists and watches and nothing else.
//   - One server-side apply creates, one repairs. It takes back the fields that
//     the set states, and no other.
//   - A foreign object of a wanted name is not taken over. The apply that creates
//     carries a resourceVersion that no object has, so that the server itself
//     refuses it if the object exists; an apply that repairs carries the UID. Who
//     the object belongs to is then decided with it at hand.
//   - Nothing is deleted on doubt: only what carries the owner's labels and our
//     applied fields, only against a set that is stated to be complete, below a
//     limit, with UID and resourceVersion preconditions.
//   - Our own writes are visible at once. Of what the watch tells and what a write
//     answered, the newer counts, so a slow watch causes neither a second create
//     nor a repair of what is right.
//   - One object's failure is its own result. It holds back only what lives in it,
//     a namespace its objects.
//   - An object that the server finds invalid, or whose name is taken, stays
//     reported, and is tried again when it changes, or after 30 seconds, then a
//     minute, up to five.
//   - An object that is changed again and again stops waking passes early, and is
//     repaired at the regular interval.
//
// # What it costs
//
// A pass over unchanged objects takes well under a microsecond for each and
// allocates nothing for them; the first after a restart some tens of
// microseconds. BenchmarkSweep and BenchmarkFirstPassAfterRestart measure both.
//
// # What it does not do yet
//
// Immutable fields are not recreated, kinds whose
// server keeps no managedFields are applied on every pass, and the limits of
// Prune know no ApplySet.
package apply
