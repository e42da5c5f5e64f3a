package regions

import (
	"context"
	"errors"
	"fmt"

	"connectrpc.com/connect"

	ctrlv1 "github.com/seed-9e1ffd66/trueup/cmd/api/ctrl/v1"
	"github.com/seed-9e1ffd66/trueup/cmd/api/starbase"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/approval"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/audit"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/db"
)

// ApproveDeletions lets the agent of the region carry out the held deletions with this
// digest, and no other. They must be those that it reported last, which the administrator
// has seen; otherwise [approval.Check] returns the error. If they are approved already, the
// call has no effect.
func (s *Store) ApproveDeletions(ctx context.Context, regionID, digest string) (changed bool, err error) {
	err = s.Database.Write(ctx, func(tx *db.Tx) error {
		var region Region
		row := tx.QueryRowContext(ctx, `SELECT `+regionColumns+` FROM regions r WHERE r.id = ?`+tx.Lock, regionID)
		if err := db.Missing(scanRegion(row.Scan, &region), ErrUnknownRegion); err != nil {
			return err
		}
		if changed, err = approval.Check(region.HeldDeletions, region.ApprovedDeletions, digest); err != nil || !changed {
			return err
		}
		if _, err := tx.ExecContext(ctx, `UPDATE regions SET approved_deletions = ? WHERE id = ?`, digest, regionID); err != nil {
			return err
		}
		return audit.Record(ctx, tx, audit.Change{Verb: "allow-mass-delete", Kind: audit.KindRegion, Name: regionID})
	})
	if err != nil {
		return false, fmt.Errorf("approve deletions in region %s: %w", regionID, err)
	}
	return changed, nil
}

// hold stores what the agent holds, if that is news, and returns the digest that was
// approved last.
func (s *Store) hold(ctx context.Context, regionID string, held *starbase.HeldDeletions) (approved string, err error) {
	text, err := approval.Text(held)
	if err != nil {
		return "", err
	}
	var before string
	err = s.Database.Read(ctx, func(tx *db.Tx) error {
		row := tx.QueryRowContext(ctx, `SELECT held_deletions, approved_deletions FROM regions WHERE id = ?`, regionID)
		return db.Missing(row.Scan(&before, &approved), ErrUnknownRegion)
	})
	if err != nil || before == text {
		return approved, err
	}
	return approved, s.Database.Write(ctx, func(tx *db.Tx) error {
		_, err := tx.ExecContext(ctx, `UPDATE regions SET held_deletions = ? WHERE id = ?`, text, regionID)
		return err
	})
}

// heldOf returns the held deletions of a heartbeat, nil for none.
func heldOf(m *ctrlv1.HeldDeletions) (*starbase.HeldDeletions, error) {
	if m == nil {
		return nil, nil //nolint:nilnil // nothing is held
	}
	held := &starbase.HeldDeletions{Digest: m.GetDigest(), Count: int(m.GetCount())}
	for _, u := range m.GetUnits() {
		held.Units = append(held.Units, starbase.HeldUnit{Unit: u.GetUnit(), Objects: int(u.GetObjects()), Reason: u.GetReason()})
	}
	if wrong := held.Validate(); len(wrong) > 0 {
		return nil, connect.NewError(connect.CodeInvalidArgument, errors.New(wrong[0].Error()))
	}
	return held, nil
}

// approved is the answer to an approval.
type approved struct {
	changed
	// ApprovedDeletions is the digest that was approved.
	ApprovedDeletions string `json:"approved_deletions"`
}

// mayApprove returns why there is nothing to approve.
func (a *admin) mayApprove(ctx context.Context, id string, body approval.Approval) error {
	region, err := a.store.Region(ctx, id)
	if err == nil {
		_, err = approval.Check(region.HeldDeletions, region.ApprovedDeletions, body.Digest)
	}
	return err
}

func (a *admin) approveDeletions(ctx context.Context, id string, body approval.Approval) (approved, error) {
	done, err := a.store.ApproveDeletions(ctx, id, body.Digest)
	return approved{changed{done}, body.Digest}, err
}
