package usage

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strconv"
	"time"

	"github.com/seed-9e1ffd66/trueup/cmd/api/starbase"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/db"
)

const (
	// daysAhead is how many days there is a partition for before they begin: a program of before the
	// partitions, after a rollback, finds one for that long, and the rest takes what comes then.
	daysAhead = 7
	// restTable is the partition of records that belong to no other. beforeTable has the records of the time
	// without partitions. The rows of both are removed in slices.
	restTable, beforeTable = "snapshots_rest", "snapshots_before"
	// beforeDays is how long beforeTable takes records: time enough to read the table once, and for a
	// rollback meanwhile, as records of later are refused until the table is a partition.
	beforeDays = 30
	// lockPatience is how long a change of tables waits for the transactions of agents, which then
	// wait for it. It is tried again a minute later.
	lockPatience = `SET LOCAL lock_timeout = '1s'`
	// daysLock has one replica change tables at a time; it spells DAYS.
	daysLock = 0x44415953
)

// partition is a table of records from one time until another, in milliseconds. from is 0 for
// all that is before.
type partition struct {
	name     string // as SQL has it, in quotes where it must be
	from, to int64
}

// boundsOf matches what pg_get_expr says of a partition: FOR VALUES FROM ('1796256000000') TO
// ('1796342400000'), or MINVALUE for the first. The rest has none.
var boundsOf = regexp.MustCompile(`^FOR VALUES FROM \((?:'(-?\d+)'|MINVALUE)\) TO \('(-?\d+)'\)$`)

// partitions returns all partitions. The rest has no bounds: from and to are 0.
func (m *Maintainer) partitions(ctx context.Context) (all []partition, err error) {
	err = m.Database.Read(ctx, func(tx *db.Tx) error {
		rows, err := tx.QueryContext(ctx, `SELECT CAST(CAST(c.oid AS regclass) AS TEXT), pg_get_expr(c.relpartbound, c.oid)
			FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid WHERE i.inhparent = CAST('snapshots' AS regclass) ORDER BY 1`)
		all, err = db.Collect(rows, err, func(rows *sql.Rows, p *partition) error {
			var bounds string
			if err := rows.Scan(&p.name, &bounds); err != nil {
				return err
			}
			if found := boundsOf.FindStringSubmatch(bounds); found != nil {
				p.from, _ = strconv.ParseInt(found[1], 10, 64) // nothing: since ever
				p.to, _ = strconv.ParseInt(found[2], 10, 64)
			}
			return nil
		})
		return err
	})
	return all, err
}

// Partition gives each day a partition on PostgreSQL, from the oldest that a record is taken of
// until a week from now, and removes those that are too old, whole. A day of which there are records in
// the rest stays there. With nothing to do it only reads.
func (m *Maintainer) Partition(ctx context.Context) error {
	if !m.partitioned() {
		return nil
	}
	now := time.Now().UTC()
	divided, err := m.divide(ctx, now)
	if err != nil {
		return fmt.Errorf("partitions: %w", err)
	}
	if !divided { // another replica is at it
		return nil
	}
	have, err := m.partitions(ctx)
	if err != nil {
		return fmt.Errorf("partitions: %w", err)
	}
	var errs []error
	for at := now.Add(-starbase.SnapshotMaxAge).Truncate(day); !at.After(now.AddDate(0, 0, daysAhead)); at = at.Add(day) {
		covered := false
		for _, p := range have {
			covered = covered || p.from <= at.UnixMilli() && at.UnixMilli() < p.to
		}
		if covered {
			continue
		}
		if err := m.makeDay(ctx, at); err != nil {
			errs = append(errs, fmt.Errorf("make the partition of %s: %w", at.Format(time.DateOnly), err))
		}
		if busy(errs) {
			break
		}
	}
	old := m.recordsBefore(now).UnixMilli()
	for _, p := range have {
		if p.to == 0 || p.to > old || busy(errs) { // the rest, or not old enough
			continue
		}
		if err := m.dropDay(ctx, p); err != nil {
			errs = append(errs, fmt.Errorf("remove the partition %s: %w", p.name, err))
		}
	}
	return errors.Join(errs...)
}

// busy reports whether others hold what was to be changed: the next would wait for the same.
func busy(errs []error) bool { return errors.Is(errors.Join(errs...), db.ErrBusy) }

// change runs do in a transaction that changes tables, unless another replica is changing some.
func (m *Maintainer) change(ctx context.Context, do func(*db.Tx) error) (ran bool, err error) {
	err = m.Database.Write(ctx, func(tx *db.Tx) error {
		if err := tx.QueryRowContext(ctx, fmt.Sprintf(`SELECT pg_try_advisory_xact_lock(%d)`, daysLock)).Scan(&ran); err != nil || !ran {
			return err
		}
		if err := tx.ExecEach(ctx, nil, lockPatience, `SET LOCAL statement_timeout = 0`); err != nil {
			return err
		}
		return do(tx)
	})
	return ran, err
}

