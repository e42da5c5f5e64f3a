package operator_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/seed-9e1ffd66/trueup/apply/applytest"
	"github.com/seed-9e1ffd66/trueup/cloud"
	"github.com/seed-9e1ffd66/trueup/reconcile/simtest"
)

// announcements is a queue of what a cloud announces, in the time of a world: a message is shown
// every 30 s until it is deleted. It implements [cloud.Notices].
type announcements struct {
	mu       sync.Mutex
	last     int
	messages []cloud.Message
}

// Announce adds a message with one notice.
func (a *announcements) Announce(n cloud.Notice) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.last++
	a.messages = append(a.messages, cloud.Message{Receipt: fmt.Sprint(a.last), Notices: []cloud.Notice{n}})
}

// Left returns how many messages were not deleted.
func (a *announcements) Left() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.messages)
}

// Receive implements [cloud.Notices].
func (a *announcements) Receive(ctx context.Context) ([]cloud.Message, error) {
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(30 * time.Second):
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.messages), nil
}

// Delete implements [cloud.Notices].
func (a *announcements) Delete(_ context.Context, messages []cloud.Message) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.messages = slices.DeleteFunc(a.messages, func(m cloud.Message) bool {
		return slices.ContainsFunc(messages, func(gone cloud.Message) bool { return gone.Receipt == m.Receipt })
	})
	return nil
}

func (v *virtualCloud) announceEnd(w *simtest.World, _ applytest.Request) {
	v.byHand(w, "is announced to end", func(id string) {
		v.Announced.Announce(cloud.Notice{Machine: id, Reason: "its spot capacity is taken back", Ends: true})
		w.After(2*time.Minute, func() {
			_ = v.Cloud.Interrupt(id) // it may have ended
			v.after(w)
		})
	})
}

func (v *virtualCloud) announceStop(w *simtest.World, _ applytest.Request) {
	v.byHand(w, "is announced to stop", func(id string) {
		v.Announced.Announce(cloud.Notice{Machine: id, Reason: "its hardware is maintained"})
	})
}
