package regions

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/audit"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/db"
	"github.com/seed-9e1ffd66/trueup/statesync"
)

const instances = "instances"

const (
	// retention is the minimum time that an archived resource is kept.
	retention = 7 * 24 * time.Hour
	// dormantRetention is the same for a resource that is stopped, stopping or standby.
	dormantRetention = 30 * 24 * time.Hour
)

// measure sets the gauge of stored rows.
func (r *Reconciler) measure(regions map[string]contents) {
	if r.stored == nil {
		return
	}
	count := map[[2]string]int64{{instances, "orphaned"}: 0}
	for _, collection := range []string{deployments, sentinels, policies} {
		for _, state := range []string{"wanted", "dormant", "archived", "unhandled"} {
			count[[2]string{collection, state}] = 0
		}
	}
	for _, c := range regions {
		for key, row := range c.rows {
			count[[2]string{key.Collection, stage(key.Collection, row.state)}]++
		}
		for _, o := range c.orphans {
			count[[2]string{instances, "orphaned"}] += o.instances
		}
	}
	for labels, n := range count {
		r.stored.WithLabelValues(labels[0], labels[1]).Set(float64(n))
	}
}

// stage returns what a desired state means for how long a row is kept.
func stage(collection, state string) string {
	switch kind := kindOf(collection, state); {
	case kind == "apply":
		return "wanted"
	case state == "archived":
		return "archived"
	case kind == "delete":
		return "dormant"
	}
	return "unhandled"
}

