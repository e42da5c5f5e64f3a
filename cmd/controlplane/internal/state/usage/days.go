package usage

import (
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
	// restTable is the partition of the records of no other, and beforeTable that of those from before there
	// were partitions. Their rows are removed in slices.
	restTable, beforeTable = "snapshots_rest", "snapshots_before"
	// lockPatience is how long a partition is made or removed waits for the transactions of agents, which then
	// wait for it. It is tried again a minute later.
	lockPatience = `SET LOCAL lock_timeout = '1s'`
	// daysLock has one replica make partitions at a time; it spells DAYS.
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

// partitions returns the partitions that have bounds. SQLite has none.
func (m *Maintainer) partitions(ctx context.Context) (all []partition, err error) {
	err = m.Database.Read(ctx, func(tx *db.Tx) error {
		rows, err := tx.QueryContext(ctx, `SELECT CAST(CAST(c.oid AS regclass) AS TEXT), pg_get_expr(c.relpartbound, c.oid) FROM pg_inherits i
			JOIN pg_class c ON c.oid = i.inhrelid WHERE i.inhparent = CAST('snapshots' AS regclass) ORDER BY 1`)
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
	have, err := m.partitions(ctx)
	if err != nil {
		return fmt.Errorf("partitions: %w", err)
	}
	now := time.Now().UTC()
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
			break // the next would wait for the same
		}
	}
	old := m.recordsBefore(now).UnixMilli()
	for _, p := range have {
		if p.to == 0 || p.to > old { // the rest, or not old enough
			continue
		}
		if err := m.dropDay(ctx, p); err != nil {
			errs = append(errs, fmt.Errorf("remove the partition %s: %w", p.name, err))
			break
		}
	}
	return errors.Join(errs...)
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
	return m.Database.Write(ctx, func(tx *db.Tx) error {
		if err := tx.ExecEach(ctx, nil, lockPatience, fmt.Sprintf(`SELECT pg_advisory_xact_lock(%d)`, daysLock),
			`LOCK TABLE `+restTable+` IN ACCESS EXCLUSIVE MODE`); err != nil {
			return err
		}
		if err := look(tx); err != nil || taken {
			return err
		}
		return tx.ExecEach(ctx, nil, `CREATE TABLE `+name+` (LIKE snapshots INCLUDING DEFAULTS)`,
			fmt.Sprintf(`ALTER TABLE snapshots ATTACH PARTITION %s FOR VALUES FROM (%d) TO (%d)`, name, from, to))
	})
}

// dropDay removes a partition, unless it is none any more or has records that are in no sum.
func (m *Maintainer) dropDay(ctx context.Context, p partition) error {
	dropped := false
	err := m.Database.Write(ctx, func(tx *db.Tx) error {
		if err := tx.ExecEach(ctx, nil, lockPatience, fmt.Sprintf(`SELECT pg_advisory_xact_lock(%d)`, daysLock)); err != nil {
			return err
		}
		var kept bool // it has gone, or a person has detached it since it was found
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
