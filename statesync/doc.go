// Package statesync streams desired state from a change log to any number of readers:
// first everything, then every change. Nothing is inferred from silence.
//
// A [Log] holds the newest state of each key of a scope (a region, a cluster) in
// the order of commits. [Memory] is one; package sqlstore keeps one in the
// caller's own database. A [Server] streams it, in process or by a [Handler] over
// HTTP, and a [Replica] keeps a copy, has each change handled, and reports when the
// copy is complete.
//
// # Guarantees
//
//   - Nothing is skipped and nothing comes out of order: each frame states where it
//     begins and ends, so a gap is detected as a defect.
//   - List and watch are one stream. A change that is committed while the list
//     is being read is in the list or comes after it.
//   - The server states Synced explicitly, with the number of items and their [Digest].
//     Every later frame that ends a commit has both, too: a reader proves its whole
//     state each time, not only once.
//   - A commit is whole at every consistent point.
//   - A cursor that cannot be resumed (below the floor, ahead of the log, of
//     another epoch or history) ends in a [ResyncError]. If the reader comes from
//     another server that is ahead of this one, the log itself is asked first.
//   - A cursor proves its history. The log leaves a [Mark] at the end of each batch;
//     bookmarks and synced carry it. A log without the mark of a cursor has lost the
//     history that the reader saw, even if its head has passed the cursor since. A
//     server checks its own copy of the log in the same way. For a reader that never
//     saw a mark, only the epoch and the head are checked.
//   - A state is complete only while the log confirms its position. A log that
//     cannot be read ends the streams, and [Replica.Complete] is false.
//   - An unknown scope is an error and never an empty scope. A log whose head
//     has no rows behind it is an error too.
//   - A reader never receives an older item after a newer one. A list never takes a key
//     back to an older item than was handled before, not even a list from a server that
//     lags.
//   - Absence is no order to delete. Handlers get tombstones, each of which was
//     committed. Keys that are absent from a proven list are for the caller to compare
//     ([Replica.Complete]) and to guard.
//
// # What it costs
//
// The log has one reader for each scope that is read, however many streams there are,
// and an idle stream costs it no query. Such a scope is held in memory once, each item
// encoded once. A stream costs a position, a timer and a goroutine. A stream that falls
// behind gets the newest state of each key when it comes back.
//
// # Frames
//
// A stream begins with a header. Items follow until synced, and then changes and
// bookmarks:
//
//	header(epoch, head, heartbeat)  items... synced(count, digest)  changes... bookmark(count, digest)
//
// Bookmarks move the cursor past changes that the reader does not want, and are the
// heartbeat of an idle stream: each heartbeat also proves the reader's state.
//
// # Outages
//
// A stream that is opened while the log cannot be read waits for it up to 5 s, and the
// log is tried each second. A [Replica] that lost its stream to such an outage is back
// within 5 s of its end. Behind a proxy that holds streams back, a [Client] makes
// frames from long polls, and logs it.
//
// # Over HTTP
//
// The state in pages, a stream of frames, and a report, with curl:
//
//	curl -H "Authorization: Bearer $TOKEN" "$URL/scopes/eu/items?limit=100"
//	curl -H "Authorization: Bearer $TOKEN" "$URL/scopes/eu/items?limit=100&after=100&epoch=$EPOCH&wait=30s"
//	curl -NH "Authorization: Bearer $TOKEN" "$URL/scopes/eu/items?watch&collection=deployments"
//	curl -H "Authorization: Bearer $TOKEN" -d '{"session":1,"sequence":1,"applied":{"epoch":"'$EPOCH'","version":100}}' "$URL/scopes/eu/reports"
//
// # What it does not do
//
// It does not merge writers: the last commit of a key wins. It keeps no history:
// the newest state of each key, and tombstones until the floor passes them. It does not
// delete absent keys.
package statesync
