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

	"github.com/seed-9e1ffd66/trueup/apply"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/krane/render"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/krane/stream"
	"github.com/seed-9e1ffd66/trueup/reconcile"
)

// foreigners has the namespaces that belong to somebody else, for a while: they
// may be deleted, and made by us then.
type foreigners struct {
	mu    sync.Mutex
	until map[string]time.Time
}

const foreignFor = 5 * time.Minute

func (f *foreigners) is(name string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return time.Now().Before(f.until[name])
}

func (f *foreigners) note(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.until == nil {
		f.until = map[string]time.Time{}
	}
	f.until[name] = time.Now().Add(foreignFor)
}

// tidier removes namespaces of ours that have been empty for long.
type tidier struct {
	run   *run
	after time.Duration
	empty map[string]time.Time
}

// Reconcile implements reconcile.Reconciler.
func (t *tidier) Reconcile(ctx context.Context) (reconcile.Result, error) {
	for _, r := range resources() {
		if _, complete := t.run.replicas[r.collection].Complete(); !complete {
			return reconcile.Result{}, nil
		}
		if !t.run.parts[r.component].known() {
			return reconcile.Result{}, nil
		}
	}
	if !t.run.parts[render.Namespace].known() {
		return reconcile.Result{}, nil
	}
	used := map[string]bool{}
	for _, key := range t.run.book.wanted() {
		namespace, _ := stream.Split(key)
		used[namespace] = true
	}
	for _, r := range resources() {
		for o := range t.run.parts[r.component].live.All() {
			used[o.ID.Namespace] = true
		}
	}
	candidates := map[string]bool{}
	for o := range t.run.parts[render.Namespace].live.All() {
		if o.ID.Kind == "Namespace" && !o.Deleting && !used[o.ID.Name] {
			candidates[o.ID.Name] = true
		}
	}
	maps.DeleteFunc(t.empty, func(name string, _ time.Time) bool { return !candidates[name] })
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(candidates)) {
		since, ok := t.empty[name]
		if !ok {
			t.empty[name] = time.Now()
			continue
		}
		if time.Since(since) < t.after {
			continue
		}
		if err := t.remove(ctx, name); err != nil {
			errs = append(errs, fmt.Errorf("namespace %s: %w", name, err))
		}
	}
	return reconcile.Result{}, errors.Join(errs...)
}

// remove deletes an empty namespace of ours with what it has once. It stays, for as
// long again, while objects of others live in it.
func (t *tidier) remove(ctx context.Context, name string) error {
	p := t.run.parts[render.Namespace]
	ids := []apply.ID{}
	for o := range p.live.All() {
		if o.ID.Namespace == name {
			ids = append(ids, o.ID)
		}
	}
	namespace := apply.ID{Kind: "Namespace", Name: name}
	report, err := p.applier.Delete(ctx, append(ids, namespace), apply.DeleteOptions{Limit: apply.Limit{Count: len(ids) + 1}})
	for _, result := range report.Results {
		if result.ID == namespace && errors.Is(result.Err, apply.ErrNeeded) {
			t.run.Logger.DebugContext(ctx, "namespace kept", slog.String("namespace", name), slog.Any("error", result.Err))
			t.empty[name] = time.Now()
			return nil
		}
	}
	if err == nil {
		t.run.Logger.InfoContext(ctx, "empty namespace deleted", slog.String("namespace", name))
		delete(t.empty, name)
	}
	return err
}
