package regions

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/edge/tokens"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/front/adminapi"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/audit"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/db"
)

// Why a region cannot be removed.
var (
	// ErrNotEmpty is a region with resources that are not archived.
	ErrNotEmpty = errors.New("the region has resources")
	// ErrAlive is a region whose agent sends heartbeats.
	ErrAlive = errors.New("the agent of the region is alive")
)

// RemoveRegion removes a region and all that is stored of it beside its log, so that no
// other region is taken for it; see [Store.PutRegion]. What its agent has made stays. It
// must have no resource that is not archived, unless abandon is true, and no agent that is
// alive.
func (s *Store) RemoveRegion(ctx context.Context, regionID string, abandon bool) error {
	err := s.Database.Write(ctx, func(tx *db.Tx) error {
		if err := lockRegion(ctx, tx, regionID); err != nil {
			return err
		}
		var left int
		var heartbeat int64
		var token string
		if err := tx.QueryRowContext(ctx, `SELECT heartbeat_at, token_hash,
			(SELECT count(*) FROM deployment_topology WHERE region_id = regions.id AND desired_state <> 'archived')
			+ (SELECT count(*) FROM sentinels WHERE region_id = regions.id AND desired_state <> 'archived')
			+ (SELECT count(*) FROM cilium_network_policies WHERE region_id = regions.id AND deleted = 0)
			FROM regions WHERE id = ?`, regionID).Scan(&heartbeat, &token, &left); err != nil {
			return err
		}
		switch silent := time.Since(time.UnixMilli(heartbeat)); {
		case left > 0 && !abandon:
			return fmt.Errorf("%w: %d", ErrNotEmpty, left)
		case silent < adminapi.Silence:
			return fmt.Errorf("%w: %s ago", ErrAlive, silent.Round(time.Second))
		}
		for _, statement := range []string{
			`DELETE FROM withdrawals WHERE region_id = ?`,
			`DELETE FROM instances WHERE region_id = ?`,
			`DELETE FROM deployment_topology WHERE region_id = ?`,
			`DELETE FROM sentinels WHERE region_id = ?`,
			`DELETE FROM cilium_network_policies WHERE region_id = ?`,
			`DELETE FROM regions WHERE id = ?`,
		} {
			if _, err := tx.ExecContext(ctx, statement, regionID); err != nil {
				return err
			}
		}
		if _, err := tx.ExecContext(
			ctx,
			`DELETE FROM deployments WHERE NOT EXISTS (SELECT 1 FROM deployment_topology t WHERE t.deployment_id = deployments.id)`,
		); err != nil {
			return err
		}
		return audit.Record(
			ctx,
			tx,
			audit.Change{Verb: audit.Removal(abandon), Kind: audit.KindRegion, Name: regionID, Outcome: audit.Deleted, Ended: tokens.Mark(token)},
		)
	})
	if err != nil {
		return fmt.Errorf("remove region %s: %w", regionID, err)
	}
	return nil
}

// Wanted returns the desired state that was put for a resource. The error is
// [ErrUnknownResource] if there is none.
func (s *Store) Wanted(ctx context.Context, regionID, collection, id string) (want Wanted, err error) {
	var spec string
	err = s.Database.Read(ctx, func(tx *db.Tx) error {
		var err error
		want.State, spec, err = load(ctx, tx, collection, regionID, id)
		return err
	})
	want.Spec = json.RawMessage(spec)
	return want, err
}

func (a *admin) showResource(collection string) func(ctx context.Context, key resourceKey) (Wanted, error) {
	return func(ctx context.Context, key resourceKey) (Wanted, error) {
		return a.store.Wanted(ctx, key.region, collection, key.id)
	}
}
