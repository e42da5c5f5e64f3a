// Package sqlstore keeps a change log of package statesync in tables of the
// caller's database, SQLite or PostgreSQL, and takes changes inside the caller's own
// transactions: the log has every committed change and no other.
//
// # Why not a sequence
//
// A table of changes with a serial number, read by "id > cursor", loses changes.
// The number is drawn when a row is written, but the row becomes visible when its
// transaction commits. If the transaction with 7 commits after the one with 8, a reader
// that reads in between skips 7 for ever: with 16 writers, 3 to 55 % of the changes.
// Counting transactions instead of rows, the xmin filter, loses less, breaks the order
// of changes to one key, and makes readers wait for every open transaction of the
// server. A counter or a lock that writers take is exact, and makes them queue up.
//
// # The scheme
//
// Nothing gets a version before it is committed. [Store.Append] inserts rows
// without one into a queue, in the caller's transaction. [Store.Start] runs a
// sequencer: it takes the rows of the queue that one statement sees, assigns them
// consecutive versions for each scope, in the order in which Append was called, and
// writes the newest state of each key to the log, in one transaction. A reader reads
// only the log, where versions appear in order.
//
// One sequencer works at a time, whatever the number of processes. Each of its
// transactions takes a row lock that makes it the only one; the leader's advisory lock,
// on PostgreSQL, only keeps the others from trying. When a sequencer is killed, the
// next one takes over its queue within Poll, or within about a second if the lock
// outlives its owner, as behind a pooler.
//
// # Guarantees
//
//   - The log has every committed change and none that was rolled back, even if a
//     writer, a sequencer or the server is killed at any moment.
//   - Versions of a scope are consecutive. A commit becomes readable as a whole.
//   - Two changes of one key are in the order in which Append was called. If Append is
//     called after locking the row with the key's state, that is the order of the
//     commits.
//   - On PostgreSQL a version that was read survives a crash of the server: a batch
//     waits for the disk, even under synchronous_commit=off. The caller's commits that
//     do not wait for the disk may be lost, from their tables and from the log. A
//     server with fsync=off, and SQLite with synchronous=NORMAL, may lose versions in a
//     power failure; marks detect that.
//   - An open transaction delays no other.
//   - Append takes no lock that another writer waits for, and sends no NOTIFY.
//   - Isolation, statement timeout and durability of the sequencer are its own,
//     whatever the defaults of the session. On PostgreSQL it moves at most 5,000
//     changes, or 32 MiB, in a transaction; a larger commit is one of its own. On
//     SQLite, which does not show where a commit ends, it moves the whole queue.
//   - Each statement has a deadline of 10 s, after which a connection whose other side
//     has vanished is given up. Only a batch may take longer: its limit doubles each
//     time that it was too short.
//   - A tombstone is kept for Retention, and while a reader that has reported
//     within Lease has not applied it. Pruning raises the scope's floor in the same
//     transaction.
//
// # Waking up
//
// After its commit a writer calls [Store.Wake], which never blocks. If another process
// sequences, it is sent a notification, at most one at a time and in a transaction of
// its own. [Store.Wait] adds little load: one query for each Poll, shared by all waits in
// this process, serves those that a notification did not reach. A process that sequences on
// PostgreSQL, or receives the notifications of the one that does, asks for an eighth of
// its scopes at a time, so that each is confirmed every 2 s. Wait ends with an error
// when that query is not answered for 5 s, or for three times Poll if that is longer:
// no reader may mistake an old head for the newest. On PostgreSQL set Listen (see
// package pgxlisten) for changes that other processes sequence. On SQLite they are
// found by polling.
//
// # Marks and epochs
//
// Each batch leaves a mark beside the last version of each scope: a random number,
// sealed with a secret of the scope. A log that has lost its newest versions assigns
// them again with other marks. A cursor whose mark the log does not have must therefore
// start again, even if the head has passed it meanwhile; see [statesync.Marks]. Marks
// below the floor are pruned, and so are those beyond the newest 100,000 of a scope.
//
// A scope's epoch is a random number from its creation. A new epoch makes all readers
// start again, including those that have seen no mark. A scope gets a new epoch when
//
//   - the PostgreSQL cluster, its timeline, the database or the table is not the one of
//     the log's last write: after a restore to a point in time, a promoted standby, a
//     dump that was loaded into a new database or over this one. A failover that lost
//     nothing counts as one that did. All scopes get a new epoch then, before a version
//     is assigned.
//   - a batch begins below a version that this process has read or assigned; then
//     before the batch is committed.
//   - the head of a scope that is waited for falls, or the log no longer has the mark
//     that was read.
//   - a cursor or a report has a mark that this log has made and no longer has, or two
//     readers report versions above the head. A single reader without such a mark
//     proves nothing. Reports and cursors change the epoch of a scope at most once in
//     ten minutes.
//
// Some losses are not detected: before any reader has come back, the loss of a SQLite
// file that was replaced while no program ran, or of a copy of PostgreSQL's data
// directory that is started in place of the original; and any loss for a reader that
// has seen no mark and whose version the head has passed. A server whose system
// identifier cannot be read is logged. To be sure, call [Store.NewEpoch] after a
// restore, before Start.
//
// # Events
//
// OnBatch is called for each batch. OnEvent is called, and Logger gets a line, once for
// each new epoch, election won or lost, stuck or recovered queue, and full disk.
// [Store.Queue] returns the depth and the age of the queue. [Store.Stalled] returns for
// how long it has not moved, for a readiness check.
//
// # Costs
//
// A change costs an insert and a delete in the queue, and replaces a row of the log.
// The writers' part costs as much as a naive outbox. The sequencer's part adds load to
// the database: 16 writers with a little other work in their transactions reach about
// 90 % of the commits of a naive outbox, and about 80 % if they saturate the
// processors. A mark is one row for each scope of a batch. A change is readable one to
// two milliseconds, plus two waits for the disk, after its commit. Reading a page is
// one query. At rest a process sends one or two small queries for each Poll.
//
// A snapshot that stays open for long, by a dump or a forgotten transaction, keeps
// PostgreSQL from removing dead rows. The cost of a batch does not grow with them. Each
// row of the queue names its transaction. A row that the snapshot of one batch did not
// show belongs to a transaction that was unfinished then, or to a later one: the
// sequencer walks the index from there. The newest row of a key is the last of its
// entries in the index of the log. New lists do read past dead rows, and the tables
// grow until the snapshot ends.
//
// # Not done here
//
// There is no history: of several changes to a key only the newest is kept. There is no
// order between scopes. MySQL is not supported.
//
// Replication slots are not used. A sequencer that reads transactional messages
// (pg_logical_emit_message) from one slot was tried in place of the queue: in one run on two
// processors its writers reached 88 % of the commits of a naive outbox, and 72 % if they saturate
// the processors, where the queue reached 93 and 74 %. To decode the write-ahead log costs what
// the queue costs. It would also need wal_level=logical, a role with REPLICATION, and a slot that
// keeps the log of the server from being removed while no program runs.
//
// # SQLite
//
// Open the file with options that make transactions wait for each other:
//
//	file:app.db?_pragma=journal_mode(WAL)&_pragma=busy_timeout(5000)&_txlock=immediate
//
// These are the names of modernc.org/sqlite; other drivers have their own. Without a
// busy_timeout a third of the caller's own writes fail with SQLITE_BUSY, and Migrate and
// Start return an error if DB has none and may have more than one connection. Without
// _txlock=immediate a transaction that reads before it writes fails, whatever the
// timeout. Without WAL a reader and a writer wait for each other. Migrate and Start log a
// warning that names the option if one of these two is missing, or the busy_timeout is below
// a second. A database in memory, of which each connection has its own, is refused, unless DB
// has one connection and there is no ReadDB.
//
// # Migrations by another tool
//
// [Migrations] has the files that [Store.Migrate] runs. They make the tables meta, scopes,
// queue, log, marks, readers and schema, each with the prefix, and on PostgreSQL the sequence
// queue_seq. A later version of this package adds files, and changes none. With goose:
//
//	files, err := sqlstore.Migrations(sqlstore.PostgreSQL, "")
//	provider, err := goose.NewProvider(goose.DialectPostgres, db, files, goose.WithTableName("trueup_goose"))
//
// The table name keeps its versions apart from those of the program's own files. Atlas and
// Flyway read files from a folder: os.CopyFS writes them there; Flyway wants the names
// V1__tables.sql and so on.
//
// # Privileges on PostgreSQL
//
// [Store.Migrate] needs the right to create in the schema. All else needs SELECT, INSERT,
// UPDATE and DELETE on the tables, and USAGE on the sequence of the queue. With the default
// prefix, and another role for the migrations:
//
//	GRANT SELECT, INSERT, UPDATE, DELETE ON trueup_meta, trueup_scopes, trueup_queue, trueup_log, trueup_marks, trueup_readers TO app;
//	GRANT USAGE ON SEQUENCE trueup_queue_seq TO app;
package sqlstore
