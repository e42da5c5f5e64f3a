package operator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/seed-9e1ffd66/trueup/apply"
	"github.com/seed-9e1ffd66/trueup/internal/kubewatch"
	"github.com/seed-9e1ffd66/trueup/reconcile"
	"github.com/seed-9e1ffd66/trueup/reconcile/external"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube"
)

// Operator makes the children of all objects of one kind. T is a pointer to the struct of the
// kind, as for [kube.Controller]. Set the fields, then call Start, by way of a [kube.Lease]
// where several replicas run. Fields must not change afterwards. All methods are safe for
// concurrent use.
type Operator[T metav1.Object] struct {
	// Config is the access to the API server. Its limit of requests is not used: the server
	// has one of its own. Required, but with [Operator.Work].
	Config *rest.Config
	// HTTPClient carries the requests. Default one that is made of Config.
	HTTPClient *http.Client
	// Name is the field manager of all writes, the value of the label
	// app.kubernetes.io/managed-by of all children, and with Domain the reporting controller
	// of Events. Two operators of one cluster must have two names. Required.
	Name string
	// Domain is a DNS subdomain: the prefix of the finalizer <Domain>/children, of the label
	// <Domain>/<kind> of all children, whose value is the UID of their object, and of
	// annotations. Required.
	Domain string
	// Kind is the kind of the objects, with a status subresource. Required.
	Kind schema.GroupVersionKind
	// Resource is the plural of Kind in lower case. Default as usual: webapps for WebApp.
	Resource string
	// Namespace restricts the operator to one namespace. Default all.
	Namespace string
	// Owns are the kinds of the children in namespaces, OwnsCluster the kinds of the children
	// without one. All kinds that the operator has ever made are in these, so that what is no
	// longer wanted is found. Required: one of the two, but for objects with nothing but Outside.
	Owns, OwnsCluster []schema.GroupVersionKind
	// Supersedes are the field managers that made the children before, as in [apply.Owner].
	// Default none.
	Supersedes []string
	// Scheme names the kinds of typed children. Default nil: each child names its own, as an
	// *unstructured.Unstructured does.
	Scheme *runtime.Scheme
	// Children returns the children that an object should have. The operator sets what all
	// of them have in common: the namespace of the object where there is none, the
	// controller ownerReference, labels. It does not set a status. With an error the children
	// stay as they are, and the conditions say why: Reconciling, since it is called again, or
	// Stalled for [reconcile.Terminal] and a panic. It may read what the object refers to, with
	// Lookup. Required with Owns or OwnsCluster.
	Children func(ctx context.Context, object T) ([]Object, error)
	// Conditions returns where the conditions of an object are, in its status: never nil. Required.
	Conditions func(object T) *[]metav1.Condition
	// Outside is what the objects have outside of the cluster. What is recorded in their status stays there,
	// and their deletion leaves it, if that is taken away: return parts that are not wanted instead.
	// Default nil: nothing.
	Outside *Outside[T]
	// Options refine the sets of children: fields that are left to others, fields that are
	// handed over, policies. Part is set by the operator.
	Options apply.SetOptions
	// Referenced, References and ReferencesOf are as in [kube.Controller].
	Referenced   []kube.Kind
	References   func(object T) []kube.Reference
	ReferencesOf func(from kube.Reference, object *unstructured.Unstructured) []kube.Reference
	// Workers is how many objects are worked on at a time. Default 8.
	Workers int
	// Instance is the name of the process in Events, such as the name of its pod. Default
	// Name.
	Instance string
	// OnPass is called after each pass. Default nil.
	OnPass func(reconcile.KeyPass[types.NamespacedName])
	// Around is called in place of each pass, and calls pass once, with ctx or one that is made of
	// it: the requests of the pass have that one. It returns what pass returns. For traces.
	// Default nil.
	Around func(ctx context.Context, key types.NamespacedName, pass reconcile.Func) (reconcile.Result, error)
	// Logger receives what fails. Default nil, which is silent.
	Logger *slog.Logger

	working atomic.Pointer[work[T]]
}

// Object is a child: any type of an API, or *unstructured.Unstructured.
type Object interface {
	metav1.Object
	runtime.Object
}

