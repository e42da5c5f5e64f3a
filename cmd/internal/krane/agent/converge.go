package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed-9e1ffd66/trueup/apply"
	ctrlv1 "github.com/seed-9e1ffd66/trueup/cmd/api/ctrl/v1"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/krane/render"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/krane/stream"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/krane/vault"
	"github.com/seed-9e1ffd66/trueup/reconcile"
	"github.com/seed-9e1ffd66/trueup/statesync"
)

// errVault is a vault that does not answer. What it holds up is tried again until
// it does.
var errVault = errors.New("variables cannot be decrypted now")

// errForeign is an object that stays because it is not ours to delete.
var errForeign = errors.New("not deleted: nothing proves that it is ours")

// Where a piece of work comes from, as metrics call it.
const (
	fromStream = "stream"
	fromResync = "resync"
	fromDrift  = "drift"
)

// handle makes the cluster match one item of a stream.
func (r *run) handle(ctx context.Context, item statesync.Item) error {
	e := r.book.entry(item.Key)
	e.mu.Lock()
	defer e.mu.Unlock()
	w := wish{known: true, version: item.Version}
	if !item.Deleted {
		w.apply = e.message()
		if err := stream.Decode(item, w.apply); err != nil {
			return reconcile.Terminal(err)
		}
	}
	r.book.wants(e, w)
	e.doubts = 0
	_, err := r.converge(ctx, e, fromStream)
	return err
}

// converge makes what e wishes so, and has it reported. Its mutex is held.
func (r *run) converge(ctx context.Context, e *entry, source string) (changed bool, err error) {
	operation := "apply"
	if e.wish.apply == nil {
		operation = "delete"
		err = r.remove(ctx, e)
	} else {
		changed, err = r.create(ctx, e)
	}
	result := "success"
	if err != nil {
		result = "error"
	}
	r.metrics.operations.WithLabelValues(string(e.collection), operation, result).Inc()
	r.metrics.dispatch.WithLabelValues(source, string(e.collection), result).Inc()
	r.reporter.changed(e.key)
	return changed, err
}

// create applies all objects of e.
func (r *run) create(ctx context.Context, e *entry) (changed bool, err error) {
	variables, err := r.decrypt(ctx, e)
	if err != nil {
		return false, err
	}
	root := e.rootID(e.key)
	p := r.parts[e.component]
	if e.uid == "" && e.component != render.Policy { // which owns nothing
		e.uid = p.uid(root)
	}
	objects, err := r.render(e, variables)
	if err != nil {
		return false, reconcile.Terminal(err)
	}
	if changed, err = r.namespace(ctx, root.Namespace); err != nil {
		return changed, err
	}
	for range 2 {
		for _, o := range objects {
			r.book.owns(e, idOf(o))
		}
		results, err := p.apply(ctx, objects)
		changed = changed || slices.ContainsFunc(results, func(r apply.Result) bool { return r.Err == nil && r.Action != apply.Skipped })
		if err != nil || e.component == render.Policy {
			return changed, err
		}
		uid := p.uidAfter(e.uid, root, results)
		if uid == e.uid {
			return changed, nil
		}
		// Now that the root is there, it becomes the owner of the others.
		e.uid = uid
		if objects, err = r.render(e, variables); err != nil {
			return changed, reconcile.Terminal(err)
		}
	}
	return changed, nil
}

// uidAfter returns the UID of the root after an apply with these results: the one
// that is known, unless the root was made.
func (p *part) uidAfter(known types.UID, root apply.ID, results []apply.Result) types.UID {
	if known != "" && !slices.ContainsFunc(results, func(r apply.Result) bool { return r.ID == root }) {
		return known
	}
	return p.uid(root)
}

