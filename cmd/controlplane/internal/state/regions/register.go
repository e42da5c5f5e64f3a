package regions

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/edge/tokens"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/audit"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/db"
	"github.com/seed-9e1ffd66/trueup/internal/pause"
	"github.com/seed-9e1ffd66/trueup/statesync"
)

// PutRegion registers the region and returns its token, which is shown this
// once. For a registered region it returns no token, and sets the platform. A name
// that belongs to the log of another region is refused, unless that one is of another
// platform, or replace is true and it is not registered any more. The log is empty then: the
// new region inherits nothing, and an agent deletes nothing on the word of an empty list.
func (s *Store) PutRegion(ctx context.Context, region Region, replace bool) (token string, created bool, err error) {
	err = s.Database.Write(ctx, func(tx *db.Tx) (err error) {
		token, created, err = s.putRegion(ctx, tx, &region, replace)
		return err
	})
	if err != nil {
		return "", false, fmt.Errorf("put region %s: %w", region.ID, err)
	}
	s.Database.Log.Wake()
	s.awaitLog(ctx, region.Scope)
	return token, created, nil
}

func (s *Store) putRegion(ctx context.Context, tx *db.Tx, region *Region, replace bool) (token string, created bool, err error) {
	known, err := registered(ctx, tx, *region)
	if err != nil {
		return "", false, err
	}
	if known.ID != "" && known.Name != region.Name {
		return "", false, fmt.Errorf("%w: the name of region %s is %q and cannot change", ErrNameTaken, region.ID, known.Name)
	}
	log, err := logOf(ctx, tx, *region, known)
	if err != nil {
		return "", false, err
	}
	region.Scope = log.scope
	change := audit.Change{Verb: "put", Kind: audit.KindRegion, Name: region.ID}
	var epoch int64
	if log.owner != region.ID {
		switch {
		case log.registered:
			return "", false, fmt.Errorf("%w: %q is region %s", ErrRegistered, region.Name, log.owner)
		case log.owner != "" && !replace:
			return "", false, fmt.Errorf(
				"%w: the name %q belongs to region %s; put it with replace to give it to this one", ErrNameTaken, region.Name, log.owner,
			)
		case log.owner != "":
			change.Verb = "replace"
			// Above each epoch of the region before: its agent must claim
			// another, and reports everything again.
			epoch = time.Now().UnixMilli()
		}
		if err := s.takeLog(ctx, tx, *region, log.owner != ""); err != nil {
			return "", false, err
		}
	}
	if err := unique(ctx, tx, *region); err != nil {
		return "", false, err
	}
	if known.ID != "" {
		if known.Platform == region.Platform {
			return "", false, nil
		}
		if change.Verb, err = s.move(ctx, tx, *region, known, replace); err != nil {
			return "", false, err
		}
		return "", false, audit.Record(ctx, tx, change)
	}
	token, hash := tokens.New()
	if _, err := tx.ExecContext(
		ctx,
		`INSERT INTO regions (id, name, platform, scope, token_hash, token_until, terms_of, created_at, agent_epoch)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		region.ID, region.Name, region.Platform, region.Scope, hash, s.Agents().Shown(), hash, time.Now().UnixMilli(), epoch,
	); err != nil {
		return "", false, err
	}
	change.Outcome = audit.Created
	return token, true, audit.Record(ctx, tx, change)
}

// move gives a region another platform. An agent with the shared token names its region by name and
// platform, and may not have the new ones yet. So a name and platform that another region had are taken
// with replace alone, and the ones that this region leaves stay reserved for it.
func (s *Store) move(ctx context.Context, tx *db.Tx, region, known Region, replace bool) (verb string, err error) {
	place := region.Name + "@" + region.Platform
	var owner string
	err = tx.QueryRowContext(ctx, `SELECT l.region_id FROM region_log l WHERE l.region_id <> ? AND (l.scope = ? OR l.scope = ?
		AND NOT EXISTS (SELECT 1 FROM regions r WHERE r.id = l.region_id)) ORDER BY l.scope DESC LIMIT 1`, region.ID, place, region.Name).
		Scan(&owner)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		verb = "put"
	case err != nil:
		return "", err
	case !replace:
		return "", fmt.Errorf("%w: the name %q in %s belonged to region %s; put it with replace to give it to this one",
			ErrNameTaken, region.Name, region.Platform, owner)
	default:
		verb = "replace"
	}
	const own = `INSERT INTO region_log (scope, region_id) VALUES (?, ?) ON CONFLICT (scope) DO `
	if _, err := tx.ExecContext(ctx, own+`UPDATE SET region_id = excluded.region_id`, place, region.ID); err != nil {
		return "", err
	}
	if _, err := tx.ExecContext(ctx, own+`NOTHING`, region.Name+"@"+known.Platform, region.ID); err != nil {
		return "", err
	}
	_, err = tx.ExecContext(ctx, `UPDATE regions SET platform = ? WHERE id = ?`, region.Platform, region.ID)
	return verb, err
}

// registered returns the region of that id as it is registered, without an ID if it is not.
func registered(ctx context.Context, tx *db.Tx, region Region) (known Region, err error) {
	row := tx.QueryRowContext(ctx, `SELECT r.id, r.name, r.platform, `+regionScope+` FROM regions r WHERE r.id = ?`+tx.Lock, region.ID)
	if err = row.Scan(&known.ID, &known.Name, &known.Platform, &known.Scope); errors.Is(err, sql.ErrNoRows) {
		return Region{}, nil
	}
	return known, err
}

// unique returns an error if another region has the name and platform.
func unique(ctx context.Context, tx *db.Tx, region Region) error {
	var other string
	err := tx.QueryRowContext(ctx, `SELECT id FROM regions WHERE name = ? AND platform = ? AND id <> ?`, region.Name, region.Platform, region.ID).
		Scan(&other)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return nil
	case err != nil:
		return err
	}
	return fmt.Errorf("%w: the name %q in %s belongs to region %s", ErrRegistered, region.Name, region.Platform, other)
}

// ownedLog is a log, and the region that it was made for: none if owner is empty.
type ownedLog struct {
	scope, owner string
	registered   bool
}

// logOf returns the log of a region: the one that it has, else that of its name, or of name and
// platform if a region of another platform has the name.
func logOf(ctx context.Context, tx *db.Tx, region, known Region) (log ownedLog, err error) {
	scopes := []string{region.Name, region.Name + "@" + region.Platform}
	if known.ID != "" {
		scopes = []string{known.Scope}
	}
	for _, scope := range scopes {
		log = ownedLog{scope: scope}
		var platform sql.NullString
		err = tx.QueryRowContext(ctx, `SELECT l.region_id, r.platform FROM region_log l
			LEFT JOIN regions r ON r.id = l.region_id AND `+regionScope+` = l.scope WHERE l.scope = ?`, scope).Scan(&log.owner, &platform)
		if errors.Is(err, sql.ErrNoRows) {
			return log, nil
		}
		log.registered = platform.Valid
		if err != nil || log.owner == region.ID || !log.registered || platform.String == region.Platform {
			return log, err
		}
	}
	return log, nil
}

// takeLog makes the log of a region, or gives it the one of another, without what was in it.
func (s *Store) takeLog(ctx context.Context, tx *db.Tx, region Region, empty bool) error {
	if _, err := tx.ExecContext(ctx, `INSERT INTO region_log (scope, region_id) VALUES (?, ?)
		ON CONFLICT (scope) DO UPDATE SET region_id = excluded.region_id`, region.Scope, region.ID); err != nil {
		return err
	}
	if err := s.Database.Log.AddScope(ctx, tx.Tx, region.Scope); err != nil || !empty {
		return err
	}
	return s.withdrawAll(ctx, tx, region.Scope)
}

// awaitLog waits until the log of the region can be read: an agent that starts with
// the new token must not be refused as unknown. It gives up after 5 s, in which no
// sequencer has run.
func (s *Store) awaitLog(ctx context.Context, scope string) {
	const patience, interval = 5 * time.Second, 5 * time.Millisecond
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		if _, err := s.Database.Log.Read(ctx, scope, 0, 1); !errors.Is(err, statesync.ErrUnknownScope) {
			return
		}
		if !pause.For(ctx, interval) {
			return
		}
	}
}
