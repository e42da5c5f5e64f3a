package apply

import (
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed-9e1ffd66/trueup/apply/internal/identity"
	"github.com/seed-9e1ffd66/trueup/apply/internal/view"
)

// Observed is the observed state of one live object. It is a value and does not change.
type Observed struct {
	ID  ID
	UID types.UID
	// Controller is the UID of the object that its controller ownerReference names,
	// empty if it has none.
	Controller types.UID
	// Part is the value of the part label ([Owner.PartLabel]), empty if the object
	// lacks it.
	Part string
	// Generation is metadata.generation, which the server raises with every change of
	// the spec, 0 for a kind that has none. After an apply of ours it is the generation
	// of that apply or a newer one.
	Generation int64
	// Deleting is whether the object has a deletionTimestamp.
	Deleting bool
	// Gone is whether the object no longer exists, or has lost a label of the owner.
	// The other fields hold its last state.
	Gone bool

	record view.Record
	owner  *identity.Identity
}

// Label returns the value of a label, "" when the object lacks it.
func (o Observed) Label(key string) string {
	switch {
	case o.owner == nil:
		return ""
	case key == o.owner.PartLabel:
		return o.Part
	default:
		return o.record.Label(key, o.owner)
	}
}

// observe makes the public form of a record.
func observe(kind schema.GroupKind, n view.Name, r *view.Record, owner *identity.Identity) Observed {
	return Observed{
		ID:  ID{Group: kind.Group, Kind: kind.Kind, Namespace: n.Namespace(), Name: n.Name()},
		UID: types.UID(r.UID()), Controller: types.UID(r.Controller()), Part: r.Part(), Generation: r.Generation(), Deleting: r.Deleting(),
		record: *r, owner: owner,
	}
}