// Objects returns objects of one type as children.
func Objects[O Object](objects ...O) []Object {
	children := make([]Object, len(objects))
	for i, o := range objects {
		children[i] = o
	}
	return children
}

// Start works until ctx ends, and returns nil then. It returns an error if a field is missing
// or wrong. An Operator that has stopped can be started again, and begins with new lists.
func (o *Operator[T]) Start(ctx context.Context) error {
	if err := o.Validate(); err != nil {
		return err
	}
	w, err := newWork(o)
	if err != nil {
		return err
	}
	if !o.working.CompareAndSwap(nil, w) {
		return fmt.Errorf("operator: %s is running already", o.Name)
	}
	defer o.working.Store(nil)
	group := &reconcile.Group{Members: []reconcile.Member{
		{Name: "children", Starter: w.live}, {Name: "events", Starter: w.events}, {Name: o.Kind.Kind, Starter: &w.controller},
	}}
	return group.Start(ctx)
}

// Work is [Process.Work] of a process that has this operator alone.
func (o *Operator[T]) Work(_ context.Context, config *rest.Config) (Work, error) {
	o.Config = config
	return o, nil
}

// errNotStarted is why an Operator knows nothing.
var errNotStarted = errors.New("the operator does not run")

// Synced reports whether all kinds are listed, so that objects are worked on: what a check of
// readiness asks. The error names each kind that cannot be listed or watched, with the reason, and
// an object whose status cannot be written, by rights or by its definition.
func (o *Operator[T]) Synced() (bool, error) {
	w := o.working.Load()
	if w == nil {
		return false, errNotStarted
	}
	synced, err := w.controller.Synced()
	return synced, errors.Join(err, w.live.Unseen(), w.unrecorded.err())
}

// Lookup returns a referenced object, as [kube.Controller.Lookup] does.
func (o *Operator[T]) Lookup(reference kube.Reference) (*unstructured.Unstructured, error) {
	w := o.working.Load()
	if w == nil {
		return nil, errNotStarted
	}
	return w.controller.Lookup(reference)
}

// Add starts a pass for each of keys, for reasons outside of the cluster.
func (o *Operator[T]) Add(keys ...types.NamespacedName) {
	if w := o.working.Load(); w != nil {
		w.controller.Add(keys...)
	}
}

// Reasons returns how many objects there are by the reason of their condition Ready, which is
// empty for an object without one. There are none while the Operator does not run. Each call
// decodes each object.
func (o *Operator[T]) Reasons() map[string]int {
	w := o.working.Load()
	if w == nil {
		return nil
	}
	objects, _ := w.controller.List("") // what T cannot hold has no conditions
	reasons := map[string]int{}
	for _, object := range objects {
		reason := ""
		if conditions := o.Conditions(object); conditions != nil {
			reason = readyOf(*conditions).Reason
		}
		reasons[reason]++
	}
	return reasons
}

// Validate returns an error that names the first field that is missing or wrong, as Start does.
func (o *Operator[T]) Validate() error {
	for _, field := range []struct {
		name    string
		missing bool
	}{
		{"Config", o.Config == nil},
		{"Name", o.Name == ""},
		{"Domain", o.Domain == ""},
		{"Kind", o.Kind.Kind == "" || o.Kind.Version == ""},
		{"Owns", len(o.Owns)+len(o.OwnsCluster) == 0 && (o.Outside == nil || o.Children != nil)},
		{"Children", o.Children == nil && (o.Outside == nil || len(o.Owns)+len(o.OwnsCluster) > 0)},
		{"Conditions", o.Conditions == nil},
		{"Outside.Parts", o.Outside != nil && o.Outside.Parts == nil},
		{"Outside.Things", o.Outside != nil && o.Outside.Things == nil},
	} {
		if field.missing {
			return fmt.Errorf("operator: Operator.%s: is required", field.name)
		}
	}
	if err := errors.Join(o.validateNames(), o.validateKinds()); err != nil {
		return err
	}
	if o.Outside != nil && o.Outside.Interval < 0 {
		return fmt.Errorf("operator: Operator.Outside.Interval: is %v, must be 0 (5m) or more", o.Outside.Interval)
	}
	if o.Options.Part != "" {
		return fmt.Errorf("operator: Operator.Options.Part: is %q, must be empty: it is set for each object", o.Options.Part)
	}
	return nil
}

