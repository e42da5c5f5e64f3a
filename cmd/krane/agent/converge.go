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
	"github.com/seed-9e1ffd66/trueup/cmd/api/ctrl/specs"
	ctrlv1 "github.com/seed-9e1ffd66/trueup/cmd/api/ctrl/v1"
	"github.com/seed-9e1ffd66/trueup/cmd/krane/internal/vault"
	"github.com/seed-9e1ffd66/trueup/cmd/krane/render"
	"github.com/seed-9e1ffd66/trueup/cmd/krane/stream"
	"github.com/seed-9e1ffd66/trueup/reconcile"
	"github.com/seed-9e1ffd66/trueup/statesync"
)

// errVault is a vault that does not answer. The items that need it are retried
// until it does.
var errVault = errors.New("variables cannot be decrypted now")

// errForeign is an object that is not deleted because it may not be ours.
var errForeign = errors.New("not deleted: nothing proves that it is ours")

// errUnproven is a deletion that waits for the first list of its collection.
var errUnproven = errors.New("not deleted before the list is proven complete")

// Where a piece of work comes from, as metrics call it.
const (
	fromStream = "stream"
	fromResync = "resync"
	fromDrift  = "drift"
)

// converger makes the cluster match the registry, one entry at a time.
type converger struct {
	cell       render.Cell
	vault      vault.Decrypter
	parts      parts
	registry   *registry
	namespaces *namespaces
	reporter   *reporter
	metrics    *metrics
	problems   *problems
	// proven reports whether the list of a collection was proven complete once.
	proven func(stream.Collection) bool
}

// handle makes the cluster match one item of a stream.
func (c *converger) handle(ctx context.Context, item statesync.Item) error {
	e := c.registry.entry(item.Key)
	if err := e.lock(ctx); err != nil {
		return err
	}
	defer e.unlock()
	d := desired{received: true, version: item.Version, deferred: item.Deleted && !c.proven(e.resource.collection)}
	if !item.Deleted {
		d.apply = ctrlv1.NewApply(string(e.resource.collection))
		if err := stream.Decode(item, d.apply); err != nil {
			return reconcile.Terminal(err)
		}
	}
	c.registry.set(e, d)
	e.doubts, e.failures = 0, 0
	_, err := c.converge(ctx, e, fromStream)
	return err
}

// converge makes the cluster match e and has it reported. The caller has locked e.
func (c *converger) converge(ctx context.Context, e *entry, source string) (changed bool, err error) {
	if c.reporter.session.quiet() {
		return false, nil // the next resync has all entries
	}
	defer func() {
		if err == nil {
			e.failures = 0
			c.problems.set(resourceOf(e.key), "") // also of one that its stream has parked
		}
	}()
	if e.desired.apply == nil && c.registry.desired(e.key).deferred {
		return false, fmt.Errorf("%s: %w", e.key, errUnproven)
	}
	operation := "apply"
	if e.desired.apply == nil {
		operation = "delete"
		err = c.remove(ctx, e)
	} else {
		changed, err = c.create(ctx, e)
	}
	result := "success"
	if err != nil {
		result = "error"
	}
	c.metrics.operations.WithLabelValues(string(e.resource.collection), operation, result).Inc()
	c.metrics.dispatch.WithLabelValues(source, string(e.resource.collection), result).Inc()
	c.reporter.changed(e.key)
	return changed, err
}

// create applies all objects of e.
func (c *converger) create(ctx context.Context, e *entry) (changed bool, err error) {
	variables, err := c.decrypt(ctx, e)
	if err != nil {
		return false, err
	}
	root := e.resource.rootID(e.key)
	p := c.parts[e.resource.component]
	if e.uid == "" && e.resource.component != render.Policy { // which owns no object
		e.uid = p.uid(root)
	}
	objects, err := c.render(e, variables)
	if err != nil {
		return false, reconcile.Terminal(err)
	}
	if changed, err = c.namespaces.create(ctx, root.Namespace); err != nil {
		return changed, err
	}
	if err := c.claim(e, objects); err != nil {
		return changed, err
	}
	for range 2 {
		results, err := p.apply(ctx, objects)
		changed = changed || slices.ContainsFunc(results, func(r apply.Result) bool { return r.Err == nil && r.Action != apply.Skipped })
		if err != nil || e.resource.component == render.Policy {
			return changed, err
		}
		uid := p.uidAfter(e.uid, root, results)
		if uid == e.uid {
			return changed, nil
		}
		// The root exists now and becomes the owner of the others.
		e.uid = uid
		if objects, err = c.render(e, variables); err != nil {
			return changed, reconcile.Terminal(err)
		}
	}
	return changed, nil
}

