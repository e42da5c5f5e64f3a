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

const (
	columns = 5  // of the queue that Append fills
	maxRows = 64 // in one statement; SQLite takes 32,766 parameters, but drivers look each up
)

// statements are what a store says to its database. Parameters are $1, $2, ...
// in the order of their first use, which drivers of both databases take.
type statements struct {
	// enqueue inserts as many rows as its index, a power of two.
	enqueue map[int]string
	// lock makes the transaction the only one that sequences. It returns the
	// origin that the log was last written in, an empty string, and something to
	// ignore. lockOrigin has the server's timeline in place of the empty string.
	lock, lockOrigin string
	// candidate tries to become the leader, and returns what waits longest.
	candidate string
	// waiting returns whether the queue has rows.
	waiting string
	// move takes what the queue holds: it returns the scopes with their new
	// heads and how many changes each got. SQLite needs more than one statement,
	// which come after it, and may since it has one writer.
	move      string
	moveAfter []string

	read, position, positions, scopes string
	readers, reported, staleEpoch     string
	now                               string
	cut, raise, forget                string
	newEpochs                         string
	origin, setOrigin                 string
}

// statements returns what both dialects say alike, with the difference filled in.
func (d Dialect) statements(prefix string) statements {
	now, random := `CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)`, `lower(hex(randomblob(16)))`
	if d == PostgreSQL {
		now, random = `(extract(epoch FROM clock_timestamp()) * 1000)::bigint`, `replace(gen_random_uuid()::text, '-', '')`
	}
	in := strings.NewReplacer("{p}", prefix, "{now}", now, "{random}", random).Replace
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
	const head = `coalesce((SELECT max(version) FROM {p}log WHERE scope = s.scope), 0)`
	// One statement sees one moment.
	s.read = in(`SELECT s.epoch, s.floor, ` + head + `, l.version, l.collection, l.id, l.deleted, l.value
		FROM {p}scopes s LEFT JOIN (
			SELECT version, collection, id, deleted, value FROM {p}log WHERE scope = $1 AND version > $2 ORDER BY version LIMIT $3
		) l ON true WHERE s.scope = $1 ORDER BY l.version`)
	s.position = in(`SELECT s.epoch, s.floor, ` + head + ` FROM {p}scopes s WHERE s.scope = $1`)
	s.scopes = in(`SELECT scope FROM {p}scopes ORDER BY scope`)
	s.readers = in(`SELECT reader, session, sequence, epoch, version, body, at FROM {p}readers WHERE scope = $1 ORDER BY reader`)
	s.reported = in(`INSERT INTO {p}readers (scope, reader, session, sequence, epoch, version, body, at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, {now})
		ON CONFLICT (scope, reader) DO UPDATE SET session = excluded.session, sequence = excluded.sequence,
			epoch = excluded.epoch, version = excluded.version, body = excluded.body, at = excluded.at
		WHERE {p}readers.session < excluded.session
			OR ({p}readers.session = excluded.session AND {p}readers.sequence < excluded.sequence)`)
	s.staleEpoch = in(`UPDATE {p}scopes SET epoch = {random} WHERE scope = $1 AND epoch = $2
		AND $3 > coalesce((SELECT max(version) FROM {p}log WHERE scope = $1), 0)`)
	s.newEpochs = in(`UPDATE {p}scopes SET epoch = {random}`)
	s.setOrigin = in(`UPDATE {p}meta SET origin = $1 WHERE one = 1`)
	// The newest item stays whatever it is: it is the head.
	s.cut = in(`SELECT coalesce(max(version), 0) FROM {p}log WHERE scope = $1 AND deleted AND version <= $2
		AND at <= {now} - $3 AND version < (SELECT max(version) FROM {p}log WHERE scope = $1)`)
	s.raise = in(`UPDATE {p}scopes SET floor = $1 WHERE scope = $2 AND floor < $1`)
	s.forget = in(`DELETE FROM {p}log WHERE scope = $1 AND deleted AND version <= $2`)
	switch d {
	case SQLite:
		sqlite(&s, in)
	case PostgreSQL:
		postgresql(&s, in)
	}
	return s
}
