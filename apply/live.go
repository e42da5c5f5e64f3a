package apply

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"sync"
	"time"
	"unique"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clientmetadata "k8s.io/client-go/metadata"
)

// Live is the actual state of an owner's objects: a watch, for each kind, of
// the metadata of the objects that carry the owner's labels. The objects
// themselves are never fetched. Set the fields, then [Live.Start] it; its
// methods are safe for concurrent use.
type Live struct {
	// Client reaches the API server. Required.
	Client clientmetadata.Interface
	// Mapper finds the resource of a kind. Required. A kind that it does not
	// know yet is asked for again, with backoff.
	Mapper meta.RESTMapper
	// Owner says which objects are ours. Required.
	Owner Owner
	// Kinds are the kinds to watch: all that are applied or pruned. Required.
	Kinds []schema.GroupVersionKind
	// Namespaces, if set, limits the watches of namespaced kinds to these, for a
	// program that may not list a kind in the whole cluster. An object wanted in
	// another namespace is refused.
	Namespaces []string
	// Selector, if set, returns a label selector that narrows the watch of a kind
	// further than the owner's labels, "" for none: for one of several programs
	// that share the objects of an owner. An object that it does not select is
	// refused.
	Selector func(schema.GroupKind) string
	// OnDrift is called, if set, when somebody else has changed, deleted or
	// unlabelled one of our objects: the moment to start a pass. It must not
	// block. A call may be spurious, and one object that is changed again and
	// again stops calling for a minute after five repairs: the pass at the
	// regular interval sees everything.
	OnDrift func(ID)
	// OnSynced is called, if set, when the state of a kind has become known for
	// the first time: the moment for a pass that found it unknown. It must not
	// block.
	OnSynced func(schema.GroupKind)
	// Logger receives failures to list or watch. Nil: they are only returned by
	// Synced.
	Logger *slog.Logger

	once    sync.Once
	invalid error
	views   map[schema.GroupKind]*view
}

// Observed is what is known of one live object.
type Observed struct {
	ID  ID
	UID types.UID
	// Deleting is whether the object has a deletionTimestamp.
	Deleting bool

	version uint64
	owned   bool
	pruned  bool
	made    bool
	after   string
	label   func(string) string
}

// Label returns the value of a label, "" when the object lacks it. Valid only
// during the call that Observed was passed to.
func (o Observed) Label(key string) string { return o.label(key) }

// prepare validates the configuration once.
func (l *Live) prepare() error {
	l.once.Do(func() {
		switch {
		case l.Client == nil:
			l.invalid = errors.New("apply: Live.Client: required")
		case l.Mapper == nil:
			l.invalid = errors.New("apply: Live.Mapper: required")
		case len(l.Kinds) == 0:
			l.invalid = errors.New("apply: Live.Kinds: none; want the kinds that are applied")
		default:
			l.invalid = l.Owner.validate()
		}
		l.views = make(map[schema.GroupKind]*view, len(l.Kinds))
		for _, kind := range l.Kinds {
			if _, twice := l.views[kind.GroupKind()]; twice && l.invalid == nil {
				l.invalid = fmt.Errorf("apply: Live.Kinds: %s is listed twice", kind.GroupKind())
			}
			if _, err := l.selector(kind.GroupKind()); err != nil && l.invalid == nil {
				l.invalid = err
			}
			v := &view{owner: &l.Owner, drift: func(n name) { l.drifted(kind.GroupKind(), n) }, nudge: make(chan struct{}, 1)}
			if l.OnSynced != nil {
				v.known = func() { l.OnSynced(kind.GroupKind()) }
			}
			if kind.GroupKind() == definitions() {
				v.changed = l.defined
			}
			l.views[kind.GroupKind()] = v
		}
	})
	return l.invalid
}

func (l *Live) drifted(kind schema.GroupKind, n name) {
	if l.OnDrift != nil {
		l.OnDrift(ID{Group: kind.Group, Kind: kind.Kind, Namespace: n.namespace, Name: n.name})
	}
}

// Start watches until ctx ends and then returns nil. The watch of a kind that
// fails is tried again with backoff and disturbs no other. The error is about
// the configuration.
func (l *Live) Start(ctx context.Context) error {
	if err := l.prepare(); err != nil {
		return err
	}
	// client-go logs what it retries; Synced and Logger say it instead.
	ctx = logr.NewContext(ctx, logr.Discard())
	var watches sync.WaitGroup
	defer watches.Wait()
	for _, kind := range l.Kinds {
		watches.Go(func() { l.watchKind(ctx, kind) })
	}
	<-ctx.Done()
	return nil
}

// Synced reports whether the state of the kind is known, and the last failure
// to list or watch it, if that has not been overcome. Both can be: a state that
// was known and cannot be refreshed now.
func (l *Live) Synced(kind schema.GroupKind) (bool, error) {
	if err := l.prepare(); err != nil {
		return false, err
	}
	v := l.views[kind]
	if v == nil {
		return false, fmt.Errorf("apply: %s is not in Live.Kinds", kind)
	}
	return v.status()
}

// WaitSynced returns nil once every kind is known. When ctx ends first, the
// error names the kinds that are not, each with its last failure.
func (l *Live) WaitSynced(ctx context.Context) error {
	if err := l.prepare(); err != nil {
		return err
	}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		err := l.unsynced()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-tick.C:
		}
	}
}

// unsynced names the kinds that are not known, nil when all are.
func (l *Live) unsynced() error {
	var errs []error
	for _, kind := range l.Kinds {
		switch synced, err := l.Synced(kind.GroupKind()); {
		case synced:
		case err != nil:
			errs = append(errs, fmt.Errorf("%s: %w: %w", kind.GroupKind(), ErrNotSynced, err))
		default:
			errs = append(errs, fmt.Errorf("%s: %w", kind.GroupKind(), ErrNotSynced))
		}
	}
	return errors.Join(errs...)
}

// All yields every object of the kinds that are known, in no order. The kind
// being yielded is locked: the loop's body must not write to the cluster.
func (l *Live) All() iter.Seq[Observed] {
	return func(yield func(Observed) bool) {
		if l.prepare() != nil {
			return
		}
		for _, kind := range l.Kinds {
			if !l.views[kind.GroupKind()].each(kind.GroupKind(), yield) {
				return
			}
		}
	}
}

func (v *view) each(kind schema.GroupKind, yield func(Observed) bool) bool {
	v.mu.RLock()
	defer v.mu.RUnlock()
	if !v.synced {
		return true
	}
	for n, r := range v.records {
		if !yield(r.observe(ID{Group: kind.Group, Kind: kind.Kind, Namespace: n.namespace, Name: n.name}, v.owner)) {
			return false
		}
	}
	return true
}

func (r *record) observe(id ID, owner *Owner) Observed {
	o := Observed{
		ID: id, UID: types.UID(r.uid.String()), Deleting: r.deleting,
		version: r.version, owned: !r.unowned(), pruned: r.pruned, made: r.made, label: func(key string) string { return r.labels.value(key, owner.Labels) },
	}
	if r.after != (unique.Handle[string]{}) {
		o.after = r.after.Value()
	}
	return o
}
