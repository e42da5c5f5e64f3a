package apply

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	clientmetadata "k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"
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
			l.views[kind.GroupKind()] = &view{owner: &l.Owner, drift: func(n name) { l.drifted(kind.GroupKind(), n) }}
			if l.OnSynced != nil {
				l.views[kind.GroupKind()].known = func() { l.OnSynced(kind.GroupKind()) }
			}
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
		watches.Go(func() { l.watch(ctx, kind) })
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
	for n, r := range v.records {
		if !yield(r.observe(ID{Group: kind.Group, Kind: kind.Kind, Namespace: n.namespace, Name: n.name})) {
			return false
		}
	}
	return true
}

func (r *record) observe(id ID) Observed {
	return Observed{
		ID: id, UID: types.UID(r.uid), Deleting: r.deleting,
		version: r.version, owned: !r.unowned(), pruned: r.pruned, label: r.label,
	}
}

// watch keeps the view of one kind until ctx ends.
func (l *Live) watch(ctx context.Context, kind schema.GroupVersionKind) {
	v := l.views[kind.GroupKind()]
	mapping := l.resolve(ctx, kind, v)
	if mapping == nil {
		return
	}
	resource := l.Client.Resource(mapping.Resource)
	selector := l.Owner.selector()
	failed := func(err error) error {
		if err != nil && ctx.Err() == nil {
			v.setErr(err)
			l.log(ctx, kind, err)
		}
		return err
	}
	source := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			options.LabelSelector = selector
			list, err := resource.List(ctx, options)
			return list, failed(err)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			options.LabelSelector = selector
			w, err := resource.Watch(ctx, options)
			if err == nil {
				v.setErr(nil)
			}
			return w, failed(err)
		},
	}
	cache.NewReflectorWithOptions(source, &metav1.PartialObjectMetadata{}, v,
		cache.ReflectorOptions{Name: kind.String()}).RunWithContext(ctx)
}

// resolve asks the mapper until it knows the kind. Nil: ctx ended.
func (l *Live) resolve(ctx context.Context, kind schema.GroupVersionKind, v *view) *meta.RESTMapping {
	for delay := time.Second; ; delay = min(2*delay, 30*time.Second) {
		mapping, err := l.Mapper.RESTMapping(kind.GroupKind(), kind.Version)
		if err == nil {
			v.mu.Lock()
			v.mapping = mapping
			v.mu.Unlock()
			return mapping
		}
		v.setErr(err)
		l.log(ctx, kind, err)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(delay):
		}
	}
}

func (l *Live) log(ctx context.Context, kind schema.GroupVersionKind, err error) {
	if l.Logger != nil {
		l.Logger.WarnContext(ctx, "watch failed", slog.String("kind", kind.GroupKind().String()), slog.Any("error", err))
	}
}
