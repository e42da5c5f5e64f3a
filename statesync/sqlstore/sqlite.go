package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
)

// ErrNoBusyTimeout is a SQLite whose transactions fail instead of waiting for each
// other.
var ErrNoBusyTimeout = errors.New(
	"SQLite has no busy_timeout and writers fail with SQLITE_BUSY: open it with ?_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)&_txlock=immediate, or limit DB to one connection",
)

// errUnfit is in the chain of an error about a database that can never do: Start returns it.
var errUnfit = errors.New("another database is needed")

// shortBusy is the busy_timeout in milliseconds below which a slow disk alone fails writers.
const shortBusy = 1000

// unfit is such an error, whose text is its own.
type unfit struct{ error }

func (unfit) Is(target error) bool { return target == errUnfit }

// opened returns ErrNoBusyTimeout for a SQLite of several connections that has none, an errUnfit for a
// database that is not of the Dialect, or of which each connection has its own, and logs what
// else makes its transactions fail or wait.
func (s *Store) opened(ctx context.Context) error {
	ctx, cancel := s.within(ctx)
	defer cancel()
	if s.Dialect != SQLite {
		return s.fits(ctx, nil)
	}
	var journal string
	if err := s.DB.QueryRowContext(ctx, `PRAGMA journal_mode`).Scan(&journal); err != nil {
		return s.fits(ctx, fmt.Errorf("journal_mode: %w", err))
	}
	if journal == "memory" {
		if err := s.oneMemory(ctx); err != nil {
			return err
		}
	}
	if journal != "wal" && journal != "memory" { // a database in memory has no other
		s.logger().WarnContext(ctx, "SQLite makes readers and writers wait for each other",
			slog.String("pragma", "journal_mode"), slog.String("is", journal), slog.String("right", "_pragma=journal_mode(WAL)"))
	}
	if s.DB.Stats().MaxOpenConnections == 1 {
		return nil
	}
	var milliseconds int
	if err := s.DB.QueryRowContext(ctx, `PRAGMA busy_timeout`).Scan(&milliseconds); err != nil {
		return fmt.Errorf("busy_timeout: %w", err)
	}
	if milliseconds == 0 {
		return ErrNoBusyTimeout
	}
	if milliseconds < shortBusy {
		s.logger().WarnContext(ctx, "SQLite fails a writer that waits for others for so short a time",
			slog.String("pragma", "busy_timeout"), slog.Int("is", milliseconds), slog.String("right", "_pragma=busy_timeout(5000)"))
	}
	deferred, err := s.deferred(ctx, milliseconds)
	if err != nil {
		return fmt.Errorf("txlock: %w", err)
	}
	if deferred {
		s.logger().WarnContext(ctx, "SQLite fails transactions that read before they write, whatever the busy_timeout",
			slog.String("option", "txlock"), slog.String("is", "deferred"), slog.String("right", "_txlock=immediate"))
	}
	return nil
}

// fits returns an errUnfit if the database is of the other Dialect, and otherwise the error that
// made it doubtful.
func (s *Store) fits(ctx context.Context, doubt error) error {
	type kind struct{ name, query string }
	own, other := kind{"PostgreSQL", `SELECT current_setting('server_version')`}, kind{"SQLite", `SELECT sqlite_version()`}
	if s.Dialect == SQLite {
		own, other = other, own
	}
	var version string
	if s.DB.QueryRowContext(ctx, own.query).Scan(&version) == nil || s.DB.QueryRowContext(ctx, other.query).Scan(&version) != nil {
		return doubt // it is as stated, or does not answer
	}
	return unfit{fmt.Errorf("sqlstore: Store.Dialect: is %s, must be %s: DB is a %s %s", own.name, other.name, other.name, version)}
}

// oneMemory returns an errUnfit if two connections have databases of their own, as those to :memory: do:
// then both can be its only writer at the same time.
func (s *Store) oneMemory(ctx context.Context) (err error) {
	if s.DB.Stats().MaxOpenConnections == 1 && s.readDB() == s.DB {
		return nil
	}
	var conns []*sql.Conn
	defer func() {
		for _, conn := range conns {
			err = errors.Join(err, conn.Close())
		}
	}()
	second := s.DB
	if s.DB.Stats().MaxOpenConnections == 1 {
		second = s.readDB()
	}
	for _, db := range []*sql.DB{s.DB, second} {
		conn, err := db.Conn(ctx)
		if err != nil {
			return err
		}
		conns = append(conns, conn)
	}
	if _, err := conns[0].ExecContext(ctx, `BEGIN IMMEDIATE`); err != nil {
		return err
	}
	var timeout int
	busy := conns[1].QueryRowContext(ctx, `PRAGMA busy_timeout`).Scan(&timeout)
	if busy == nil {
		_, busy = conns[1].ExecContext(ctx, `PRAGMA busy_timeout = 0`)
	}
	if busy == nil {
		_, busy = conns[1].ExecContext(ctx, `BEGIN IMMEDIATE`)
		if busy == nil {
			_, err = conns[1].ExecContext(ctx, `ROLLBACK`)
		}
		_, reset := conns[1].ExecContext(ctx, fmt.Sprintf(`PRAGMA busy_timeout = %d`, timeout))
		err = errors.Join(err, reset)
	}
	_, ended := conns[0].ExecContext(ctx, `ROLLBACK`)
	switch err = errors.Join(err, ended); {
	case err != nil:
		return err
	case busy == nil:
		return unfit{errors.New("sqlstore: Store.DB: is a SQLite in memory of which each connection has its own, " +
			"must have one connection (SetMaxOpenConns(1), no other ReadDB), or be a file")}
	}
	return nil
}

