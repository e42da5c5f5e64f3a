package regions

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/seed-9e1ffd66/trueup/cmd/api/starbase"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/edge/tokens"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/front/adminapi"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/agents"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/audit"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/db"
	"github.com/seed-9e1ffd66/trueup/internal/pause"
	"github.com/seed-9e1ffd66/trueup/statesync"
)

// Conditions that callers of a [Store] branch on.
var (
	// ErrUnknownRegion is a region that is not registered, or not the one that
	// its log was made for.
	ErrUnknownRegion = errors.New("unknown region")
	// ErrUnknownResource is a deployment, sentinel or policy that the region
	// does not have.
	ErrUnknownResource = errors.New("unknown resource")
	// ErrClaimed is a region that an agent of another cell is alive in.
	ErrClaimed = errors.New("region is claimed by another cell")
	// ErrHeld is an epoch whose holder is alive.
	ErrHeld = errors.New("another agent of the region is alive")
	// ErrRegistered is a name that another region is still registered with. It can
	// not be replaced.
	ErrRegistered = errors.New("another region is registered with this name")
	// ErrNameTaken is a k8s_name that another resource has.
	ErrNameTaken = errors.New("k8s_name is taken")
	// ErrInvalid is a resource that no agent could run.
	ErrInvalid = errors.New("invalid")
)

// Store has the desired state of regions. It is safe for concurrent use. A call
// that returns an error has not changed the database.
type Store struct {
	// Database has the tables and the change log. Required.
	Database *db.Database
}

// Region is one Kubernetes cluster with an agent.
type Region struct {
	// ID never changes. Name is the one that the agent sends.
	ID   string `json:"region_id"`
	Name string `json:"name"`
	// Platform is where it runs.
	Platform string `json:"platform"`
	// CellID is the agent that claimed it last.
	CellID string `json:"cell_id,omitempty"`
	// AgentEpoch is the epoch that was last given to a start of the agent; 0 for none.
	AgentEpoch uint64 `json:"-"`
	// CreatedAt is the time of registration.
	CreatedAt time.Time `json:"-"`
	// HeartbeatAt is the time of the last heartbeat; zero for never.
	HeartbeatAt time.Time `json:"heartbeat_at,omitzero"`
	// Silent is true once that is [adminapi.Silence] ago: the reports of the region are
	// void, and its instances read as inactive.
	Silent bool `json:"silent"`
	// PreviousTokenUntil is until when the token before the last rotation is valid; zero if
	// it is not.
	PreviousTokenUntil time.Time `json:"previous_token_until,omitzero"`
	// HeldDeletions are what the agent would delete if a person approved it, as it
	// reported last. Nil: nothing.
	HeldDeletions *starbase.HeldDeletions `json:"held_deletions,omitempty"`
	// ApprovedDeletions is the digest of held deletions that was approved last.
	ApprovedDeletions string `json:"approved_deletions,omitempty"`
}

const regionColumns = `r.id, r.name, r.platform, r.cell_id, r.agent_epoch, r.heartbeat_at, r.previous_token_until, r.held_deletions,
	r.approved_deletions, r.created_at`

func scanRegion(scan func(...any) error, r *Region) error {
	var heartbeat, previous, created int64
	var held string
	err := scan(&r.ID, &r.Name, &r.Platform, &r.CellID, &r.AgentEpoch, &heartbeat, &previous, &held, &r.ApprovedDeletions, &created)
	if err != nil {
		return err
	}
	r.CreatedAt = time.UnixMilli(created).UTC()
	if heartbeat != 0 {
		r.HeartbeatAt = time.UnixMilli(heartbeat).UTC()
	}
	if until := time.UnixMilli(previous).UTC(); until.After(time.Now()) {
		r.PreviousTokenUntil = until
	}
	r.Silent = time.Since(r.HeartbeatAt) >= adminapi.Silence
	r.HeldDeletions, err = agents.ParseHeld(held)
	return err
}