// claim registers the objects for e. It returns an error if an object belongs to another resource that is desired or
// whose root exists: ids that differ in case, or in - and _, give the same names. The first resource keeps the
// names, also over a restart.
func (c *converger) claim(e *entry, objects []*unstructured.Unstructured) error {
	ids := make([]apply.ID, len(objects))
	for i, o := range objects {
		ids[i] = idOf(o)
	}
	taken := func(id apply.ID, by string) error {
		return fmt.Errorf("%s: %w: it is that of %s, whose id differs in case or in - and _ only; give one another id",
			id, apply.ErrNotOurs, by)
	}
	live, label, mine := c.parts[e.resource.component].live, e.resource.label, idOfMessage(e.desired.apply)
	for _, id := range ids {
		there, err := live.Get(id)
		if err != nil || there.Deleting {
			continue // it is not there
		}
		if other := there.Label(label); other != "" && other != mine && c.rooted(e, id.Namespace, other) {
			return taken(id, other)
		}
	}
	if id, other, ok := c.registry.claim(e, ids...); !ok {
		return taken(id, other.String())
	}
	return nil
}

// rooted reports whether the namespace has a root with the id, other than the root of e.
func (c *converger) rooted(e *entry, namespace, id string) bool {
	for o := range c.parts[e.resource.component].live.All() {
		if o.ID.Namespace == namespace && !o.Deleting && e.resource.isRoot(o.ID) && o.ID != e.resource.rootID(e.key) &&
			o.Label(e.resource.label) == id {
			return true
		}
	}
	return false
}

// uidAfter returns the UID of the root after an apply with these results: known,
// unless the root was created.
func (p *part) uidAfter(known types.UID, root apply.ID, results []apply.Result) types.UID {
	if known != "" && !slices.ContainsFunc(results, func(r apply.Result) bool { return r.ID == root }) {
		return known
	}
	return p.uid(root)
}

func (c *converger) render(e *entry, variables map[string]string) ([]*unstructured.Unstructured, error) {
	switch m := e.desired.apply.(type) {
	case *ctrlv1.ApplyDeployment:
		return c.cell.Deployment(m, variables, e.uid)
	case *ctrlv1.ApplySentinel:
		return c.cell.Sentinel(m, e.uid)
	case *ctrlv1.ApplyCiliumNetworkPolicy:
		return c.cell.Policy(m)
	default:
		return nil, fmt.Errorf("%s: no such message", e.key)
	}
}

// decrypt returns the variables of a deployment. It asks the vault only when the
// ciphertext or the keyring has changed.
func (c *converger) decrypt(ctx context.Context, e *entry) (map[string]string, error) {
	d, ok := e.desired.apply.(*ctrlv1.ApplyDeployment)
	if !ok || len(d.GetEncryptedEnvironmentVariables()) == 0 {
		return nil, nil //nolint:nilnil // no variables
	}
	if variables, ok := e.plain(d); ok {
		return variables, nil
	}
	plaintext, err := c.vault.Decrypt(ctx, d.GetEnvironmentId(), d.GetEncryptedEnvironmentVariables())
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

// remove deletes the objects of e: the root, and what belongs to it. What isolates its pods stays until these are gone: the
// entry is ending, and removed again then.
func (c *converger) remove(ctx context.Context, e *entry) error {
	p := c.parts[e.resource.component]
	if err := p.synced(); err != nil {
		return err // an object that is not observed may be there
	}
	// Noted before: a pod that is asked for in what follows may end before the answer is here.
	going := e.desired
	going.ending = true
	c.registry.set(e, going)
	report, err := p.remove(ctx, c.belongings(e))
	if err := foreign(report); err != nil {
		return fmt.Errorf("%s: %w", e.key, err)
	}
	if err != nil {
		return err
	}
	e.uid = ""
	c.registry.set(e, desired{received: true, version: e.desired.version, gone: true, ending: report.Pending > 0})
	return nil
}

// belongings returns the live objects of e that are not being deleted: the objects of its
// name, and the objects with the id of one of these. Of a deployment that was not made to the
// end there may be no object of its name, but its network policy.
func (c *converger) belongings(e *entry) []apply.ID {
	root := e.resource.rootID(e.key)
	p := c.parts[e.resource.component]
	found := map[apply.ID]bool{}
	ids := map[string]bool{}
	first := render.IngressPolicy(root.Name)
	for o := range p.live.All() {
		if o.ID.Namespace == root.Namespace && (o.ID.Name == root.Name || o.ID.Kind == specs.PolicyKind && o.ID.Name == first) {
			if id := o.Label(e.resource.label); id != "" {
				ids[id] = true
			}
			if !o.Deleting {
				found[o.ID] = true
			}
		}
	}
	for o := range p.live.All() {
		if o.ID.Namespace == root.Namespace && ids[o.Label(e.resource.label)] && !o.Deleting {
			if key, known := c.registry.owner(e.resource.component, o.ID); !known || key == e.key {
				found[o.ID] = true
			}
		}
	}
	return slices.SortedFunc(maps.Keys(found), apply.ID.Compare)
}
