package diff

import (
	"crypto/sha256"
	"encoding/binary"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Digest returns the digest of the object's fields that the field manager owns by
// server-side applies: of its entry in managedFields with operation Apply on the main
// resource. It is false without such an entry: the manager has applied nothing, or
// others have since taken every field of it, or the server keeps no managedFields.
//
// While the digest equals the one of the server's answer to the last apply, no other
// manager has changed, removed or taken a field of it.
func Digest(object metav1.Object, manager string) (Sum, bool) {
	entry := Entry(object.GetManagedFields(), manager)
	if entry == nil {
		return Sum{}, false
	}
	h := sha256.New()
	var applied int64
	if entry.Time != nil {
		applied = entry.Time.Unix()
	}
	h.Write(binary.BigEndian.AppendUint64(nil, uint64(applied))) //nolint:gosec // any fixed form will do
	h.Write(entry.FieldsV1.Raw)
	return truncate(h.Sum(nil)), true
}

// Entry returns the entry that [Digest] and [Covers] read: the one of the
// manager's server-side applies to the main resource. It is nil when there is
// none that names the fields that it owns. The result points into entries.
func Entry(entries []metav1.ManagedFieldsEntry, manager string) *metav1.ManagedFieldsEntry {
	for i := range entries {
		e := &entries[i]
		if e.Manager == manager && e.Operation == metav1.ManagedFieldsOperationApply && e.Subresource == "" && e.FieldsV1 != nil {
			return e
		}
	}
	return nil
}

func truncate(sum []byte) Sum {
	return Sum(sum[:len(Sum{})])
}
