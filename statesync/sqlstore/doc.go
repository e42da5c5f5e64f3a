// Package sqlstore keeps a change log of package statesync in tables of the
// caller's database, SQLite or PostgreSQL, and takes changes inside the caller's
// own transactions: what is committed is in the log, and nothing else.
//
// # Why not a sequence
//
// A table of changes with a serial number, read by "id > cursor", loses changes.
// The number is drawn when a row is written, and the row is seen when its
// transaction commits. One that draws 7 and commits after the one that drew 8 is
// skipped for ever by a reader who was there in between: of 16 writers, by 3 to
// 55 % of what they write. Counting transactions instead of rows, the xmin
// filter, loses less, breaks the order of changes to one key, and makes readers
// wait for every stranger's open transaction. A counter or a lock that writers
// take is exact, and makes them queue up.
//
// # The scheme
//
// Nothing gets a version before it is committed. [Store.Append] inserts rows
// without one into a queue, in the caller's transaction. [Store.Start] runs a
// sequencer: it takes everything that one statement sees in the queue, gives it
// consecutive versions for each scope, in the order in which Append was called,
// and writes the newest state of each key to the log, in one transaction. A
// reader reads the log alone, where versions appear in their order.
//
// One sequencer works at a time, whatever the number of processes. What makes it
// the only one is a row lock that each of its transactions takes; a leader's
// advisory lock, on PostgreSQL, only keeps the others from trying. A sequencer
// that is killed leaves a queue for the next, which begins within Poll, or within
// a second or so if the lock outlived its owner, as it does behind a pooler.
//
// # Guarantees
//
//   - Whatever commits is in the log, whatever is rolled back is not, also when a
//     writer, a sequencer or the server is killed at any moment.
//   - Versions of a scope are consecutive. A commit becomes readable as a whole.
//   - Two changes of one key are in the order in which Append was called. Called
//     after the lock of the row that holds the key's state, that is the order of
//     the commits.
//   - An open transaction, a writer's or a stranger's, holds up nobody.
//   - Append takes no lock that another writer waits for, and sends no NOTIFY.
//   - A tombstone is kept for Retention, and while a reader that has reported
//     within Lease has not applied it. Pruning raises the scope's floor in the same
//     transaction.
//
// # Waking up
//
// After its commit a writer calls [Store.Wake], which never blocks. If this
// process sequences, that is all; if another does, it is sent a notification, at
// most one at a time and in a transaction of its own. [Store.Wait] costs the
// database nothing: one query for each Poll, for whoever waits in this process,
// serves those that a notification did not reach. On PostgreSQL set Listen (see
// package pgxlisten) for changes that other processes sequence. On SQLite they
// are found by polling.
//
// # Epochs
//
// A scope's epoch is drawn when the scope is made. After a restore from a backup,
// or a failover that lost commits, versions would be given a second time, and
// readers would take new changes for old ones; another epoch makes them begin
// anew. The sequencer begins one by itself, before it gives another version, when
//
//   - the PostgreSQL cluster, its timeline, the database or the table is not the
//     one that the log was last written in: after a restore to a point in time,
//     a promoted standby, a dump that was loaded into a new database or over
//     this one. A failover that lost nothing is taken for one that did.
//
// Start and Report do so, for the scope, when
//
//   - the head of a log is below what this process has seen, or a reader reports
//     that it has applied a version above the head.
//
// What is not detected by itself: a SQLite file that was replaced while nothing
// ran; a copy of PostgreSQL's data directory, or of its disk, that is started in
// the place of the original; both unless a reader's report proves it first. A
// server that does not tell its origin is logged. Call [Store.NewEpoch] after a
// restore, before Start, and be sure.
//
// # Costs
//
// A change is inserted, deleted and upserted. The writers' part costs what a
// naive outbox does. The sequencer's is work of the database's own: 16 writers
// that do a little else in their transactions commit as often as with a naive
// outbox, those that saturate the processors about four times where they would
// five. A change is readable one to two milliseconds after its commit, and the
// time of two waits for the disk. Reading a page is one query. At rest a process
// asks one or two small questions for each Poll.
//
// All of a queue is moved in one transaction, however long it has become while no
// sequencer ran. A snapshot that is held open for long, by a dump or a forgotten
// transaction, keeps PostgreSQL from removing dead rows. The sequencer does not
// look at those of the queue again: each row names its transaction, and what the
// snapshot of one batch did not show is of a transaction that was unfinished
// then, or of a later one. Keys of the log that change often get slower meanwhile,
// as the caller's own rows do.
//
// # Not done here
//
// There is no history: of several changes to a key the newest stays. There is no
// order between scopes. MySQL is not supported. The role needs no privilege beyond
// its tables, and the right to make them for [Store.Migrate]; replication slots
// are not used.
package sqlstore
