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
// sequencer: it takes what one statement sees in the queue, gives it consecutive
// versions for each scope, in the order in which Append was called, and writes the
// newest state of each key to the log, in one transaction. A reader reads the log
// alone, where versions appear in their order.
//
// One sequencer works at a time, whatever the number of processes. A row lock that
// each of its transactions takes makes it the only one; a leader's advisory lock, on
// PostgreSQL, only keeps the others from trying. A sequencer that is killed leaves a
// queue for the next, which begins within Poll, or within a second or so if the lock
// outlived its owner, as it does behind a pooler.
//
// # Guarantees
//
//   - What commits is in the log, and what is rolled back is not, also when a
//     writer, a sequencer or the server is killed at any moment.
//   - Versions of a scope are consecutive. A commit becomes readable as a whole.
//   - Two changes of one key are in the order in which Append was called. Called
//     after the lock of the row that holds the key's state, that is the order of
//     the commits.
//   - On PostgreSQL a version that was read outlives a crash of the server: a batch
//     waits for the disk, also under synchronous_commit=off. Commits of the caller's
//     that do not wait may be lost, and are then in neither. A server with fsync=off,
//     and SQLite with synchronous=NORMAL, may lose versions with the power; marks
//     find that.
//   - An open transaction holds up no other.
//   - Append takes no lock that another writer waits for, and sends no NOTIFY.
//   - Isolation, statement timeout and durability of the sequencer are its own,
//     whatever the defaults of the session. On PostgreSQL it moves at most 5,000
//     changes, or 32 MiB, in a transaction; a larger commit is one of its own. On
//     SQLite, which does not tell where a commit ends, it moves the whole queue.
//   - Each statement has a deadline of 10 s, so that a connection whose other side is
//     gone without a word is given up. Only a batch may take longer: its limit
//     doubles each time that it was too short.
//   - A tombstone is kept for Retention, and while a reader that has reported
//     within Lease has not applied it. Pruning raises the scope's floor in the same
//     transaction.
//
// # Waking up
//
// After its commit a writer calls [Store.Wake], which never blocks. If this
// process sequences, that is all; if another does, it is sent a notification, at
// most one at a time and in a transaction of its own. [Store.Wait] costs the
// database nothing: one query for each Poll, for all that wait in this process,
// serves those that a notification did not reach. It ends with an error when that
// query is not answered for 5 s, or for three times Poll if that is longer, so that
// no reader takes an old head for the newest. On PostgreSQL set Listen (see package
// pgxlisten) for changes that other processes sequence. On SQLite they are found by
// polling.
//
// # Marks and epochs
//
// Each batch leaves a mark beside the last version of each scope: a number that is
// drawn for the batch, sealed with a secret of the scope. A log that has lost its
// newest versions, and gives them again, gives them with other marks. A cursor whose
// mark the log does not have is therefore told to begin anew, also when the head has
// passed it meanwhile; see [statesync.Marks]. Marks below the floor are pruned, and
// those beyond the newest 100,000 of a scope.
//
// A scope's epoch is drawn when the scope is made. Another epoch makes all readers
// begin anew, also those that have seen no mark. A scope gets another when
//
//   - the PostgreSQL cluster, its timeline, the database or the table is not the
//     one that the log was last written in: after a restore to a point in time,
//     a promoted standby, a dump that was loaded into a new database or over
//     this one. A failover that lost nothing is taken for one that did. All scopes
//     get another then, before another version is given.
//   - a batch begins below what this process has read or given before; then before
//     the batch is committed.
//   - the head of a scope that is waited for falls, or the mark that was read of it
//     is not there.
//   - a cursor or a report brings a mark that this log has made and does not have,
//     or two readers report versions above the head. What one reader reports without
//     such a mark proves nothing. Reports and cursors cause one such change of a
//     scope in ten minutes at most.
//
// What is not noticed: a loss before any reader has come back, of a SQLite file that
// was replaced while nothing ran, or of a copy of PostgreSQL's data directory that is
// started in the place of the original, by a reader that has seen no mark and whose
// version the head has passed. A server that does not tell its origin is logged. Call
// [Store.NewEpoch] after a restore, before Start, and be sure.
//
// # Events
//
// OnBatch is called for each batch. OnEvent is called, and Logger gets a line, once
// for another epoch, an election that was won or lost, a queue that is stuck or moves
// again, and a full disk. [Store.Queue] returns the depth and the age of the queue,
// and [Store.Stalled] for how long it has not moved, which is for a readiness check.
//
// # Costs
//
// A change is inserted, deleted, and replaces a row of the log. The writers' part
// costs what a naive outbox does. The sequencer's is work of the database's own: 16
// writers that do a little else in their transactions commit about nine times where
// they would ten with a naive outbox, those that saturate the processors about four
// times where they would five. A mark is one row for each scope of a batch. A change is readable one to two
// milliseconds after its commit, and the time of two waits for the disk. Reading a
// page is one query. At rest a process asks one or two small questions for each Poll.
//
// A snapshot that is held open for long, by a dump or a forgotten transaction, keeps
// PostgreSQL from removing dead rows. What a batch costs does not grow with them.
// Each row of the queue names its transaction, and what the snapshot of one batch did
// not show is of a transaction that was unfinished then, or of a later one: the
// sequencer walks the index from there. The newest row of a key is the last of its
// entries in the index of the log. Lists that begin anew meanwhile do read past dead
// rows, and the tables grow until the snapshot ends.
//
// # Not done here
//
// There is no history: of several changes to a key the newest stays. There is no
// order between scopes. MySQL is not supported. The role needs no privilege beyond
// its tables, and the right to make them for [Store.Migrate]; replication slots
// are not used.
package sqlstore
