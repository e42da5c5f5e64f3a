package apply_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/seed-9e1ffd66/trueup/apply"
	"github.com/seed-9e1ffd66/trueup/apply/applytest"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube/kubetest"
)

const (
	racers  = 64  // goroutines, each with a part
	pool    = 200 // names that they all draw from, so that they get in each other's way
	keyPart = "example.com/part"
)

// TestManyPartsAtOnceAgreeWithAModel lets 64 goroutines apply, prune and delete
// random sets, each its own part, through one Live and one Applier, while others
// edit, unlabel and delete the objects. The parts want the same names, so that they
// refuse each other. Each part's own view is compared with a model after each step;
// in the end every part gets a set of its own names, and the cluster must hold these
// and nothing else, at rest. TRUEUP_STEPS and TRUEUP_SEED repeat a run.
func TestManyPartsAtOnceAgreeWithAModel(t *testing.T) {
	t.Parallel()
	cluster := bare.Cluster(t)
	steps := 10_000
	if testing.Short() {
		steps = 1_000
	}
	if n, err := strconv.Atoi(os.Getenv("TRUEUP_STEPS")); err == nil {
		steps = n
	}
	r := newRace(t, cluster, seedOf(t))
	var left atomic.Int64
	left.Store(int64(steps))
	ctx, stop := context.WithCancel(t.Context())
	var workers, foreigners sync.WaitGroup
	for i := range 4 {
		foreigners.Go(func() { r.interfere(ctx, rand.New(rand.NewPCG(r.seed, uint64(1000+i)))) }) //nolint:gosec // a seed
	}
	for i := range racers {
		workers.Go(func() {
			random := rand.New(rand.NewPCG(r.seed, uint64(i))) //nolint:gosec // a seed
			for left.Add(-1) >= 0 && !t.Failed() {
				r.step(t.Context(), fmt.Sprintf("p%d", i), random)
			}
		})
	}
	workers.Wait()
	stop()
	foreigners.Wait()
	r.settle()
	fmt.Printf("figure parts_race_differences %d of %d steps\n", r.differences.Load(), steps)
	require.Zero(t, r.differences.Load())
}

// race is the world of that test.
type race struct {
	t           *testing.T
	seed        uint64
	ns          string
	owner       apply.Owner
	applier     *apply.Applier
	net         applytest.Transport
	admin       dynamic.ResourceInterface
	differences atomic.Int64
}

func newRace(t *testing.T, cluster *kubetest.Cluster, seed uint64) *race {
	t.Helper()
	ns := fmt.Sprintf("race-%d", benches.Add(1))
	r := &race{t: t, seed: seed, ns: ns, owner: apply.Owner{
		Manager: "race", Domain: "example.com", PartLabel: keyPart, Labels: map[string]string{"example.com/owner": ns},
	}}
	_, err := cluster.Kubectl(t.Context(), "create", "namespace", r.ns)
	require.NoError(t, err)
	admin, err := dynamic.NewForConfig(quick(cluster.Config))
	require.NoError(t, err)
	r.admin = admin.Resource(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}).Namespace(r.ns)
	b := &bench{cluster: cluster, config: quick(cluster.Config), owner: r.owner}
	r.applier, err = b.program(&r.net, kinds[2:3])
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.applier.Live.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-done)
	})
	require.NoError(t, r.applier.Live.WaitSynced(t.Context()))
	return r
}

func quick(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.QPS = -1
	return config
}

// wanted makes a set: each object says whose it is.
func (r *race) wanted(part string, names []string, value int) *apply.Set {
	objects := make([]*unstructured.Unstructured, 0, len(names))
	for _, name := range names {
		objects = append(objects, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": name, "namespace": r.ns},
			"data": map[string]any{"part": part, "value": strconv.Itoa(value)},
		}})
	}
	set, err := apply.NewSet(r.owner, objects, apply.SetOptions{Part: part})
	if err != nil {
		r.differ("set: %v", err)
	}
	return set
}

func (r *race) differ(format string, args ...any) {
	if r.differences.Add(1) <= 10 {
		r.t.Errorf(format, args...)
	}
}

// step does something random with a part, and compares the outcome with what may be.
func (r *race) step(ctx context.Context, part string, random *rand.Rand) {
	chosen := map[string]bool{}
	for range random.IntN(6) {
		chosen[fmt.Sprintf("c%d", random.IntN(pool))] = true
	}
	var names []string
	for name := range chosen {
		names = append(names, name)
	}
	set := r.wanted(part, names, random.IntN(3))
	report, err := r.applier.Apply(ctx, set)
	if got := report.Unchanged + len(report.Results); got != len(names) {
		r.differ("%s: %d outcomes for %d objects: %v", part, got, len(names), err)
	}
	for _, result := range report.Results {
		switch {
		case result.Err == nil:
		case errors.Is(result.Err, apply.ErrClaimed), errors.Is(result.Err, apply.ErrNotOurs), errors.Is(result.Err, apply.ErrTerminating):
		default:
			var fight *apply.FightError
			if !errors.As(result.Err, &fight) && !apierrors.IsConflict(result.Err) {
				r.differ("%s: %s: %v", part, result.ID, result.Err)
			}
		}
	}
	if random.IntN(2) == 0 {
		pruned, err := r.applier.Prune(ctx, set, apply.PruneOptions{Complete: true, AllowEmpty: true, Guard: noLimit()})
		r.checkPruned(part, set, pruned, err)
	}
	if len(names) > 0 && random.IntN(4) == 0 {
		id := apply.ID{Kind: "ConfigMap", Namespace: r.ns, Name: names[0]}
		if o, err := r.applier.Live.Get(id); err == nil && o.Part == part {
			deleted, err := r.applier.Delete(ctx, []apply.ID{id}, apply.DeleteOptions{})
			r.checkPruned(part, nil, deleted, err)
		}
	}
	for o := range r.applier.Live.Part(part) {
		if o.Part != part {
			r.differ("%s: its index leads to %s of %s", part, o.ID, o.Part)
		}
	}
}

