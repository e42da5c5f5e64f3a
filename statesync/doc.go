// Package statesync carries desired state from a change log to any number of
// readers: first everything, then every change, and never a guess about what was
// not sent.
//
// A [Log] holds the newest state of each key of a scope (a region, a cluster) in
// the order of commits. [Memory] is one; package sqlstore keeps one in the
// caller's own database. A [Server] streams it, in process or by a [Handler] over
// HTTP, and a [Replica] keeps a copy, has each change handled, and knows when
// the copy is all there is.
//
// # What is promised
//
//   - Nothing is skipped and nothing comes out of order: each frame states where
//     it begins and ends, so a gap is a proven defect and never passes for
//     silence.
//   - List and watch are one stream. A change that is committed while the list
//     is being read is in the list or comes after it.
//   - Synced is stated, not guessed from an end or a pause, and it states how many
//     items there are and what their [Digest] is. So does every later frame
//     that ends a commit: a reader proves its whole state each time, not only
//     once.
//   - A commit is whole at every consistent point.
//   - A cursor that cannot be resumed (below the floor, ahead of the log, of
//     another epoch or history) ends in a [ResyncError], never in silence. A reader
//     that comes from a server that knows more than this one is no such case: the
//     log itself is asked first.
//   - A cursor proves its history. The log leaves a [Mark] at the end of each batch,
//     bookmarks and synced carry it, and a log that does not have the mark of a
//     cursor has lost what the reader saw, also when its head has passed the cursor
//     since. A server checks its own memory of the log in the same way. A reader that
//     never saw a mark is judged by the epoch and the head alone.
//   - A state is complete only while the log confirms where it stands. A log that
//     cannot be read ends the streams, and [Replica.Complete] is false.
//   - An unknown scope is an error and never an empty scope. A log whose head
//     has no rows behind it is an error too.
//   - A reader never receives an older item after a newer one: a list never takes
//     a key back to an older item than was handled before, not even one that
//     comes from a server that lags.
//   - Absence is no order. Handlers are given tombstones, each of which was
//     committed; what is absent from a proven list is reported by [Replica.Complete] and
//     left to the caller's guards.
//
// # What it costs
//
// The log has one reader for each scope that is read, however many streams there
// are, and none of them costs it a query while it idles. A scope that is read is
// held in memory once, each item encoded once. A stream costs a position, a
// timer and a goroutine; one that falls behind gets the newest state of each key
// when it comes back.
//
// # Frames
//
// A stream begins with a header, goes on with items until synced, and then with
// changes and bookmarks:
//
//	header(epoch, head, heartbeat)  items... synced(count, digest)  changes... bookmark(count, digest)
//
// Bookmarks move the cursor past what the reader does not want, and are the
// heartbeat of an idle stream: what keeps it alive also proves it right.
//
// # Outages
//
// A stream that is asked for while the log cannot be read waits for it up to 5 s, and
// has it read again each second. A [Replica] that lost its stream to such an outage
// is back within 5 s of its end. Behind a proxy that holds streams back, a [Client]
// makes the frames of long polls, and logs it.
//
// # Over HTTP
//
// The state in pages, a stream of frames, and a report, with nothing but curl:
//
//	curl -H "Authorization: Bearer $TOKEN" "$URL/scopes/eu/items?limit=100"
//	curl -H "Authorization: Bearer $TOKEN" "$URL/scopes/eu/items?limit=100&after=100&epoch=$EPOCH&wait=30s"
//	curl -NH "Authorization: Bearer $TOKEN" "$URL/scopes/eu/items?watch&collection=deployments"
//	curl -H "Authorization: Bearer $TOKEN" -d '{"session":1,"sequence":1,"applied":{"epoch":"'$EPOCH'","version":100}}' "$URL/scopes/eu/reports"
//
// # What it does not do
//
// It does not merge writers: the last commit of a key wins. It keeps no history:
// the newest state of each key, and tombstones until the floor passes them. It
// does not delete what is absent.
package statesync
