package agents

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/seed-9e1ffd66/trueup/cmd/api/starbase"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/front/adminapi"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/audit"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/db"
)

// Approval is the body of a request that approves deletions.
type Approval struct {
	// Digest is the digest of held_deletions.
	Digest string `json:"digest"`
}

// Wrong returns the invalid fields.
func (a Approval) Wrong() (fields []starbase.FieldError) {
	if a.Digest == "" {
		fields = append(fields, starbase.FieldError{Field: "digest", Value: `""`, Want: "the digest of held_deletions"})
	}
	return fields
}

// Check reports whether the approval changes anything. If its digest names neither the held
// deletions nor the ones approved last, the error is the answer: 409 other_deletions.
func (a Approval) Check(held *starbase.HeldDeletions, approved string) (change bool, err error) {
	switch {
	case a.Digest == approved:
		return false, nil
	case held == nil:
		return false, other("nothing is held that can be approved")
	case held.Digest != a.Digest:
		return false, other(fmt.Sprintf("digest is %q: what is held has the digest %q", a.Digest, held.Digest))
	default:
		return true, nil
	}
}

func other(what string) error {
	return &adminapi.Error{
		Status: http.StatusConflict,
		Code:   "other_deletions",
		Message: what + "; read held_deletions, and approve its digest: " +
			"an agent reports what it holds half a minute after it has changed, at the latest",
	}
}

// Approve lets the agent of a scope carry out the held deletions with this digest, and no other.
// They must be those that it reported last, which the administrator has seen: see
// [Approval.Check]. If they are approved already, the call has no effect.
func (s Scopes) Approve(ctx context.Context, tx *db.Tx, id, digest string) (changed bool, err error) {
	changed, err = s.approvable(ctx, tx, id, digest)
	if err == nil && changed {
		_, err = tx.ExecContext(ctx, `UPDATE `+s.table()+` SET approved_deletions = ? WHERE id = ?`, digest, id)
	}
	if err == nil && changed {
		err = audit.Record(ctx, tx, audit.Change{Verb: "allow-mass-delete", Kind: s.Kind, Name: id})
	}
	return changed, s.wrap("approve deletions in", id, err)
}

// Approvable returns why there is nothing to approve.
func (s Scopes) Approvable(ctx context.Context, id string, approval Approval) error {
	return s.wrap("approve deletions in", id, s.Database.Read(ctx, func(tx *db.Tx) error {
		_, err := s.approvable(ctx, tx, id, approval.Digest)
		return err
	}))
}

func (s Scopes) approvable(ctx context.Context, tx *db.Tx, id, digest string) (change bool, err error) {
	var text, approved string
	row := tx.QueryRowContext(ctx, `SELECT held_deletions, approved_deletions FROM `+s.table()+` WHERE id = ?`+tx.Lock, id)
	if err := db.Missing(row.Scan(&text, &approved), s.Unknown); err != nil {
		return false, err
	}
	held, err := ParseHeld(text)
	if err != nil {
		return false, err
	}
	return Approval{Digest: digest}.Check(held, approved)
}

// HeldText returns held deletions as a database stores them, "" for nil.
func HeldText(held *starbase.HeldDeletions) (string, error) {
	if held == nil {
		return "", nil
	}
	text, err := json.Marshal(held)
	return string(text), err
}

// ParseHeld returns the held deletions of a [HeldText].
func ParseHeld(text string) (held *starbase.HeldDeletions, err error) {
	if text != "" {
		err = json.Unmarshal([]byte(text), &held)
	}
	return held, err
}
