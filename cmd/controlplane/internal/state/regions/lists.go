package regions

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/audit"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/db"
)

// ResourcesAfter returns the region's resources of the collection whose ids follow the
// given one, sorted by id, at most limit. They have no instances.
func (s *Store) ResourcesAfter(ctx context.Context, regionID, collection, after string, limit int) (list []Resource, err error) {
	err = s.Database.Read(ctx, func(tx *db.Tx) error {
		if err := s.Agents().Lock(ctx, tx, regionID); err != nil {
			return err
		}
		rows, err := tx.QueryContext(ctx, resourceRows[collection]+` AND id > ? ORDER BY 2 LIMIT ?`, regionID, after, limit)
		list, err = db.Collect(rows, err, scanResource)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("%s of region %s: %w", collection, regionID, err)
	}
	return list, nil
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

func (a *admin) listResources(collection string) func(ctx context.Context, regionID, after string, limit int) ([]Resource, error) {
	return func(ctx context.Context, regionID, after string, limit int) ([]Resource, error) {
		return a.store.ResourcesAfter(ctx, regionID, collection, after, limit)
	}
}

func (a *admin) showResource(collection string) func(ctx context.Context, key resourceKey) (Wanted, error) {
	return func(ctx context.Context, key resourceKey) (Wanted, error) {
		return a.store.Wanted(ctx, key.region, collection, key.id)
	}
}

// StartLogEpoch gives the log of every region another epoch, so that all agents of regions
// list again.
func (s *Store) StartLogEpoch(ctx context.Context) error {
	return s.Database.Write(ctx, func(tx *db.Tx) error {
		if err := s.Database.Log.NewEpochIn(ctx, tx.Tx); err != nil {
			return err
		}
		return audit.Record(ctx, tx, audit.Change{Verb: "new-epoch", Kind: audit.KindLog, Name: "regions"})
	})
}

// logView is the log of the regions as GET shows it. The epoch of each is in the answer for
// the region.
type logView struct {
	QueueDepth         int     `json:"queue_depth"`
	QueueOldestSeconds float64 `json:"queue_oldest_seconds"`
	StalledSeconds     float64 `json:"stalled_seconds"`
}

func (a *admin) showLog(ctx context.Context, _ struct{}) (logView, error) {
	depth, oldest, err := a.store.Database.Log.Queue(ctx)
	return logView{depth, oldest.Seconds(), a.store.Database.Log.Stalled().Seconds()}, err
}
