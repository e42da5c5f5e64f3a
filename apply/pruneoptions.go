package apply

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// PruneOptions limit what [Applier.Prune] may delete. The zero value deletes
// nothing, because it does not state completeness.
type PruneOptions struct {
	// Complete states that the set is the whole desired state of the owner, or of
	// the part, as of now. Without it Prune does nothing and returns
	// [ErrIncomplete].
	Complete bool
	// AllowEmpty lets the set be empty. Without it Prune returns
	// [ErrKeepNothing] then.
	AllowEmpty bool
	// Keep, if set, protects objects that are not in the set, such as those of a
	// service whose desired state could not be read.
	Keep func(Observed) bool
	// Gone, if set, reports that the desired state itself names the object as
	// deleted. Such an object needs no grace. Keep comes first.
	Gone func(Observed) bool
	// Grace, if set, is how long an object must be absent from complete sets
	// before it is deleted. Nil: no grace.
	Grace func(schema.GroupKind) Grace
	// Guard bounds the deletions within a window. Nil: a prune of a whole owner uses a
	// guard of the Live with default limits; a prune of a part uses none, because its
	// parent object states the change.
	Guard *Guard
	// Approved is the digest of the held set that a person has approved
	// ([Held.Digest]), empty if none. If exactly that set is held, it is deleted and
	// does not count; if another one is, that stays held, and the [*LimitError] names
	// both digests.
	Approved string
	// Orphan, if set, selects objects that are not deleted but released: they stay
	// without the owner's labels, and a Namespace or definition that they need stays,
	// too. They count as deletions for the guard.
	Orphan func(Observed) bool
	// DeleteForeign deletes a Namespace or a definition even if foreign objects live in
	// it, or if that cannot be seen. They are deleted with it. Default false: it stays,
	// and its result counts them.
	DeleteForeign bool
	// Propagation decides about the objects that a deleted one owns. Empty
	// means background: the garbage collector deletes them afterwards; and foreground for
	// workloads whose isolation goes by itself ([Applier.Prune]).
	Propagation metav1.DeletionPropagation

	meant  bool                  // a part or its parent is deleted: no guard
	podsOf func(Observed) string // DeleteOptions.PodsOf
}

// Grace is how long an object must be absent: in at least Passes consecutive calls of
// Prune, the first at least Age ago.
type Grace struct {
	Passes int
	Age    time.Duration
}

// PruneReport is the outcome of one call of Prune or Delete.
type PruneReport struct {
	// Results holds the objects that were deleted or released, and those that could not
	// be.
	Results []Result
	// Held is what would be deleted if the guard allowed it, and why it does not.
	Held Held
	// Pending counts the absent objects that are still in their grace, and those that stay for now
	// because an object needs them that must be deleted and is still there, such as what isolates pods. A
	// later call deletes them; no event tells when.
	Pending int
	// Waiting holds those of Pending that an object needs, in no order, each with [ErrNeeded], which names what needs it.
	Waiting []Result
	// Remaining counts the objects that must be deleted and are still there: those whose deletion was
	// accepted, by this call or an earlier one, and that the watch still shows, and the Pending ones.
	// With an empty set, no error and none remaining, nothing is left.
	Remaining int
	// Unseen names the kinds that may have objects that cannot be seen. The call
	// deletes what it sees and fails because of them. It fails with [ErrNotSynced], too,
	// if kinds may be missing: the ApplySet's parent was deleted, Live.Kinds is empty,
	// and Live.Discovery is not there to look for them, or is incomplete.
	Unseen []schema.GroupKind
	// Unproven holds objects that carry the owner's labels, are not desired, and are
	// left, because nothing shows that we applied them: copies of our objects, objects
	// whose part label is another manager's, or objects of a kind whose server keeps no
	// managedFields. An object that a controller made for another object, with copied
	// labels, does not count.
	Unproven []ID
}

// DeleteOptions refine [Applier.Delete] and [Applier.DeletePart].
type DeleteOptions struct {
	// Guard bounds the deletions within a window. It is for a program that finds out by
	// itself what is absent: each unit of the objects counts as absent. Nil: none,
	// because an object that is named is meant.
	Guard *Guard
	// Approved is as in [PruneOptions].
	Approved string
	// Orphan, DeleteForeign and Propagation are as in [PruneOptions].
	Orphan        func(Observed) bool
	DeleteForeign bool
	Propagation   metav1.DeletionPropagation
	// PodsOf, if set, returns a label selector for the pods that an object isolates in its namespace. It goes after all
	// of them, whatever made them, not only after those that end. Empty: it waits for none. Nil: as [Applier.Prune].
	PodsOf func(Observed) string
}

// permit returns an error if nothing may be deleted at all.
func (o PruneOptions) permit(set *Set) error {
	switch {
	case !o.Complete || set.nameless:
		return ErrIncomplete
	case set.empty && !o.AllowEmpty:
		return ErrKeepNothing
	default:
		return nil
	}
}

func (o DeleteOptions) prune() PruneOptions {
	return PruneOptions{
		Complete: true, AllowEmpty: true, meant: true, Guard: o.Guard, Approved: o.Approved,
		Orphan: o.Orphan, DeleteForeign: o.DeleteForeign, Propagation: o.Propagation, podsOf: o.PodsOf,
	}
}
