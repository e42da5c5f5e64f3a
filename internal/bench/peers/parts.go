package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/seed-9e1ffd66/trueup/apply/applytest"
	"github.com/seed-9e1ffd66/trueup/internal/bench/benchfigures"
	"github.com/seed-9e1ffd66/trueup/internal/bench/benchobjects"
)

// partsWorkers is how many parents an operator reconciles at once.
const partsWorkers = 8

// parentKind is the custom kind whose objects the operators make children for.
func parentKind() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: "parts.example.com", Version: "v1", Kind: "Parent"}
}

func parentResource() schema.GroupVersionResource {
	return parentKind().GroupVersion().WithResource("parents")
}

// childrenOf returns the ten objects of a parent: one of each form of the mix.
func childrenOf(parent metav1.Object) []*unstructured.Unstructured {
	children := benchobjects.Mix{Namespace: parent.GetNamespace(), Count: 10}.Objects()
	for _, child := range children {
		child.SetName(parent.GetName() + "-" + strings.TrimRight(child.GetName(), "-0123456789"))
	}
	return children
}

// partsOperator is an operator with a controller of its own that makes the children of
// all parents with its label.
type partsOperator interface {
	own() *side
	stop()
	// reconcile does one pass for one parent.
	reconcile(ctx context.Context, parent metav1.Object) error
	// passed are the passes that its controller has started.
	passed() *passes
}

// passes notes the parents that a pass has made as wanted.
type passes struct {
	mu   sync.Mutex
	done map[string]bool
}

func (p *passes) note(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.done == nil {
		p.done = map[string]bool{}
	}
	p.done[name] = true
}

func (p *passes) forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done = nil
}

func (p *passes) all(parents []*unstructured.Unstructured) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, parent := range parents {
		if !p.done[parent.GetName()] {
			return false
		}
	}
	return true
}

// await waits until each parent had its pass.
func (p *passes) await(ctx context.Context, parents []*unstructured.Unstructured) error {
	for limit := time.Now().Add(5 * time.Minute); !p.all(parents); {
		if !pause(ctx, time.Millisecond) || time.Now().After(limit) {
			return fmt.Errorf("not every parent had a pass: %w", context.Cause(ctx))
		}
	}
	return nil
}

