package external

import (
	"context"
	"slices"
	"time"
)

// Thing is one thing outside of the cluster, as the status of its object records it.
type Thing struct {
	// Kind and ID identify it. Kind is one of [Part.Kinds], ID its name in the service.
	Kind string `json:"kind"`
	ID   string `json:"id"`
	// Policy is what becomes of it when it is no longer wanted, such as Delete or Retain. It is
	// recorded for [Part.Delete], which acts by it.
	Policy string `json:"policy,omitempty"`
	// Made is whether it was seen complete. Before, it may exist in part.
	Made bool `json:"made,omitempty"`
}

// same reports whether two are records of one thing.
func (t Thing) same(o Thing) bool { return t.Kind == o.Kind && t.ID == o.ID }

// has reports whether a list has a record of a thing.
func has(list []Thing, t Thing) bool { return slices.ContainsFunc(list, t.same) }

// Part is what an object has of one service. Its functions are called by one goroutine at a time,
// and must be safe to repeat: after a crash all is done again. Calls must end soon after ctx has
// ended, and should have a timeout.
type Part struct {
	// Name is unique among the parts of an object. Required.
	Name string
	// Wanted is whether the object has the part now. What is recorded of a part that is not wanted
	// is removed by [Pass.Prune].
	Wanted bool
	// Unset is why nothing of the part can be made at present, such as a service without an
	// address. Nothing is recorded then. Default nil.
	Unset error
	// Kinds are the kinds of all things that the part has ever had. No other part has them.
	Kinds []string
	// Things are all that the part has when it is wanted, without Made.
	Things []Thing
	// Needs are the names of parts before this one. It is made once they are usable, and they are
	// removed once no thing of it is recorded. Default none.
	Needs []string
	// Gate is the gate of the service. Default nil: any number of passes use it.
	Gate Gate
	// Make makes Things as they should be, or finds that they are. It must refuse what it
	// has no right to, with [Owned]. An error that only a person can end is marked with
	// [reconcile.Terminal]; then it is not tried again in this pass. Nil: the part has no things.
	Make func(ctx context.Context) error
	// Delete removes one thing, or leaves it as its policy says. What is not there is no error,
	// and neither is what has the mark of another, which stays as it is. Required with Kinds.
	Delete func(ctx context.Context, thing Thing) error
	// Removed is called by [Pass.Teardown] when no thing of the part is left, to remove what goes
	// with them. Default nil.
	Removed func(ctx context.Context) error
	// Lost reports whether to make the part now, although no check is due. Default nil: never.
	Lost func() bool
	// Early is called when Make, or Delete in a teardown, has failed for the first time in this
	// pass and will be tried again, with Err or Left set: it can be reported before the waits.
	// Default nil.
	Early func(ctx context.Context)

	// Err is why the part is not as it should be, set by [Pass.Make]. A part without Make can have
	// one from the beginning.
	Err error
	// Left is why things are still there that should not be, set by [Pass.Prune] and
	// [Pass.Teardown].
	Left error
	// Checked is whether [Pass.Make] has looked at the part, and Took for how long, with retries.
	Checked bool
	Took    time.Duration
}

// recorded returns the things of the part in a list.
func (t *Part) recorded(list []Thing) (found []Thing) {
	for _, e := range list {
		if slices.Contains(t.Kinds, e.Kind) {
			found = append(found, e)
		}
	}
	return found
}

// obsolete returns the things of the part in a list that are not wanted any more.
func (t *Part) obsolete(list []Thing) []Thing {
	return slices.DeleteFunc(t.recorded(list), func(e Thing) bool { return t.Wanted && has(t.Things, e) })
}
