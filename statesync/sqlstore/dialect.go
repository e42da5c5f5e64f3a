package sqlstore

import (
	"fmt"
	"strings"
)

// Dialect is a kind of database.
type Dialect int

// The dialects. A [Store] must name one.
const (
	// SQLite is SQLite 3.38 or newer, with any driver.
	SQLite Dialect = iota + 1
	// PostgreSQL is PostgreSQL 13 or newer, with any driver whose errors have
	// the method SQLState.
	PostgreSQL
)

// String returns the name.
func (d Dialect) String() string {
	switch d {
	case SQLite:
		return "sqlite"
	case PostgreSQL:
		return "postgresql"
	default:
		return fmt.Sprintf("Dialect(%d)", int(d))
	}
}

// positionColumns are the columns of a position beside its epoch and floor: the head,
// the secret of the scope, and its newest mark.
const positionColumns = `coalesce((SELECT max(version) FROM {p}log WHERE scope = s.scope), 0), s.secret,
	coalesce((SELECT max(version) FROM {p}marks WHERE scope = s.scope), 0),
	coalesce((SELECT mark FROM {p}marks WHERE scope = s.scope ORDER BY version DESC LIMIT 1), 0)`

const (
	columns = 5  // of the queue that Append fills
	maxRows = 64 // in one statement; SQLite takes 32,766 parameters, but drivers look each up
)

// statements are the SQL of a store. Parameters are $1, $2, ... in the order of their
// first use, which drivers of both databases accept.
type statements struct {
	// enqueue inserts as many rows as its index, a power of two.
	enqueue map[int]string
	// lock makes the transaction the only one that sequences, and limits its statements
	// to $1, in milliseconds. It returns the origin of the log's last write, an empty
	// string, and a value to ignore. lockOrigin returns the server's timeline in place
	// of the empty string.
	lock, lockOrigin string
	// elect tries to become the leader, and returns a snapshot. leftBehind returns
	// whether the queue still has a row that became visible after the snapshot $1, but
	// no later than $2.
	elect, leftBehind string
	// waiting returns whether the queue has rows that the snapshot $1 does not show,
	// and queued how many of them, at most 100,000, and the age of the oldest in
	// milliseconds.
	waiting, queued string
	// move moves the rows of the queue beyond the snapshot $1, with $2 as their mark.
	// It returns the scopes with their new heads and how many changes each got. If
	// there is more than one batch, it moves nothing: plan lists the transactions, and
	// moveSome moves the transactions of $1. SQLite needs further statements after it,
	// which is safe because it has one writer.
	move, plan, moveSome string
	moveAfter            []string
	// markAfter leaves the mark $1, and emptied empties the queue, on a dialect whose
	// move does not.
	markAfter, emptied string

	read, position, positions, scopes string
	readers, reported                 string
	allPositions, allReaders          string
	ahead, otherEpoch, reportedEpoch  string
	marked, pruneMarks                string
	now, durable                      string
	cut, raise, forget                string
	newEpochs                         string
	origin, setOrigin                 string
}

