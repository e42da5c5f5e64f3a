package apply

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientmetadata "k8s.io/client-go/metadata"

	"github.com/seed-9e1ffd66/trueup/apply/internal/identity"
	"github.com/seed-9e1ffd66/trueup/apply/internal/view"
)

// Live is the actual state of an owner's objects: a watch, for each kind, of
// the metadata of the objects that carry the owner's labels. The objects
// themselves are never fetched. A program has one for each owner, whatever the
// number of its sets, parts and workers. Set the fields, then [Live.Start] it; its
// methods are safe for concurrent use.
type Live struct {
	// Client reaches the API server. Required.
	Client clientmetadata.Interface
	// Mapper finds the resource of a kind. Required. A kind that it lacks is looked up
	// again, with backoff, and when a definition of ours changes.
	Mapper meta.RESTMapper
	// Owner selects the objects that are ours. Required.
	Owner Owner
	// Kinds are watched from Start to its end. A set may add others: their watches
	// start with it, and end when no set states the kind and no object of it is left.
	// List here the kinds that must be pruned after a restart although no set states
	// them any more, unless the Owner has an ApplySet, which records the kinds. Default
	// none.
	Kinds []schema.GroupVersionKind
	// Discovery asks the server for the kinds that it serves. It proves that a kind
	// which the Mapper lacks is not served and has no objects. Before a Namespace is
	// deleted, it names the kinds whose foreign objects may be in it. Nil: unseen
	// objects of a kind that the Mapper lacks may exist, and a Namespace is not deleted
	// unless [PruneOptions.DeleteForeign] is set.
	Discovery Discovery
	// Namespaces, if set, limits the watches of namespaced kinds to these, for a
	// program that may not list a kind in the whole cluster. A desired object in
	// another namespace is refused.
	Namespaces []string
	// Selector, if set, returns a label selector that narrows the watch of a kind
	// further than the owner's labels, "" for none. It is for one of several programs
	// that share the objects of an owner. An object that it does not select is refused.
	Selector func(schema.GroupKind) string
	// ReapplyInterval bounds how long an object may be reported unchanged while it is
	// not. Some changes show neither in a watch nor in managedFields: a definition whose
	// schema lacked a field for a while, an admission plugin that changed a field of ours
	// on another manager's write. So each object is applied again once in the interval,
	// which changes nothing when all is well, by the first pass after a time that depends
	// on its UID: the requests are spread, and a restart does not move them. For a 24th of
	// the interval after a start or an apply, the object is left alone. A program that
	// runs for less than an eighth of the interval may never come to some objects. Zero
	// means 24 hours, 0.12 requests a second for 10,000 objects. Negative: never.
	ReapplyInterval time.Duration
	// OnDrift is called, if set, when another program has changed, deleted or
	// unlabelled one of our objects, or when an event occurs that an object waits for.
	// A program starts a pass then. It must not block. A call may be spurious, and an
	// object that is changed again and again stops calling for a minute after five
	// repairs: the pass at the regular interval sees everything.
	OnDrift func(Observed)
	// OnChange is called, if set, for every change of one of our objects that the
	// watch shows, of its status, too, and for its deletion. A program reconciles the
	// parent then ([Observed.Controller], [Observed.Part]). Our own writes may be among
	// the changes, except an apply that is known to be the only change. It must not
	// block.
	OnChange func(Observed)
	// OnSynced is called, if set, when a kind is synced. A program whose pass found it
	// unsynced starts another one then. It must not block.
	OnSynced func(schema.GroupKind)
	// OnWatch is called, if set, each time the watch of a kind proves to be alive, by a
	// list, an event or a bookmark, with nil, and with the error when a list or watch
	// fails or has been silent for three minutes. A server sends a bookmark about every
	// minute. It must not block.
	OnWatch func(kind schema.GroupKind, err error)
	// Logger receives failures to list or watch. Nil: they are only returned by
	// Synced.
	Logger *slog.Logger

	once     sync.Once
	prepared time.Time
	invalid  error
	identity *identity.Identity

	mu       sync.RWMutex
	kinds    map[schema.GroupKind]*watched
	sorted   []*view.Kind    // of kinds, in the order of group and kind
	wants    map[string]want // the last set of each part
	applied  uint64          // how many sets were applied
	added    chan struct{}
	running  bool
	applySet applySet
	tracing  sync.Mutex // held by a look for the kinds of before

	rejections rejections
	pauses     pauses
	fights     fights
	statuses   statuses
	finished   finished
	absences   absences
	guard      Guard // for prunes that have none
}