// PutRegion registers the region and returns its token, which is shown this
// once. For a registered region it returns no token, and sets the platform. A name
// that belongs to the log of another region is refused, unless replace is true and
// that region is not registered any more. The log is empty then: the new region
// inherits nothing, and an agent deletes nothing on the word of an empty list.
func (s *Store) PutRegion(ctx context.Context, region Region, replace bool) (token string, created bool, err error) {
	fresh, hash := tokens.New()
	err = s.Database.Write(ctx, func(tx *db.Tx) error {
		token, created = "", false
		var owner string
		var epoch int64
		err := tx.QueryRowContext(ctx, `SELECT region_id FROM region_log WHERE scope = ?`, region.Name).Scan(&owner)
		switch {
		case errors.Is(err, sql.ErrNoRows) || err == nil && owner != region.ID && replace:
			var registered string
			err := tx.QueryRowContext(ctx, `SELECT id FROM regions WHERE name = ? AND id <> ?`, region.Name, region.ID).Scan(&registered)
			if err == nil {
				return fmt.Errorf("%w: %q is region %s", ErrRegistered, region.Name, registered)
			}
			if !errors.Is(err, sql.ErrNoRows) {
				return err
			}
			if _, err := tx.ExecContext(ctx, `INSERT INTO region_log (scope, region_id) VALUES (?, ?)
				ON CONFLICT (scope) DO UPDATE SET region_id = excluded.region_id`, region.Name, region.ID); err != nil {
				return err
			}
			if err := s.Database.Log.AddScope(ctx, tx.Tx, region.Name); err != nil {
				return err
			}
			if owner != "" {
				if err := s.withdrawAll(ctx, tx, region.Name); err != nil {
					return err
				}
				// Above each epoch of the region before: its agent must claim
				// another, and reports everything again.
				epoch = time.Now().UnixMilli()
			}
		case err != nil:
			return err
		case owner != region.ID:
			return fmt.Errorf("%w: the name %q belongs to region %s; put it with replace to give it to this one", ErrNameTaken, region.Name, owner)
		}
		inserted, err := tx.Affected(
			ctx,
			`INSERT INTO regions (id, name, platform, token_hash, created_at, agent_epoch) VALUES (?, ?, ?, ?, ?, ?)
			ON CONFLICT (id) DO NOTHING`,
			region.ID,
			region.Name,
			region.Platform,
			hash,
			time.Now().UnixMilli(),
			epoch,
		)
		if err != nil {
			return err
		}
		verb := "put"
		if owner != "" && owner != region.ID {
			verb = "replace"
		}
		if inserted == 1 {
			token, created = fresh, true
			return audit.Record(ctx, tx, audit.Change{Verb: verb, Kind: audit.KindRegion, Name: region.ID, Outcome: audit.Created})
		}
		var name string
		if err := tx.QueryRowContext(ctx, `SELECT name FROM regions WHERE id = ?`+tx.Lock, region.ID).Scan(&name); err != nil {
			return err
		}
		if name != region.Name {
			return fmt.Errorf("%w: the name of region %s is %q and cannot change", ErrNameTaken, region.ID, name)
		}
		updated, err := tx.Affected(
			ctx,
			`UPDATE regions SET platform = ? WHERE id = ? AND platform <> ?`,
			region.Platform,
			region.ID,
			region.Platform,
		)
		if err != nil || updated == 0 {
			return err
		}
		return audit.Record(ctx, tx, audit.Change{Verb: verb, Kind: audit.KindRegion, Name: region.ID})
	})
	if err != nil {
		return "", false, fmt.Errorf("put region %s: %w", region.ID, err)
	}
	s.Database.Log.Wake()
	s.awaitLog(ctx, region.Name)
	return token, created, nil
}

// awaitLog waits until the log of the region can be read: an agent that starts with
// the new token must not be refused as unknown. It gives up after 5 s, in which no
// sequencer has run.
func (s *Store) awaitLog(ctx context.Context, name string) {
	const patience, interval = 5 * time.Second, 5 * time.Millisecond
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		if _, err := s.Database.Log.Read(ctx, name, 0, 1); !errors.Is(err, statesync.ErrUnknownScope) {
			return
		}
		if !pause.For(ctx, interval) {
			return
		}
	}
}

// Regions returns every region, sorted by name.
func (s *Store) Regions(ctx context.Context) ([]Region, error) {
	return s.list(ctx, `ORDER BY r.name`)
}

// RegionsAfter returns the regions whose name follows the given one, sorted by name, at
// most limit.
func (s *Store) RegionsAfter(ctx context.Context, after string, limit int) ([]Region, error) {
	return s.list(ctx, `WHERE r.name > ? ORDER BY r.name LIMIT ?`, after, limit)
}