// checkPruned looks for deletions that should not be.
func (r *race) checkPruned(part string, set *apply.Set, report apply.PruneReport, err error) {
	for _, result := range report.Results {
		if result.Action == apply.Deleted && set != nil && set.Has(result.ID) {
			r.differ("%s: %s was deleted, and is wanted", part, result.ID)
		}
		if result.Err != nil && !apierrors.IsConflict(result.Err) && !errors.Is(result.Err, apply.ErrNotOurs) {
			r.differ("%s: prune %s: %v", part, result.ID, result.Err)
		}
	}
	if len(report.Unseen) > 0 {
		r.differ("%s: %v", part, err)
	}
}

// interfere changes objects behind the program's back until ctx ends.
func (r *race) interfere(ctx context.Context, random *rand.Rand) {
	for ctx.Err() == nil {
		name := fmt.Sprintf("c%d", random.IntN(pool))
		var err error
		switch random.IntN(10) {
		case 0:
			err = r.admin.Delete(ctx, name, metav1.DeleteOptions{})
		case 1:
			_, err = r.admin.Patch(
				ctx,
				name,
				types.MergePatchType,
				[]byte(`{"metadata":{"labels":{"example.com/owner":null}}}`),
				metav1.PatchOptions{},
			)
		case 2:
			_, err = r.admin.Patch(
				ctx,
				name,
				types.MergePatchType,
				[]byte(`{"metadata":{"labels":{"foreign":"`+strconv.Itoa(random.IntN(100))+`"}}}`),
				metav1.PatchOptions{},
			)
		default:
			_, err = r.admin.Patch(ctx, name, types.MergePatchType, []byte(`{"data":{"value":"foreign"}}`), metav1.PatchOptions{})
		}
		if err != nil && ctx.Err() == nil && !apierrors.IsNotFound(err) {
			r.differ("foreign write: %v", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Duration(random.IntN(20)) * time.Millisecond):
		}
	}
}

// settle gives each part names of its own, waits until that is so, and looks at the
// cluster: it holds that and nothing else of ours, and no request is sent any more.
func (r *race) settle() {
	ctx, cancel := context.WithTimeout(r.t.Context(), 2*time.Minute)
	defer cancel()
	// An object without its labels has no owner now, and a fight is left alone.
	list, err := r.admin.List(ctx, metav1.ListOptions{})
	require.NoError(r.t, err)
	for i := range list.Items {
		if list.Items[i].GetLabels()["example.com/owner"] == "" || list.Items[i].GetLabels()[keyPart] == "" {
			_ = r.admin.Delete(ctx, list.Items[i].GetName(), metav1.DeleteOptions{})
		}
	}
	sets := map[string]*apply.Set{}
	for i := range racers {
		part := fmt.Sprintf("p%d", i)
		sets[part] = r.wanted(part, []string{part + "-a", part + "-b"}, 7)
	}
	all := apply.PruneOptions{Complete: true, Guard: noLimit()}
	var parts sync.WaitGroup
	for part, set := range sets {
		parts.Go(func() {
			for {
				applied, err := r.applier.Apply(ctx, set)
				pruned, pruneErr := r.applier.Prune(ctx, set, all)
				if err == nil && pruneErr == nil && applied.Unchanged == 2 && len(pruned.Results) == 0 && pruned.Remaining == 0 {
					return
				}
				if ctx.Err() != nil {
					r.differ("%s never converges: %v, %v, %+v", part, err, pruneErr, pruned)
					return
				}
			}
		})
	}
	parts.Wait()
	list, err = r.admin.List(ctx, metav1.ListOptions{LabelSelector: "example.com/owner=" + r.ns})
	require.NoError(r.t, err)
	if len(list.Items) != 2*racers {
		r.differ("the cluster holds %d objects; want %d", len(list.Items), 2*racers)
	}
	for i := range list.Items {
		o := &list.Items[i]
		part := o.GetLabels()[keyPart]
		stated, _, _ := unstructured.NestedString(o.Object, "data", "part")
		value, _, _ := unstructured.NestedString(o.Object, "data", "value")
		if !sets[part].Has(apply.ID{Kind: "ConfigMap", Namespace: r.ns, Name: o.GetName()}) || stated != part || value != "7" {
			r.differ("%s of %s: %s, %s", o.GetName(), part, stated, value)
		}
	}
	r.net.Reset()
	for _, set := range sets {
		_, err := r.applier.Apply(ctx, set)
		require.NoError(r.t, err)
	}
	r.net.NoWrites(r.t)
	require.Zero(r.t, r.net.Count("get"))
}
