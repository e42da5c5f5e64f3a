package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

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
	// stuck says which of the objects in projects cannot be deleted, and why.
	stuck []string
}

// leftover counts the objects of one service that must go and are there, by what
// keeps them.
type leftover struct {
	held     int    // by the limit
	reason   string // why, if no approval ends it
	unproven int    // the agent's labels without fields that it applied
	grace    int    // absent from the desired state, and not named as deleted
	going    int    // by nothing: not tried yet, or finalizers
	final    string // one of the going that is not gone for long, with its finalizers
	unseen   bool   // it is not known whether there are any
	problem  string // why the deletion of one failed
}

// status returns the status to report for the service.
func (l leftover) status() (phase starbase.Phase, class, message string) {
	switch {
	case l.held > 0 && l.reason != "":
		return starbase.PhaseFailed, starbase.ClassDeletionHeld, shorten(objects(l.held) + " not deleted: " + l.reason)
	case l.held > 0:
		return starbase.PhaseFailed, starbase.ClassDeletionHeld,
			objects(l.held) + " not deleted: more at once than the limit allows; see held_deletions of the cluster"
	case l.unproven > 0:
		return starbase.PhaseFailed, starbase.ClassDeletionHeld,
			objects(l.unproven) + " not deleted: the labels are the agent's, and nothing shows that the agent applied them"
	case l.problem != "":
		return starbase.PhaseFailed, "DeleteFailed", shorten(l.problem)
	case l.grace > 0:
		return starbase.PhaseApplying, starbase.ClassDeletionHeld,
			objects(l.grace) + " not deleted yet: absent from the desired state and not named as deleted"
	case l.unseen:
		return starbase.PhaseApplying, starbase.ClassUnseen, "whether objects of it are left is not known: the API server does not show them"
	case l.final != "":
		return starbase.PhaseApplying, "Deleting", shorten(objects(l.going) + " not gone yet: " + l.final)
	default:
		return starbase.PhaseApplying, "Deleting", objects(l.going) + " not deleted yet"
	}
}

// objects begins a sentence about n objects.
func objects(n int) string {
	if n == 1 {
		return "1 object is"
	}
	return fmt.Sprintf("%d objects are", n)
}

// stuck reports that time alone does not end it.
func (l leftover) stuck() bool { return l.held+l.unproven > 0 || l.problem != "" }

// deletions finds the objects that must go and are there. Where not everything can
// be seen, each tombstone counts that was not seen to be without objects before.
func (c *converger) deletions(ctx context.Context, current *accepted) deletions {
	last := &c.last
	found := deletions{open: c.pruned != current, left: map[labelled]leftover{}, projects: map[string]bool{}}
	if !found.open && last.Pending+last.Remaining+len(last.Held.Units)+len(last.Unproven)+failures(last.Results) == 0 {
		c.note(current, found.left)
		c.slow = nil
		return found
	}
	unseen := c.applier.Live.Unseen()
	found.held = heldDeletions(c.stillHeld(current))
	held, unproven, results := idsOf(last.Held.IDs()), idsOf(last.Unproven), resultsOf(last.Results)
	slow := map[apply.ID]time.Time{}
	late := func(id apply.ID, after time.Duration) bool { // it has been there for so long
		since, known := c.slow[id]
		if !known {
			since = time.Now()
		}
		slow[id] = since
		return time.Since(since) >= after
	}
	defer func() { c.slow = slow }()
	asked := 0
	for o := range c.applier.Live.All() {
		at := identityOf(o)
		if current.set.Has(o.ID) || current.rendered.absence.keeps(at) {
			continue
		}
		if at.service == "" {
			if at.project != "" {
				found.projects[at.project] = true
			}
			switch failure := results[o.ID].Err; {
			case o.Deleting:
				if late(o.ID, slowEnd) && asked < maxAsked {
					asked++
					found.stuck = append(found.stuck, c.finalizers(ctx, o.ID)+" is being deleted for long")
				}
			case failure != nil && !errors.Is(failure, apply.ErrNotSynced) && late(o.ID, slowDeletion):
				found.stuck = append(found.stuck, fmt.Sprintf("%s: %v", o.ID, failure))
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
			if late(o.ID, slowDeletion) && l.final == "" && asked < maxAsked {
				asked++
				l.final = c.finalizers(ctx, o.ID)
			}
		case held[o.ID]:
			l.held++
			l.reason = c.unrecorded
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
	if unseen = errors.Join(unseen, c.applier.Live.Unseen()); unseen == nil {
		c.note(current, found.left)
		return found
	}
	found.open = true
	for i := range current.state.Services {
		if s := &current.state.Services[i]; s.Deleted {
			at := labelsOf(s.Identity())
			if l, left := found.left[at]; !left && !c.done[at] {
				l.unseen = true
				found.left[at] = l
			}
		}
	}
	return found
}

const (
	// slowDeletion is how long an object that must go may be there until a person has to know what keeps it.
	slowDeletion = time.Minute
	// slowEnd is the same for what others may have to end first, such as the pods in a Namespace.
	slowEnd = 5 * time.Minute
	// maxAsked bounds how many objects are asked for their finalizers in one pass.
	maxAsked = 5
)

// finalizers names an object that is being deleted, and what it waits for.
func (c *converger) finalizers(ctx context.Context, id apply.ID) string {
	text := id.String()
	all := Kinds()
	at := slices.IndexFunc(all, func(k schema.GroupVersionKind) bool { return k.GroupKind() == id.GroupKind() })
	if at < 0 {
		return text
	}
	mapping, err := c.applier.Live.Mapper.RESTMapping(id.GroupKind(), all[at].Version)
	if err != nil {
		return text
	}
	found, err := c.applier.Live.Client.Resource(mapping.Resource).Namespace(id.Namespace).Get(ctx, id.Name, metav1.GetOptions{})
	if err != nil || len(found.GetFinalizers()) == 0 {
		return text // the next pass asks again
	}
	return text + " (finalizers: " + strings.Join(found.GetFinalizers(), ", ") + ")"
}

// forget drops what is known of services that the state wants again.
func (c *converger) forget(current *accepted) {
	gone := &current.rendered.absence
	for at := range c.done {
		if !gone.isGone(at) {
			delete(c.done, at)
		}
	}
}

// note remembers which tombstones have no object left, as all objects can be seen.
func (c *converger) note(current *accepted, left map[labelled]leftover) {
	done := map[labelled]bool{}
	for i := range current.state.Services {
		if s := &current.state.Services[i]; s.Deleted {
			if _, there := left[labelsOf(s.Identity())]; !there {
				done[labelsOf(s.Identity())] = true
			}
		}
	}
	c.done = done
}

// stillHeld returns what the last prune has held, or nothing if the state has all of it again: the next prune
// may have to wait for another answer of Starbase.
func (c *converger) stillHeld(current *accepted) apply.Held {
	must := func(id apply.ID) bool {
		o, err := c.applier.Live.Get(id)
		return !current.set.Has(id) && (err != nil || !current.rendered.absence.keeps(identityOf(o)))
	}
	if !slices.ContainsFunc(c.last.Held.IDs(), must) {
		return apply.Held{}
	}
	return c.last.Held
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
