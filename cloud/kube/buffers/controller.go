package buffers

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/seed-9e1ffd66/trueup/cloud/kube/pools"
	"github.com/seed-9e1ffd66/trueup/reconcile"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube"
)

// A Controller keeps standby machines for the CapacityBuffers of one strategy. It has a loop of its
// own: what it does delays no start for a pod that waits. It needs list and watch on the definition
// [Definition], on capacitybuffers, podtemplates, deployments and statefulsets, get on capacitybuffers, and
// patch on capacitybuffers/status.
//
// Set the fields, then call Start, once. A Controller is safe for concurrent use, and must not be copied.
type Controller struct {
	// Client reaches the API server. Required.
	Client dynamic.Interface
	// Strategy is the provisioningStrategy of the buffers that are served, such as
	// buffer.example.com/standby-capacity. Required.
	Strategy string
	// ScaleUp has the cluster, the pools and the machines that are being started. Its Look is called
	// with each pool of which the buffers take another number of machines than before. Required.
	ScaleUp *pools.ScaleUp
	// Seen returns an error until every Node, pod and pool has been looked at: the others would be
	// missing in a plan. Start calls it before each plan. It must not block. Default nil: all have been.
	Seen func() error
	// Events receives an Event when a buffer cannot be served, or not all of its pods have room, with
	// another reason than before. Default nil: no Events.
	Events *kube.Events
	// Logger receives a line when the definition comes or goes, and the lines of the watches. Default
	// nil, which is silent.
	Logger *slog.Logger
	// Workers is the number of buffers that are reconciled at a time. Default 2.
	Workers int
	// Backoff delays the repetition of a pass that failed. Default as of [kube.Controller].
	Backoff reconcile.Backoff
	// Replan is the time between two plans while nothing changes: a zone may have capacity again. A status
	// that another client has changed is corrected as often. Default 30s.
	Replan time.Duration
	// Pause is the min time between two plans. Each reads all buffers and their templates: 100 take
	// about 8 ms. Default 200ms.
	Pause time.Duration
	// Dry is set for [Controller.Preview]: neither a status nor an Event is written.
	Dry bool

	once        sync.Once
	logger      *slog.Logger
	definitions kube.Controller[*definition]
	wake        chan struct{}
	turned      chan struct{} // the definition has changed
	// objects has the buffers and what they refer to while the API server has them. Each definition gets
	// another one: the buffers of a deleted definition are deleted with it.
	objects atomic.Pointer[kube.Controller[*CapacityBuffer]]

	mu sync.Mutex
	// outcomes and standby are of the last plan, nil before the first. standby has each pool of
	// the plan by its UID, and how many of its machines are kept by template.
	outcomes map[types.NamespacedName]outcome
	standby  map[string]map[string]int
}

func (c *Controller) prepare() {
	c.once.Do(func() {
		c.wake, c.turned = make(chan struct{}, 1), make(chan struct{}, 1)
		c.logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
		c.definitions.Client, c.definitions.Logger = c.Client, c.Logger
		c.definitions.Kind = kube.Kind{Resource: definitionsResource, FieldSelector: "metadata.name=" + Definition}
		c.definitions.Reconcile = c.reconcileDefinition
	})
}

// Wake asks for a plan, after a change of a pod, a Node or a pool. It never blocks.
func (c *Controller) Wake() {
	c.prepare()
	signal(c.wake)
}

func signal(to chan struct{}) {
	select {
	case to <- struct{}{}:
	default:
	}
}

