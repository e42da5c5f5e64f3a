package apply

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/seed-9e1ffd66/trueup/apply/internal/view"
	"github.com/seed-9e1ffd66/trueup/apply/internal/write"
	"github.com/seed-9e1ffd66/trueup/apply/readiness"
)

// converge makes one object match the set, once it holds the object's lock.
func (p *pass) converge(ctx context.Context, it *item) (result Result) {
	k := p.kinds[it.group]
	end, err := k.Begin(ctx, it.at)
	if err != nil {
		return Result{it.id, Failed, err}
	}
	defer end(false)
	// Another call may have written the object meanwhile, or added members to the
	// ApplySet's parent.
	if it == p.parent {
		fresh, next, err := p.parentItem()
		if err != nil {
			return Result{it.id, Failed, err}
		}
		it = &fresh
		defer func() {
			if result.Err == nil {
				p.announced(next)
			}
		}()
	}
	v := p.decide(it)
	if v.action != send {
		return Result{it.id, v.action, v.err}
	}
	if err := p.selected(it); err != nil {
		return Result{it.id, Refused, err}
	}
	if err := p.await(ctx, it); err != nil {
		return Result{it.id, Waiting, err}
	}
	if err := p.live.pauses.standing(it.id, time.Now()); err != nil {
		return Result{it.id, Waiting, fmt.Errorf("%w: others failed a moment ago: %w", ErrBlocked, err)}
	}
	attempt := p.attempt(it, &v.look)
	p.live.rejections.begin(&attempt)
	result = Result{ID: it.id, Action: Failed}
	if t, err := p.target(it, &v.look); err != nil {
		result.Err = err
	} else {
		if v.again {
			t.Version = strconv.FormatUint(v.look.Record.Version(), 10)
		}
		fields := p.overridden(ctx, it, &v.look, t)
		result.Action, result.Err = p.repair(ctx, it, &v.look, t)
		if result.Action == Updated {
			p.undid(it.id, fields)
		}
	}
	now := time.Now() // a webhook may have taken long
	p.live.rejections.note(attempt, result, now)
	if p.live.pauses.note(it.id, result.Err, now) {
		p.live.retryRejected(it.id.GroupKind(), it.id.Namespace, it.id.Name)
	}
	return result
}

// repair writes the object, unless it is fought over.
func (p *pass) repair(ctx context.Context, it *item, look *view.Look, t *write.Target) (Action, error) {
	r := &look.Record
	retaken := look.Found && !r.Unknown() && r.Hash() == it.hash && r.Foreign() && t.Force && !t.Upsert
	if !retaken && look.Lost == "" {
		return p.write(ctx, it, t)
	}
	force, err := p.live.fights.enter(it.id, p.now, !look.Found)
	if fight, ok := errors.AsType[*FightError](err); ok {
		fight.Hint = hintOf(it)
		return Refused, fight
	}
	if force {
		action, err := p.write(ctx, it, t)
		if err != nil {
			p.live.fights.failed(it.id)
		}
		return action, err
	}
	// The server's refusal names the other manager.
	t.Force = false
	action, err := p.write(ctx, it, t)
	if err = p.live.fights.leave(it.id, p.now, err); err != nil {
		if _, fought := errors.AsType[*FightError](err); fought {
			action = Refused
		}
	}
	return action, err
}

// hintOf names a field for which others may delete the object again and again.
func hintOf(it *item) string {
	object := unstructured.Unstructured{Object: it.body.Decode()}
	if owners := object.GetOwnerReferences(); len(owners) > 0 {
		return fmt.Sprintf("metadata.ownerReferences name %s %s, which may be gone", owners[0].Kind, owners[0].Name)
	}
	if _, found, err := unstructured.NestedFieldNoCopy(object.Object, "spec", "ttlSecondsAfterFinished"); found && err == nil {
		return "spec.ttlSecondsAfterFinished removes it"
	}
	return ""
}

// write sends the object and records the answer.
func (p *pass) write(ctx context.Context, it *item, t *write.Target) (Action, error) {
	done, answer, err := p.applier.writer.Write(ctx, t)
	return p.took(it, done, answer, err)
}

// took records the server's answer and returns how the write ended.
func (p *pass) took(it *item, done write.Done, answer *metav1.PartialObjectMetadata, err error) (Action, error) {
	if answer != nil {
		p.kinds[it.group].Wrote(answer, it.hash)
	}
	if err != nil {
		return p.outcome(it, err)
	}
	switch done {
	case write.Created:
		return Created, nil
	case write.Updated:
		return Updated, nil
	case write.Recreated:
		return Recreated, nil
	default:
		return unchanged, nil
	}
}

