package agent

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/seed-9e1ffd66/trueup/apply"
	"github.com/seed-9e1ffd66/trueup/cmd/api/starbase"
)

// newest remembers, over restarts, which desired state was the newest that was accepted:
// an agent that starts on an older copy of the database must refuse it, as a running one
// does. A memory that is empty or lost refuses nothing. It is used by one goroutine at a
// time. No state is applied that could not be written down: after a restart an older one would pass for the
// newest, and roll the whole cluster back. The last accepted state is repaired meanwhile.
type newest struct {
	memory apply.GuardMemory
	name   string // of the memory, for people

	loaded   bool
	position position
	version  string // of the memory
	// unsaved is the other epoch whose save failed: the answer may be lost, and it is saved.
	unsaved string
}

// position is where a desired state stands in the history of its cluster.
type position struct {
	Epoch      string `json:"epoch"`
	Generation int64  `json:"generation"`
}

// reach saves the position of a state that is about to be accepted, if it is a newer one.
// It reports whether the epoch is another than before. A state that goes back in its epoch
// is a *starbase.RefusedError with [reasonGeneration].
func (n *newest) reach(ctx context.Context, state *starbase.DesiredState) (other bool, err error) {
	if err := n.load(ctx); err != nil {
		return false, err
	}
	before, next := n.position, position{Epoch: state.Epoch, Generation: state.Generation}
	if before.Epoch != "" && next.Epoch == "" {
		// In basic mode any object with a version and a list of services is a state, also one of another server.
		return false, &starbase.RefusedError{
			Reason: starbase.ReasonIncomplete,
			Err: fmt.Errorf("schema is missing, and the state accepted before had one: is there a proxy in between? "+
				"For a Starbase without it, delete what the agent remembers (%s)", n.name),
		}
	}
	if before.Epoch == next.Epoch && next.Generation < before.Generation {
		return false, &starbase.RefusedError{
			Reason: reasonGeneration,
			Err:    fmt.Errorf("generation %d is older than %d of the same epoch", next.Generation, before.Generation),
		}
	}
	other = before.Epoch != "" && (before.Epoch != next.Epoch || n.unsaved == next.Epoch)
	if before == next {
		n.unsaved = ""
		return other, nil
	}
	data, err := json.Marshal(next)
	if err != nil {
		return false, err
	}
	version, err := n.memory.Save(ctx, data, n.version)
	if err != nil {
		n.loaded = false // another agent may have saved: read what it has
		if other {
			n.unsaved = next.Epoch
		}
		return false, &recordError{fmt.Errorf("generation %d is not applied: which one was accepted last cannot be written to %s: %w; "+
			"let the agent get, create and patch it", next.Generation, n.name, err)}
	}
	n.position, n.version, n.unsaved = next, version, ""
	return other, nil
}

func (n *newest) load(ctx context.Context) error {
	if n.loaded {
		return nil
	}
	data, version, err := n.memory.Load(ctx)
	if err != nil {
		return &recordError{fmt.Errorf("no state is applied: which generation was accepted last cannot be read from %s: %w", n.name, err)}
	}
	var found position
	if data != nil {
		if err := json.Unmarshal(data, &found); err != nil {
			return &recordError{fmt.Errorf("no state is applied: which generation was accepted last is not known: %s has %.100q, must have "+
				"{\"epoch\": ..., \"generation\": ...}: %w; write what is right, or delete it: then an older copy of the database would be taken",
				n.name, data, err)}
		}
	}
	n.position, n.version, n.loaded = found, version, true
	return nil
}
