package apply

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
)

// Applier makes the cluster match a [Set]. Set the fields and use it; calls of
// its methods must not overlap, and a Live has one Applier.
type Applier struct {
	// Live is the actual state, started. Required.
	Live *Live
	// Objects reaches whole objects. It is needed for what metadata does not
	// tell: fields in a [Plan], readiness, Upsert, and kinds whose server keeps
	// no managedFields. Nil: a plan has no fields, what an object depends on is
	// ready once it is applied, objects of such kinds are applied on every pass,
	// and Upsert is an error.
	Objects dynamic.Interface
	// Adoption says what happens to an object that exists under a wanted name and
	// belongs to nobody that we know of. The default refuses it. An object that
	// carries one of our owner's labels with another value is another owner's and
	// never taken.
	Adoption AdoptionPolicy
	// Conflicts says what happens to a field that somebody else owns with
	// another value, be it foreign from the start or taken from us. The default
	// takes it.
	Conflicts ConflictPolicy
	// Recreate lists the kinds whose objects may be deleted and created anew when
	// the server refuses a change because a field is immutable. A kind that is not
	// named is never deleted for that. An object that is invalid in any other way
	// is never deleted at all.
	Recreate []schema.GroupKind
	// Upsert, if set, says which kinds are written by create and replace instead
	// of server-side apply, for servers that lack it.
	Upsert func(schema.GroupKind) bool
	// Concurrency bounds the writes under way at once. Zero means 8. To bound and
	// adapt the requests of a whole process, share a [Budget].
	Concurrency int
	// OnWrite is called, if set, after each write request, from several
	// goroutines at once.
	OnWrite func(Write)

	missing  map[string]absence // by UID, for Prune
	setbacks map[ID]setback
	fights   fights
	statuses statuses
}

// AdoptionPolicy says what happens to an object that holds a wanted name and is
// not ours.
type AdoptionPolicy int

// The policies.
const (
	// RefuseForeign leaves the object and fails with [ErrNotOurs].
	RefuseForeign AdoptionPolicy = iota
	// SkipForeign leaves the object and reports it as [Skipped], without an
	// error.
	SkipForeign
	// AdoptForeign takes it over: what the set states is applied to it, and it is
	// pruned when it is no longer wanted.
	AdoptForeign
)

// Write is one write request as it ended.
type Write struct {
	ID       ID
	Verb     string // create, update, patch or delete
	Duration time.Duration
	Err      error
}

// Apply makes every object of the set exist as stated and reports what it did.
// An object that is as the last apply left it costs no request, no allocation
// and well under a microsecond; one that is not costs one server-side apply,
// which takes back the fields that the set states and leaves all others.
//
// Objects are applied in the order of the set, in parallel within a rank. A
// failed object holds back only what lives in it (a namespace) or depends on it.
// The report is valid with an error, which is [Report.Err] or the cause for which
// ctx ended.
func (a *Applier) Apply(ctx context.Context, set *Set) (Report, error) {
	if err := a.prepare(set); err != nil {
		return Report{}, err
	}
	a.forget(set)
	p := a.pass(set)
	for items := range set.ranks() {
		p.rank(ctx, items)
	}
	return p.report, errors.Join(p.report.Err(), context.Cause(ctx))
}

func (a *Applier) prepare(set *Set) error {
	if a.Live == nil {
		return errors.New("apply: Applier.Live: required")
	}
	if err := a.Live.prepare(); err != nil {
		return err
	}
	if a.Upsert != nil && a.Objects == nil {
		return errors.New("apply: Applier.Objects: required with Upsert")
	}
	if set == nil {
		return errors.New("apply: no set")
	}
	if !set.owner.equal(a.Live.Owner) {
		return fmt.Errorf("apply: the set's owner %q (%s) is not the live view's %q (%s)",
			set.owner.Manager, set.owner.selector(), a.Live.Owner.Manager, a.Live.Owner.selector())
	}
	return nil
}

// each calls f for 0 to n-1, a bounded number at once, and waits for all.
func each(n, concurrency int, f func(int)) {
	if concurrency <= 0 {
		concurrency = 8
	}
	next := make(chan int)
	var workers sync.WaitGroup
	for range min(n, concurrency) {
		workers.Go(func() {
			for i := range next {
				f(i)
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	workers.Wait()
}
