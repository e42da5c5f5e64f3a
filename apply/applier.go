package apply

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/seed-9e1ffd66/trueup/apply/internal/view"
	"github.com/seed-9e1ffd66/trueup/apply/internal/write"
	"github.com/seed-9e1ffd66/trueup/internal/parallel"
)

// Applier makes the cluster match a [Set]. Set the fields and use it: its methods
// are safe for concurrent use. Calls that write to different objects never wait for
// each other; those that write to one object take turns. The memory of past writes and
// failures is in the Live, which several Appliers may share.
type Applier struct {
	// Live is the actual state, started. Required.
	Live *Live
	// Objects reaches whole objects. It is needed for what metadata does not
	// show: fields in a [diff.Plan], readiness, Upsert, and kinds whose server keeps
	// no managedFields. Nil: a plan has no fields, what an object depends on is
	// ready once it is applied, objects of such kinds are applied on every pass,
	// a NetworkPolicy waits for all pods of its namespace, and Upsert is an error.
	Objects dynamic.Interface
	// Adoption decides about an object that exists under a desired name and carries
	// neither our labels nor our fields. The default refuses it, unless its controller
	// (metadata.ownerReferences) is the one that the set states for it: then it is
	// adopted, because some program made it for the same parent. An object that carries
	// one of our owner's labels with another value belongs to another owner and is
	// never adopted. The same holds for an object of another part.
	Adoption AdoptionPolicy
	// Conflicts decides about a field that another manager owns with another value,
	// whether or not we owned it before. The default takes it.
	Conflicts ConflictPolicy
	// Recreate lists the kinds whose objects may be deleted and created again when
	// the server refuses a change because a field is immutable. A kind that is not
	// named is never deleted for that. An object that is invalid in any other way
	// is never deleted at all.
	Recreate []schema.GroupKind
	// Upsert, if set, selects the kinds that are written by create and replace instead
	// of server-side apply, for servers that lack it.
	Upsert func(schema.GroupKind) bool
	// Overrides reads an object before it is repaired, so that [Report.Overrides] says what
	// others had changed, and who. It costs one read for each repair, and needs Objects.
	Overrides bool
	// Concurrency bounds the writes under way at once in one call. Zero means 8. To
	// bound and adapt the requests of a whole process, share a budget.Budget.
	Concurrency int
	// OnWrite is called, if set, after each write request, from several
	// goroutines at once.
	OnWrite func(Write)

	once    sync.Once
	invalid error
	writer  *write.Writer
}

// Write is one finished write request.
type Write struct {
	ID       ID
	Verb     string // create, update, patch or delete
	Duration time.Duration
	Err      error
}

func (a *Applier) prepare() error {
	a.once.Do(func() { a.invalid = a.init() })
	return a.invalid
}

func (a *Applier) init() error {
	if a.Live == nil {
		return errors.New("apply: Applier.Live: is required")
	}
	if err := a.Live.prepare(); err != nil {
		return err
	}
	if a.Concurrency < 0 {
		return fmt.Errorf("apply: Applier.Concurrency: is %d, must be 0 (8) or more", a.Concurrency)
	}
	if a.Upsert != nil && a.Objects == nil {
		return errors.New("apply: Applier.Objects: is required with Applier.Upsert")
	}
	a.writer = &write.Writer{Owner: a.Live.identity, Metadata: a.Live.Client, Objects: a.Objects}
	if a.OnWrite != nil {
		a.writer.OnRequest = func(t *write.Target, verb string, took time.Duration, err error) {
			id := ID{Group: t.Kind.Group, Kind: t.Kind.Kind, Namespace: t.Namespace, Name: t.Name}
			a.OnWrite(Write{ID: id, Verb: verb, Duration: took, Err: err})
		}
	}
	return nil
}

// accept returns why a set cannot be used.
func (a *Applier) accept(set *Set) error {
	if err := a.prepare(); err != nil {
		return err
	}
	if set == nil {
		return errors.New("apply: the set is nil")
	}
	if accepted := set.accepted.Load(); accepted != nil && accepted.by == a.Live.identity {
		return nil
	}
	if !set.owner.equal(a.Live.Owner) {
		return fmt.Errorf("apply: the set's owner is %q (%s); must be the Live's owner, %q (%s)",
			set.owner.Manager, set.owner.identity().Selector(), a.Live.Owner.Manager, a.Live.identity.Selector())
	}
	set.accepted.Store(&acceptance{by: a.Live.identity})
	return nil
}

// each calls f for 0 to n-1, at most Concurrency at once, and waits for all.
func (a *Applier) each(n int, f func(int)) {
	limit := a.Concurrency
	if limit <= 0 {
		limit = 8
	}
	parallel.Each(n, limit, f)
}

// use returns the views of the kinds of a set, which are watched until done is called.
func (a *Applier) use(set *Set) (views []*view.Kind, done func()) {
	return a.Live.registry.use(set.Part(), set.kinds, set.version)
}

// lead makes an accepted set the newest that was applied of its part.
func (a *Applier) lead(set *Set) {
	before := set.accepted.Load().number
	if number := a.Live.registry.lead(set.Part(), before, set.ids); number != before {
		set.accepted.Store(&acceptance{a.Live.identity, number})
	}
}
