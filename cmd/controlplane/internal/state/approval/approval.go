// Package approval is what clusters and regions have in common about deletions that an
// agent holds: it reports them under a digest, an administrator approves that digest, and
// the agent carries out exactly these.
package approval

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/seed-9e1ffd66/trueup/cmd/api/starbase"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/front/adminapi"
)

// ErrOther is an approval of a digest other than that of the deletions reported last.
var ErrOther = errors.New("other deletions are held")

// Condition is how it is answered.
var Condition = adminapi.Condition{ //nolint:gochecknoglobals // never written to
	Err: ErrOther,
	Answer: adminapi.Error{
		Status: http.StatusConflict,
		Code:   "other_deletions",
		Message: "no deletions with this digest are held; read held_deletions again, and approve that digest: " +
			"an agent reports what it holds half a minute after it has changed, at the latest",
	},
}

// Check reports whether approving the digest changes anything. It returns [ErrOther] if
// the digest is neither that of the held deletions nor the one approved last.
func Check(held *starbase.HeldDeletions, approved, digest string) (change bool, err error) {
	switch {
	case digest == approved:
		return false, nil
	case held == nil:
		return false, fmt.Errorf("%w: nothing is held", ErrOther)
	case held.Digest != digest:
		return false, fmt.Errorf("%w: digest is %q, must be %q", ErrOther, digest, held.Digest)
	default:
		return true, nil
	}
}

// Decode returns the digest in the body of an approval.
func Decode(w http.ResponseWriter, r *http.Request) (string, error) {
	var body struct {
		Digest string `json:"digest"`
	}
	if err := adminapi.DecodeOptional(w, r, &body); err != nil {
		return "", err
	}
	if body.Digest == "" {
		return "", adminapi.Invalid(starbase.FieldError{Field: "digest", Value: `""`, Want: "the digest of held_deletions"})
	}
	return body.Digest, nil
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
