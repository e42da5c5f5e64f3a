package operator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/seed-9e1ffd66/trueup/cloud"
	"github.com/seed-9e1ffd66/trueup/cloud/kube/nodes"
	"github.com/seed-9e1ffd66/trueup/cloud/kube/pools"
	"github.com/seed-9e1ffd66/trueup/cmd/api/stratos/v1alpha1"
	"github.com/seed-9e1ffd66/trueup/reconcile"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube"
)

// How long after a pass the next one is, if nothing happens.
const (
	afterNotReady = 10 * time.Second
	afterCleanup  = 10 * time.Second
)

// poolPass is one pass of one pool: it looks at the cloud and the cluster, plans, acts, and
// writes the status. At most one pass of a pool runs at a time.
type poolPass struct {
	state *poolState
	pass  pools.Pass // of state.machines
	// problem is why nothing can be launched, or none drained. Existing machines are still handled.
	problem problem
	listErr error // of the list of the cloud, without which the plan is then made
	err     error // of the actions
}

// clusterNameChanged is the reason of a pool whose machines are of another name of the cluster.
const clusterNameChanged = "ClusterNameChanged"

// problem is why a pool does less than it should; the zero value is none.
type problem struct{ reason, message string }

func poolKey(name string) types.NamespacedName { return types.NamespacedName{Name: name} }

// reconcile does one pass for one pool. For a deleted pool the pass is its teardown, which
// is repeated until no machine is left.
func (o *operator) reconcile(ctx context.Context, key types.NamespacedName, p *v1alpha1.NodePool) (reconcile.Result, error) {
	began := time.Now()
	defer func() { o.metrics.passed(key.Name, time.Since(began)) }()
	if p == nil {
		o.forget(key.Name)
		o.classOf.Add(o.classOf.Keys("")...) // one of them counted it until now
		return reconcile.Result{}, nil
	}
	if o.dry {
		return reconcile.Result{}, nil
	}
	// A class counts its pools. One that does not exist has each of them look at it again.
	if class := (types.NamespacedName{Name: p.Spec.Template.NodeClassRef.Name}); !o.absent(class) {
		o.classOf.Add(class)
	}
	if p.DeletionTimestamp == nil && p.Status.ObservedGeneration == 0 && o.memoryOf(p).once("created") {
		o.events.pool(
			p,
			kube.EventNormal,
			"Created",
			fmt.Sprintf("up to %d machines, %d of them on standby", p.Spec.PoolSize, p.Spec.MinStandby),
		)
	}
	var pass *poolPass
	alive, result, err := o.finalize.Finalize(ctx, p, func(ctx context.Context) (bool, error) {
		pass = o.newPass(p)
		total := p.Status.Total
		pass.run(ctx)
		if !pass.leftAlone() && o.memoryOf(p).once("deleting") {
			o.events.pool(p, kube.EventNormal, "Deleting", fmt.Sprintf("%d machines are drained and terminated", total))
		}
		return pass.state.machines.Plan.Done, errors.Join(pass.listErr, pass.err, pass.report(ctx))
	})
	switch {
	case pass != nil && pass.state.machines.Plan.Done && err == nil:
		o.events.pool(p, kube.EventNormal, "Deleted", "every machine of the pool is terminated")
		o.forget(p.Name)
		return result, nil
	case pass != nil && err == nil:
		return pass.next(), nil
	case pass != nil:
		o.events.pool(p, kube.EventWarning, "CleanupFailed", err.Error())
		return reconcile.Result{RequeueAfter: spread(afterCleanup, p.UID)}, nil
	case err != nil || !alive:
		return result, err
	}
	pass = o.newPass(p)
	pass.run(ctx)
	if err := pass.report(ctx); err != nil {
		return reconcile.Result{}, err
	}
	return pass.next(), nil
}

// newPass begins a pass from the state that is kept of the pool.
func (o *operator) newPass(p *v1alpha1.NodePool) *poolPass {
	s := o.newState(p)
	s.kept.journal.Open(p)
	pass := &poolPass{state: s}
	pass.pass = pools.Pass{
		Pool: &s.machines, ScaleUp: o.demand, Launches: s.kept.journal.Intents, Transition: o.transitionAge,
		OnReclaim: s.reclaimed, Publish: func() {
			pass.publish()
			o.holdSurplus(s)
		},
	}
	if !o.dry {
		pass.pass.Marks = o.marksOf(p)
	}
	return pass
}

