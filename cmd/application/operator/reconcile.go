package operator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed-9e1ffd66/trueup/apply"
	"github.com/seed-9e1ffd66/trueup/apply/readiness"
	"github.com/seed-9e1ffd66/trueup/cmd/api/platform/v1alpha1"
	"github.com/seed-9e1ffd66/trueup/cmd/application/internal/external"
	"github.com/seed-9e1ffd66/trueup/reconcile"
	outside "github.com/seed-9e1ffd66/trueup/reconcile/external"
	kit "github.com/seed-9e1ffd66/trueup/reconcile/operator"
)

// errInUse is something outside that is no longer wanted, and that pods may still use.
var errInUse = errors.New("the pods still use it")

// errEnding is errInUse for pods that are being deleted: nothing wakes the next pass.
var errEnding = errors.New("pods that used it have not ended yet")

// pass is one for one Application, or for a copy of one.
type pass struct {
	op      *operator
	subject subject

	parts    []*part
	password string // of the database's role, once it is known
	// rotation is the one that the password was made for, empty if it was for none.
	rotation string
	// secretVersion is the version of the Secret that the password was read from.
	secretVersion string
	outdated      bool // the Secret was changed after it was read
	// databaseChanged is whether this pass changed the schema or the roles.
	databaseChanged bool
	// outside has the parts, and the inventory as it is recorded, and as it becomes.
	outside outside.Pass
	held    bool // the workload waits for a part
	ready   map[apply.ID]readiness.Result
	cause   readiness.Cause // why the workload is not ready
	// granted is the host, empty with hostErr: it is not the subject's. moved is whether
	// Ingresses may lead to another one.
	granted string
	hostErr error
	moved   bool
	homeErr error // of the namespace
	workErr error // of the children
	// variablesErr is of the variables that are copied; it is part of workErr.
	variablesErr error
	migration    migration
	// waits is a removal that waits for its turn.
	waits error
	again time.Duration
}

func (w *operator) newPass(s subject) *pass {
	p := &pass{op: w, subject: s}
	p.setParts()
	p.migration = p.migrationOf()
	return p
}

// setParts makes the parts of the pass.
func (p *pass) setParts() {
	p.parts = []*part{p.databasePart(), p.storagePart(), p.authPart(), p.redisPart(), p.searchPart()}
	app := p.subject.app
	p.outside = outside.Pass{Checks: &p.op.checks.parts, UID: app.UID, Recorded: things(app.Status.External...)}
	for _, t := range p.parts {
		o := &t.outside
		if do := o.Make; do != nil {
			o.Make = func(ctx context.Context) error { return external.Judged(do(ctx)) }
		}
		if do := o.Delete; do != nil {
			o.Delete = func(ctx context.Context, e outside.Thing) error { return external.Judged(do(ctx, e)) }
		}
		o.Lost = func() bool { return p.lost(t) }
		o.Early = func(ctx context.Context) {
			if o.Left == nil {
				p.early(ctx, t)
			} else {
				p.terminating(ctx, 0, fmt.Errorf("%s: %w", o.Name, o.Left)) //nolint:errcheck // it is written again at the end
			}
		}
		o.Removed = func(ctx context.Context) error { return p.removeChild(ctx, t) }
		p.outside.Parts = append(p.outside.Parts, o)
	}
}

// reconcile does one pass for one Application.
func (w *operator) reconcile(ctx context.Context, key types.NamespacedName, app *v1alpha1.Application) (reconcile.Result, error) {
	if app == nil {
		w.metrics.forget(key)
		w.freeHosts(key, "")
		return reconcile.Result{}, nil // everything went before the finalizer
	}
	if app.DeletionTimestamp != nil {
		w.checks.forget(app.UID)
	}
	alive, result, err := w.finalize.Finalize(
		ctx,
		app,
		func(ctx context.Context) (bool, error) { return w.newPass(w.application(app)).teardown(ctx) },
	)
	if !alive || err != nil {
		return result, err
	}
	return w.newPass(w.application(app)).run(ctx)
}

