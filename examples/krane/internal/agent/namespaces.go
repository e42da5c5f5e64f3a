package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"

	"github.com/seed-9e1ffd66/trueup/apply"
	"github.com/seed-9e1ffd66/trueup/examples/krane/internal/render"
	"github.com/seed-9e1ffd66/trueup/examples/krane/internal/stream"
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
	*run
	after     time.Duration
	discovery discovery.DiscoveryInterface
	metadata  metadata.Interface
	empty     map[string]time.Time
}

// Reconcile implements reconcile.Reconciler.
func (t *tidier) Reconcile(ctx context.Context) (reconcile.Result, error) {
	for _, r := range resources() {
		if _, complete := t.replicas[r.collection].Complete(); !complete {
			return reconcile.Result{}, nil
		}
		if !t.parts[r.component].known() {
			return reconcile.Result{}, nil
		}
	}
	if !t.parts[render.Namespace].known() {
		return reconcile.Result{}, nil
	}
	used := map[string]bool{}
	for _, key := range t.book.wanted() {
		namespace, _ := stream.Split(key)
		used[namespace] = true
	}
	for _, r := range resources() {
		for o := range t.parts[r.component].live.All() {
			used[o.ID.Namespace] = true
		}
	}
	candidates := map[string]bool{}
	for o := range t.parts[render.Namespace].live.All() {
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

func (t *tidier) remove(ctx context.Context, name string) error {
	inhabitant, err := t.inhabitant(ctx, name)
	if err != nil {
		return err // what cannot be looked at may be there
	}
	if inhabitant != "" {
		t.Logger.DebugContext(ctx, "namespace kept", slog.String("namespace", name), slog.String("because of", inhabitant))
		t.empty[name] = time.Now()
		return nil
	}
	_, err = t.parts[render.Namespace].prune(ctx, func(o apply.Observed) bool {
		return o.ID.Kind == "Namespace" && o.ID.Name == name || o.ID.Namespace == name
	}, apply.Limit{Count: 2})
	if err == nil {
		t.Logger.InfoContext(ctx, "empty namespace deleted", slog.String("namespace", name))
		delete(t.empty, name)
	}
	return err
}

// inhabitant returns an object in the namespace that neither we nor Kubernetes
// have put there, "" if there is none.
func (t *tidier) inhabitant(ctx context.Context, namespace string) (string, error) {
	lists, err := discovery.ServerPreferredNamespacedResources(t.discovery)
	if err != nil {
		return "", fmt.Errorf("kinds: %w", err)
	}
	ours := render.Owner(render.Namespace, t.Config.Cluster.Region).Labels
	for _, list := range lists {
		version, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return "", err
		}
		for _, kind := range list.APIResources {
			if !slices.Contains(kind.Verbs, "list") || strings.Contains(kind.Name, "/") || kind.Name == "events" {
				continue
			}
			// What a program only counts, such as metrics.k8s.io, cannot be watched.
			if !slices.Contains(kind.Verbs, "watch") {
				continue
			}
			found, err := t.metadata.Resource(version.WithResource(kind.Name)).Namespace(namespace).List(ctx, metav1.ListOptions{Limit: 50})
			if err != nil {
				return "", fmt.Errorf("%s: %w", kind.Name, err)
			}
			for i := range found.Items {
				if o := &found.Items[i]; !given(kind.Kind, o.Name) && !carries(o.Labels, ours) {
					return kind.Kind + " " + o.Name, nil
				}
			}
		}
	}
	return "", nil
}

// given tells whether Kubernetes puts the object into every namespace.
func given(kind, name string) bool {
	return kind == "ServiceAccount" && name == "default" || kind == "ConfigMap" && name == "kube-root-ca.crt"
}

func carries(have, want map[string]string) bool {
	for key, v := range want {
		if have[key] != v {
			return false
		}
	}
	return true
}
