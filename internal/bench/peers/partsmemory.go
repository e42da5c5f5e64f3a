package main

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/seed-9e1ffd66/trueup/apply"
	"github.com/seed-9e1ffd66/trueup/diff"
	"github.com/seed-9e1ffd66/trueup/internal/bench/benchfigures"
	"github.com/seed-9e1ffd66/trueup/internal/bench/benchobjects"
)

// partsMemory measures what it takes to watch a child, which carries the label of its
// part and a reference to its parent, in a process of its own for each way.
func (b *bench) partsMemory(ctx context.Context, template *appsv1.Deployment) error {
	if b.watched == 0 {
		return nil
	}
	err := serve(ctx, newStore(template, b.watched, partMeta), func(address string) error {
		for way, whose := range map[string]string{"parts": "trueup", "parts_informer": "informer"} {
			if err := b.childHolds(ctx, way, whose+".parts_", address, b.watched); err != nil {
				return fmt.Errorf("%s: %w", way, err)
			}
			if held, ok := b.book.Get(whose + ".parts_resident_bytes_per_object"); ok {
				b.book.Add(whose+".parts_bytes_per_child", held.Value, held.Unit)
			}
		}
		return nil
	})
	b.book.Ratio("informer_takes.parts_memory_ratio", "informer.parts_bytes_per_child", "trueup.parts_bytes_per_child")
	return err
}

// partsPrune measures the prune of a part of ten children beside few and beside many
// other parts. Both views are filled by this program in the place of an API server,
// which would need long to make so many; it accepts deletions.
func (b *bench) partsPrune(ctx context.Context, template *appsv1.Deployment) error {
	few, many := "10", "10000"
	for _, others := range []string{few, many} {
		n, _ := strconv.Atoi(others)
		err := serve(ctx, newStore(template, 10*(n+1), partMeta), func(address string) error { return b.partsPruned(ctx, address, n+1, others) })
		if err != nil {
			return err
		}
	}
	b.book.Ratio("trueup.parts_prune_flat", "trueup.parts_prune_us_of_"+many, "trueup.parts_prune_us_of_"+few)
	b.book.Ratio("trueup.parts_prune_deleting_flat", "trueup.parts_prune_deleting_us_of_"+many, "trueup.parts_prune_deleting_us_of_"+few)
	return nil
}

// partsPruned measures prunes in a view of some parts: such that have nothing to
// delete, as each pass of an operator does them, and such that delete all of a part.
func (b *bench) partsPruned(ctx context.Context, address string, parts int, others string) error {
	applier, stop, err := startParts(ctx, &rest.Config{Host: "http://" + address, QPS: -1})
	if err != nil {
		return err
	}
	defer stop()
	sets := make([]*apply.Set, 11)
	for part := range sets {
		if sets[part], err = partSetOf(part); err != nil {
			return err
		}
	}
	// Both views hold these parts. The others are there, that is all.
	const repeated = 2000
	var keeping, deleting []float64
	for range sweeps {
		took, _, err := benchfigures.Measured(func() error {
			for range repeated {
				if _, err := applier.Prune(ctx, sets[0], apply.PruneOptions{Complete: true}); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		keeping = append(keeping, benchfigures.Micros(took, repeated))
	}
	for part := range sets {
		start := time.Now()
		report, err := applier.DeletePart(ctx, string(partParent(part).GetUID()), apply.DeleteOptions{})
		deleting = append(deleting, benchfigures.Micros(time.Since(start), 1))
		if err != nil || len(report.Results) != 10 {
			return fmt.Errorf("%d of 10 objects deleted from %d parts: %w", len(report.Results), parts, err)
		}
	}
	b.book.Add("trueup.parts_prune_us_of_"+others, benchfigures.Percentile(keeping, 0.5), "us")
	b.book.Add("trueup.parts_prune_deleting_us_of_"+others, benchfigures.Percentile(deleting, 0.5), "us")
	return nil
}

// startParts is a view of Deployments alone, synced.
func startParts(ctx context.Context, config *rest.Config) (applier *apply.Applier, stop func(), err error) {
	client, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, nil, err
	}
	kind := schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(kind, meta.RESTScopeNamespace)
	live := &apply.Live{Client: client, Mapper: mapper, Owner: partsOwner(), Kinds: []schema.GroupVersionKind{kind}}
	return synced(ctx, live)
}

// synced starts a view and waits until it is complete. stop ends it.
func synced(ctx context.Context, live *apply.Live) (applier *apply.Applier, stop func(), err error) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- live.Start(ctx) }()
	stop = func() {
		cancel()
		<-ended
	}
	if err := live.WaitSynced(ctx); err != nil {
		stop()
		return nil, nil, err
	}
	return &apply.Applier{Live: live}, stop, nil
}

