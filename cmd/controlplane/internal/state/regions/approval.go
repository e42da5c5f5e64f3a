package regions

import (
	"context"
	"errors"

	"connectrpc.com/connect"

	ctrlv1 "github.com/seed-9e1ffd66/trueup/cmd/api/ctrl/v1"
	"github.com/seed-9e1ffd66/trueup/cmd/api/starbase"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/agents"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/db"
)

// ApproveDeletions is [agents.Scopes.Approve] in a transaction of its own.
func (s *Store) ApproveDeletions(ctx context.Context, regionID, digest string) (changed bool, err error) {
	err = s.Database.Write(ctx, func(tx *db.Tx) error {
		changed, err = s.Agents().Approve(ctx, tx, regionID, digest)
		return err
	})
	return changed, err
}

// hold stores what the agent holds and what it cannot do, if that is news, and returns the digest
// that was approved last.
func (s *Store) hold(ctx context.Context, regionID string, held *starbase.HeldDeletions, problems string) (approved string, err error) {
	text, err := agents.HeldText(held)
	if err != nil {
		return "", err
	}
	var before, already string
	err = s.Database.Read(ctx, func(tx *db.Tx) error {
		row := tx.QueryRowContext(ctx, `SELECT held_deletions, problems, approved_deletions FROM regions WHERE id = ?`, regionID)
		return db.Missing(row.Scan(&before, &already, &approved), ErrUnknownRegion)
	})
	if err != nil || before == text && already == problems {
		return approved, err
	}
	return approved, s.Database.Write(ctx, func(tx *db.Tx) error {
		_, err := tx.ExecContext(ctx, `UPDATE regions SET held_deletions = ?, problems = ? WHERE id = ?`, text, problems, regionID)
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

func (a *admin) approveDeletions(ctx context.Context, id string, body agents.Approval) (approved, error) {
	done, err := a.store.ApproveDeletions(ctx, id, body.Digest)
	return approved{changed{done}, body.Digest}, err
}