// run looks at the pool and acts.
func (p *poolPass) run(ctx context.Context) {
	seen := p.look(ctx)
	if p.state.machines.Executor == nil {
		p.state.kept.looked.Store(true)
		if p.listErr == nil { // it never had a machine
			p.state.machines.Plan.Done = p.state.pool.DeletionTimestamp != nil && len(p.state.pool.Status.Launches) == 0
		}
		if p.listErr == nil || p.leftAlone() { // else machines may be started as before
			p.publish()
		}
		return
	}
	p.state.kept.recall(&p.state.pool.Status)
	p.err = p.pass.Run(ctx, seen, func() cloud.Want { return p.state.op.want(p.state) })
	p.state.recordResults(ctx, p.pass.Results)
	if p.err != nil && ctx.Err() == nil {
		p.state.op.logger.WarnContext(ctx, "pass incomplete", slog.String("pool", p.state.name()), slog.Any("error", p.err))
	}
}

// leftAlone reports whether the machines of the pool are those of another operator.
func (p *poolPass) leftAlone() bool { return p.problem.reason == clusterNameChanged }

// look is the part of a pass before it acts: it reads the desired and the actual state of
// the pool. Without an executor there is nothing to act on.
func (p *poolPass) look(ctx context.Context) cloud.Observed {
	seen := p.read(ctx)
	if p.problem.reason != "" && len(p.state.machines.Spec.Templates) == 0 {
		p.state.machines.Barred = short(p.problem.reason + ": " + p.problem.message)
	}
	if p.state.machines.Executor == nil {
		p.state.machines.Closed = cmp.Or(p.state.machines.Barred, "its machines are not looked at yet")
	}
	return seen
}

func (p *poolPass) read(ctx context.Context) cloud.Observed {
	if p.listErr = p.otherCluster(); p.listErr != nil {
		p.problem = problem{clusterNameChanged, p.listErr.Error()}
		return cloud.Observed{}
	}
	if p.problem = validate(p.state.pool); p.problem.reason == "" {
		p.problem = p.prepare(ctx)
	}
	if _, err := disruptions(p.state.pool, p.state.op.now()); err != nil && p.problem.reason == "" {
		p.problem = problem{"ValidationFailed", err.Error()} // machines are launched nevertheless
	}
	regions := p.state.pool.Status.Regions
	if p.state.op.dry && p.problem.reason == "" && !slices.Contains(regions, p.state.region) {
		regions = append(slices.Clone(regions), p.state.region)
	}
	if p.problem.reason != "" && len(regions) == 0 {
		return cloud.Observed{}
	}
	provider, err := p.state.op.clouds.provider(ctx, regions, p.state.region, p.regionOfMachine)
	if err != nil {
		p.listErr = err
		p.problem = problem{"CloudProviderError", err.Error()}
		return cloud.Observed{}
	}
	marks := p.state.op.marksOf(p.state.pool)
	p.state.machines.Executor = &cloud.Executor{
		Provider: provider,
		Nodes:    marks,
		Check: nodes.Guard{
			Marks: marks, Scope: p.state.machines.Spec.Scope, DrainTimeout: p.state.machines.Spec.DrainTimeout, Instance: p.state.kept.Instance,
		}.Check,
		Journal: &p.state.kept.journal,
		Config:  p.state.recipe.launchConfig,
	}
	return p.observe(ctx, regions)
}

// otherCluster returns why the machines of the pool are not of this operator, whose lists
// would lack them: they have another name of the cluster in their tags.
func (p *poolPass) otherCluster() error {
	s, own := &p.state.pool.Status, p.state.machines.Spec.Scope.Cluster
	if s.ClusterName == "" || s.ClusterName == own || s.Total == 0 && len(s.Machines) == 0 && len(s.Launches) == 0 {
		return nil
	}
	advice := "start the operator with that name, or delete the pool with it first"
	if p.state.pool.DeletionTimestamp != nil {
		advice = "none is drained or terminated, and the pool is not deleted, until the operator is started with that name"
	}
	return fmt.Errorf("--cluster-name is %q, and the pool has machines of cluster %q: %s", own, s.ClusterName, advice)
}

// prepare reads the class, and makes the recipe of machines from it. Before the first
// launch into a region it records that there may be machines, and the name of their cluster.
func (p *poolPass) prepare(ctx context.Context) problem {
	name := p.state.pool.Spec.Template.NodeClassRef.Name
	class, err := p.state.op.classOf.Get(types.NamespacedName{Name: name})
	switch {
	case errors.Is(err, kube.ErrAbsent):
		return problem{"NodeClassNotFound", fmt.Sprintf("spec.template.nodeClassRef: AWSNodeClass %q does not exist", name)}
	case err != nil:
		return problem{"NodeClassNotReady", err.Error()}
	}
	p.state.useClass(class)
	if why := unready(class); why != "" {
		return problem{"NodeClassNotReady", fmt.Sprintf("AWSNodeClass %q: %s", name, why)}
	}
	if why := p.refuse(class); why != "" {
		return problem{"ValidationFailed", why}
	}
	recipe, err := p.state.op.newRecipe(p.state.pool, class)
	if err != nil {
		return problem{"ValidationFailed", err.Error()}
	}
	p.state.region = cmp.Or(class.Spec.Region, p.state.op.clouds.home())
	if !p.recorded(&p.state.pool.Status) && p.state.pool.DeletionTimestamp == nil && !p.state.op.dry {
		if err := p.recordRegion(ctx); err != nil {
			return problem{"CloudProviderError", "record the region: " + err.Error()}
		}
	}
	p.state.recipe, p.state.machines.Spec.Templates = recipe, recipe.templates
	return problem{}
}

