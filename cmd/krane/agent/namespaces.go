package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/seed-9e1ffd66/trueup/apply"
	"github.com/seed-9e1ffd66/trueup/cmd/api/ctrl/specs"
	"github.com/seed-9e1ffd66/trueup/cmd/krane/render"
	"github.com/seed-9e1ffd66/trueup/cmd/krane/stream"
	"github.com/seed-9e1ffd66/trueup/reconcile"
)

// namespaces creates the namespaces that entries live in.
type namespaces struct {
	cell  render.Cell
	parts parts

	mu sync.Mutex
	// foreign has the namespaces of other managers. One that is deleted is ours to create, which
	// shows when nothing can be applied in it, and one that a person gives to the agent has its labels:
	// at rest none is tried again.
	foreign map[string]bool
	// made has what a namespace is given. Each pass of each workload applies it: to make it
	// each time took a quarter of what the agent takes at rest.
	made map[string]*furnishing
}

// furnishing is what a namespace is given.
type furnishing struct {
	// whole is the Namespace and what it has once, foreign the same without the Namespace, for one
	// of another manager. account is its default account.
	whole, foreign, account made
}

// maxFurnishings bounds the namespaces that are remembered, a few kilobytes each.
const maxFurnishings = 1000

// furnish returns what a namespace is given. It depends on nothing that changes while the agent runs.
func (n *namespaces) furnish(name string) (*furnishing, error) {
	n.mu.Lock()
	known := n.made[name]
	n.mu.Unlock()
	if known != nil {
		return known, nil
	}
	objects, err := n.cell.Namespace(name)
	if err != nil {
		return nil, err
	}
	account, err := n.cell.Account(name)
	if err != nil {
		return nil, err
	}
	space := n.parts[render.Namespace]
	f := &furnishing{space.make(objects), space.make(objects[1:]), n.parts[render.Account].make(account)}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.made == nil || len(n.made) >= maxFurnishings {
		n.made = map[string]*furnishing{}
	}
	n.made[name] = f
	return f, nil
}

func (n *namespaces) isForeign(name string) bool {
	given := n.parts[render.Namespace].uid(apply.ID{Kind: "Namespace", Name: name}) != ""
	n.mu.Lock()
	defer n.mu.Unlock()
	if given {
		delete(n.foreign, name)
	}
	return n.foreign[name]
}

func (n *namespaces) setForeign(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.foreign == nil {
		n.foreign = map[string]bool{}
	}
	n.foreign[name] = true
}

func (n *namespaces) notForeign(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.foreign, name)
}

// create applies the namespace, what it has once, and its default account. In a namespace
// of another manager the account stays as it is: other pods may use it.
func (n *namespaces) create(ctx context.Context, name string) (changed bool, err error) {
	f, err := n.furnish(name)
	if err != nil {
		return false, reconcile.Terminal(err)
	}
	given := f.whole
	if n.isForeign(name) {
		given = f.foreign
	}
	results, err := n.parts[render.Namespace].applyMade(ctx, given)
	for _, result := range results {
		switch {
		case result.Action == apply.Skipped && result.ID.Kind == "Namespace":
			n.setForeign(name)
		case result.Action == apply.Skipped && result.ID.Kind == specs.PolicyKind:
			err = errors.Join(err, fmt.Errorf("%s: %w, and no pod starts before it is in force", result.ID, apply.ErrNotOurs))
		case apierrors.IsNotFound(result.Err):
			n.notForeign(name) // it is deleted, and this agent may create it
		}
		changed = changed || result.Err == nil && result.Action != apply.Skipped
	}
	if err != nil || n.isForeign(name) {
		return changed, err
	}
	results, err = n.parts[render.Account].applyMade(ctx, f.account)
	return changed || err == nil && len(results) > 0, err
}

// namespaceSweeper deletes namespaces of ours that have been empty for long.
type namespaceSweeper struct {
	streams  *streams
	parts    parts
	registry *registry
	session  *session
	logger   *slog.Logger
	// after is how long a namespace must have been empty.
	after time.Duration
	// empty is since when each is.
	empty map[string]time.Time
	// unlisted is true once a missing right was logged, until a namespace is deleted.
	unlisted bool
}

// Reconcile implements reconcile.Reconciler.
func (s *namespaceSweeper) Reconcile(ctx context.Context) (reconcile.Result, error) {
	if s.session.quiet() {
		clear(s.empty)
		return reconcile.Result{}, nil
	}
	if _, complete := s.streams.complete(); !complete {
		return reconcile.Result{}, nil
	}
	for _, r := range resources() {
		if !s.parts[r.component].known() {
			return reconcile.Result{}, nil
		}
	}
	if !s.parts[render.Namespace].known() {
		return reconcile.Result{}, nil
	}
	used := map[string]bool{}
	for _, key := range s.registry.present() {
		namespace, _ := stream.Split(key)
		used[namespace] = true
	}
	for _, r := range resources() {
		for o := range s.parts[r.component].live.All() {
			used[o.ID.Namespace] = true
		}
	}
	candidates := map[string]bool{}
	for o := range s.parts[render.Namespace].live.All() {
		if o.ID.Kind == "Namespace" && !o.Deleting && !used[o.ID.Name] {
			candidates[o.ID.Name] = true
		}
	}
	maps.DeleteFunc(s.empty, func(name string, _ time.Time) bool { return !candidates[name] })
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(candidates)) {
		since, ok := s.empty[name]
		if !ok {
			s.empty[name] = time.Now()
			continue
		}
		if time.Since(since) < s.after {
			continue
		}
		if err := s.remove(ctx, name); err != nil {
			errs = append(errs, fmt.Errorf("namespace %s: %w", name, err))
		}
	}
	return reconcile.Result{}, errors.Join(errs...)
}

// remove deletes an empty namespace of ours with what it has once. While it has
// objects of other managers it stays, and is tried again after the same time.
func (s *namespaceSweeper) remove(ctx context.Context, name string) error {
	p := s.parts[render.Namespace]
	ids := []apply.ID{}
	for o := range p.live.All() {
		if o.ID.Namespace == name {
			ids = append(ids, o.ID)
		}
	}
	namespace := apply.ID{Kind: "Namespace", Name: name}
	report, err := p.applier.Delete(ctx, append(ids, namespace), apply.DeleteOptions{})
	for _, result := range report.Results {
		if result.ID == namespace && errors.Is(result.Err, apply.ErrNeeded) {
			s.logger.DebugContext(ctx, "namespace kept", slog.String("namespace", name), slog.Any("error", result.Err))
			s.unlistable(ctx, result.Err)
			s.empty[name] = time.Now()
			return nil
		}
	}
	if err == nil {
		s.logger.InfoContext(ctx, "empty namespace deleted", slog.String("namespace", name))
		delete(s.empty, name)
		s.unlisted = false
	}
	return err
}

// unlistable logs once that no namespace is deleted because the agent has no right to
// list a kind in it.
func (s *namespaceSweeper) unlistable(ctx context.Context, err error) {
	status, ok := errors.AsType[*apierrors.StatusError](err)
	if !ok || !apierrors.IsForbidden(status) || s.unlisted {
		return
	}
	s.unlisted = true
	s.logger.InfoContext(ctx, "empty namespaces kept: no right to list every kind in them", slog.Any("error", err))
}