// expired returns what may be purged of the rows. A row that differs from the log may
// not.
func (c contents) expired(kept map[string]time.Time, different map[statesync.Key]difference) []statesync.Key {
	var keys []statesync.Key
	for key, row := range c.rows {
		_, differs := different[key]
		then, ends := kept[stage(key.Collection, row.state)]
		if ends && row.updatedAt < then.UnixMilli() && !differs && c.items[key].Version <= c.horizon {
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, compareKeys)
	return keys
}

// purge removes the rows of a region that have expired, and the instances of
// deployments that it has no more.
func (r *Reconciler) purge(ctx context.Context, region Region, c contents, different map[statesync.Key]difference) error {
	now := time.Now()
	kept := map[string]time.Time{
		"archived": now.Add(-retention),
		"dormant":  now.Add(-dormantRetention),
	}
	var errs []error
	for _, key := range c.expired(kept, different) {
		done, err := r.Store.purge(ctx, region, key, c.rows[key])
		if err != nil {
			errs = append(errs, fmt.Errorf("purge %s/%s: %w", key.Collection, key.ID, err))
		}
		if done {
			r.logger().InfoContext(ctx, "resource purged", slog.String("region", region.Scope), slog.String("collection", key.Collection),
				slog.String("id", key.ID), slog.String("state", c.rows[key].state))
			r.count(key.Collection, "purged", 1)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(c.orphans)) {
		// A deployment that no log has was withdrawn so long ago that its item is forgotten.
		item := c.items[statesync.Key{Collection: deployments, ID: id}]
		if c.orphans[id].since >= kept["archived"].UnixMilli() || item.Version > 0 && !item.Deleted || item.Version > c.horizon {
			continue
		}
		n, err := r.Store.purgeInstances(ctx, region.ID, id, kept["archived"])
		if err != nil {
			errs = append(errs, fmt.Errorf("purge instances of %s: %w", id, err))
		}
		r.count(instances, "purged", n)
	}
	return errors.Join(errs...)
}

// purge removes the row and withdraws it, unless it has changed since it was seen.
func (s *Store) purge(ctx context.Context, region Region, key statesync.Key, seen row) (done bool, err error) {
	err = s.Database.Write(ctx, func(tx *db.Tx) error {
		done = false
		if err := s.Agents().Lock(ctx, tx, region.ID); err != nil {
			return err
		}
		arguments := []any{key.ID, region.ID, seen.updatedAt, seen.state}
		var query string
		switch key.Collection {
		case deployments:
			// Locked before its last row is deleted: another region may be given one.
			if err := lockDeployment(ctx, tx, key.ID); err != nil {
				return err
			}
			query = `DELETE FROM deployment_topology WHERE deployment_id = ? AND region_id = ? AND updated_at = ? AND desired_state = ?
				AND NOT EXISTS (SELECT 1 FROM instances i WHERE i.deployment_id = deployment_topology.deployment_id AND i.region_id = deployment_topology.region_id)`
		case sentinels:
			query = `DELETE FROM sentinels WHERE id = ? AND region_id = ? AND wanted_at = ? AND desired_state = ?`
		case policies:
			query, arguments = `DELETE FROM cilium_network_policies WHERE id = ? AND region_id = ? AND updated_at = ? AND deleted = 1`, arguments[:3]
		}
		n, err := tx.Affected(ctx, query, arguments...)
		if err != nil || n == 0 {
			return err
		}
		if key.Collection == deployments {
			if _, err := tx.ExecContext(
				ctx,
				`DELETE FROM deployments WHERE id = ? AND NOT EXISTS (SELECT 1 FROM deployment_topology WHERE deployment_id = ?)`,
				key.ID,
				key.ID,
			); err != nil {
				return err
			}
		}
		done = true
		if err := audit.Record(
			ctx,
			tx,
			audit.Change{Verb: "purge", Kind: auditKind(key.Collection), Name: region.ID + "/" + key.ID, Outcome: audit.Deleted},
		); err != nil {
			return err
		}
		return s.Database.Log.Append(ctx, tx.Tx, statesync.Change{Scope: region.Scope, Key: key, Deleted: true})
	})
	return done && err == nil, err
}

func lockDeployment(ctx context.Context, tx *db.Tx, id string) error {
	var found string
	return db.Missing(tx.QueryRowContext(ctx, `SELECT id FROM deployments WHERE id = ?`+tx.Lock, id).Scan(&found), ErrUnknownResource)
}

// purgeInstances removes the instances of a deployment that the region has no row of, if
// they were reported, and the row was withdrawn, before then.
func (s *Store) purgeInstances(ctx context.Context, regionID, id string, then time.Time) (n int64, err error) {
	err = s.Database.Write(ctx, func(tx *db.Tx) error {
		if err := s.Agents().Lock(ctx, tx, regionID); err != nil {
			return err
		}
		n, err = tx.Affected(ctx, `DELETE FROM instances WHERE region_id = ? AND deployment_id = ? AND reported_at < ?
			AND NOT EXISTS (SELECT 1 FROM deployment_topology t WHERE t.deployment_id = instances.deployment_id AND t.region_id = instances.region_id)
			AND NOT EXISTS (SELECT 1 FROM deployments d WHERE d.id = instances.deployment_id AND d.updated_at >= ?)`,
			regionID, id, then.UnixMilli(), then.UnixMilli())
		return err
	})
	return n, err
}

// purgeNames removes the names of deployments that no region has a row of. All regions
// were read: one that was not may have the deployment in its log.
func (r *Reconciler) purgeNames(ctx context.Context, regions map[string]contents) error {
	then := time.Now().Add(-retention).UnixMilli()
	live := func(id string) bool {
		for _, c := range regions {
			if i := c.items[statesync.Key{Collection: deployments, ID: id}]; i.Version > 0 && !i.Deleted {
				return true
			}
		}
		return false
	}
	const unused = ` FROM deployments WHERE updated_at < ? AND NOT EXISTS (SELECT 1 FROM deployment_topology t WHERE t.deployment_id = deployments.id)
		AND NOT EXISTS (SELECT 1 FROM instances i WHERE i.deployment_id = deployments.id)`
	var n int64
	err := r.Store.Database.Write(ctx, func(tx *db.Tx) error {
		n = 0
		rows, err := tx.QueryContext(ctx, `SELECT id`+unused, then)
		ids, err := db.Collect(rows, err, func(rows *sql.Rows, id *string) error { return rows.Scan(id) })
		if err != nil {
			return err
		}
		for _, id := range ids {
			if live(id) {
				continue
			}
			deleted, err := tx.Affected(ctx, `DELETE`+unused+` AND id = ?`, then, id)
			if err != nil {
				return err
			}
			n += deleted
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("purge names of deployments: %w", err)
	}
	r.count("names", "purged", n)
	return nil
}
