package apply

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
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
	// again, about every five seconds, and when a definition of ours changes.
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
	// which changes nothing when all is well but the manager of fields that the object was
	// created with and that are left to others, by the first pass after a time that depends
	// on its UID: the requests are spread, and a restart does not move them. For a 24th of
	// the interval after a start or an apply, the object is left alone. A program that
	// runs for less than an eighth of the interval may never come to some objects. Zero
	// means 24 hours, 0.12 requests a second for 10,000 objects. Negative: never.
	ReapplyInterval time.Duration
	// OnDrift is called, if set, when another program has changed, deleted or
	// unlabelled one of our objects, or when an event occurs that an object waits for.
	// A program starts a pass then. It must not block. A call may be spurious, and an
	// object that is changed again and again stops calling for a minute after six
	// changes, the sixth of which is a fight: the pass at the regular interval sees everything.
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

	registry registry
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
		l.registry.prepare(l.identity, l.hooks)
		for _, kind := range l.Kinds {
			l.registry.add(kind.GroupKind(), kind.Version).fixed = true
		}
		if set := l.Owner.ApplySet; set != (ID{}) && l.registry.kinds[set.GroupKind()] == nil {
			l.registry.add(set.GroupKind(), "").fixed = true
		}
	})
	return l.invalid
}

// Contested returns how many of our objects are fought over now: another program changes
// each back after each repair, or deletes it after each creation ([FightError]). An object
// counts until its fight is over. It may be called at any time, by several goroutines.
func (l *Live) Contested() int { return l.fights.contested(time.Now()) }

func (l *Live) validate() error {
	switch {
	case l.Client == nil:
		return errors.New("apply: Live.Client: is required")
	case l.Mapper == nil:
		return errors.New("apply: Live.Mapper: is required")
	}
	for i, namespace := range l.Namespaces {
		for _, problem := range validation.IsDNS1123Label(namespace) {
			return fmt.Errorf("apply: Live.Namespaces[%d]: is %q: %s", i, namespace, problem)
		}
	}
	seen := map[schema.GroupKind]bool{}
	for i, kind := range l.Kinds {
		if kind.Kind == "" {
			return fmt.Errorf("apply: Live.Kinds[%d]: has no kind", i)
		}
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
	if !l.registry.setRunning(true) {
		return errors.New("apply: the Live is running already")
	}
	defer l.registry.setRunning(false)
	// client-go logs what it retries; Synced and Logger report it instead.
	ctx = logr.NewContext(ctx, logr.Discard())
	var watches sync.WaitGroup
	defer watches.Wait()
	for {
		for _, w := range l.registry.unstarted() {
			watching, cancel := context.WithCancel(ctx)
			l.registry.started(w, cancel)
			watches.Go(func() {
				defer cancel()
				w.view.Watch(watching, l.source(w))
			})
		}
		select {
		case <-ctx.Done():
			return nil
		case <-l.registry.added:
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

// hooks returns what is called for the objects of a kind.
func (l *Live) hooks(kind schema.GroupKind) view.Hooks {
	hooks := view.Hooks{
		Drift:  func(o view.Object) { l.drifted(kind, o) },
		Change: func(o view.Object) { l.changed(kind, o) },
		Synced: func() { l.synced(kind) },

		Turns: view.Turns{Interval: cmp.Or(l.ReapplyInterval, 24*time.Hour), Start: l.prepared},
	}
	if l.OnWatch != nil {
		hooks.Watched = func(err error) { l.OnWatch(kind, err) }
	}
	switch {
	case isDefinition(kind):
		hooks.Seen = l.defined
	case kind == l.Owner.ApplySet.GroupKind():
		hooks.Seen = func(m *metav1.PartialObjectMetadata) { l.parentSeen(m) }
	case kind == jobKind:
		hooks.Removed = func(m *metav1.PartialObjectMetadata, last *view.Record) { l.finished.note(m, last, time.Now()) }
	}
	return hooks
}

func (l *Live) drifted(kind schema.GroupKind, o view.Object) {
	if l.OnDrift != nil {
		l.OnDrift(l.observed(kind, o))
	}
}

func (l *Live) observed(kind schema.GroupKind, o view.Object) Observed {
	found := observe(kind, o.Name, &o.Record, l.identity)
	found.Gone = o.Gone
	return found
}

func (l *Live) changed(kind schema.GroupKind, o view.Object) {
	if l.OnChange != nil {
		l.OnChange(l.observed(kind, o))
	}
	if cures(kind) {
		l.retryRejected(kind, o.Namespace(), o.Name.Name())
	}
	if o.Gone {
		l.statuses.forget(ID{Group: kind.Group, Kind: kind.Kind, Namespace: o.Namespace(), Name: o.Name.Name()})
		l.registry.removed(kind)
	}
}

// retryRejected allows another attempt on rejected objects, because an object has
// changed that may have caused the rejection.
func (l *Live) retryRejected(kind schema.GroupKind, namespace, name string) {
	if isNamespace(kind) {
		namespace = name
	}
	for _, o := range l.rejections.cure(namespace) {
		if l.OnDrift != nil {
			o.owner = l.identity
			l.OnDrift(o)
		}
	}
}

func (l *Live) synced(kind schema.GroupKind) {
	if l.OnSynced != nil {
		l.OnSynced(kind)
	}
}

// defined wakes the views that wait for a definition, when one changes. Its name
// is <plural>.<group>.
func (l *Live) defined(m *metav1.PartialObjectMetadata) {
	for _, v := range l.registry.views() {
		if v.Known().State != view.Served && strings.HasSuffix(m.Name, "."+v.GroupKind().Group) {
			v.Nudge()
		}
	}
}

// parentSeen reads the kinds of the ApplySet's members, and watches them: some may no
// longer be in any set.
func (l *Live) parentSeen(m metav1.Object) {
	if m.GetName() != l.Owner.ApplySet.Name || m.GetNamespace() != l.Owner.ApplySet.Namespace {
		return
	}
	// The kinds of a parent that another manager has edited are not all that there are.
	partial := m.GetAnnotations()[l.Owner.Domain+applySetPartial] != "" || !l.identity.Annotated(m, applySetKinds)
	l.registry.parentSeen(membersOf(m.GetAnnotations()), partial)
}