// Discovery is the part of a discovery client that a Live needs. The client of
// client-go fits, without a cache. An error of ServerPreferredResources beside some
// lists means that the lists are incomplete.
type Discovery interface {
	ServerGroups() (*metav1.APIGroupList, error)
	ServerResourcesForGroupVersion(groupVersion string) (*metav1.APIResourceList, error)
	ServerPreferredResources() ([]*metav1.APIResourceList, error)
}

// prepare validates the configuration once.
func (l *Live) prepare() error {
	l.once.Do(func() {
		l.invalid = l.validate()
		if l.invalid != nil {
			return
		}
		l.identity, l.prepared = l.Owner.clone().identity(), time.Now()
		l.kinds, l.wants, l.added = map[schema.GroupKind]*watched{}, map[string]want{}, make(chan struct{}, 1)
		for _, kind := range l.Kinds {
			l.add(kind.GroupKind(), kind.Version).fixed = true
		}
		if set := l.Owner.ApplySet; set != (ID{}) && l.kinds[set.GroupKind()] == nil {
			l.add(set.GroupKind(), "").fixed = true
		}
	})
	return l.invalid
}

func (l *Live) validate() error {
	switch {
	case l.Client == nil:
		return errors.New("apply: Live.Client: is required")
	case l.Mapper == nil:
		return errors.New("apply: Live.Mapper: is required")
	}
	seen := map[schema.GroupKind]bool{}
	for _, kind := range l.Kinds {
		if seen[kind.GroupKind()] {
			return fmt.Errorf("apply: Live.Kinds: has %s twice, must have it once, in one version", kind.GroupKind())
		}
		seen[kind.GroupKind()] = true
		if _, err := l.selector(kind.GroupKind()); err != nil {
			return err
		}
	}
	return l.Owner.validate()
}

// Start watches until ctx ends and then returns nil. A Live that has stopped can be
// restarted; it starts empty. The watch of a kind that
// fails is tried again with backoff and disturbs no other. The error is about
// the configuration, or reports that the Live is running already.
func (l *Live) Start(ctx context.Context) error {
	if err := l.prepare(); err != nil {
		return err
	}
	if !l.setRunning(true) {
		return errors.New("apply: the Live is running already")
	}
	defer l.setRunning(false)
	// client-go logs what it retries; Synced and Logger report it instead.
	ctx = logr.NewContext(ctx, logr.Discard())
	var watches sync.WaitGroup
	defer watches.Wait()
	for {
		for _, w := range l.unstarted() {
			watching, cancel := context.WithCancel(ctx)
			l.started(w, cancel)
			watches.Go(func() {
				defer cancel()
				w.view.Watch(watching, l.source(w))
			})
		}
		select {
		case <-ctx.Done():
			return nil
		case <-l.added:
		}
	}
}

// Synced reports whether the kind is synced, and the last failure to list or watch it,
// nil after a success. Both can occur: the kind was synced and cannot be refreshed now.
// A kind that is not watched is an error.
func (l *Live) Synced(kind schema.GroupKind) (bool, error) {
	if err := l.prepare(); err != nil {
		return false, err
	}
	v := l.view(kind)
	if v == nil {
		return false, fmt.Errorf("%s is not watched: no set states it, and it is not in Live.Kinds", kind)
	}
	return v.Status()
}

// WaitSynced returns nil once every watched kind is synced. When ctx ends first, the
// error names the kinds that are not, each with its last failure.
func (l *Live) WaitSynced(ctx context.Context) error {
	if err := l.prepare(); err != nil {
		return err
	}
	for { // the ApplySet's parent may add kinds
		views := l.views()
		i := slices.IndexFunc(views, func(v *view.Kind) bool { return !v.Ever() })
		if i < 0 {
			return nil
		}
		select {
		case <-views[i].Complete():
		case <-ctx.Done():
			return l.unsynced()
		}
	}
}