// statements returns the statements that both dialects share, with the dialect's own
// filled in.
func (d Dialect) statements(prefix string, maxBatch int) statements {
	now, random := `CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)`, `lower(hex(randomblob(16)))`
	if d == PostgreSQL {
		now, random = `(extract(epoch FROM clock_timestamp()) * 1000)::bigint`, `replace(gen_random_uuid()::text, '-', '')`
	}
	in := strings.NewReplacer("{p}", prefix, "{now}", now, "{random}", random).Replace
	positionColumns := in(positionColumns)
	s := statements{enqueue: map[int]string{}}
	for size := 1; size <= maxRows; size *= 2 {
		var text strings.Builder
		text.WriteString(in("INSERT INTO {p}queue (scope, collection, id, deleted, value) VALUES "))
		for row := range size {
			if row > 0 {
				text.WriteByte(',')
			}
			at := row * columns
			fmt.Fprintf(&text, "($%d,$%d,$%d,$%d,$%d)", at+1, at+2, at+3, at+4, at+5)
		}
		s.enqueue[size] = text.String()
	}
	s.now = in(`SELECT {now}`)
	// One statement sees one snapshot. SQLite plans a statement again for each value of a bare parameter
	// of LIMIT, which costs twice what running it does.
	s.read = in(`SELECT s.epoch, s.floor, ` + positionColumns + `, (SELECT mark FROM {p}marks WHERE scope = $1 AND version = $2),
			l.version, l.collection, l.id, l.deleted, l.value
		FROM {p}scopes s LEFT JOIN (
			SELECT version, collection, id, deleted, value FROM {p}log WHERE scope = $1 AND version > $2 ORDER BY version LIMIT CAST($3 AS bigint)
		) l ON true WHERE s.scope = $1 ORDER BY l.version`)
	s.position = in(`SELECT s.epoch, s.floor, ` + positionColumns + ` FROM {p}scopes s WHERE s.scope = $1`)
	s.scopes = in(`SELECT scope FROM {p}scopes ORDER BY scope`)
	s.readers = in(`SELECT reader, session, sequence, epoch, version, mark, body, at FROM {p}readers WHERE scope = $1 ORDER BY reader`)
	s.allPositions = in(`SELECT s.scope, s.epoch, s.floor, ` + positionColumns + ` FROM {p}scopes s ORDER BY s.scope`)
	s.allReaders = in(`SELECT scope, reader, session, sequence, epoch, version, at FROM {p}readers ORDER BY scope, reader`)
	s.reported = in(`INSERT INTO {p}readers (scope, reader, session, sequence, epoch, version, mark, body, at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, {now})
		ON CONFLICT (scope, reader) DO UPDATE SET session = excluded.session, sequence = excluded.sequence,
			epoch = excluded.epoch, version = excluded.version, mark = excluded.mark, body = excluded.body, at = excluded.at
		WHERE {p}readers.session < excluded.session
			OR ({p}readers.session = excluded.session AND {p}readers.sequence < excluded.sequence)`)
	// Readers with a running lease that are above the head.
	s.ahead = in(`SELECT count(*) FROM {p}readers WHERE scope = $1 AND epoch = $2 AND at > {now} - $3
		AND version > coalesce((SELECT max(version) FROM {p}log WHERE scope = $1), 0)`)
	s.otherEpoch = in(`UPDATE {p}scopes SET epoch = {random} WHERE scope = $1 AND epoch = $2`)
	s.reportedEpoch = in(`UPDATE {p}scopes SET epoch = {random}, renewed = {now} WHERE scope = $1 AND epoch = $2 AND renewed <= {now} - $3`)
	s.marked = in(`SELECT s.epoch, s.secret, s.floor, coalesce((SELECT min(version) FROM {p}marks WHERE scope = $1), 0),
			(SELECT mark FROM {p}marks WHERE scope = $1 AND version = $2)
		FROM {p}scopes s WHERE s.scope = $1`)
	s.pruneMarks = in(`DELETE FROM {p}marks WHERE scope = $1 AND (version < (SELECT floor FROM {p}scopes WHERE scope = $1)
		OR version < (SELECT version FROM {p}marks WHERE scope = $1 ORDER BY version DESC LIMIT 1 OFFSET $2))`)
	s.newEpochs = in(`UPDATE {p}scopes SET epoch = {random}`)
	s.setOrigin = in(`UPDATE {p}meta SET origin = $1 WHERE one = 1`)
	// The newest item always stays: it is the head.
	s.cut = in(`SELECT coalesce(max(version), 0) FROM {p}log WHERE scope = $1 AND deleted AND version <= $2
		AND at <= {now} - $3 AND version < (SELECT max(version) FROM {p}log WHERE scope = $1)`)
	s.raise = in(`UPDATE {p}scopes SET floor = $1 WHERE scope = $2 AND floor < $1`)
	s.forget = in(`DELETE FROM {p}log WHERE scope = $1 AND deleted AND version <= $2`)
	switch d {
	case SQLite:
		sqlite(&s, in)
	case PostgreSQL:
		postgresql(&s, in, maxBatch)
	}
	return s
}