// run makes everything as it is wanted, and reports it.
func (p *pass) run(ctx context.Context) (reconcile.Result, error) {
	had := p.subject.app.Status.Host
	if p.hostErr = p.subject.ownHost(); p.hostErr != nil {
		p.subject.version += " without host"
	} else {
		p.granted = p.host()
	}
	p.moved = had != p.granted && had != "" || p.hostErr != nil
	if err := p.plan(ctx); err != nil {
		return reconcile.Result{}, err
	}
	if p.homeErr = p.makeHome(ctx); p.homeErr != nil {
		return reconcile.Result{}, errors.Join(p.report(ctx), p.homeErr)
	}
	p.makeOutside(ctx)
	if p.workErr = p.children(ctx); p.workErr == nil {
		p.subject.letGo(p.granted) // no Ingress leads to another any more
	}
	if ctx.Err() != nil {
		return reconcile.Result{}, ctx.Err() // a pass that was cut short has not seen all
	}
	if p.outdated {
		return reconcile.Result{}, p.workErr // the next pass reads the Secret again
	}
	p.disable(ctx)
	err := p.report(ctx)
	p.op.logger.DebugContext(
		ctx,
		"pass",
		slog.String("kind", p.subject.kind),
		slog.String("namespace", p.subject.object.GetNamespace()),
		slog.String("name", p.subject.object.GetName()),
		slog.String("phase", string(p.subject.app.Status.Phase)),
	)
	if err := errors.Join(err, p.failure()); err != nil {
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: p.again}, nil
}

// plan records everything that is about to be made outside before any of it is, and the
// host before anything has it: whatever ends the pass, the deletion knows where to look,
// and no other has the host.
func (p *pass) plan(ctx context.Context) error {
	return p.outside.Plan(func() ([]outside.Thing, error) {
		err := p.subject.write(ctx, func(s *v1alpha1.ApplicationStatus) {
			s.External = p.inventory(s)
			s.Host = p.granted
			if s.Phase == "" {
				s.Phase = v1alpha1.Pending
			}
		})
		return things(p.subject.app.Status.External...), err
	})
}

// makeOutside makes the external objects. At rest they are only checked periodically: no event
// reports a change.
func (p *pass) makeOutside(ctx context.Context) {
	p.outside.Version = p.subject.version
	p.again = p.outside.Make(ctx)
	for _, o := range p.outside.Parts {
		if o.Checked {
			p.op.metrics.reconciled(p.subject.app, o.Name, o.Err, o.Took)
		}
	}
}

// lost reports whether the part's child is not there.
func (p *pass) lost(t *part) bool {
	_, err := p.op.live.Get(t.child)
	return errors.Is(err, apply.ErrAbsent)
}

// children applies all children in the cluster, and deletes the ones no longer wanted. While
// a part is not usable, children that need it stay as they are.
func (p *pass) children(ctx context.Context) error {
	var configs []*unstructured.Unstructured
	var failed []error
	for _, t := range p.parts {
		if !t.outside.Wanted {
			continue
		}
		if !p.outside.Usable(&t.outside) {
			p.held = true
			continue
		}
		made, err := t.configs(ctx)
		if err != nil {
			failed, p.held = append(failed, err), true
			continue
		}
		configs = append(configs, made...)
	}
	variables, err := p.copiedVariables(ctx)
	if err != nil {
		p.variablesErr = err
		failed, p.held = append(failed, err), true
	}
	configs = append(configs, variables...)
	more, err := p.next(ctx, configs)
	failed = append(failed, err)
	objects := slices.Concat(p.subject.home, configs, more)
	options := p.setOptions()
	options.Gate = true
	set, err := apply.NewSet(owner(), objects, options)
	if err != nil {
		return err
	}
	report, err := p.op.applier.Apply(ctx, set)
	kit.RecordOverrides(report, p.event)
	p.refusedJob(report.Results)
	failed = append(failed, err)
	p.outdated = slices.ContainsFunc(report.Results, func(r apply.Result) bool { return r.ID == p.secretID() && apierrors.IsConflict(r.Err) })
	_, err = p.op.applier.Prune(ctx, set, apply.PruneOptions{Complete: true, AllowEmpty: true, Keep: p.keeps})
	failed = append(failed, err)
	if p.held && p.exists(p.deploymentID()) { // its pods run, or not, while it stays as it is
		if set, err = apply.NewSet(owner(), []*unstructured.Unstructured{p.deployment(configs)}, options); err != nil {
			return errors.Join(append(failed, err)...)
		}
	}
	p.ready, err = p.op.applier.Readiness(ctx, set, deploymentKind, ingressKind)
	failed = append(failed, err, p.explain(ctx))
	return errors.Join(failed...)
}