// Standby returns how many standby machines of a pool are kept for buffers, by template, as in [cloud.Want].
// The caller must not change the map. known is false while no plan has the pool, which should then terminate
// no surplus. It is true in a cluster without the definition.
func (c *Controller) Standby(pool *pools.Pool) (keep map[string]int, known bool) {
	served, err := c.served()
	if err == nil && !served {
		return nil, true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	keep, known = c.standby[pool.Nodes.UID]
	return keep, known && err == nil
}

// Start works until ctx ends, and returns nil then.
func (c *Controller) Start(ctx context.Context) error {
	c.prepare()
	group := reconcile.Group{Members: []reconcile.Member{
		{Name: "capacity buffer definition", Starter: &c.definitions},
		{Name: "capacity buffers", Starter: reconcile.StarterFunc(c.serve)},
	}}
	return group.Start(ctx)
}

// serve works on the buffers while the API server has them.
func (c *Controller) serve(ctx context.Context) error {
	for c.wait(ctx, true) {
		c.logger.InfoContext(ctx, "capacity buffers are served")
		objects := c.newObjects()
		c.objects.Store(objects)
		running, stop := context.WithCancel(ctx)
		group := reconcile.Group{Members: []reconcile.Member{
			{Name: "objects", Starter: objects},
			{Name: "plans", Starter: reconcile.StarterFunc(c.plans)},
			{Name: "definition", Starter: reconcile.StarterFunc(func(ctx context.Context) error {
				c.wait(ctx, false)
				stop()
				return nil
			})},
		}}
		err := group.Start(running)
		stop()
		if err != nil || ctx.Err() != nil {
			return err
		}
		c.logger.InfoContext(ctx, "capacity buffers are not served any more")
		c.objects.Store(nil)
		c.use(c.ScaleUp.Pools(), nil, nil)
	}
	return nil
}

// wait waits until the API server has the buffers, or has not. It returns false when ctx ends.
func (c *Controller) wait(ctx context.Context, wanted bool) bool {
	for {
		if served, err := c.served(); err == nil && served == wanted {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-c.turned:
		}
	}
}

func (c *Controller) newObjects() *kube.Controller[*CapacityBuffer] {
	objects := &kube.Controller[*CapacityBuffer]{
		Client: c.Client, Logger: c.Logger, Workers: cmp.Or(c.Workers, 2), Backoff: c.Backoff,
		Kind: kube.Kind{Resource: Resource()}, IgnoreStatus: true, Referenced: templateKinds(), References: c.templateOf,
		Resync: cmp.Or(c.Replan, 30*time.Second), // a status edited by hand is written again
	}
	objects.Reconcile = func(ctx context.Context, key types.NamespacedName, o *CapacityBuffer) (reconcile.Result, error) {
		return reconcile.Result{}, c.reconcile(ctx, objects, key, o)
	}
	return objects
}

// plans makes a plan whenever something has changed.
func (c *Controller) plans(ctx context.Context) error {
	pause := cmp.Or(c.Pause, 200*time.Millisecond)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-c.wake:
		case <-timer.C:
		}
		after := cmp.Or(c.Replan, 30*time.Second)
		if c.Seen != nil && c.Seen() != nil || c.plan() != nil {
			after = pause // objects not seen yet would be missing in the plan
		}
		timer.Reset(after)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
	}
}

// plan makes a plan of what the API server and the pools have now. The error is why that is not complete.
func (c *Controller) plan() error {
	if served, err := c.served(); err != nil || !served {
		return err
	}
	objects := c.objects.Load()
	if objects == nil {
		return errUnread
	}
	if ok, err := objects.Synced(); !ok {
		return errors.Join(errUnread, err)
	}
	all, err := objects.List("")
	if err != nil {
		return err
	}
	var asks []ask
	for _, o := range all {
		if c.serves(o) {
			asks = append(asks, c.resolve(objects, o))
		}
	}
	supply := c.ScaleUp.Pools()
	made := plan(c.input(asks, supply))
	outcomes, standby := make(map[types.NamespacedName]outcome, len(asks)), make(map[string]map[string]int, len(supply))
	for _, o := range made.Outcomes {
		outcomes[o.Ask.Key] = o
	}
	for name, p := range supply {
		standby[p.Nodes.UID] = made.Standby[name]
	}
	objects.Add(c.use(supply, outcomes, standby)...)
	return nil
}

var errUnread = errors.New("the CapacityBuffers are not read yet")

