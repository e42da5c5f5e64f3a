package regions

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"time"

	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/audit"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/db"
	"github.com/seed-9e1ffd66/trueup/statesync"
)

func (c contents) read(ctx context.Context, tx *db.Tx, regionID string) error {
	type line struct {
		key statesync.Key
		row row
	}
	rows, err := tx.QueryContext(ctx, `SELECT 'deployments', deployment_id, desired_state, spec, updated_at
			FROM deployment_topology WHERE region_id = ?
		UNION ALL SELECT 'sentinels', id, desired_state, spec, wanted_at FROM sentinels WHERE region_id = ?
		UNION ALL SELECT 'policies', id, CASE WHEN deleted = 1 THEN 'archived' ELSE 'running' END, policy, updated_at
			FROM cilium_network_policies WHERE region_id = ?`, regionID, regionID, regionID)
	lines, err := db.Collect(rows, err, func(rows *sql.Rows, l *line) error {
		return rows.Scan(&l.key.Collection, &l.key.ID, &l.row.state, &l.row.spec, &l.row.updatedAt)
	})
	for _, l := range lines {
		c.rows[l.key] = l.row
	}
	if err != nil {
		return err
	}
	rows, err = tx.QueryContext(ctx, `SELECT i.deployment_id, count(*), max(i.reported_at), coalesce(max(d.updated_at), 0)
		FROM instances i LEFT JOIN deployments d ON d.id = i.deployment_id WHERE i.region_id = ?
		AND NOT EXISTS (SELECT 1 FROM deployment_topology t WHERE t.deployment_id = i.deployment_id AND t.region_id = i.region_id)
		GROUP BY i.deployment_id`, regionID)
	found, err := db.Collect(rows, err, func(rows *sql.Rows, o *orphans) error {
		var reported, withdrawn int64
		err := rows.Scan(&o.deploymentID, &o.instances, &reported, &withdrawn)
		o.since = max(reported, withdrawn)
		return err
	})
	for _, o := range found {
		c.orphans[o.deploymentID] = o
	}
	return err
}

// touch sets the change time of a resource's row to now, and for a deployment also the
// change time of its name, which may have no row in the region.
func touch(ctx context.Context, tx *db.Tx, regionID string, key statesync.Key) error {
	now := time.Now().UnixMilli()
	if key.Collection == deployments {
		if _, err := tx.ExecContext(ctx, `UPDATE deployments SET updated_at = ? WHERE id = ?`, now, key.ID); err != nil {
			return err
		}
	}
	statement := map[string]string{
		deployments: `UPDATE deployment_topology SET updated_at = ? WHERE deployment_id = ? AND region_id = ?`,
		sentinels:   `UPDATE sentinels SET wanted_at = ? WHERE id = ? AND region_id = ?`,
		policies:    `UPDATE cilium_network_policies SET updated_at = ? WHERE id = ? AND region_id = ?`,
	}[key.Collection]
	if statement == "" {
		return nil // the log has an item of no table
	}
	_, err := tx.ExecContext(ctx, statement, now, key.ID, regionID)
	return err
}

// errHeld is a removal beyond the limit.
var errHeld = errors.New("too many rows have vanished")

// mend appends the row's item, or its removal, unless the row has changed since. It
// appends at most allowed removals within Window.
func (s *Store) mend(ctx context.Context, region Region, key statesync.Key, seen row, allowed int) (done bool, err error) {
	err = s.Database.Write(ctx, func(tx *db.Tx) error {
		done = false
		if err := s.Agents().Lock(ctx, tx, region.ID); err != nil {
			return err
		}
		state, spec, err := load(ctx, tx, key.Collection, region.ID, key.ID)
		gone := errors.Is(err, ErrUnknownResource)
		if err != nil && !gone {
			return err
		}
		if gone != (seen == row{}) || state != seen.state && !gone || spec != seen.spec {
			return nil // another writer is at work
		}
		change := statesync.Change{Scope: region.Scope, Key: key, Deleted: gone}
		if gone {
			if again, err := withdraw(ctx, tx, region.ID, key, allowed); err != nil || again {
				return err
			}
		} else if change.Value, err = seen.value(); err != nil {
			return err
		}
		// What is kept for a time is kept from now on: when the row was really changed
		// is not stored.
		if err := touch(ctx, tx, region.ID, key); err != nil {
			return err
		}
		done = true
		if kind := auditKind(key.Collection); kind != "" {
			entry := audit.Change{Verb: "mend", Kind: kind, Name: region.ID + "/" + key.ID}
			if gone {
				entry.Verb, entry.Outcome = "withdraw", audit.Deleted
			}
			if err := audit.Record(ctx, tx, entry); err != nil {
				return err
			}
		}
		return s.Database.Log.Append(ctx, tx.Tx, change)
	})
	return done && err == nil, err
}

// withdraw notes that a row is withdrawn, or reports that another replica has just done
// so. The region is locked.
func withdraw(ctx context.Context, tx *db.Tx, regionID string, key statesync.Key, allowed int) (again bool, err error) {
	now := time.Now()
	if _, err := tx.ExecContext(
		ctx,
		`DELETE FROM withdrawals WHERE region_id = ? AND withdrawn_at <= ?`,
		regionID,
		now.Add(-Window).UnixMilli(),
	); err != nil {
		return false, err
	}
	rows, err := tx.QueryContext(ctx, `SELECT collection, id FROM withdrawals WHERE region_id = ?`, regionID)
	withdrawn, err := db.Collect(rows, err, func(rows *sql.Rows, k *statesync.Key) error { return rows.Scan(&k.Collection, &k.ID) })
	switch {
	case err != nil:
		return false, err
	case slices.Contains(withdrawn, key):
		return true, nil
	case len(withdrawn) >= allowed:
		return false, errHeld
	}
	_, err = tx.ExecContext(
		ctx,
		`INSERT INTO withdrawals (region_id, collection, id, withdrawn_at) VALUES (?, ?, ?, ?)`,
		regionID,
		key.Collection,
		key.ID,
		now.UnixMilli(),
	)
	return false, err
}

// withdrawAll withdraws all items of a region's log.
func (s *Store) withdrawAll(ctx context.Context, tx *db.Tx, scope string) error {
	const limit = 1000
	for after, more := uint64(0), true; more; {
		page, err := s.Database.Log.Read(ctx, scope, after, limit)
		if errors.Is(err, statesync.ErrUnknownScope) {
			return nil // its log was never made
		}
		if err != nil {
			return err
		}
		var changes []statesync.Change
		for _, i := range page.Items {
			if after = i.Version; !i.Deleted {
				changes = append(changes, statesync.Change{Scope: scope, Key: i.Key, Deleted: true})
			}
		}
		if err := s.Database.Log.Append(ctx, tx.Tx, changes...); err != nil {
			return err
		}
		more = page.More
	}
	return nil
}
