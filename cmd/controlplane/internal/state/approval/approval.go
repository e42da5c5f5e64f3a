// Package approval is what clusters and regions have in common about deletions that an
// agent holds: it reports them under a digest, an administrator approves that digest, and
// the agent carries out exactly these.
package approval

import (
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/seed-9e1ffd66/trueup/cmd/api/starbase"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/front/adminapi"
)

// Check reports whether approving the digest changes anything. If the digest is neither that
// of the held deletions nor the one approved last, the error is the answer: 409
// other_deletions.
func Check(held *starbase.HeldDeletions, approved, digest string) (change bool, err error) {
	switch {
	case digest == approved:
		return false, nil
	case held == nil:
		return false, other("nothing is held that can be approved")
	case held.Digest != digest:
		return false, other(fmt.Sprintf("digest is %q: what is held has the digest %q", digest, held.Digest))
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

// Text returns held deletions as a database stores them, "" for nil.
func Text(held *starbase.HeldDeletions) (string, error) {
	if held == nil {
		return "", nil
	}
	text, err := json.Marshal(held)
	return string(text), err
}

// Parse returns the held deletions of a [Text].
func Parse(text string) (held *starbase.HeldDeletions, err error) {
	if text != "" {
		err = json.Unmarshal([]byte(text), &held)
	}
	return held, err
}