// use replaces the last plan, and asks for passes of the pools of which it takes another number of machines.
// It returns the buffers with another outcome.
func (c *Controller) use(
	all map[string]*pools.Pool, outcomes map[types.NamespacedName]outcome, standby map[string]map[string]int,
) (changed []types.NamespacedName) {
	c.mu.Lock()
	before, kept := c.outcomes, c.standby
	c.outcomes, c.standby = outcomes, standby
	c.mu.Unlock()
	for name, p := range all {
		if !maps.Equal(kept[p.Nodes.UID], standby[p.Nodes.UID]) {
			c.ScaleUp.Look(name)
		}
	}
	for key, o := range outcomes {
		was, ok := before[key]
		if !ok || was.Ask.Units != o.Ask.Units || was.Ask.Generation != o.Ask.Generation || was.String() != o.String() {
			changed = append(changed, key)
		}
	}
	return changed
}

// Preview makes one plan while Start runs, and returns a line for each buffer. [Controller.Standby] returns the
// results of that plan. The error is why there is none when ctx ends. It does not wait for Seen.
func (c *Controller) Preview(ctx context.Context) (string, error) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := c.plan()
		if err == nil {
			break
		}
		select {
		case <-ctx.Done():
			return "", err
		case <-tick.C:
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	var lines strings.Builder
	for _, key := range slices.SortedFunc(maps.Keys(c.outcomes), byName) {
		lines.WriteString(c.outcomes[key].String() + "\n")
	}
	return lines.String(), nil
}

func byName(a, b types.NamespacedName) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

// reconcile writes what becomes of a buffer. If it asks for something else than was planned, the plan that is
// made now starts another pass.
func (c *Controller) reconcile(
	ctx context.Context, objects *kube.Controller[*CapacityBuffer], key types.NamespacedName, o *CapacityBuffer,
) error {
	c.mu.Lock()
	planned, ok := c.outcomes[key]
	c.mu.Unlock()
	if o == nil || !c.serves(o) {
		if ok {
			c.Wake()
		}
		return nil
	}
	a := c.resolve(objects, o)
	ok = ok && a.same(planned.Ask)
	if !ok {
		c.Wake()
	}
	switch {
	case c.Dry:
		return nil
	case a.Err != nil:
		err := c.report(ctx, objects, o, func(s *Status) { s.refuse(c.Strategy, a.Err) })
		if _, wrong := errors.AsType[*refusal](a.Err); !wrong {
			err = errors.Join(a.Err, err)
		}
		return err
	case !ok:
		return nil
	}
	return c.report(ctx, objects, o, func(s *Status) { s.report(c.Strategy, o.Spec.PodTemplateRef, planned) })
}

// report writes the status, and an Event about each new condition that is not as desired.
func (c *Controller) report(
	ctx context.Context, objects *kube.Controller[*CapacityBuffer], o *CapacityBuffer, update func(*Status),
) error {
	status := kube.Status[*CapacityBuffer]{Client: c.Client, Resource: Resource(), Conditions: conditions(), OnWrite: objects.Wrote}
	before := slices.Clone(o.Status.Conditions)
	if err := status.Update(ctx, o, func(o *CapacityBuffer) { update(&o.Status) }); err != nil {
		return err
	}
	is, was := meta.FindStatusCondition(o.Status.Conditions, ConditionProvisioning), meta.FindStatusCondition(before, ConditionProvisioning)
	if c.Events != nil && is != nil && is.Status == metav1.ConditionFalse && (was == nil || was.Reason != is.Reason) {
		kind := schema.GroupVersionKind{Group: Group, Version: Version, Kind: Kind}
		c.Events.Record(kind, o, kube.EventWarning, is.Reason, is.Message)
	}
	return nil
}

// serves reports whether a buffer is of the strategy, and not being deleted.
func (c *Controller) serves(o *CapacityBuffer) bool {
	return o.Spec.ProvisioningStrategy == c.Strategy && o.DeletionTimestamp == nil
}