// outcome returns the action and the error of a failed write.
func (p *pass) outcome(it *item, err error) (Action, error) {
	err = named(err)
	_, conflict := errors.AsType[*ConflictError](err)
	switch {
	case errors.Is(err, ErrTerminating):
		return Waiting, err
	case apierrors.HasStatusCause(err, namespaceTerminating):
		return Waiting, fmt.Errorf("%w: namespace %s: %w", ErrTerminating, it.id.Namespace, err)
	case errors.Is(err, ErrNotOurs) && it.policy == CreateOnly:
		return unchanged, nil // it exists
	case errors.Is(err, ErrNotOurs) && p.applier.Adoption == SkipForeign:
		return Skipped, nil
	case conflict, errors.Is(err, ErrNotOurs), errors.Is(err, ErrClaimed), errors.Is(err, ErrStalePlan):
		return Refused, err
	case tooLarge(err):
		return Failed, fmt.Errorf("the object has %d bytes as JSON: %w", len(it.body), err)
	case it.id.GroupKind() == schema.GroupKind{Kind: "Secret"}:
		return Failed, withoutValues(err)
	default:
		return Failed, err
	}
}

// denied matches the policy that has refused a request.
var denied = regexp.MustCompile(`^secrets "[^"]*" is forbidden: (ValidatingAdmissionPolicy '[^']*') `)

// withoutValues returns the error without the server's words about an object that it cannot
// read, or that it finds invalid: they quote values.
func withoutValues(err error) error {
	answer, ok := errors.AsType[*apierrors.StatusError](err)
	if !ok {
		return err
	}
	status := answer.ErrStatus
	switch status.Reason {
	case metav1.StatusReasonInvalid, metav1.StatusReasonBadRequest, metav1.StatusReasonInternalError, metav1.StatusReasonUnknown:
	default:
		return err
	}
	text := []string{fmt.Sprintf("the server answered %d", status.Code)}
	if phrase := unreadablePhrase(err); phrase != "" {
		text = append(text, phrase)
	}
	if policy := denied.FindStringSubmatch(status.Message); policy != nil {
		text = append(text, "denied by "+policy[1])
	}
	if status.Details != nil {
		for _, cause := range status.Details.Causes {
			if cause.Field != "" {
				text = append(text, cause.Field)
			}
		}
	}
	status.Details = nil
	status.Message = strings.Join(text, ", ") + "; its words are not shown, because they may quote the Secret's values"
	return &apierrors.StatusError{ErrStatus: status}
}

// namespaceTerminating is the cause in the server's error when the namespace of a
// create is being deleted.
const namespaceTerminating = metav1.CauseType("NamespaceTerminating")

// target returns what a write of the object needs.
func (p *pass) target(it *item, look *view.Look) (*write.Target, error) {
	a := p.applier
	resource, err := p.resource(it.kind, look)
	if err != nil {
		return nil, err
	}
	t := &write.Target{
		Resource: resource, Kind: it.kind, Namespace: it.id.Namespace, Name: it.id.Name,
		Body: it.body, Create: it.create, Left: it.left, Hash: it.hash, Part: p.set.Part(), From: p.set.options.From[it.id],
		Lost: look.Lost, LostUID: look.LostUID, Force: a.Conflicts == ForceConflicts, Adopt: a.Adoption == AdoptForeign,
		Recreate: slices.Contains(a.Recreate, it.id.GroupKind()), Upsert: a.Upsert != nil && a.Upsert(it.id.GroupKind()),
	}
	if it.policy == CreateOnly {
		t.Adopt = false
	}
	if t.Upsert {
		if err := write.Replaceable(t); err != nil {
			return nil, err
		}
	}
	if look.Found {
		t.UID, t.Bare, t.Superseded = look.Record.UID(), look.Record.Bare() && !look.Managed, look.Record.Superseded()
	}
	if look.Found && it.id == p.live.Owner.ApplySet {
		// It may name other kinds by now, as after a restored backup of the cluster: these must be
		// seen before they are overwritten.
		t.From = strconv.FormatUint(look.Record.Version(), 10)
	}
	return t, nil
}

// resource returns the resource of a kind in the version that an object states.
func (p *pass) resource(kind schema.GroupVersionKind, look *view.Look) (schema.GroupVersionResource, error) {
	if look.Mapping.GroupVersionKind.Version == kind.Version {
		return look.Mapping.Resource, nil
	}
	mapping, err := p.live.Mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if view.ResetMapper(p.live.Mapper, err) {
		mapping, err = p.live.Mapper.RESTMapping(kind.GroupKind(), kind.Version)
	}
	if err != nil {
		return schema.GroupVersionResource{}, fmt.Errorf("apiVersion %s: %w", kind.GroupVersion(), err)
	}
	return mapping.Resource, nil
}

