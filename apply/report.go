package apply

import (
	"errors"
	"fmt"
	"strings"

	"github.com/seed-9e1ffd66/trueup/apply/internal/write"
	"github.com/seed-9e1ffd66/trueup/diff"
)

// Action is what happened to an object.
type Action string

// The actions of a [Report].
const (
	// Created: it did not exist.
	Created Action = "Created"
	// Updated: it existed and was changed to match the set.
	Updated Action = "Updated"
	// Recreated: it was deleted, because a field is immutable, and created again.
	Recreated Action = "Recreated"
	// Deleted: its deletion was accepted; finalizers may still hold it.
	Deleted Action = "Deleted"
	// Released: it is no longer desired and no longer ours, and was left in the
	// cluster.
	Released Action = "Released"
	// Skipped: it belongs to another owner, and AdoptionPolicy is SkipForeign.
	Skipped Action = "Skipped"
	// Failed: the request failed; Err is the server's or the transport's.
	Failed Action = "Failed"
	// Refused: no request was sent, because the object belongs to another owner or part,
	// its scope is wrong, or its name is taken.
	Refused Action = "Refused"
	// Waiting: no request was sent yet: the object or its namespace is being deleted,
	// its kind is not synced, or a requirement failed in this pass. A later pass
	// continues.
	Waiting Action = "Waiting"
)

// Result is what happened to one object.
type Result struct {
	ID     ID
	Action Action
	// Err is nil for Created, Updated, Recreated, Deleted, Released and Skipped.
	Err error
}

// Report is the outcome of one pass.
type Report struct {
	// Unchanged counts the objects that needed nothing.
	Unchanged int
	// Results holds every other object, in the order of the work.
	Results []Result
	// Overrides are the changes of others that the pass has undone, by ID. They are known
	// with [Applier.Overrides] alone.
	Overrides []Override
}

// Count returns how many objects had the action.
func (r Report) Count(action Action) int {
	n := 0
	for i := range r.Results {
		if r.Results[i].Action == action {
			n++
		}
	}
	return n
}

// Err joins the errors of all results, each with its object's ID. Its text has the first ten, and how many more there
// are: in an outage every object has one, and the text is logged at each try.
func (r Report) Err() error {
	var errs joinedErrors
	for _, result := range r.Results {
		if result.Err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", result.ID, result.Err))
		}
	}
	if len(errs) == 0 {
		return nil
	}
	return errs
}

// joinedErrors are errors of which few are shown.
type joinedErrors []error

const shownErrors = 10

// Error returns the text of the first ones, each on a line of its own.
func (e joinedErrors) Error() string {
	text := errors.Join(e[:min(len(e), shownErrors)]...).Error()
	if more := len(e) - shownErrors; more > 0 {
		text += fmt.Sprintf("\nand %d more", more)
	}
	return text
}

// Unwrap returns all.
func (e joinedErrors) Unwrap() []error { return e }

// Errors for conditions that callers branch on, found with errors.Is.
var (
	// ErrNotOurs: an object with this name exists and belongs to another owner.
	// [Applier.Adoption] decides about one that no owner has.
	ErrNotOurs = write.ErrNotOurs
	// ErrClaimed: the object belongs to another part, which the message names.
	ErrClaimed = write.ErrClaimed
	// ErrTerminating: the object is being deleted.
	ErrTerminating = write.ErrTerminating
	// ErrStalePlan: a planned change no longer holds, or a newer set states the object.
	ErrStalePlan = write.ErrStale
	// ErrNotSynced: the kind is not synced, or its objects cannot be seen any more.
	ErrNotSynced = errors.New("the live state is not known")
	// ErrAbsent: the kind is synced, and there is no such object of ours.
	ErrAbsent = errors.New("does not exist")
	// ErrBlocked: a requirement of the object was not applied in this pass.
	ErrBlocked = errors.New("held back")
	// ErrIncomplete: the desired state may be incomplete, so no object counts as absent
	// from it.
	ErrIncomplete = errors.New("desired state is not known to be complete")
	// ErrNeeded: an object is not desired, but one that stays needs it.
	ErrNeeded = errors.New("is still needed")
	// ErrKeepNothing: the desired state is empty, which is more often a mistake
	// than intended.
	ErrKeepNothing = errors.New("desired state is empty")
)

// Override is a change of one object by others that a repair has undone.
type Override struct {
	ID ID
	// Fields were changed, removed or reordered since our last apply of the same desired
	// state, and are as stated again. The values of a Secret are masked.
	Fields []diff.Field
}

// maxOverridden is how many fields an override names.
const maxOverridden = 5

// String returns the override for people: "Deployment.apps/shop/web: .spec.paused was changed by
// kubectl-edit; set back". It has no values.
func (o Override) String() string {
	texts := make([]string, 0, maxOverridden)
	for _, f := range o.Fields[:min(len(o.Fields), maxOverridden)] {
		how := " was changed"
		switch f.Difference {
		case diff.Missing:
			how = " was removed"
		case diff.Reordered:
			how = " was reordered"
		default:
		}
		if len(f.By) > 0 {
			how += " by " + f.By[0].Manager
		}
		texts = append(texts, f.Path+how)
	}
	if more := len(o.Fields) - len(texts); more > 0 {
		texts = append(texts, fmt.Sprintf("and %d more", more))
	}
	return o.ID.String() + ": " + strings.Join(texts, "; ") + "; set back"
}
