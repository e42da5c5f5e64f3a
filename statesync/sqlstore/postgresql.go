package sqlstore

import "strconv"

// postgresql fills in the statements of PostgreSQL.
func postgresql(s *statements, in func(string) string, maxBatch int) {
	const (
		// A version that was read must survive a crash of the server, even if commits
		// do not wait for the disk by default. A stricter setting stays.
		durable = `set_config('synchronous_commit', CASE current_setting('synchronous_commit') WHEN 'off' THEN 'on' ELSE current_setting('synchronous_commit') END, true)`
		// The server ends a session that holds the row and falls silent, such as one of
		// a vanished host. The planner cannot know how many rows of the queue are dead:
		// it must not scan the whole queue or all rows of a key, nor plan or compile
		// again for a query of a millisecond. All settings end with the transaction.
		quiet = `set_config('idle_in_transaction_session_timeout', '15000', true) || set_config('enable_seqscan', 'off', true) || set_config('enable_bitmapscan', 'off', true) || set_config('jit', 'off', true) || set_config('plan_cache_mode', 'force_generic_plan', true)
			|| set_config('statement_timeout', $1, true) || ` + durable
		timeline = `left(pg_walfile_name(pg_current_wal_lsn()), 8)`
	)
	// The rows committed after the snapshot $1, in two parts that each walk a part of
	// the index and nothing else, whatever the planner estimates: it is always wrong
	// about a queue of mostly dead rows. Each part is in the order of the index.
	unseen := func(columns string, limit int) string {
		const later, open = `tx >= pg_snapshot_xmax($1::text::pg_snapshot)::text::bigint`,
			`tx = ANY (ARRAY(SELECT x::text::bigint FROM pg_snapshot_xip($1::text::pg_snapshot) AS x))`
		rows := func(which string) string {
			return `(SELECT ` + columns + ` FROM {p}queue WHERE ` + which + ` ORDER BY tx LIMIT ` + strconv.Itoa(limit) + `)`
		}
		return rows(later) + ` UNION ALL ` + rows(open)
	}
	const (
		many = 1 << 30
		// beforeNext selects rows committed before the snapshot $2.
		beforeNext = `tx < pg_snapshot_xmax($2::text::pg_snapshot)::text::bigint
			AND tx <> ALL (ARRAY(SELECT x::text::bigint FROM pg_snapshot_xip($2::text::pg_snapshot) AS x))`
	)
	s.durable = `SELECT ` + durable
	s.lock = in(`SELECT origin, '', ` + quiet + ` FROM {p}meta WHERE one = 1 FOR UPDATE`)
	s.lockOrigin = in(`SELECT origin, ` + timeline + `, ` + quiet + ` FROM {p}meta WHERE one = 1 FOR UPDATE`)
	s.origin = in(
		`SELECT (SELECT system_identifier FROM pg_control_system()) || '/' || d.oid || '/' || '{p}log'::regclass::oid, ` + timeline + `
		FROM pg_database d WHERE d.datname = current_database()`,
	)
	s.elect = `SELECT pg_try_advisory_lock($1), pg_current_snapshot()::text`
	s.leftBehind = in(`SELECT EXISTS (SELECT 1 FROM (` + unseen("tx", 1000) + `) q WHERE ` + beforeNext + `)`)
	s.waiting = in(`SELECT EXISTS (` + unseen("tx", 1) + `)`)
	s.queued = in(`SELECT count(*), coalesce((extract(epoch FROM clock_timestamp() - min(at)) * 1000)::bigint, 0)
		FROM (` + unseen("at", 100_000) + `) q`)
	// It must be one statement, because under READ COMMITTED each has a snapshot of its
	// own: it assigns versions to exactly the rows that it deletes, and has a commit as
	// a whole or not at all. A row of the log is replaced, not updated: then the index
	// leads to the newest row of a key without passing dead ones.
	move := func(size, which, mark string) string {
		return in(`WITH pending AS MATERIALIZED (` + which + `), size AS MATERIALIZED (` + size + `), moved AS MATERIALIZED (
			DELETE FROM {p}queue WHERE ctid = ANY (ARRAY(SELECT row FROM pending)) AND (SELECT fits FROM size)
			RETURNING seq, scope, collection, id, deleted, value
		), numbered AS MATERIALIZED (
			SELECT scope, collection, id, deleted, value,
				row_number() OVER (PARTITION BY scope ORDER BY seq) AS n,
				row_number() OVER (PARTITION BY scope, collection, id ORDER BY seq DESC) AS back
			FROM moved WHERE collection <> ''
		), counts AS MATERIALIZED (
			SELECT m.scope, m.n, coalesce((SELECT max(version) FROM {p}log WHERE scope = m.scope), 0) AS head
			FROM (SELECT scope, count(*) FILTER (WHERE collection <> '') AS n FROM moved GROUP BY scope) m
		), made AS (
			INSERT INTO {p}scopes (scope, epoch) SELECT scope, {random} FROM counts c
			WHERE NOT EXISTS (SELECT 1 FROM {p}scopes WHERE scope = c.scope)
		), left_marks AS (
			INSERT INTO {p}marks (scope, version, mark) SELECT scope, head + n, ` + mark + ` FROM counts WHERE n > 0
			ON CONFLICT (scope, version) DO UPDATE SET mark = excluded.mark
		), replaced AS (
			DELETE FROM {p}log WHERE ctid = ANY (ARRAY(
				SELECT (SELECT l.ctid FROM {p}log l WHERE l.scope = q.scope AND l.collection = q.collection AND l.id = q.id ORDER BY l.version DESC LIMIT 1)
				FROM numbered q WHERE q.back = 1))
		), written AS (
			INSERT INTO {p}log (scope, collection, id, version, deleted, value, at)
			SELECT q.scope, q.collection, q.id, c.head + q.n, q.deleted, q.value, {now}
			FROM numbered q JOIN counts c ON c.scope = q.scope WHERE q.back = 1
		)
		SELECT s.snapshot, (SELECT fits FROM size), coalesce(c.scope, ''), coalesce(c.head + c.n, 0), coalesce(c.n, 0)
		FROM (SELECT pg_current_snapshot()::text AS snapshot) s LEFT JOIN counts c ON true`)
	}
	const row = `ctid AS row, octet_length(value) AS bytes`
	s.move = move(
		`SELECT count(*) <= `+strconv.Itoa(maxBatch)+` AND coalesce(sum(bytes), 0) <= `+strconv.Itoa(maxBatchBytes)+` AS fits FROM pending`,
		unseen(row, maxBatch+1),
		`$2::bigint`,
	)
	s.moveSome = move(`SELECT true AS fits`,
		`SELECT `+row+` FROM {p}queue WHERE tx = ANY (ARRAY(SELECT json_array_elements_text($1::json)::bigint))`, `$2::bigint`)
	// Ordered by the last number of each transaction: one that waited for another's
	// lock has drawn its number after it.
	s.plan = in(`SELECT tx, count(*), coalesce(sum(bytes), 0)::bigint FROM (` + unseen("tx, seq, octet_length(value) AS bytes", many) + `) q
		GROUP BY tx ORDER BY max(seq) LIMIT 100000`)
	s.positions = in(
		`SELECT s.scope, s.epoch, s.floor, ` + positionColumns + `, (SELECT mark FROM {p}marks WHERE scope = s.scope AND version = k.at)
		FROM json_to_recordset($1::json) AS k(scope text, at bigint) JOIN {p}scopes s ON s.scope = k.scope`,
	)
}
