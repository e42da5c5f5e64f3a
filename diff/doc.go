// Package diff reports whether a live Kubernetes object still is as its owner applied
// it, without a schema, a dry run or a copy of the object. For people, it lists the
// differences and their writers.
//
// # The idea
//
// A server that supports server-side apply keeps, for each field manager, the
// set of fields that the manager owns (metadata.managedFields). That set records the
// writes of all other managers, too. So two questions have exact and cheap answers:
//
//   - Has another manager changed our fields? No, while our entry is the server's
//     answer to our last apply: [Digest].
//   - Has the desired object changed? No, while its content hash is the one that we
//     applied: [Hash].
//
// A program that has forgotten the digest, because it was restarted, asks
// [Covers] instead: whether the owned set is exactly the set of fields that the
// desired object states. Together with a hash in an annotation (which we own as well,
// so a change of it is seen) this restores the answer.
//
// # Why the digest is exact
//
// A field leaves or enters a manager's set through four operations only. A test in
// internal/servertest checks each line against a real server.
//
//   - Our own apply sets our set to the fields that the applied object states,
//     whatever the server makes of the values: cpu "0.1" becomes "100m", false
//     and null vanish, a protocol or a probe's threshold appears, admission
//     overwrites. Applied again, the object changes neither its resourceVersion
//     nor the time of our entry.
//   - Any other write (update, patch, an apply by force, through a subresource
//     such as scale, under our own name but by update) that leaves a field of
//     ours with another value, or without one, takes it out of our set. It does
//     not matter whether others owned it as well.
//   - Writing the old value back does not return it: an update never adds to
//     the set of an apply. Only our next apply does.
//   - A write that leaves our values as they are leaves our set as it is: what
//     others add, the same value applied by a co-owner, an update that changes
//     nothing, status.
//
// So the set after our apply, if it is still there, proves that no field of it
// has been written with another value since; and if it is not, our next apply
// has something to do, perhaps only to own the field again. An atomic list or map
// is one field: a change of any part takes it whole. A set in an older version
// of the API, after a served version was bumped, counts as before.
//
// The same is checked by replaying writers on a real server: sequences from the
// tests of structured-merge-diff, by whose code servers merge, and random ones.
// After each, the digest must show whether an apply would change something, and
// the fields that [Fields] returns must lead to what that apply leaves.
//
// # When it is not
//
//   - The order of a list that is merged by item has no owner. Digest and
//     Covers do not see that the ports of a Service were reordered; Fields
//     does ([Reordered]), and the next apply restores it. An empty list that is merged
//     by item has no owner either: its presence is not seen.
//   - A field that the desired object leaves to a default is not ours: another value is
//     not seen, and need not be.
//   - A mutating admission plugin that changes a field of ours on another manager's
//     write leaves no trace in our set: the server records the change only for
//     writers that state the field. The next apply corrects it, and package
//     apply applies each object once a day (Live.ReapplyInterval).
//   - A field that the schema of a definition lacked for a while, and that another
//     write dropped then, is still in our set.
//   - The stringData of a Secret is owned under that name, while its values are
//     kept under data: a foreign change is not seen by Digest and Covers (Fields
//     compares the values). Apply it as data: [SecretData].
//   - Another program that applies under our manager's name is us. Its apply
//     shows by the fields or the time of the entry, which has a resolution of
//     one second: within the second of our own apply, another value of the same
//     fields is not seen. Covers cannot see it at all. Give each program a name. For two
//     replicas of one program, package apply compares the hash in its annotation, too.
//   - A desired object with a field that the server ignores in an apply, such as a
//     status that is a subresource, is never covered: leave the field out. A field
//     unknown to the schema is different: the apply is refused.
//   - A program that removes managedFields removes the proof. [Digest] reports that we
//     own nothing; the server tracks the object again from the next apply on, and then
//     assigns the existing fields to "before-first-apply".
//   - A kind whose server keeps no managedFields (some aggregated APIs) has no
//     digest. [Tracked] reports that, and [States] compares contents, with limits.
//   - A defaulted field, which has no owner, gets none when it is scaled: Fields then
//     cannot name the writer.
//
// Fields left to others (the replicas to an autoscaler) are removed from the desired
// object before it is hashed and applied: [Ignore]. The changes of a set of objects are
// a [Plan], which can be shown, approved and compared.
//
// Everything here is a pure function: no I/O, no clock, no goroutine, safe for
// concurrent use.
package diff
