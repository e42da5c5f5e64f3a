package apply

// AdoptionPolicy decides about an object that has a desired name and is not ours.
type AdoptionPolicy int

// The policies.
const (
	// RefuseForeign leaves the object and fails with [ErrNotOurs].
	RefuseForeign AdoptionPolicy = iota
	// SkipForeign leaves the object and reports it as [Skipped], without an
	// error.
	SkipForeign
	// AdoptForeign takes it over: the set is applied to it, and it is
	// pruned when it is no longer desired. An object that has a controller
	// (metadata.ownerReferences) is refused, unless the set states that controller,
	// too.
	AdoptForeign
)

// ConflictPolicy decides what an apply does when another manager owns a field that
// the set states with another value.
type ConflictPolicy int

// The policies.
const (
	// ForceConflicts takes the field: the set's value holds.
	ForceConflicts ConflictPolicy = iota
	// ReportConflicts leaves the object as it is, whole, and refuses it with a
	// [*ConflictError].
	ReportConflicts
)

// ObjectPolicy decides how one object of a set is treated.
type ObjectPolicy int

// The policies.
const (
	// KeepAsStated creates and repairs the object.
	KeepAsStated ObjectPolicy = iota
	// CreateOnly creates the object if there is none of its name, and never changes
	// one that exists, of whatever origin.
	CreateOnly
	// LeaveOut does nothing. The object counts as stated: it is not pruned, and its
	// dependents wait until it is ready.
	LeaveOut
)

// policy holds the caller's decisions about an object.
type policy struct {
	adoption         AdoptionPolicy
	conflicts        ConflictPolicy
	recreate, upsert bool
}