// validateNames checks what names of labels and finalizers are made of, and the namespace.
func (o *Operator[T]) validateNames() error {
	for _, problem := range validation.IsValidLabelValue(o.Name) {
		return fmt.Errorf("operator: Operator.Name: is %q, must be the value of a label: %s", o.Name, problem)
	}
	for _, problem := range validation.IsDNS1035Label(o.resource().Resource) {
		return fmt.Errorf("operator: Operator.Resource: is %q, must be the plural of Kind in lower case: %s", o.resource().Resource, problem)
	}
	for _, problem := range validation.IsDNS1123Subdomain(o.Domain) {
		return fmt.Errorf("operator: Operator.Domain: is %q, must be a domain such as example.com: %s", o.Domain, problem)
	}
	if o.Namespace == "" {
		return nil
	}
	for _, problem := range validation.IsDNS1123Label(o.Namespace) {
		return fmt.Errorf("operator: Operator.Namespace: is %q, must be the name of a namespace, or empty for all: %s", o.Namespace, problem)
	}
	return nil
}

// validateKinds checks what the kinds of the children, and of references, are.
func (o *Operator[T]) validateKinds() error {
	if o.Workers < 0 {
		return fmt.Errorf("operator: Operator.Workers: is %d, must be 0 (8) or more", o.Workers)
	}
	for i, manager := range o.Supersedes {
		if manager == "" || manager == o.Name {
			return fmt.Errorf("operator: Operator.Supersedes[%d]: is %q, must be the name of another field manager", i, manager)
		}
	}
	for i, kind := range o.Referenced {
		if kind.Resource.Resource == "" || kind.Resource.Version == "" {
			return fmt.Errorf("operator: Operator.Referenced[%d].Resource: is %q, must have a version and a resource", i, kind.Resource)
		}
	}
	seen := map[schema.GroupKind]string{o.Kind.GroupKind(): "Operator.Kind"}
	check := func(field string, kinds []schema.GroupVersionKind) error {
		for i, kind := range kinds {
			at := fmt.Sprintf("Operator.%s[%d]", field, i)
			switch before := seen[kind.GroupKind()]; {
			case kind.Kind == "" || kind.Version == "":
				return fmt.Errorf("operator: %s: is %q, must have a version and a kind", at, kind)
			case before != "":
				return fmt.Errorf("operator: %s: is %s as %s is, must be another kind", at, kind.GroupKind(), before)
			}
			seen[kind.GroupKind()] = at
		}
		return nil
	}
	return errors.Join(check("Owns", o.Owns), check("OwnsCluster", o.OwnsCluster))
}

// resource returns the plural of the kind.
func (o *Operator[T]) resource() schema.GroupVersionResource {
	plural, _ := meta.UnsafeGuessKindToResource(o.Kind)
	plural.Resource = cmp.Or(o.Resource, plural.Resource)
	return plural
}

// work is one run of an Operator. It keeps nothing that a successor would miss.
type work[T metav1.Object] struct {
	operator   *Operator[T]
	owner      apply.Owner
	scopes     map[schema.GroupKind]meta.RESTScope // of the children
	live       *apply.Live
	applier    apply.Applier
	controller kube.Controller[T]
	finalizer  kube.Finalizer
	status     kube.Status[T]
	events     *kube.Events
	unrecorded unrecorded
	ending     ending
	checks     *external.Checks // of parts
}

