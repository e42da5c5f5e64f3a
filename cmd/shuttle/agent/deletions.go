package agent

import (
	"fmt"

	"github.com/seed-9e1ffd66/trueup/apply"
	"github.com/seed-9e1ffd66/trueup/cmd/api/starbase"
)

// deletions are the results of the deletions of a state.
type deletions struct {
	// left are the objects that must go and are there, by service.
	left map[labelled]leftover
	// projects have other objects that must go and are there, by their label.
	projects map[string]bool
	// open is true while there may be objects that must go and that left and projects
	// lack: not all can be seen, or one names no service.
	open bool
	// held is what waits for an approval; nil for nothing.
	held *starbase.HeldDeletions
}

// leftover counts the objects of one service that must go and are there, by what
// keeps them.
type leftover struct {
	held     int    // by the limit
	unproven int    // the agent's labels without fields that it applied
	grace    int    // absent from the desired state, and not named as deleted
	going    int    // by nothing: not tried yet, or finalizers
	problem  string // why the deletion of one failed
}

// status returns the status to report for the service.
func (l leftover) status() (phase starbase.Phase, class, message string) {
	switch {
	case l.held > 0:
		return starbase.PhaseFailed, starbase.ClassDeletionHeld,
			fmt.Sprintf("%d objects are not deleted: more at once than the limit allows; see held_deletions of the cluster", l.held)
	case l.unproven > 0:
		return starbase.PhaseFailed, starbase.ClassDeletionHeld,
			fmt.Sprintf("%d objects carry the agent's labels and are not deleted: nothing shows that the agent applied them", l.unproven)
	case l.problem != "":
		return starbase.PhaseFailed, "DeleteFailed", shorten(l.problem)
	case l.grace > 0:
		return starbase.PhaseApplying, starbase.ClassDeletionHeld,
			fmt.Sprintf("%d objects are not deleted yet: they are absent from the desired state and not named as deleted", l.grace)
	default:
		return starbase.PhaseApplying, "Deleting", fmt.Sprintf("%d objects are not deleted yet", l.going)
	}
}

// stuck reports that time alone does not end it.
func (l leftover) stuck() bool { return l.held+l.unproven > 0 || l.problem != "" }

// deletions finds the objects that must go and are there. Where not everything can
// be seen, each tombstone counts.
func (c *converger) deletions(current *accepted) deletions {
	last := &c.last
	found := deletions{open: c.pruned != current, left: map[labelled]leftover{}, projects: map[string]bool{}}
	if !found.open && last.Pending+last.Remaining+len(last.Held.Units)+len(last.Unproven)+failures(last.Results) == 0 {
		return found
	}
	found.held = heldDeletions(last.Held)
	held, unproven, results := idsOf(last.Held.IDs()), idsOf(last.Unproven), resultsOf(last.Results)
	for o := range c.applier.Live.All() {
		at := identityOf(o)
		if current.set.Has(o.ID) || current.rendered.absence.keeps(at) {
			continue
		}
		if at.service == "" {
			if at.project != "" {
				found.projects[at.project] = true
			}
			continue
		}
		if at.project == "" || at.environment == "" {
			found.open = true // no report can name the service
			continue
		}
		l := found.left[at]
		switch failure := results[o.ID].Err; {
		case o.Deleting:
			l.going++
		case held[o.ID]:
			l.held++
		case unproven[o.ID]:
			l.unproven++
		case failure != nil:
			l.problem = fmt.Sprintf("%s: %v", o.ID, failure)
		case current.rendered.absence.isGone(at):
			l.going++
		default:
			l.grace++
		}
		found.left[at] = l
	}
	if c.applier.Live.Unseen() == nil {
		return found
	}
	found.open = true
	for i := range current.state.Services {
		if s := &current.state.Services[i]; s.Deleted {
			at := labelsOf(s.Identity())
			l := found.left[at]
			l.going++
			found.left[at] = l
		}
	}
	return found
}

// heldDeletions returns what the guard holds, as it is reported. A hold that could not be
// recorded has no digest, so it cannot be approved, and the next pass holds again.
func heldDeletions(held apply.Held) *starbase.HeldDeletions {
	if held.Digest == "" {
		return nil
	}
	found := &starbase.HeldDeletions{Digest: held.Digest, Count: len(held.Units)}
	for _, u := range held.Units[:min(len(held.Units), starbase.MaxHeldUnits)] {
		found.Units = append(found.Units, starbase.HeldUnit{Unit: u.Unit, Objects: len(u.IDs), Reason: shorten(u.Reason)})
	}
	return found
}

func idsOf(list []apply.ID) map[apply.ID]bool {
	ids := make(map[apply.ID]bool, len(list))
	for _, id := range list {
		ids[id] = true
	}
	return ids
}
