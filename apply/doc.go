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
// what is missing: [Applier.Apply] creates and repairs, [Applier.Prune] deletes what
// is absent, [Applier.Delete] what is named, [Applier.Plan] returns what they would
// do, and [Applier.Execute] does that and nothing else.
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
// The packages readiness and budget stand beside: they read the status of an object,
// and bound the requests of a process. Package applytest puts a program under test.
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
//   - Our own writes are visible at once. Of what the watch shows and what a write
//     answered, the newer counts, so a slow watch causes neither a second create
//     nor a repair of what is right. A watch that is silent for three minutes is
//     begun anew.
//   - No wait polls: for a kind to be known, an object to be ready, a finalizer to
//     end. The change itself wakes.
//
// With many sets:
//
//   - Any number of goroutines may use an Applier. Calls that write to different
//     objects never wait for each other; those that write to one take turns, and
//     decide when it is theirs.
//   - An object belongs to one part. A second one that states it is refused, with the
//     name of the first ([ErrClaimed]).
//   - Pruning a part costs what the part costs, whatever else the owner has.
//   - What is remembered of an object (a rejection, a fight, its readiness) belongs to
//     the object: a pass over another set never drops it.
//   - A wake-up carries what was observed, labels and controller included, also of an
//     object that is gone.
//   - A set may bring kinds that are not watched yet, each in any version. The watch
//     of a kind ends when no set states and no object has it. With an
//     [Owner.ApplySet], the cluster remembers the kinds for the next start.
//
// When something is to be done:
//
//   - One server-side apply creates, one repairs. It takes back the fields that
//     the set states, and no other.
//   - A foreign object of a wanted name is not taken over unless asked
//     ([AdoptionPolicy]). The apply that creates carries a resourceVersion that
//     no object has, so that the server itself refuses it if the object exists;
//     an apply that repairs carries the UID. One that puts back a label carries the
//     version in which the label went. Who the object belongs to is then
//     decided with it at hand.
//   - Kinds come in order, definitions and namespaces first, admission webhooks last,
//     and an object may state what it depends on: it waits until that is ready. What
//     isolates may be made a condition for what runs ([SetOptions.Gate]).
//   - A field that cannot be changed leads to a new object only for kinds that are
//     named ([Applier.Recreate]), only if nothing else is wrong with it, with one
//     deletion however long finalizers hold it.
//   - A field that is left to others ([SetOptions.Ignore]) is stated at the creation
//     only, and keeps its value when it is handed over.
//   - What a superseded manager has stated ([Owner.Supersedes]) becomes ours, and an
//     entry of ours that the server cannot read in the wanted version is moved to it,
//     each by one patch of the record, which changes no field.
//
// When something is to be deleted:
//
//   - Nothing is deleted on doubt: only what carries the owner's labels and our
//     applied fields, only against a set that is stated to be complete, below a
//     limit, with UID and resourceVersion preconditions, and never a namespace or
//     definition that an object needs which stays, ours or of others.
//   - A kind that cannot be seen is named, and the call fails: nothing left is never
//     concluded from nothing seen. A 404 counts for an object only if it names the
//     object.
//
// When something goes wrong:
//
//   - One object's failure is its own result. It holds back only what lives in it,
//     a namespace its objects, and what depends on it.
//   - An object that the server refuses for what it is (invalid, forbidden, beyond a
//     quota, in an absent namespace, its name taken) stays reported, and is tried
//     again when it, the policy or what may cure it changes, or after 30 seconds, then
//     a minute, up to five.
//   - An object that is changed back after each repair, or deleted after each
//     creation, is fought over: after five the other side is named as far as it is
//     known ([FightError]), and the object is left alone for 30 seconds, then a
//     minute, up to five. Before that, five changes of one object within a minute stop
//     starting passes early.
//   - A kind whose watch fails is not called unchanged: its objects wait, with the
//     reason.
//   - A program that is killed at any request goes on where it was. A test kills
//     one before and after each request of a scenario with 60 objects.
//
// Each of these is told as a story in testdata/*.txtar: objects, edits by others, and
// the requests that follow.
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
// Fields that are not stated stay, assigned by the server or set by others; a field
// that was stated once and no longer is goes, unless it lies in a list: lists are
// replaced as wholes, and a field inside of one cannot be left to others
// ([SetOptions.Ignore]). A restart reads each such object once. A kind whose
// server keeps no managedFields is compared by content ([diff.States]) whenever it
// changed, and never pruned, because nothing shows whose it is.
//
// # What it does not do
//
// It does not build objects (kustomize, Helm), does not wait for hooks, and keeps
// no history. One Live has one owner.
package apply
