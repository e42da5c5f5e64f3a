package db

import (
	"context"
	"strings"
)

// views show in SQL which version the change log has given to the newest numbered change of
// each resource, beside its wanted state. The version is null while no change of it is
// numbered. {c} is the collation of the log.
const views = `
CREATE VIEW deployment_topology_versions AS
SELECT r.name AS region, r.platform AS platform, t.deployment_id AS id, t.desired_state AS desired_state, l.version AS version
FROM deployment_topology t JOIN regions r ON r.id = t.region_id
LEFT JOIN trueup_log l ON l.scope = coalesce(nullif(r.scope, ''), r.name){c} AND l.collection = 'deployments' AND l.id = t.deployment_id{c};

CREATE VIEW sentinel_versions AS
SELECT r.name AS region, r.platform AS platform, s.id AS id, s.desired_state AS desired_state, l.version AS version
FROM sentinels s JOIN regions r ON r.id = s.region_id
LEFT JOIN trueup_log l ON l.scope = coalesce(nullif(r.scope, ''), r.name){c} AND l.collection = 'sentinels' AND l.id = s.id{c};

CREATE VIEW cilium_network_policy_versions AS
SELECT r.name AS region, r.platform AS platform, p.id AS id, CASE p.deleted WHEN 1 THEN 'archived' ELSE 'running' END AS desired_state, l.version AS version
FROM cilium_network_policies p JOIN regions r ON r.id = p.region_id
LEFT JOIN trueup_log l ON l.scope = coalesce(nullif(r.scope, ''), r.name){c} AND l.collection = 'policies' AND l.id = p.id{c};
`

// createViews makes the views unless they are there. found counts those that are. They are made
// after the log has its tables. A migration that changes them drops the ones of before.
func (d *Database) createViews(ctx context.Context, found, collation string) error {
	var n int
	count := func(tx *Tx) error { return tx.QueryRowContext(ctx, found).Scan(&n) }
	if err := d.Read(ctx, count); err != nil || n > 0 {
		return err
	}
	return d.Write(ctx, func(tx *Tx) error {
		if d.lock != "" { // not every write locks the whole database
			if _, err := tx.ExecContext(ctx, `SELECT pg_advisory_xact_lock(?)`, migrationLock); err != nil {
				return err
			}
		}
		if err := count(tx); err != nil || n > 0 {
			return err
		}
		_, err := tx.ExecContext(ctx, strings.ReplaceAll(views, "{c}", collation))
		return err
	})
}
