package sqlstore

// sqlite fills in what SQLite says in its own way. A transaction that has
// written is the only one that does, so the statements after the lock see one
// state of the queue.
func sqlite(s *statements, in func(string) string) {
	s.lock = in(`UPDATE {p}meta SET batches = batches + 1 WHERE one = 1 RETURNING origin, '', 0`)
	// $1, a snapshot, has no meaning here.
	s.waiting = in(`SELECT EXISTS (SELECT 1 FROM {p}queue WHERE $1 <> '')`)
	s.move = in(`SELECT $1, q.scope, coalesce((SELECT max(version) FROM {p}log WHERE scope = q.scope), 0) + q.n, q.n
		FROM (SELECT scope, count(*) FILTER (WHERE collection <> '') AS n FROM {p}queue GROUP BY scope) q`)
	s.moveAfter = []string{
		in(`INSERT INTO {p}scopes (scope, epoch) SELECT DISTINCT scope, '' FROM {p}queue WHERE true ON CONFLICT DO NOTHING`),
		in(`UPDATE {p}scopes SET epoch = {random} WHERE epoch = ''`),
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
		in(`DELETE FROM {p}queue`),
	}
	s.positions = in(`SELECT s.scope, s.epoch, s.floor, coalesce((SELECT max(version) FROM {p}log WHERE scope = s.scope), 0)
		FROM {p}scopes s WHERE s.scope IN (SELECT value FROM json_each($1))`)
}
