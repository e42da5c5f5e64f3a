package agent

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/seed-9e1ffd66/trueup/apply"
	ctrlv1 "github.com/seed-9e1ffd66/trueup/cmd/api/ctrl/v1"
	"github.com/seed-9e1ffd66/trueup/cmd/krane/stream"
)

// approvals are what the guards of all collections hold, which a person sees and approves
// as one set.
type approvals struct {
	mu     sync.Mutex
	held   map[stream.Collection]apply.Held
	digest string // approved last
	// agreed are the digests by collection that it names. They outlast that a part of them is
	// deleted, and end when a collection holds another set.
	agreed map[stream.Collection]string
}

// hold takes what a collection holds now, and reports whether that is news.
func (a *approvals) hold(collection stream.Collection, held apply.Held) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.held[collection].Digest == held.Digest && len(a.held[collection].Units) == len(held.Units) {
		return false
	}
	a.held[collection] = held
	if held.Digest != "" && held.Digest != a.agreed[collection] {
		a.agreed = nil
	}
	a.agree()
	return true
}

// agree notes the digest of each collection if the approved digest matches what is held. The
// caller must hold mu.
func (a *approvals) agree() (agreed bool) {
	if a.digest == "" || a.digest != a.sum() {
		return false
	}
	a.agreed = map[stream.Collection]string{}
	for collection, held := range a.held {
		a.agreed[collection] = held.Digest
	}
	return true
}

// approve takes the digest that was approved last, and reports whether it is that of what
// is held.
func (a *approvals) approve(digest string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if digest != a.digest {
		a.digest, a.agreed = digest, nil
	}
	return a.agree()
}

// approved returns the digest of what a collection holds, "" unless it is approved.
func (a *approvals) approved(collection stream.Collection) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	if digest := a.held[collection].Digest; digest == a.agreed[collection] {
		return digest
	}
	return ""
}

// sum is the digest of all that is held, "" for nothing. The lock is held.
func (a *approvals) sum() string {
	hash, held := sha256.New(), false
	for _, collection := range slices.Sorted(maps.Keys(a.held)) {
		if digest := a.held[collection].Digest; digest != "" {
			held = true
			_, _ = fmt.Fprintf(hash, "%s %s\n", collection, digest)
		}
	}
	if !held {
		return ""
	}
	return hex.EncodeToString(hash.Sum(nil)[:8])
}

// The limits of a report.
const (
	maxHeldUnits  = 100
	maxHeldReason = 1024
)

// heldDeletions returns what is held, as it is reported; nil for nothing.
func (a *approvals) heldDeletions() *ctrlv1.HeldDeletions {
	a.mu.Lock()
	defer a.mu.Unlock()
	digest := a.sum()
	if digest == "" {
		return nil
	}
	report := &ctrlv1.HeldDeletions{Digest: digest}
	for _, collection := range slices.Sorted(maps.Keys(a.held)) {
		for _, u := range a.held[collection].Units {
			if report.Count++; len(report.GetUnits()) < maxHeldUnits {
				report.Units = append(report.Units, &ctrlv1.HeldUnit{
					Unit: u.Unit, Objects: int32(len(u.IDs)), Reason: bounded(u.Reason, maxHeldReason),
				})
			}
		}
	}
	return report
}
