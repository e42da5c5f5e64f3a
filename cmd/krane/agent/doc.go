// Package agent makes one cluster match the desired state of its region, and
// reports what runs there.
//
// Three replicas (package statesync) follow the streams of package stream. Each
// item is decoded, decrypted, rendered and applied by one worker at a time. An item
// that fails is retried alone, and parked after ten failures until the next list.
//
// # Deletions
//
//   - A delete message deletes the objects that it names, if they carry our labels
//     and our fields, with their UID as a precondition. So does a point query that
//     answers delete for an object that no stream has named, or that is there again after
//     it was deleted.
//   - After a start no object is deleted before the list of its collection was proven
//     complete once. A server without markers proves none; its messages hold at once.
//   - Objects that are absent from two proven lists, far enough apart, are deleted
//     if all three streams are complete, the list is not empty, and the limit
//     within an hour is not exceeded. Once it is, all that is absent is held until a
//     person approves exactly these objects by their digest (package apply, Guard).
//   - An empty list deletes one object at most: the last of its collection, if the
//     same process has seen it as the only live item of a proven state of the same
//     epoch, the log went on since, and no other collection is empty that has objects
//     in the cluster. It takes two lists as well. After a restart, after another
//     epoch, and when two or more items vanish between two lists, an empty list
//     deletes no workload until an item is in it again; deletions_held counts them.
//   - What both lists lack is deleted only if the control plane, asked for it, knows no such
//     resource or wants it gone: a row that it cannot send is in no list.
//   - A workload is deleted in the foreground: it is there until its pods are gone, and so is its network
//     policy, which goes after it. Until then no workload of the same name is made.
//   - A namespace that we created is deleted after it has been empty for ten
//     minutes.
//
// NotFound, an unknown region, a refused credential, and a cut list are no proof of
// absence and delete no object. While any call is refused because of the region, what
// is absent stays.
//
// # Drift
//
// A change of an owned field by another manager wakes the worker of its object at
// once (apply.Live). Every minute each owned workload is compared with a point
// query. At rest neither sends a write.
//
// # Outages
//
// While the API server is down no item is acknowledged, and an object that is not
// observed does not count as gone. While the control plane is down its last desired
// state holds. One line is logged when a stream, report, query or heartbeat fails
// first, and one when all succeed again; control_failures_total counts the attempts in
// between. While any of them is refused because of the region, deletions_held is
// raised. A new token is used within five seconds. Two
// agents of a region do the same work twice, and neither undoes the other's.
//
// # Reports
//
// Each deployment and each sentinel is reported when its status has changed since
// the last accepted report. A deletion is reported until it is acknowledged, and
// again after a restart, for every delete message of the first list. Everything is
// reported again after a silence, when the database has changed, and ten minutes after
// it was accepted: rows that an operator has removed are back within that time.
package agent