// Region returns the region of that id.
func (s *Store) Region(ctx context.Context, regionID string) (Region, error) {
	return s.one(ctx, `WHERE r.id = ?`, regionID)
}

// RegionByName returns the region of that name. A region that is not the one its
// log was made for is unknown.
func (s *Store) RegionByName(ctx context.Context, name string) (Region, error) {
	return s.one(ctx, `JOIN region_log l ON l.scope = r.name AND l.region_id = r.id WHERE r.name = ?`, name)
}

// list returns the regions that the rest of a query selects.
func (s *Store) list(ctx context.Context, rest string, args ...any) ([]Region, error) {
	return db.List(ctx, s.Database, `SELECT `+regionColumns+` FROM regions r `+rest, args,
		func(rows *sql.Rows, r *Region) error { return scanRegion(rows.Scan, r) })
}

// one is list for one region; without any the error is [ErrUnknownRegion].
func (s *Store) one(ctx context.Context, rest string, args ...any) (Region, error) {
	regions, err := s.list(ctx, rest, args...)
	if err != nil || len(regions) == 0 {
		return Region{}, cmp.Or(err, ErrUnknownRegion)
	}
	return regions[0], nil
}

// Claim gives the region's agent an epoch, greater than every one before, also those
// that agents chose themselves. One that yields is refused with [ErrHeld] while the holder
// of the last epoch is alive.
func (s *Store) Claim(ctx context.Context, regionID string, yield bool) (epoch uint64, err error) {
	err = s.Database.Write(ctx, func(tx *db.Tx) error {
		if err := s.Agents().Lock(ctx, tx, regionID); err != nil {
			return err
		}
		now := time.Now()
		if yield {
			var heard int64
			if err := tx.QueryRowContext(ctx, `SELECT epoch_heard_at FROM regions WHERE id = ?`, regionID).Scan(&heard); err != nil {
				return err
			}
			if now.Sub(time.UnixMilli(heard)) < adminapi.Silence {
				return ErrHeld
			}
		}
		if err := tx.QueryRowContext(ctx, `SELECT max(agent_epoch) FROM (
			SELECT agent_epoch FROM regions WHERE id = ?
			UNION ALL SELECT agent_epoch FROM deployment_topology WHERE region_id = ?
			UNION ALL SELECT agent_epoch FROM sentinels WHERE region_id = ?) AS given`, regionID, regionID, regionID).Scan(&epoch); err != nil {
			return err
		}
		epoch++
		if _, err := tx.ExecContext(
			ctx,
			`UPDATE regions SET agent_epoch = ?, epoch_heard_at = ? WHERE id = ?`,
			epoch,
			now.UnixMilli(),
			regionID,
		); err != nil {
			return err
		}
		return audit.Record(ctx, tx, audit.Change{Verb: "claim", Kind: audit.KindRegion, Name: regionID})
	})
	return epoch, err
}

// Heartbeat stores that the region's agent is alive, its cell, and whether it holds the
// epoch of the region. While one cell is alive, another is refused with [ErrClaimed]; no
// cell is a cell, too.
func (s *Store) Heartbeat(ctx context.Context, regionID, cellID string, epoch uint64) error {
	return s.Database.Write(ctx, func(tx *db.Tx) error {
		var claimed string
		var at int64
		var held uint64
		if err := tx.QueryRowContext(ctx, `SELECT cell_id, heartbeat_at, agent_epoch FROM regions WHERE id = ?`+tx.Lock, regionID).
			Scan(&claimed, &at, &held); err != nil {
			return db.Missing(err, ErrUnknownRegion)
		}
		now := time.Now()
		if claimed != cellID && now.Sub(time.UnixMilli(at)) < adminapi.Silence {
			return fmt.Errorf("%w: %q", ErrClaimed, claimed)
		}
		if _, err := tx.ExecContext(
			ctx,
			`UPDATE regions SET cell_id = ?, heartbeat_at = ? WHERE id = ?`,
			cellID,
			now.UnixMilli(),
			regionID,
		); err != nil || epoch == 0 ||
			epoch != held {
			return err
		}
		_, err := tx.ExecContext(ctx, `UPDATE regions SET epoch_heard_at = ? WHERE id = ?`, now.UnixMilli(), regionID)
		return err
	})
}