// attempt returns the state with which a rejection of the object is compared.
func (p *pass) attempt(it *item, look *view.Look) attempt {
	a := p.applier
	t := attempt{id: it.id, part: p.set.Part(), hash: it.hash, policy: policy{
		adoption: a.Adoption, conflicts: a.Conflicts,
		recreate: slices.Contains(a.Recreate, it.id.GroupKind()), upsert: a.Upsert != nil && a.Upsert(it.id.GroupKind()),
	}}
	if look.Found {
		t.seen = look.Record.Observed()
	}
	return t
}

// selected returns an error for an object that the watch of its kind would never show.
func (p *pass) selected(it *item) error {
	if p.live.Selector == nil {
		return nil
	}
	selector, err := p.live.selector(it.id.GroupKind())
	object := unstructured.Unstructured{Object: it.body.Decode()}
	if err != nil || selector.Matches(labels.Set(object.GetLabels())) {
		return err
	}
	return fmt.Errorf("metadata.labels %v are not selected by Live.Selector %q", object.GetLabels(), strings.TrimSpace(selector.String()))
}

// Apply makes every object of the set exist as stated and reports the outcome.
// An object that is as the last apply left it costs no request, no allocation
// and well under a microsecond; one that is not costs one server-side apply,
// which takes back the fields that the set states and leaves all others.
//
// Objects are applied in the order of the set, in parallel within a rank. A
// failed object holds back only what lives in it (a namespace) or depends on it. A kind
// that is not watched yet is watched from now on; Apply waits up to five seconds for
// its first list. The report is valid with an error, which is [Report.Err] or the cause
// of the end of ctx.
func (a *Applier) Apply(ctx context.Context, set *Set) (Report, error) {
	p, err := a.begin(ctx, set)
	if err != nil {
		return Report{}, err
	}
	defer p.done()
	a.lead(set)
	for items := range set.ranks() {
		p.rank(ctx, items)
	}
	p.report.Overrides = p.overrides
	slices.SortFunc(p.report.Overrides, func(a, b Override) int { return a.ID.Compare(b.ID) })
	return p.report, errors.Join(p.report.Err(), context.Cause(ctx))
}

// rank applies objects that do not depend on each other.
func (p *pass) rank(ctx context.Context, items []item) {
	var due []*item
	for i := range items {
		it := p.item(&items[i])
		if items[i].handed != nil && it != &items[i] {
			p.wakeAtHandBack(&items[i])
		}
		switch v := p.decide(it); v.action {
		case unchanged:
			p.report.Unchanged++
		case send:
			if result, ok := p.live.rejections.standing(p.attempt(it, &v.look), p.now); ok {
				p.add(result)
				continue
			}
			due = append(due, it)
		default:
			p.add(Result{it.id, v.action, v.err})
		}
	}
	if len(due) == 0 {
		return
	}
	if p.live.pauses.active() { // or those that fail would come first each time
		slices.SortStableFunc(due, func(a, b *item) int {
			return p.live.rejections.until(a.id).Compare(p.live.rejections.until(b.id))
		})
	}
	results := make([]Result, len(due))
	p.applier.each(len(due), func(i int) { results[i] = p.converge(ctx, due[i]) })
	for _, r := range results {
		p.add(r)
	}
}

func (p *pass) add(r Result) {
	if r.Action == unchanged {
		p.report.Unchanged++
		return
	}
	p.report.Results = append(p.report.Results, r)
	if r.Err != nil {
		if p.failed == nil {
			p.failed = map[ID]error{}
		}
		p.failed[r.ID] = r.Err
		return
	}
	if cures(r.ID.GroupKind()) {
		p.live.retryRejected(r.ID.GroupKind(), r.ID.Namespace, r.ID.Name)
	}
}

// await returns an error while a dependency of the object is not ready. A change of
// that dependency starts a pass.
func (p *pass) await(ctx context.Context, it *item) error {
	if p.applier.Objects == nil {
		return nil
	}
	for _, id := range it.after {
		found, err := p.applier.readiness(ctx, id, p.set.item(id))
		if err != nil {
			return fmt.Errorf("%w: looking at %s, which it depends on: %w", ErrBlocked, id, err)
		}
		if found.Status == readiness.Current {
			continue
		}
		if v := p.live.registry.view(id.GroupKind()); v != nil && p.live.OnDrift != nil {
			waiting := Observed{ID: it.id, Part: p.set.Part(), owner: p.live.identity}
			v.Await(view.NameOf(id.Namespace, id.Name), found.version, it.id, func() { p.live.OnDrift(waiting) })
		}
		return fmt.Errorf("%w: it depends on %s, which is %s: %s", ErrBlocked, id, found.Status, found.Message)
	}
	return nil
}
