// Command wrangler measures wrangler's apply for the program in the folder above
// it, which runs it: wrangler stands on another minor of client-go and so needs
// a module of its own.
//
// It is called as wrangler's own controllers call it: with a set ID, informers
// that are synced and indexed by that (WithCacheTypes), its own rate limit of one
// call a second raised to a thousand, and objects in their list namespace. What
// it applies is unstructured, as objects are that were read from YAML. Secrets
// are given as data, because it writes those that have stringData on every call.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/rancher/lasso/pkg/cache"
	"github.com/rancher/lasso/pkg/client"
	"github.com/rancher/wrangler/v3/pkg/apply"
	"github.com/sirupsen/logrus"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/seed-9e1ffd66/trueup/apply/applytest"
	"github.com/seed-9e1ffd66/trueup/diff"
	"github.com/seed-9e1ffd66/trueup/internal/bench/benchfigures"
	"github.com/seed-9e1ffd66/trueup/internal/bench/benchobjects"
)

func main() {
	ctx, stop := benchfigures.Interrupted()
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "wrangler:", err)
		os.Exit(1)
	}
}

// bench is one run.
type bench struct {
	book   benchfigures.Book
	net    applytest.Transport
	others benchobjects.Others
	apply  apply.Apply

	objects, created, rounds int
}

func run(ctx context.Context) error {
	b := &bench{book: benchfigures.Book{Out: os.Stdout}}
	kubeconfig := flag.String("kubeconfig", "", "how to reach the API server")
	flag.IntVar(&b.objects, "objects", 500, "objects at rest")
	flag.IntVar(&b.created, "created", 1_000, "objects created in a round")
	flag.IntVar(&b.rounds, "rounds", 5, "rounds of which the median is taken")
	flag.Parse()
	logrus.SetLevel(logrus.ErrorLevel)
	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		return err
	}
	config.QPS = -1
	admin, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	b.others = benchobjects.Others{Client: admin}
	counted := rest.CopyConfig(config)
	counted.Wrap(b.net.Wrap)
	if b.apply, err = newApply(ctx, counted); err != nil {
		return err
	}
	for _, canonical := range []bool{true, false} {
		if err := b.rest(ctx, canonical); err != nil {
			return err
		}
	}
	return b.create(ctx)
}

// getter is an informer of one kind.
type getter struct {
	kind     schema.GroupVersionKind
	informer toolscache.SharedIndexInformer
}

// Informer implements apply.InformerGetter.
func (g getter) Informer() toolscache.SharedIndexInformer { return g.informer }

// GroupVersionKind implements apply.InformerGetter.
func (g getter) GroupVersionKind() schema.GroupVersionKind { return g.kind }

func newApply(ctx context.Context, config *rest.Config) (apply.Apply, error) {
	clients, err := client.NewSharedClientFactory(config, &client.SharedClientFactoryOptions{Scheme: scheme.Scheme})
	if err != nil {
		return nil, err
	}
	caches := cache.NewSharedCachedFactory(clients, nil)
	var getters []apply.InformerGetter
	for kind := range benchobjects.Resources() {
		informer, err := caches.ForKind(kind)
		if err != nil {
			return nil, err
		}
		getters = append(getters, getter{kind, informer})
	}
	a, err := apply.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	// Before the informers start, because it adds an index to them.
	a = a.WithContext(ctx).WithCacheTypes(getters...).WithRateLimiting(1000)
	if err := caches.Start(ctx); err != nil {
		return nil, err
	}
	for kind, synced := range caches.WaitForCacheSync(ctx) {
		if !synced {
			return nil, fmt.Errorf("%s: not synced", kind)
		}
	}
	return a, nil
}

// prepare makes objects in a new namespace, and what does a pass over them.
func (b *bench) prepare(ctx context.Context, mix benchobjects.Mix) ([]*unstructured.Unstructured, func() error, error) {
	objects := mix.Objects()
	applied := make([]runtime.Object, len(objects))
	for i, o := range objects {
		o.Object = diff.SecretData(o.Object)
		applied[i] = o
	}
	return objects, func() error {
		return b.apply.WithSetID(mix.Namespace).WithListerNamespace(mix.Namespace).ApplyObjects(applied...)
	}, b.others.Namespace(ctx, mix.Namespace)
}