func newWork[T metav1.Object](o *Operator[T]) (*work[T], error) {
	config := rest.CopyConfig(o.Config)
	config.QPS = -1 // the server has a limit of its own
	client, metadataClient, err := clients(config, o.HTTPClient)
	if err != nil {
		return nil, fmt.Errorf("operator: Operator.Config: %w", err)
	}
	logger := cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	w := &work[T]{operator: o, scopes: map[schema.GroupKind]meta.RESTScope{}, owner: apply.Owner{
		Manager: o.Name, Domain: o.Domain, PartLabel: o.Domain + "/" + strings.ToLower(o.Kind.Kind),
		Labels: map[string]string{"app.kubernetes.io/managed-by": o.Name}, Supersedes: o.Supersedes,
	}}
	if o.Outside != nil {
		w.checks = &external.Checks{Interval: cmp.Or(o.Outside.Interval, 5*time.Minute)}
	}
	w.watchObjects(client, metadataClient, logger)
	w.finalizer = kube.Finalizer{
		Client: client, Resource: o.resource(), Name: o.Domain + "/children", OnWrite: w.controller.Wrote,
	}
	w.status = kube.Status[T]{Client: client, Resource: o.resource(), OnWrite: w.controller.Wrote}
	w.events = &kube.Events{
		Client: client, Controller: o.Domain + "/" + o.Name, Instance: cmp.Or(o.Instance, o.Name), Logger: logger,
	}
	w.watchChildren(metadataClient, logger)
	w.applier = apply.Applier{Live: w.live, Objects: client, Overrides: true}
	w.controller.Await = w.live.WaitSynced
	return w, nil
}

// clients returns the two clients of an operator, which share their connections.
func clients(config *rest.Config, transport *http.Client) (dynamic.Interface, metadata.Interface, error) {
	if transport == nil {
		config.UserAgent = cmp.Or(config.UserAgent, rest.DefaultKubernetesUserAgent())
		var err error
		if transport, err = rest.HTTPClientFor(config); err != nil {
			return nil, nil, err
		}
	}
	client, failed := kubewatch.Dynamic(config, transport)
	metadataClient, err := metadata.NewForConfigAndClient(config, transport)
	return client, metadataClient, errors.Join(failed, err)
}

// watchObjects sets up the passes.
func (w *work[T]) watchObjects(client dynamic.Interface, metadataClient metadata.Interface, logger *slog.Logger) {
	o, c := w.operator, &w.controller
	c.Client, c.Metadata, c.Logger = client, metadataClient, logger
	c.Kind, c.IgnoreStatus = kube.Kind{Resource: o.resource(), Namespace: o.Namespace}, true
	c.Referenced, c.References, c.ReferencesOf = o.Referenced, o.References, o.ReferencesOf
	c.Workers, c.OnPass = cmp.Or(o.Workers, 8), o.OnPass
	around := o.Around
	if around == nil {
		around = func(ctx context.Context, _ types.NamespacedName, pass reconcile.Func) (reconcile.Result, error) {
			return pass(ctx)
		}
	}
	c.Reconcile = func(ctx context.Context, key types.NamespacedName, object T) (reconcile.Result, error) {
		return around(ctx, key, func(ctx context.Context) (reconcile.Result, error) { return w.reconcile(ctx, key, object) })
	}
	c.Misfit = func(ctx context.Context, key types.NamespacedName, part T, err error) (reconcile.Result, error) {
		return around(ctx, key, func(ctx context.Context) (reconcile.Result, error) { return w.misfit(ctx, part, err) })
	}
}

// watchChildren sets up the one view of the children of all objects: what it shows starts a
// pass for their object.
func (w *work[T]) watchChildren(client metadata.Interface, logger *slog.Logger) {
	o, mapper := w.operator, meta.NewDefaultRESTMapper(nil)
	wake := func(child apply.Observed) { w.controller.AddUID(child.Controller, types.UID(child.Part)) }
	w.live = &apply.Live{Client: client, Mapper: mapper, Owner: w.owner, OnChange: wake, OnDrift: wake, Logger: logger}
	w.live.OnSynced = func(schema.GroupKind) { w.controller.Add(w.controller.Keys("")...) }
	if o.Namespace != "" {
		w.live.Namespaces = []string{o.Namespace}
	}
	add := func(scope meta.RESTScope, kinds []schema.GroupVersionKind) {
		for _, kind := range kinds {
			mapper.Add(kind, scope)
			w.scopes[kind.GroupKind()] = scope
			w.live.Kinds = append(w.live.Kinds, kind)
		}
	}
	add(meta.RESTScopeNamespace, o.Owns)
	add(meta.RESTScopeRoot, o.OwnsCluster)
}