// undivided returns the tables on PostgreSQL that are no day. One that a person has detached is not touched.
func (m *Maintainer) undivided(ctx context.Context) (names []string, err error) {
	err = m.Database.Read(ctx, func(tx *db.Tx) error {
		rows, err := tx.QueryContext(ctx, `SELECT relname FROM pg_class t WHERE t.oid = CAST('snapshots' AS regclass) AND relkind = 'r'
			UNION ALL SELECT name FROM pg_inherits, (VALUES ('`+restTable+`'), ('`+beforeTable+`')) names (name)
			WHERE inhparent = CAST('snapshots' AS regclass) AND inhrelid = to_regclass(name)`)
		names, err = db.Collect(rows, err, func(rows *sql.Rows, name *string) error { return rows.Scan(name) })
		return err
	})
	return names, err
}

// whole is what the catalog says of a table snapshots that has no partitions.
type whole struct {
	plain, limited, valid bool
	limit                 int64 // of taken_at, in milliseconds
	// readers are the views that read it, and the tables with a foreign key to it.
	readers string
}

var limitOf = regexp.MustCompile(`^CHECK \(\(taken_at < '?(\d+)'?(?:::bigint)?\)\)`)

// catalog reads it.
func catalog(ctx context.Context, tx *db.Tx) (w whole, err error) {
	var definition string
	err = tx.QueryRowContext(ctx, `SELECT t.relkind = 'r', c.oid IS NOT NULL, coalesce(c.convalidated, FALSE),
		coalesce(pg_get_constraintdef(c.oid), ''), coalesce((SELECT string_agg(DISTINCT CAST(CAST(o AS regclass) AS TEXT), ', ') FROM (
			SELECT r.ev_class FROM pg_depend d JOIN pg_rewrite r ON r.oid = d.objid WHERE d.refobjid = t.oid AND r.ev_class <> t.oid
			UNION SELECT conrelid FROM pg_constraint WHERE confrelid = t.oid) others (o)), '') FROM pg_class t
		LEFT JOIN pg_constraint c ON c.conrelid = t.oid AND c.conname = 'snapshots_until'
		WHERE t.oid = CAST('snapshots' AS regclass)`).Scan(&w.plain, &w.limited, &w.valid, &definition, &w.readers)
	if found := limitOf.FindStringSubmatch(definition); found != nil {
		w.limit, _ = strconv.ParseInt(found[1], 10, 64)
	}
	return w, err
}

// divide makes the table of before a partition, and reports whether that is done. That the table is read, to
// prove that it has no record of later, holds up no agent; each of the changes takes a moment.
func (m *Maintainer) divide(ctx context.Context, now time.Time) (done bool, err error) {
	for {
		var seen whole
		err := m.Database.Read(ctx, func(tx *db.Tx) (err error) {
			seen, err = catalog(ctx, tx)
			return err
		})
		if err != nil || !seen.plain {
			return err == nil, err
		}
		if seen.readers != "" { // they would read the records of before alone
			m.told.Do(func() {
				const message = "billing records stay in one table, because of what refers to it: " +
					"drop that, and create it again once the table snapshots has partitions"
				cmp.Or(m.Logger, slog.New(slog.DiscardHandler)).WarnContext(ctx, message, slog.String("relations", seen.readers))
			})
			return false, nil
		}
		if ran, err := m.change(ctx, func(tx *db.Tx) error {
			if w, err := catalog(ctx, tx); err != nil || w != seen { // another replica was first
				return err
			}
			return next(ctx, tx, seen, now)
		}); err != nil || !ran {
			return false, err
		}
	}
}

// next takes one step towards partitions.
func next(ctx context.Context, tx *db.Tx, w whole, now time.Time) error {
	statement := `VALIDATE CONSTRAINT snapshots_until`
	switch {
	case !w.limited:
		limit := now.Truncate(day).AddDate(0, 0, beforeDays).UnixMilli()
		statement = fmt.Sprintf(`ADD CONSTRAINT snapshots_until CHECK (taken_at < %d) NOT VALID`, limit)
	case w.limit < now.AddDate(0, 0, daysAhead).UnixMilli(): // it would refuse records soon
		statement = `DROP CONSTRAINT snapshots_until`
	case w.valid:
		return split(ctx, tx, w.limit)
	}
	_, err := tx.ExecContext(ctx, `ALTER TABLE snapshots `+statement)
	return err
}