// parts measures operators that make ten children for each of many parents.
func (b *bench) parts(ctx context.Context) error {
	if err := b.defineParent(ctx); err != nil {
		return err
	}
	starts := map[string]func(context.Context, *side) (partsOperator, error){"trueup": startPartsOperator, "CreateOrUpdate": startPartsPeer}
	parents, err := b.partsCreate(ctx, starts)
	if err != nil {
		return err
	}
	for _, name := range []string{"trueup", "CreateOrUpdate"} {
		if err := b.partsRest(ctx, name, starts[name], parents[name]); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	b.book.Ratio("CreateOrUpdate_takes.parts_pass_ratio", "CreateOrUpdate.parts_pass_us", "trueup.parts_pass_us")
	template, err := b.partTemplate(ctx)
	if err != nil {
		return err
	}
	if err := b.partsPrune(ctx, template); err != nil {
		return err
	}
	return b.partsMemory(ctx, template)
}

// defineParent creates the custom kind of the parents and waits until it is served.
func (b *bench) defineParent(ctx context.Context) error {
	definition := benchobjects.Definition()
	kind := parentKind()
	definition.SetName("parents." + kind.Group)
	spec := definition.Object["spec"].(map[string]any)
	spec["group"] = kind.Group
	spec["names"] = map[string]any{"plural": "parents", "singular": "parent", "kind": kind.Kind, "listKind": "ParentList"}
	definitions := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	if _, err := b.others.Client.Resource(definitions).Create(ctx, definition, metav1.CreateOptions{}); err != nil {
		return err
	}
	for {
		_, err := b.others.Client.Resource(parentResource()).List(ctx, metav1.ListOptions{Limit: 1})
		if err == nil || !apierrors.IsNotFound(err) || !pause(ctx, 50*time.Millisecond) {
			return err
		}
	}
}

// partsSide names a contender of this stage: its objects are apart from those of other
// stages.
func (b *bench) partsSide(name string) *side { return b.delayed(b.side("parts_" + name)) }

// delayed makes each request take longer, as the flag -delay says.
func (b *bench) delayed(s *side) *side {
	s.net.Fault = func(applytest.Request) applytest.Fault { return applytest.Fault{Delay: b.delay} }
	return s
}

// partsCreate runs both operators side by side and creates parents in turns. The rate
// is that of the children, from the first parent until every parent had its pass.
func (b *bench) partsCreate(
	ctx context.Context,
	starts map[string]func(context.Context, *side) (partsOperator, error),
) (map[string][]*unstructured.Unstructured, error) {
	names := []string{"trueup", "CreateOrUpdate"}
	operators, parents := map[string]partsOperator{}, map[string][]*unstructured.Unstructured{}
	rates, silence := map[string][]float64{}, map[string][]float64{} // until all are made, and until nothing more is sent
	used := map[string]benchfigures.Processor{}
	for _, name := range names {
		used[name] = benchfigures.Processor{}
		if err := b.others.Namespace(ctx, "parts-"+namespaced(name)); err != nil {
			return nil, err
		}
		o, err := starts[name](ctx, b.partsSide(name))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		defer o.stop()
		operators[name] = o
	}
	n := max(1, b.parents/b.rounds)
	for _, name := range names {
		// One more, which does not count: a server holds back the first objects of a new kind for two seconds.
		first, err := b.makeParents(ctx, name, n*b.rounds, 1)
		if err == nil {
			err = operators[name].passed().await(ctx, first)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		operators[name].own().quiet(ctx)
		operators[name].own().net.Reset()
	}
	for round := range b.rounds {
		for turn := range names {
			name := names[(round+turn)%len(names)]
			before, unknown := benchfigures.ProcessorTime(os.Getpid())
			start := time.Now()
			made, err := b.makeParents(ctx, name, round*n, n)
			if err == nil {
				err = operators[name].passed().await(ctx, made)
			}
			rates[name] = append(rates[name], float64(10*n)/time.Since(start).Seconds())
			after, lost := benchfigures.ProcessorTime(os.Getpid())
			if err = errors.Join(unknown, err, lost); err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			for program, seconds := range after.Since(before) {
				used[name][program] += seconds
			}
			parents[name] = append(parents[name], made...)
			// What it still does about its own writes is not the other's time.
			silent := operators[name].own().quiet(ctx)
			silence[name] = append(silence[name], float64(10*n)/silent.Sub(start).Seconds())
		}
	}
	for _, name := range names {
		sent, _ := operators[name].own().requests()
		if err := counted(name, sent, 10*len(parents[name])); err != nil {
			return nil, err
		}
		b.book.Add(name+".parts_create_rate", benchfigures.Percentile(rates[name], 0.5), "children/s")
		b.book.Add(name+".parts_create_rate_until_silent", benchfigures.Percentile(silence[name], 0.5), "children/s")
		b.book.Add(name+".parts_create_requests_per_child", operators[name].own().perObject(10*len(parents[name])), "requests")
		for _, program := range []string{"self", "kube-apiserver", "etcd"} {
			b.book.Add(name+".parts_create_processor_ms_per_child_"+program, 1000*used[name][program]/float64(10*len(parents[name])), "ms")
		}
	}
	b.book.Add(
		"of_CreateOrUpdate.parts_create_ratio",
		benchfigures.Percentile(benchfigures.Ratios(rates["trueup"], rates["CreateOrUpdate"]), 0.5),
		"x",
	)
	b.book.Add(
		"of_CreateOrUpdate.parts_create_until_silent_ratio",
		benchfigures.Percentile(benchfigures.Ratios(silence["trueup"], silence["CreateOrUpdate"]), 0.5),
		"x",
	)
	return parents, nil
}

// quiet waits until the contender has sent nothing for half a second, and returns when
// it had sent its last request.
func (s *side) quiet(ctx context.Context) time.Time {
	return silent(ctx, func() int {
		n, _ := s.requests()
		return n
	})
}

func silent(ctx context.Context, sent func() int) time.Time {
	before, last := sent(), time.Now()
	for time.Since(last) < 500*time.Millisecond && pause(ctx, 10*time.Millisecond) {
		if now := sent(); now != before {
			before, last = now, time.Now()
		}
	}
	return last
}

// makeParents creates some parents with the label of a contender.
func (b *bench) makeParents(ctx context.Context, name string, from, n int) ([]*unstructured.Unstructured, error) {
	made := make([]*unstructured.Unstructured, n)
	err := benchobjects.Each(n, 8, func(i int) error {
		parent := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"size": int64(1)}}}
		parent.SetGroupVersionKind(parentKind())
		parent.SetNamespace("parts-" + namespaced(name))
		parent.SetName(fmt.Sprintf("p%05d", from+i))
		parent.SetLabels(map[string]string{contenderLabel: "parts_" + name})
		created, err := b.others.Client.Resource(parentResource()).Namespace(parent.GetNamespace()).Create(ctx, parent, metav1.CreateOptions{})
		made[i] = created
		return err
	})
	return made, err
}

// partsRest restarts an operator and measures its passes when nothing is to be done.
func (b *bench) partsRest(
	ctx context.Context,
	name string,
	start func(context.Context, *side) (partsOperator, error),
	parents []*unstructured.Unstructured,
) error {
	s := b.partsSide(name)
	o, err := start(ctx, s)
	if err != nil {
		return err
	}
	defer o.stop()
	if err := o.passed().await(ctx, parents); err != nil {
		return err
	}
	requests, lists := s.requests()
	b.book.Add(name+".parts_requests_after_restart", float64(requests), "requests")
	b.book.Add(name+".parts_lists_and_watches_after_restart", float64(lists), "requests")
	s.quiet(ctx)
	s.net.Reset()
	rounds := sweeps
	if name != "trueup" {
		rounds, parents = 3, parents[:min(len(parents), 100)] // its passes send requests
	}
	for range rounds {
		err := benchobjects.Each(len(parents), partsWorkers, func(i int) error { return o.reconcile(ctx, parents[i]) })
		if err != nil {
			return err
		}
	}
	requests, _ = s.requests()
	b.book.Add(name+".parts_requests_at_rest", float64(requests), "requests")
	b.book.Add(name+".parts_requests_at_rest_per_pass", float64(requests)/float64(rounds*len(parents)), "requests")
	// In samples that are short beside the time slices of a busy machine.
	const sample = 20
	var times []float64
	for range rounds {
		for some := range slices.Chunk(parents, sample) {
			start := time.Now()
			for _, parent := range some {
				if err := o.reconcile(ctx, parent); err != nil {
					return err
				}
			}
			times = append(times, benchfigures.Micros(time.Since(start), len(some)))
		}
	}
	b.book.Add(name+".parts_pass_us", benchfigures.Percentile(times, 0.5), "us")
	if own, ok := o.(*ownParts); ok {
		return b.partsAllocations(ctx, own, parents[0])
	}
	return nil
}