// Unseen names the watched kinds that may have objects that cannot be seen now, each
// with the reason, wrapping [ErrNotSynced]. It is nil when each kind is synced and its
// watch works, or the server does not serve it.
func (l *Live) Unseen() error {
	if err := l.prepare(); err != nil {
		return err
	}
	var errs []error
	for _, v := range l.views() {
		if err := v.Unseen(); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w: %w", v.GroupKind(), ErrNotSynced, err))
		}
	}
	return errors.Join(errs...)
}

// unsynced names the kinds that are not synced, nil if all are.
func (l *Live) unsynced() error {
	var errs []error
	for _, v := range l.views() {
		switch synced, err := v.Status(); {
		case synced:
		case err != nil:
			errs = append(errs, fmt.Errorf("%s: %w: %w", v.GroupKind(), ErrNotSynced, err))
		default:
			errs = append(errs, fmt.Errorf("%s: %w", v.GroupKind(), ErrNotSynced))
		}
	}
	return errors.Join(errs...)
}

// Get returns the observed state of one of our objects, in constant time. The error
// wraps [ErrAbsent] if there is none, and [ErrNotSynced], with the reason, if its kind
// is not synced.
func (l *Live) Get(id ID) (Observed, error) {
	if err := l.prepare(); err != nil {
		return Observed{}, err
	}
	v := l.view(id.GroupKind())
	if v == nil {
		return Observed{}, fmt.Errorf("%s: %w: the kind is not watched", id, ErrNotSynced)
	}
	n := view.NameOf(id.Namespace, id.Name)
	switch look := v.Look(n); {
	case !look.Synced && look.Err != nil:
		return Observed{}, fmt.Errorf("%s: %w: %w", id, ErrNotSynced, look.Err)
	case !look.Synced:
		return Observed{}, fmt.Errorf("%s: %w", id, ErrNotSynced)
	case !look.Found:
		return Observed{}, fmt.Errorf("%s: %w", id, ErrAbsent)
	default:
		return observe(id.GroupKind(), n, &look.Record, l.identity), nil
	}
}

// All yields every object of the synced kinds, in no order.
func (l *Live) All() iter.Seq[Observed] {
	return l.list(func(v *view.Kind, take func(view.Name, *view.Record) bool) { v.Each(take) })
}

// Part yields every object of a part, of the synced kinds, in no order. Its cost
// depends on the part only.
func (l *Live) Part(part string) iter.Seq[Observed] {
	return l.list(func(v *view.Kind, take func(view.Name, *view.Record) bool) { v.EachOf(view.PartOf(part), take) })
}

// list copies the objects of one kind after the other. No lock is held while the caller
// looks at them.
func (l *Live) list(each func(*view.Kind, func(view.Name, *view.Record) bool)) iter.Seq[Observed] {
	return func(yield func(Observed) bool) {
		if l.prepare() != nil {
			return
		}
		for _, v := range l.views() {
			var found []Observed
			each(v, func(n view.Name, r *view.Record) bool {
				found = append(found, observe(v.GroupKind(), n, r, l.identity))
				return true
			})
			for i := range found {
				if !yield(found[i]) {
					return
				}
			}
		}
	}
}

// selector returns the selector that narrows the watch of a kind.
func (l *Live) selector(kind schema.GroupKind) (labels.Selector, error) {
	if l.Selector == nil {
		return labels.Everything(), nil
	}
	text := l.Selector(kind)
	selector, err := labels.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("apply: Live.Selector: is %q for %s: %w", text, kind, err)
	}
	return selector, nil
}

// source returns where a kind is watched.
func (l *Live) source(w *watched) view.Source {
	selector := l.identity.Selector()
	if narrower, err := l.selector(w.view.GroupKind()); err == nil && !narrower.Empty() {
		selector += "," + narrower.String()
	}
	return view.Source{
		Client:     l.Client,
		Mapper:     l.Mapper,
		Discovery:  l.Discovery,
		Version:    w.version,
		Namespaces: l.Namespaces,
		Selector:   selector,
		Logger:     l.Logger,
	}
}
