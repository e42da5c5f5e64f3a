package view

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed-9e1ffd66/trueup/diff"
)

// writing is an object that a write of ours is about to change. Writers take
// turns.
type writing struct {
	count   int           // the current writer and the waiting ones
	turn    chan struct{} // holds one token
	deleted string        // UID of the object if it was deleted during the turn
	last    Record        // its last state, if there was a record
	before  diff.Sum      // the observed digest when the turn began
	made    uint64        // the version that this turn's write has made; 0: unknown, or none
	shown   []uint64      // the versions that the watch has shown since the last turn
}

// Begin waits until no other write of ours to the object is under way, and begins
// one. The error is the cause for which ctx ended.
//
// A change that arrives before the write ends may be our own, so it is judged and
// announced at the end, when the answer is known. end must be called, with whether the
// write was a deletion, which explains an absence.
func (k *Kind) Begin(ctx context.Context, n Name) (end func(deletion bool), err error) {
	k.mu.Lock()
	if k.writing == nil {
		k.writing = map[Name]*writing{}
	}
	w := k.writing[n]
	if w == nil {
		w = &writing{turn: make(chan struct{}, 1)}
		w.turn <- struct{}{}
		k.writing[n] = w
	}
	w.count++
	k.mu.Unlock()
	select {
	case <-w.turn:
		k.mu.Lock()
		w.deleted, w.before = "", diff.Sum{}
		if r := k.records[n]; r != nil {
			w.before = r.observed
		}
		k.mu.Unlock()
		return func(deletion bool) { k.end(n, w, deletion) }, nil
	case <-ctx.Done():
		k.mu.Lock()
		defer k.mu.Unlock()
		k.leave(n, w)
		return nil, context.Cause(ctx)
	}
}

func (k *Kind) leave(n Name, w *writing) {
	if w.count--; w.count == 0 {
		delete(k.writing, n)
	}
}

func (k *Kind) end(n Name, w *writing, deletion bool) {
	k.mu.Lock()
	k.leave(n, w)
	if deletion {
		delete(k.lost, n)
	}
	r := k.records[n]
	var found Object
	touched, changed := false, false
	switch {
	case r != nil:
		found = Object{Name: n, Record: *r}
		touched = !r.Unknown() && k.touched(n, nil, r)
		// The change that the write itself has made is not announced.
		changed = len(w.shown) > 1 || len(w.shown) == 1 && w.shown[0] != w.made
	case w.deleted != "":
		found = Object{Name: n, Record: w.last, Gone: true}
		touched = !deletion
	}
	touched = touched && k.brake.allow(n, time.Now())
	w.shown, w.made = nil, 0
	k.mu.Unlock()
	w.turn <- struct{}{}
	k.announce(found, touched, changed, nil)
}

// Wrote records the server's answer to our apply of the object.
func (k *Kind) Wrote(m *metav1.PartialObjectMetadata, hash diff.Sum) {
	n := NameOf(m.Namespace, m.Name)
	answer := newRecord(m, k.owner)
	applied := answer.observed
	var waiting map[any]func()
	defer func() { k.announce(Object{}, false, false, waiting) }()
	k.mu.Lock()
	defer k.mu.Unlock()
	w := k.writing[n]
	if w != nil && w.deleted == answer.UID() {
		return // deleted already
	}
	if w != nil && w.before != applied { // otherwise it was as desired, and another's write made the version
		w.made = answer.version
	}
	r, newer := k.merge(n, answer, m.Labels[k.owner.PartLabel])
	if newer {
		r.written = true
		waiting = k.awaited[n]
		delete(k.awaited, n)
	}
	if r.uid == answer.uid {
		// The view may be ahead of the answer: then the observed state differs from the
		// applied one, and counts as a foreign change.
		r.remember(hash)
		r.applied = applied
		k.hooks.Turns.had(r, time.Now())
	}
}