// partsHolder is a live view that passes over all parts have compared with what is
// desired, which is there before.
func partsHolder(n int, config *rest.Config) (func(context.Context) (any, error), error) {
	sets := make([]*apply.Set, n/10)
	for part := range sets {
		var err error
		if sets[part], err = partSetOf(part); err != nil {
			return nil, err
		}
	}
	return func(ctx context.Context) (any, error) {
		applier, _, err := startParts(ctx, config)
		if err != nil {
			return nil, err
		}
		for _, set := range sets {
			report, err := applier.Apply(ctx, set)
			if err != nil || report.Unchanged != set.Len() {
				return nil, fmt.Errorf("%d of %d objects unchanged: %w", report.Unchanged, set.Len(), err)
			}
		}
		return []any{applier, sets}, nil
	}, nil
}

// partParent is the parent of a part.
func partParent(part int) metav1.Object {
	parent := &unstructured.Unstructured{}
	parent.SetName("parent-" + strconv.Itoa(part))
	parent.SetUID(types.UID(fmt.Sprintf("%08d-0000-4000-9000-%012d", part, part)))
	return parent
}

// partSetOf is what is desired of a part: ten Deployments.
func partSetOf(part int) (*apply.Set, error) {
	children := make([]*unstructured.Unstructured, 10)
	for i := range children {
		children[i] = watchedObject(10*part + i)
	}
	return partOf(partParent(part), children)
}

// partMeta is the metadata of a watched object as the server keeps it, once it is
// applied as a child of its part.
func partMeta(template *metav1.ObjectMeta, i int) (metav1.ObjectMeta, error) {
	parent, object := partParent(i/10), watchedObject(i)
	live := *template.DeepCopy()
	live.Name, live.Namespace = object.GetName(), object.GetNamespace()
	live.UID = types.UID(fmt.Sprintf("%08d-0000-4000-8000-%012d", i, i))
	live.ResourceVersion = strconv.Itoa(1000 + i)
	labels := object.GetLabels()
	maps.Copy(labels, partsOwner().Labels)
	labels[partLabel] = string(parent.GetUID())
	object.SetLabels(labels)
	object.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(parent, parentKind())})
	live.Labels, live.OwnerReferences = labels, object.GetOwnerReferences()
	for at := range live.ManagedFields {
		// The list of owners is one by UID.
		raw := strings.ReplaceAll(live.ManagedFields[at].FieldsV1.GetRawString(), string(partParent(0).GetUID()), string(parent.GetUID()))
		live.ManagedFields[at].FieldsV1 = metav1.NewFieldsV1(raw)
	}
	hash, err := diff.Hash(object.Object)
	live.Annotations[partsOwner().Domain+"/desired-hash"] = hash.String()
	return live, err
}

// partTemplate returns a Deployment as the real server keeps it as a child.
func (b *bench) partTemplate(ctx context.Context) (*appsv1.Deployment, error) {
	object := watchedObject(0)
	object.SetNamespace("parts-template")
	if err := b.others.Namespace(ctx, object.GetNamespace()); err != nil {
		return nil, err
	}
	applier, stop, err := startParts(ctx, b.partsSide("trueup").config)
	if err != nil {
		return nil, err
	}
	defer stop()
	set, err := partOf(partParent(0), []*unstructured.Unstructured{object})
	if err != nil {
		return nil, err
	}
	if _, err := applier.Apply(ctx, set); err != nil {
		return nil, err
	}
	deployments := benchobjects.Resources()[object.GroupVersionKind()]
	live, err := b.others.Client.Resource(deployments).Namespace(object.GetNamespace()).Get(ctx, object.GetName(), metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	var typed appsv1.Deployment
	return &typed, runtime.DefaultUnstructuredConverter.FromUnstructured(live.Object, &typed)
}
