// Package diff tells whether a live Kubernetes object still is what its owner
// applied, without a schema, a dry run or a copy of the object.
//
// # The idea
//
// A server that supports server-side apply keeps, for each field manager, the
// set of fields that the manager owns (metadata.managedFields). That set is a
// record of everybody else's writes, too:
//
//   - A repeated apply of the same object changes neither the object's
//     resourceVersion nor the time of the manager's entry.
//   - What the server does to values (cpu "0.1" becomes "100m", a defaulted
//     protocol appears) does not change the set.
//   - Any other writer that changes, removes or scales a field takes it out of
//     the set, and writing the old value back does not return it.
//   - Fields that others add, and status updates, leave the set as it was.
//
// So two questions have exact and cheap answers:
//
//   - Has anyone touched what we own? No, as long as our entry is the one that
//     the server answered to our last apply: [Digest].
//   - Has the desired object changed? No, as long as its content hash is the
//     one that we applied: [Hash].
//
// A program that has forgotten the digest, because it was restarted, asks
// [Covers] instead: whether the owned set is exactly the set of fields that the
// desired object states. Together with a hash kept in an annotation (which we
// own as well, so nobody changes it unnoticed) this carries the answer over.
//
// # When it is not exact
//
//   - A kind whose server keeps no managedFields (some aggregated APIs) has no
//     digest; [Digest] says so.
//   - Another program that applies with our field manager's name is us, as far
//     as the server can tell. Its apply is noticed by a digest (the time and
//     usually the set differ), but Covers cannot tell it from our own.
//   - The entry's time has a resolution of one second. A foreign change and our
//     own repair within the same second leave the digest that our last apply
//     left, which is right: the last apply is what holds.
//
// Everything here is a pure function: no I/O, no clock, no goroutine, safe for
// concurrent use.
package diff