// split makes a table with partitions. The first is what there is, unless it has no row. No index is
// built: each partition has its key, the id alone, which is unique among all because it is made of the time.
func split(ctx context.Context, tx *db.Tx, limit int64) error {
	if err := tx.ExecEach(ctx, nil, `ALTER TABLE snapshots RENAME TO `+beforeTable,
		`ALTER INDEX snapshots_taken_at RENAME TO `+beforeTable+`_taken_at`,
		`ALTER INDEX snapshots_not_summed RENAME TO `+beforeTable+`_not_summed`,
		`CREATE TABLE snapshots (LIKE `+beforeTable+` INCLUDING DEFAULTS) PARTITION BY RANGE (taken_at)`,
		`CREATE INDEX snapshots_taken_at ON snapshots (taken_at)`,
		`CREATE INDEX snapshots_not_summed ON snapshots (taken_at) WHERE summed = 0`,
		`CREATE TABLE `+restTable+` (LIKE snapshots INCLUDING DEFAULTS, PRIMARY KEY (snapshot_id))`,
		`ALTER TABLE snapshots ATTACH PARTITION `+restTable+` DEFAULT`); err != nil {
		return err
	}
	for _, name := range []string{"snapshots", restTable} {
		if err := entrust(ctx, tx, beforeTable, name); err != nil {
			return err
		}
	}
	var some bool
	if err := tx.QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM `+beforeTable+`)`).Scan(&some); err != nil {
		return err
	}
	if !some {
		_, err := tx.ExecContext(ctx, `DROP TABLE `+beforeTable)
		return err
	}
	return tx.ExecEach(ctx, nil,
		fmt.Sprintf(`ALTER TABLE snapshots ATTACH PARTITION %s FOR VALUES FROM (MINVALUE) TO (%d)`, beforeTable, limit),
		`ALTER TABLE `+beforeTable+` DROP CONSTRAINT snapshots_until`)
}

// entrust gives a new table the owner and the grants of another one: a backup reads each table by itself, and
// the role that a program signs in with may be another one tomorrow.
func entrust(ctx context.Context, tx *db.Tx, from, to string) error {
	rows, err := tx.QueryContext(ctx, `SELECT format('GRANT %s ON `+to+` TO %s', privilege_type,
			CASE grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(grantee)) END)
		FROM pg_class, aclexplode(relacl) WHERE oid = CAST('`+from+`' AS regclass) AND grantee <> relowner
		UNION ALL SELECT format('ALTER TABLE `+to+` OWNER TO %I', pg_get_userbyid(relowner))
		FROM pg_class WHERE oid = CAST('`+from+`' AS regclass) AND pg_get_userbyid(relowner) <> current_user`)
	statements, err := db.Collect(rows, err, func(rows *sql.Rows, text *string) error { return rows.Scan(text) })
	if err != nil {
		return err
	}
	return tx.ExecEach(ctx, nil, statements...)
}

// makeDay makes the partition of a day, unless there is a table of its name, which another replica has
// made or a person has detached, or the rest has records of it. The table is attached once it is there: so only
// those wait who write to the rest.
func (m *Maintainer) makeDay(ctx context.Context, at time.Time) error {
	name, from, to := "snapshots_"+at.Format("20060102"), at.UnixMilli(), at.Add(day).UnixMilli()
	var taken bool
	look := func(tx *db.Tx) error {
		return tx.QueryRowContext(ctx, `SELECT to_regclass('`+name+`') IS NOT NULL OR EXISTS (SELECT 1 FROM `+restTable+
			` WHERE taken_at >= ? AND taken_at < ?)`, from, to).Scan(&taken)
	}
	if err := m.Database.Read(ctx, look); err != nil || taken {
		return err
	}
	_, err := m.change(ctx, func(tx *db.Tx) error {
		if _, err := tx.ExecContext(ctx, `LOCK TABLE `+restTable+` IN ACCESS EXCLUSIVE MODE`); err != nil {
			return err
		}
		if err := look(tx); err != nil || taken {
			return err
		}
		if err := tx.ExecEach(ctx, nil, `CREATE TABLE `+name+` (LIKE snapshots INCLUDING DEFAULTS, PRIMARY KEY (snapshot_id))`,
			fmt.Sprintf(`ALTER TABLE snapshots ATTACH PARTITION %s FOR VALUES FROM (%d) TO (%d)`, name, from, to)); err != nil {
			return err
		}
		return entrust(ctx, tx, "snapshots", name)
	})
	return err
}

// dropDay removes a partition, unless it is none any more or has records that are in no sum.
func (m *Maintainer) dropDay(ctx context.Context, p partition) error {
	dropped := false
	_, err := m.change(ctx, func(tx *db.Tx) error {
		if _, err := tx.ExecContext(ctx, `LOCK TABLE ONLY snapshots IN ACCESS EXCLUSIVE MODE`); err != nil {
			return err
		}
		dropped = false // an attempt before may have failed later
		var kept bool   // it has gone, or a person has detached it since it was found
		if err := tx.QueryRowContext(ctx, `SELECT NOT EXISTS (SELECT 1 FROM pg_inherits
			WHERE inhparent = CAST('snapshots' AS regclass) AND inhrelid = to_regclass(?))`, p.name).Scan(&kept); err != nil || kept {
			return err
		}
		if err := tx.QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM `+p.name+` WHERE summed = 0)`).Scan(&kept); err != nil || kept {
			return err
		}
		dropped = true
		_, err := tx.ExecContext(ctx, `DROP TABLE `+p.name)
		return err
	})
	if err == nil && dropped && m.Logger != nil {
		m.Logger.InfoContext(ctx, "usage removed", slog.String("table", p.name), slog.Time("before", time.UnixMilli(p.to).UTC()))
	}
	return err
}
