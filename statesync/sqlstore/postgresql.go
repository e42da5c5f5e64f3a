package sqlstore

// postgresql fills in what PostgreSQL says in its own way.
func postgresql(s *statements, in func(string) string) {
	// Whoever holds the row and then falls silent, as a host that has vanished,
	// is thrown out by the server. The planner, which cannot know how many rows of
	// the queue are dead, is kept from looking at all, and from planning
	// or compiling anew what takes a millisecond. All of it ends with the
	// transaction.
	const (
		quiet    = `set_config('idle_in_transaction_session_timeout', '15000', true) || set_config('enable_seqscan', 'off', true) || set_config('jit', 'off', true) || set_config('plan_cache_mode', 'force_generic_plan', true)`
		timeline = `left(pg_walfile_name(pg_current_wal_lsn()), 8)`
	)
	// What was committed after the snapshot $1 was taken.
	const unseen = `(tx >= pg_snapshot_xmax($1::text::pg_snapshot)::text::bigint
		OR tx = ANY (ARRAY(SELECT x::text::bigint FROM pg_snapshot_xip($1::text::pg_snapshot) AS x)))`
	s.lock = in(`SELECT origin, '', ` + quiet + ` FROM {p}meta WHERE one = 1 FOR UPDATE`)
	s.lockOrigin = in(`SELECT origin, ` + timeline + `, ` + quiet + ` FROM {p}meta WHERE one = 1 FOR UPDATE`)
	s.origin = in(`SELECT (SELECT system_identifier FROM pg_control_system()) || '/' || d.oid || '/' || '{p}log'::regclass::oid, ` + timeline + `
		FROM pg_database d WHERE d.datname = current_database()`)
	s.candidate = in(`SELECT pg_try_advisory_lock($1), (SELECT min(seq) FROM {p}queue)`)
	s.waiting = in(`SELECT EXISTS (SELECT 1 FROM {p}queue WHERE ` + unseen + `)`)
	// One statement, for under READ COMMITTED each has a snapshot of its own: what
	// this one deletes is what it numbers, and a commit is in it as a whole or
	// not at all.
	s.move = in(`WITH moved AS MATERIALIZED (
			DELETE FROM {p}queue WHERE ` + unseen + ` RETURNING seq, scope, collection, id, deleted, value
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
		), written AS (
			INSERT INTO {p}log AS l (scope, collection, id, version, deleted, value, at)
			SELECT q.scope, q.collection, q.id, c.head + q.n, q.deleted, q.value, {now}
			FROM numbered q JOIN counts c ON c.scope = q.scope WHERE q.back = 1
			ON CONFLICT (scope, collection, id) DO UPDATE
			SET version = excluded.version, deleted = excluded.deleted, value = excluded.value, at = excluded.at
		)
		SELECT s.snapshot, coalesce(c.scope, ''), coalesce(c.head + c.n, 0), coalesce(c.n, 0)
		FROM (SELECT pg_current_snapshot()::text AS snapshot) s LEFT JOIN counts c ON true`)
	s.positions = in(`SELECT s.scope, s.epoch, s.floor, coalesce((SELECT max(version) FROM {p}log WHERE scope = s.scope), 0)
		FROM {p}scopes s WHERE s.scope IN (SELECT json_array_elements_text($1::json))`)
}