// rest measures passes over unchanged objects.
func (b *bench) rest(ctx context.Context, canonical bool) error {
	name, namespace := "wrangler_0.1", "wrangler-odd"
	if canonical {
		name, namespace = "wrangler_canonical", "wrangler-canonical"
	}
	objects, pass, err := b.prepare(ctx, benchobjects.Mix{Namespace: namespace, Count: b.objects, Canonical: canonical})
	if err != nil {
		return err
	}
	b.net.Reset()
	if err := pass(); err != nil {
		return err
	}
	b.book.Add(name+".create_requests_per_object", b.perObject(), "requests")
	if err := b.others.Share(ctx, objects); err != nil {
		return err
	}
	for range 2 { // warm-up, until what was created is in the caches
		pause(ctx)
		if err := pass(); err != nil {
			return err
		}
	}
	var times, requests, allocations []float64
	for range b.rounds {
		pause(ctx)
		b.net.Reset()
		took, allocated, err := benchfigures.Measured(pass)
		if err != nil {
			return err
		}
		times = append(times, benchfigures.Micros(took, b.objects))
		requests, allocations = append(requests, b.perObject()), append(allocations, allocated/float64(b.objects))
	}
	b.book.Add(name+".sweep_requests_per_object", benchfigures.Percentile(requests, 0.5), "requests")
	b.book.Add(name+".sweep_us_per_object", benchfigures.Percentile(times, 0.5), "us")
	b.book.Add(name+".sweep_allocations_per_object", benchfigures.Percentile(allocations, 0.5), "allocations")
	return b.repair(ctx, name, objects[:min(100, len(objects))], pass)
}

// repair counts the requests for each object that another manager has edited.
func (b *bench) repair(ctx context.Context, name string, objects []*unstructured.Unstructured, pass func() error) error {
	edited := map[string]bool{}
	for _, o := range objects {
		if err := b.others.Edit(ctx, o); err != nil {
			return err
		}
		edited[o.GetName()] = true
	}
	pause(ctx)
	b.net.Reset()
	if err := pass(); err != nil {
		return err
	}
	for _, o := range objects {
		if ok, err := b.others.AsStated(ctx, o); err != nil || !ok {
			return errors.Join(err, fmt.Errorf("%s is not repaired", o.GetName()))
		}
	}
	requests := 0
	for _, r := range b.net.Requests() {
		if edited[r.Name] {
			requests++
		}
	}
	b.book.Add(name+".repair_requests_per_object", float64(requests)/float64(len(objects)), "requests")
	return nil
}

// create measures how fast objects are created. The first round does not count.
func (b *bench) create(ctx context.Context) error {
	var rates []float64
	for round := range b.rounds + 1 {
		mix := benchobjects.Mix{Namespace: fmt.Sprintf("wrangler-create-%d", round), Count: b.created}
		_, pass, err := b.prepare(ctx, mix)
		if err != nil {
			return err
		}
		took, _, err := benchfigures.Measured(pass)
		if err != nil {
			return err
		}
		if round > 0 {
			rates = append(rates, float64(b.created)/took.Seconds())
		}
	}
	b.book.Add("wrangler_0.1.create_rate", benchfigures.Percentile(rates, 0.5), "objects/s")
	return ctx.Err()
}

// perObject returns the requests since the last Reset for each object, without
// lists and watches.
func (b *bench) perObject() float64 {
	n := 0
	for _, r := range b.net.Requests() {
		if r.Verb != "list" && r.Verb != "watch" {
			n++
		}
	}
	return float64(n) / float64(b.objects)
}

// pause lets the caches see what was written.
func pause(ctx context.Context) {
	timer := time.NewTimer(time.Second)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
