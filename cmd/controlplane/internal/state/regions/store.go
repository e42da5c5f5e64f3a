package regions

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/seed-9e1ffd66/trueup/cmd/api/starbase"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/front/adminapi"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/agents"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/audit"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/db"
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
	// ErrRegistered is a name and platform that another region is still registered with. It
	// can not be replaced.
	ErrRegistered = errors.New("another region is registered with this name and platform")
	// ErrAmbiguous is a name that regions of several platforms have, or had.
	ErrAmbiguous = errors.New("regions of several platforms have this name, or had it")
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
	// TokenLifetime is the [agents.Scopes.Lifetime] of regions.
	TokenLifetime time.Duration
}

// Region is one Kubernetes cluster with an agent.
type Region struct {
	// ID never changes. Name is the one that the agent sends, and unique in the platform.
	ID   string `json:"region_id"`
	Name string `json:"name"`
	// Platform is where it runs.
	Platform string `json:"platform"`
	// Scope is the region in the change log and in metrics: its name, and if a region of
	// another platform had that first, name@platform. It never changes.
	Scope string `json:"-"`
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
	// TokenUntil is until when the token is valid, unless its agent renews it; zero for one without an
	// end. It says nothing of the token of all regions, which has no end. While
	// --agent-token-lifetime is 0, no token has an end, whatever is here.
	TokenUntil time.Time `json:"token_until,omitzero"`
	// PreviousTokenUntil is until when the token before the last rotation is valid; zero if
	// it is not.
	PreviousTokenUntil time.Time `json:"previous_token_until,omitzero"`
	// HeldDeletions are what the agent would delete if a person approved it, as it
	// reported last. Nil: nothing.
	HeldDeletions *starbase.HeldDeletions `json:"held_deletions,omitempty"`
	// ApprovedDeletions is the digest of held deletions that was approved last.
	ApprovedDeletions string `json:"approved_deletions,omitempty"`
	// Problems are what the agent cannot do, as it reported last, at most 100.
	Problems []Problem `json:"problems,omitempty"`
}

// regionScope is the scope of a region r.
const regionScope = `coalesce(nullif(r.scope, ''), r.name)`

const regionColumns = `r.id, r.name, r.platform, ` + regionScope + `, r.cell_id, r.agent_epoch, r.heartbeat_at,
	CASE WHEN r.terms_of = r.token_hash THEN r.token_until ELSE 0 END, r.previous_token_until,
	r.held_deletions, r.approved_deletions, r.problems, r.created_at`

func scanRegion(scan func(...any) error, r *Region) error {
	var heartbeat, until, previous, created int64
	var held, problems string
	err := scan(
		&r.ID, &r.Name, &r.Platform, &r.Scope, &r.CellID, &r.AgentEpoch, &heartbeat, &until, &previous, &held, &r.ApprovedDeletions,
		&problems, &created,
	)
	if err != nil {
		return err
	}
	r.CreatedAt = time.UnixMilli(created).UTC()
	if heartbeat != 0 {
		r.HeartbeatAt = time.UnixMilli(heartbeat).UTC()
	}
	if until != 0 {
		r.TokenUntil = time.UnixMilli(until).UTC()
	}
	if until := time.UnixMilli(previous).UTC(); until.After(time.Now()) {
		r.PreviousTokenUntil = until
	}
	r.Silent = time.Since(r.HeartbeatAt) >= adminapi.Silence
	if r.HeldDeletions, err = agents.ParseHeld(held); err != nil {
		return err
	}
	r.Problems, err = parseProblems(problems)
	return err
}

// Regions returns every region, sorted by scope.
func (s *Store) Regions(ctx context.Context) ([]Region, error) {
	return s.list(ctx, `ORDER BY `+regionScope)
}

// RegionsAfter returns the regions whose scope follows the given one, sorted by scope, at
// most limit.
func (s *Store) RegionsAfter(ctx context.Context, after string, limit int) ([]Region, error) {
	return s.list(ctx, `WHERE `+regionScope+` > ? ORDER BY `+regionScope+` LIMIT ?`, after, limit)
}

// Region returns the region of that id.
func (s *Store) Region(ctx context.Context, regionID string) (Region, error) {
	return s.one(ctx, `WHERE r.id = ?`, regionID)
}

// withLog joins a region r to its log. A region whose log was made for another one is not
// found.
const withLog = `JOIN region_log l ON l.region_id = r.id AND l.scope = ` + regionScope

// RegionByName returns the region of that name, or [ErrAmbiguous] for the name of several, also of one that
// was removed.
// The region must have the platform and the id, too, if they are not empty. A region that
// is not the one its log was made for is unknown.
func (s *Store) RegionByName(ctx context.Context, name, platform, id string) (Region, error) {
	found, err := s.list(ctx, withLog+` WHERE r.name = ? AND ? IN ('', r.platform) AND ? IN ('', r.id)`, name, platform, id)
	switch {
	case err != nil:
		return Region{}, err
	case len(found) == 0:
		return Region{}, ErrUnknownRegion
	case len(found) > 1:
		return Region{}, ErrAmbiguous
	case platform == "" && id == "":
		err = s.alone(ctx, found[0])
	}
	return found[0], err
}

// alone returns [ErrAmbiguous] if a region with the name of this one was removed and its log is left:
// an agent of the removed region that sends the name alone must not get the log of this one.
func (s *Store) alone(ctx context.Context, r Region) error {
	var others int
	err := s.Database.Read(ctx, func(tx *db.Tx) error {
		return tx.QueryRowContext(ctx, `SELECT count(*) FROM region_log WHERE region_id <> ? AND (scope = ? OR scope LIKE ?)`,
			r.ID, r.Name, r.Name+"@%").Scan(&others)
	})
	if err == nil && others > 0 {
		err = ErrAmbiguous
	}
	return err
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