// deferred reports whether a transaction of DB takes no lock when it begins: then another
// connection can take it. SQLite has no question for that.
func (s *Store) deferred(ctx context.Context, busyTimeout int) (deferred bool, err error) {
	other, err := s.DB.Conn(ctx)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, other.Close()) }()
	tx, err := s.DB.BeginTx(ctx, nil)
	if Retryable(err) {
		return false, nil // it asks for the lock when it begins, and another writer has it
	}
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, tx.Rollback()) }()
	if _, err := other.ExecContext(ctx, `PRAGMA busy_timeout = 0`); err != nil {
		return false, err
	}
	_, busy := other.ExecContext(ctx, `BEGIN IMMEDIATE`)
	if busy == nil {
		_, err = other.ExecContext(ctx, `ROLLBACK`)
	} else if !Retryable(busy) {
		err = busy
	}
	_, resetErr := other.ExecContext(ctx, fmt.Sprintf(`PRAGMA busy_timeout = %d`, busyTimeout))
	return busy == nil, errors.Join(err, resetErr)
}

// sqlite fills in the statements of SQLite. A transaction that has written is the only
// writer, so the statements after the lock see one state of the queue.
func sqlite(s *statements, in func(string) string) {
	// $1, a limit, has no meaning here.
	s.lock = in(`UPDATE {p}meta SET batches = batches + 1 WHERE one = 1 AND $1 <> '' RETURNING origin, '', 0`)
	// Nor have snapshots.
	s.waiting = in(`SELECT EXISTS (SELECT 1 FROM {p}queue WHERE $1 <> '')`)
	s.queued = in(`SELECT count(*), coalesce({now} - min(at), 0) FROM (SELECT at FROM {p}queue WHERE $1 <> '' LIMIT 100000)`)
	s.move = in(`SELECT $1, $2 IS NOT NULL, q.scope, coalesce((SELECT max(version) FROM {p}log WHERE scope = q.scope), 0) + q.n, q.n
		FROM (SELECT scope, count(*) FILTER (WHERE collection <> '') AS n FROM {p}queue GROUP BY scope) q`)
	s.moveAfter = []string{
		in(`INSERT INTO {p}scopes (scope, epoch) SELECT DISTINCT scope, '' FROM {p}queue WHERE true ON CONFLICT DO NOTHING`),
		in(`UPDATE {p}scopes SET epoch = {random}, secret = {random} || {random} WHERE epoch = ''`),
		in(`INSERT INTO {p}log (scope, collection, id, version, deleted, value, at)
			SELECT q.scope, q.collection, q.id, h.head + q.n, q.deleted, q.value, {now}
			FROM (
				SELECT scope, collection, id, deleted, value,
					row_number() OVER (PARTITION BY scope ORDER BY seq) AS n,
					row_number() OVER (PARTITION BY scope, collection, id ORDER BY seq DESC) AS back
				FROM {p}queue WHERE collection <> ''
			) q JOIN (
				SELECT s.scope, coalesce((SELECT max(version) FROM {p}log WHERE scope = s.scope), 0) AS head
				FROM (SELECT DISTINCT scope FROM {p}queue) s
			) h ON h.scope = q.scope
			WHERE q.back = 1
			ON CONFLICT (scope, collection, id) DO UPDATE
			SET version = excluded.version, deleted = excluded.deleted, value = excluded.value, at = excluded.at`),
	}
	s.markAfter = in(`INSERT INTO {p}marks (scope, version, mark)
		SELECT q.scope, (SELECT max(version) FROM {p}log WHERE scope = q.scope), $1 FROM (SELECT DISTINCT scope FROM {p}queue WHERE collection <> '') q WHERE true
		ON CONFLICT (scope, version) DO UPDATE SET mark = excluded.mark`)
	s.emptied = in(`DELETE FROM {p}queue`)
	s.positions = in(`SELECT s.scope, s.epoch, s.floor, ` + in(positionColumns) + `,
			(SELECT mark FROM {p}marks WHERE scope = s.scope AND version = json_extract(k.value, '$.at'))
		FROM json_each($1) k JOIN {p}scopes s ON s.scope = json_extract(k.value, '$.scope')`)
}
