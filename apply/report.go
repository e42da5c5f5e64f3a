package apply

import (
	"errors"
	"fmt"
)

// Action says what happened to an object.
type Action string

// The actions of a [Report].
const (
	// Created: it did not exist.
	Created Action = "Created"
	// Updated: it existed, and now is as desired again, or differently desired.
	Updated Action = "Updated"
	// Recreated: it was deleted, because a field is immutable, and created anew.
	Recreated Action = "Recreated"
	// Deleted: its deletion was accepted; finalizers may still hold it.
	Deleted Action = "Deleted"
	// Released: it is no longer wanted and no longer ours, and was left alive.
	Released Action = "Released"
	// Skipped: it belongs to somebody else, and the caller wants that left so.
	Skipped Action = "Skipped"
	// Failed: the request failed; Err is the server's or the transport's.
	Failed Action = "Failed"
	// Refused: nothing was sent, because it would not be right: the object
	// belongs to somebody else, its kind is not watched, its scope is wrong.
	Refused Action = "Refused"
	// Waiting: nothing was sent yet: the object or its namespace is being
	// deleted, the live view of its kind is not complete, or what it needs
	// failed in this pass. A later pass goes on.
	Waiting Action = "Waiting"
)

// Result is what happened to one object.
type Result struct {
	ID     ID
	Action Action
	// Err is nil for Created, Updated, Recreated, Deleted, Released and Skipped.
	Err error
}

// Report is what one pass did.
type Report struct {
	// Unchanged counts the objects that needed nothing.
	Unchanged int
	// Results holds every other object, in the order of the work.
	Results []Result
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

// Err joins the errors of all results, each with its object's ID.
func (r Report) Err() error {
	var errs []error
	for _, result := range r.Results {
		if result.Err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", result.ID, result.Err))
		}
	}
	return errors.Join(errs...)
}

// Errors for conditions that callers branch on, found with errors.Is.
var (
	// ErrNotOurs: an object with this name exists and belongs to somebody else.
	ErrNotOurs = errors.New("belongs to somebody else")
	// ErrTerminating: the object is being deleted.
	ErrTerminating = errors.New("is being deleted")
	// ErrNotSynced: the live view of the kind is not complete yet.
	ErrNotSynced = errors.New("live view is not complete")
	// ErrBlocked: what the object needs was not applied in this pass.
	ErrBlocked = errors.New("held back")
	// ErrIncomplete: the desired state is not known to be complete, so nothing
	// may be called absent from it.
	ErrIncomplete = errors.New("desired state is not known to be complete")
	// ErrStalePlan: a planned change is no longer what is to be done.
	ErrStalePlan = errors.New("the plan no longer holds")
	// ErrNeeded: an object is not wanted, and something that stays needs it.
	ErrNeeded = errors.New("is still needed")
	// ErrKeepNothing: the desired state is empty, which is more often a mistake
	// than a wish.
	ErrKeepNothing = errors.New("desired state is empty")
)
