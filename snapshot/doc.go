// Package snapshot delivers one record of each object for each period, exactly once by
// identity, for billing, metering or audits by the minute.
//
// A [Recorder] wakes at each instant that is a multiple of its period, collects the
// records of that instant, encodes them as JSON, and hands them to a [Sink] in
// batches. [HTTPSink] posts them.
//
// # Identity
//
// An instant is the current time, truncated to the period. It does not depend on
// when the process started, and has no jitter. [ID] hashes the parts of an identity,
// one of which is the instant. So an agent that is restarted within a period, and two
// agents that overlap, give a record the same identity, and a receiver that stores
// each identity once has one row for each thing and period.
//
// # Delivery
//
// Delivery is at least once. A batch counts as delivered when the sink has accounted
// for every record in it: accepted, a duplicate, or rejected. A record that the sink
// rejects is reported and not sent again; it never holds back its neighbours.
//
//   - Without a [Spool], records that the sink did not take within its attempts are
//     lost, and counted: a failed batch costs one period.
//   - With a Spool, records are written to disk and synced before they are sent, and
//     removed once they are delivered. After an outage, or a crash at any point, they
//     are sent oldest first. The spool is bounded by bytes (256 MiB) and by age (24 h);
//     beyond that the oldest records are dropped first, and counted. Records that the
//     disk has damaged are skipped and counted. A disk that cannot be written is
//     reported, and the records are sent without it.
//
// # A view that is not current
//
// Records come from a view of the world, which may have stopped following it. A
// [Source] names the time of the last proof that it has not: an event or a bookmark of
// a watch. Nothing is recorded while that is two periods ago or longer ([ErrStale]).
// The instant is tried again, every second, until it is over.
//
// # Passes
//
// Passes of a Recorder never overlap. A pass is bounded by the end of its period, so
// that a slow receiver delays no instant; a pass that begins in the second half of a
// period has half a period. [Recorder.OnPass] receives what became of every record.
//
// # Cost
//
// At most one batch is held in memory, whatever the number of records: 5,000 records
// or 8 MiB; with [Recorder.Spread] and no spool, the records of an instant. Recording takes
// less than twice the time of SHA-256 and encoding/json.
//
// All time comes from package time, so tests of code built on this package can run in
// a testing/synctest bubble.
package snapshot