// explain finds out why the workload is not ready. A change of its pods starts the next pass.
func (p *pass) explain(ctx context.Context) (err error) {
	found, ok := p.ready[p.deploymentID()]
	if ok && found.Status != readiness.Current {
		p.cause, err = p.op.applier.Why(ctx, p.deploymentID())
	}
	return err
}

// soon lets the next pass come after this time at the latest.
func (p *pass) soon(d time.Duration) { p.again = min(p.again, d) }

// keeps protects the workload while it waits, with what its pods read when they start, and what
// parts have that cannot be looked at.
func (p *pass) keeps(o apply.Observed) bool {
	switch {
	case o.ID.Kind == "Job":
		return p.keepsJob(o.ID.Name)
	case !p.held || p.moved && o.ID.Kind == "Ingress":
		return false
	case o.ID.Kind != "Secret" && o.ID.Kind != "ConfigMap", o.ID.Name == p.subject.names.Variables(), p.exists(p.deploymentID()):
		return true
	}
	return slices.ContainsFunc(p.parts, func(t *part) bool { return t.outside.Wanted && t.child == o.ID })
}

// The kinds whose readiness is in the status.
var (
	deploymentKind = schema.GroupKind{Group: "apps", Kind: "Deployment"}           //nolint:gochecknoglobals // constant
	ingressKind    = schema.GroupKind{Group: "networking.k8s.io", Kind: "Ingress"} //nolint:gochecknoglobals // constant
)

func (p *pass) deploymentID() apply.ID {
	return apply.ID{Group: "apps", Kind: "Deployment", Namespace: p.subject.app.Namespace, Name: p.subject.names.Workload()}
}

// failure returns what the pass is repeated for, and sets when it is without one.
func (p *pass) failure() error {
	var failed []error
	for _, o := range p.outside.Parts {
		for _, err := range []error{o.Err, o.Left} {
			switch outlook := outside.CauseOf(err).Outlook; {
			case err == nil, errors.Is(err, errInUse): // the pods wake the next pass
			case errors.Is(err, errEnding):
				p.soon(5 * time.Second)
			case outlook == readiness.Waiting:
				p.soon(time.Second)
			case outlook == readiness.Lasting:
				p.soon(lastingAgain)
			default:
				failed = append(failed, err)
			}
		}
	}
	return errors.Join(append(failed, p.workErr)...)
}

// applySome makes some of the objects now, before the others.
func (p *pass) applySome(ctx context.Context, objects ...*unstructured.Unstructured) error {
	set, err := apply.NewSet(owner(), objects, p.setOptions())
	if err != nil {
		return err
	}
	report, err := p.op.applier.Apply(ctx, set)
	kit.RecordOverrides(report, p.event)
	return err
}

// owns reports whether an object was made for the subject.
func (p *pass) owns(o *unstructured.Unstructured) bool {
	labels := o.GetLabels()
	return labels[labelManagedBy] == manager && labels[v1alpha1.LabelOwner] == string(p.subject.app.UID)
}

func (p *pass) secretID() apply.ID {
	return apply.ID{Kind: "Secret", Namespace: p.subject.app.Namespace, Name: p.subject.names.Secret()}
}

func (p *pass) setOptions() apply.SetOptions {
	return apply.SetOptions{
		Part:   string(p.subject.app.UID),
		Ignore: p.op.ignore,
		From:   map[apply.ID]string{p.secretID(): p.secretVersion},
	}
}