func (r *run) render(e *entry, variables map[string]string) ([]*unstructured.Unstructured, error) {
	switch m := e.wish.apply.(type) {
	case *ctrlv1.ApplyDeployment:
		return r.cell.Deployment(m, variables, e.uid)
	case *ctrlv1.ApplySentinel:
		return r.cell.Sentinel(m, e.uid)
	case *ctrlv1.ApplyCiliumNetworkPolicy:
		return r.cell.Policy(m)
	default:
		return nil, fmt.Errorf("%s: no such message", e.key)
	}
}

// decrypt returns the variables of a deployment, those that are known before it
// asks the vault.
func (r *run) decrypt(ctx context.Context, e *entry) (map[string]string, error) {
	d, ok := e.wish.apply.(*ctrlv1.ApplyDeployment)
	if !ok || len(d.GetEncryptedEnvironmentVariables()) == 0 {
		return nil, nil //nolint:nilnil // no variables
	}
	if variables, ok := e.plain(d); ok {
		return variables, nil
	}
	plaintext, err := r.Vault.Decrypt(ctx, d.GetEnvironmentId(), d.GetEncryptedEnvironmentVariables())
	if err == nil {
		var variables map[string]string
		if variables, err = vault.Variables(plaintext); err == nil {
			e.variables, e.keyring, e.ciphertext = variables, d.GetEnvironmentId(), d.GetEncryptedEnvironmentVariables()
			return variables, nil
		}
	}
	if errors.Is(err, vault.ErrRefused) {
		return nil, fmt.Errorf("%s: %w", e.key, err)
	}
	return nil, fmt.Errorf("%s: %w: %w", e.key, errVault, err)
}

// namespace makes the namespace, what it has once, and its default account.
func (r *run) namespace(ctx context.Context, name string) (changed bool, err error) {
	objects, err := r.cell.Namespace(name)
	if err != nil {
		return false, reconcile.Terminal(err)
	}
	if r.theirs.is(name) {
		objects = objects[1:] // the Namespace, which is there and belongs to somebody else
	}
	results, err := r.parts[render.Namespace].apply(ctx, objects)
	for _, result := range results {
		if result.Action == apply.Skipped && result.ID.Kind == "Namespace" {
			r.theirs.note(name)
		}
		changed = changed || result.Err == nil && result.Action != apply.Skipped
	}
	if err != nil {
		return changed, err
	}
	account, err := r.cell.Account(name)
	if err != nil {
		return changed, reconcile.Terminal(err)
	}
	results, err = r.parts[render.Account].apply(ctx, account)
	return changed || err == nil && len(results) > 0, err
}

// remove deletes the objects of e: the root, and what belongs to it.
func (r *run) remove(ctx context.Context, e *entry) error {
	p := r.parts[e.component]
	if err := p.synced(); err != nil {
		return err // what is not seen is not gone
	}
	report, err := p.remove(ctx, r.belongings(e), apply.Limit{Off: true})
	if theirs := foreign(report); theirs != nil {
		return fmt.Errorf("%s: %w", e.key, theirs)
	}
	if err != nil {
		return err
	}
	e.uid = ""
	r.book.wants(e, wish{known: true, version: e.wish.version, gone: true})
	return nil
}

// belongings returns the objects of e that are there and not being deleted: those
// of its name, and those with the id of one of these.
func (r *run) belongings(e *entry) []apply.ID {
	root := e.rootID(e.key)
	p := r.parts[e.component]
	found := map[apply.ID]bool{}
	ids := map[string]bool{}
	for o := range p.live.All() {
		if o.ID.Namespace == root.Namespace && o.ID.Name == root.Name {
			if id := o.Label(e.label); id != "" {
				ids[id] = true
			}
			if !o.Deleting {
				found[o.ID] = true
			}
		}
	}
	for o := range p.live.All() {
		if o.ID.Namespace == root.Namespace && ids[o.Label(e.label)] && !o.Deleting {
			if key, known := r.book.whose(e.component, o.ID); !known || key == e.key {
				found[o.ID] = true
			}
		}
	}
	return slices.SortedFunc(maps.Keys(found), apply.ID.Compare)
}
