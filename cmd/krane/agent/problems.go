package agent

import (
	"maps"
	"slices"
	"strings"
	"sync"

	ctrlv1 "github.com/seed-9e1ffd66/trueup/cmd/api/ctrl/v1"
	"github.com/seed-9e1ffd66/trueup/cmd/krane/stream"
	"github.com/seed-9e1ffd66/trueup/reconcile"
	"github.com/seed-9e1ffd66/trueup/statesync"
)

// The limits of a report.
const (
	maxProblems       = 100
	maxProblemMessage = 1024
)

// problems are what the agent cannot do, and will not by itself: a person has to know. Make it with
// newProblems. It is safe for concurrent use.
type problems struct {
	// changed is called when there are others than before. Required.
	changed func()
	// kinds are those that are not seen. It is called once at a time. Required.
	kinds func() []*ctrlv1.Problem

	mu sync.Mutex
	of map[string]string // by resource
}

func newProblems(kinds func() []*ctrlv1.Problem) *problems {
	return &problems{of: map[string]string{}, changed: func() {}, kinds: kinds}
}

// item takes in a pass over one item.
func (p *problems) item(pass reconcile.KeyPass[statesync.Key]) {
	switch {
	case pass.Parked:
		p.set(resourceOf(pass.Key), pass.Err.Error())
	case pass.Err == nil:
		p.set(resourceOf(pass.Key), "")
	default: // it is tried again
	}
}

// resourceOf is what a person calls an item: collection/namespace/name.
func resourceOf(key statesync.Key) string { return key.Collection + "/" + key.ID }

// set notes why something cannot be done; an empty message is that it can. It reports whether that is
// news.
func (p *problems) set(resource, message string) bool {
	message = bounded(message, maxProblemMessage)
	p.mu.Lock()
	before := p.of[resource]
	if message == "" {
		delete(p.of, resource)
	} else {
		p.of[resource] = message
	}
	p.mu.Unlock()
	if before != message {
		p.changed()
	}
	return before != message
}

// bounded is a text as the control plane takes it, of at most so many bytes: it refuses a heartbeat with another one.
func bounded(text string, most int) string {
	return strings.ReplaceAll(strings.ToValidUTF8(text[:min(len(text), most)], ""), "\x00", "")
}

// keep drops the items of a collection that are not wanted any more.
func (p *problems) keep(collection stream.Collection, wanted map[statesync.Key]statesync.Item) {
	there := map[string]bool{}
	for key := range wanted {
		there[resourceOf(key)] = true
	}
	p.mu.Lock()
	before := len(p.of)
	maps.DeleteFunc(p.of, func(resource, _ string) bool {
		return strings.HasPrefix(resource, string(collection)+"/") && !there[resource]
	})
	news := len(p.of) != before
	p.mu.Unlock()
	if news {
		p.changed()
	}
}

// report returns the kinds that cannot be seen, and then the first problems by resource, as they are reported.
func (p *problems) report() (list []*ctrlv1.Problem) {
	p.mu.Lock()
	defer p.mu.Unlock()
	list = p.kinds()
	for _, resource := range slices.Sorted(maps.Keys(p.of)) {
		if len(list) == maxProblems {
			break
		}
		list = append(list, &ctrlv1.Problem{Resource: resource, Message: p.of[resource]})
	}
	return list
}