// observe lists the machines, and joins what the cluster says of them.
func (p *poolPass) observe(ctx context.Context, regions []string) cloud.Observed {
	begun := p.state.op.now()
	age := interval(p.state.pool) / 2
	if p.pass.InTransition() {
		age = p.state.op.transitionAge
	}
	var all []cloud.Instance
	of := map[string]string{}
	for _, region := range regions {
		instances, listed, err := p.state.op.clouds.list(ctx, region, p.state.machines.Spec.Scope, age)
		if err != nil {
			p.listErr = fmt.Errorf("region %s: %w", region, err)
			break
		}
		all = append(all, instances...)
		for _, i := range instances {
			of[i.ID] = region
		}
		if listed.Before(begun) {
			begun = listed
		}
	}
	if p.listErr == nil {
		p.state.kept.setRegions(of)
	}
	seen := p.pass.Observe(ctx, all, begun, p.listErr)
	seen.Notices = p.state.op.announced.Notices()
	return seen
}

// regionOfMachine returns the region of a machine: the region whose list had it, or the
// region of its Node's zone. A launched machine not listed yet is in the class's region.
func (p *poolPass) regionOfMachine(id string) string {
	if region := p.state.kept.region(id); region != "" {
		return region
	}
	if v, ok := p.state.op.cluster.OfMachine(id); ok {
		if region := regionOf(v.Zone, p.state.pool.Status.Regions); region != "" {
			return region
		}
	}
	return p.state.region
}

// next says when the next pass is.
func (p *poolPass) next() reconcile.Result {
	after, failed := interval(p.state.pool), p.listErr
	switch {
	case failed != nil || p.problem.reason == "":
	case p.problem.reason == "CloudProviderError":
		failed = errors.New(p.problem.message)
	default:
		after = min(after, afterNotReady)
	}
	after, exact := p.pass.Next(after, failed)
	if !exact {
		after = spread(after, p.state.pool.UID)
	}
	return reconcile.Result{RequeueAfter: after}
}

// spread lengthens a time by up to a fifth, so that objects are not handled in step, and pools
// look at their machines at most once in each interval. It is the same for an object each time.
func spread(d time.Duration, of types.UID) time.Duration {
	d, _ = reconcile.Backoff{Min: d + d/10, Max: d + d/5, Factor: 1, Jitter: 1.0 / 11, Seed: string(of)}.Next(1)
	return d
}

// validate returns what admission cannot see of a pool by itself.
func validate(p *v1alpha1.NodePool) problem {
	if p.Spec.MinStandby > p.Spec.PoolSize {
		return problem{
			"ValidationFailed",
			fmt.Sprintf("spec.minStandby: is %d, must be at most spec.poolSize (%d)", p.Spec.MinStandby, p.Spec.PoolSize),
		}
	}
	return problem{}
}

// refuse returns why a pool cannot use a class.
func (p *poolPass) refuse(class *v1alpha1.AWSNodeClass) string {
	if class.Spec.BootstrapTemplate != v1alpha1.Bottlerocket {
		return ""
	}
	if p.state.pool.Spec.PreWarm.CompletionMode != v1alpha1.ControllerStop {
		return "spec.preWarm.completionMode: is SelfStop, must be ControllerStop: Bottlerocket runs no script"
	}
	if len(p.state.pool.Spec.PreWarm.ImagesToPull) > 0 {
		return "spec.preWarm.imagesToPull: must be empty: Bottlerocket runs no script"
	}
	return ""
}

// publish shows the pool to whatever starts machines, and to the passes of its Nodes.
func (p *poolPass) publish() {
	state := *p.state
	p.state.op.mu.Lock()
	was := p.state.op.states[p.state.name()]
	p.state.op.states[p.state.name()] = &state
	p.state.op.mu.Unlock()
	p.state.kept.looked.Store(true)
	if was == nil || was.pool.UID != p.state.pool.UID || was.pool.Generation != p.state.pool.Generation ||
		was.recipe.hash != p.state.recipe.hash || len(was.recipe.templates) != len(p.state.recipe.templates) {
		p.state.op.demand.Wake()
		p.state.op.buffers.Wake()
		for _, v := range p.pass.Views {
			p.state.op.nodes.Add(poolKey(v.Status.Name))
		}
	} else if was.machines.Plan.Counts != p.state.machines.Plan.Counts {
		p.state.op.buffers.Wake() // the pool has room for more machines, or for fewer
	}
}
