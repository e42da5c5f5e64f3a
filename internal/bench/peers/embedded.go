package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/seed-9e1ffd66/trueup/internal/bench/benchfigures"
	"github.com/seed-9e1ffd66/trueup/internal/bench/benchobjects"
)

// embeddedIdle is how long the operators in a Manager are watched while nothing changes.
const embeddedIdle = time.Minute

func embeddedNamespaces() map[string]string {
	return map[string]string{"trueup": "embedded-trueup", "CreateOrUpdate": "embedded-createorupdate"}
}

// embedded measures two operators in one Manager.
func (b *bench) embedded(ctx context.Context) error {
	if err := b.defineHolder(ctx); err != nil {
		return err
	}
	for _, namespace := range embeddedNamespaces() {
		for _, suffix := range []string{"", "-empty"} {
			if err := b.others.Namespace(ctx, namespace+suffix); err != nil {
				return err
			}
		}
	}
	s := b.delayed(b.side("embedded"))
	parents, err := b.embeddedCreate(ctx, s)
	if err != nil {
		return err
	}
	if err := b.embeddedRest(ctx, s, parents); err != nil {
		return err
	}
	for name := range parents {
		if err := b.childHolds(ctx, "embedded_"+name, name+".embedded_", b.cluster.Kubeconfig, 10*len(parents[name])); err != nil {
			return err
		}
	}
	for _, figure := range []string{"resident", "heap"} {
		figure = "embedded_" + figure + "_bytes_per_object"
		b.book.Ratio("CreateOrUpdate_takes."+figure+"_ratio", "CreateOrUpdate."+figure, "trueup."+figure)
	}
	return nil
}

// requests counts those for the objects of one operator, without lists and watches.
func (e *embedded) requests(name string) (n int) {
	for _, r := range e.side.net.Requests() {
		if r.Namespace == e.operators[name].namespace && r.Verb != "list" && r.Verb != "watch" {
			n++
		}
	}
	return n
}

// quiet waits until an operator has sent nothing for half a second.
func (e *embedded) quiet(ctx context.Context, name string) time.Time {
	return silent(ctx, func() int { return e.requests(name) })
}

// embeddedCreate creates parents in turns, as partsCreate does.
func (b *bench) embeddedCreate(ctx context.Context, s *side) (map[string][]*unstructured.Unstructured, error) {
	names := []string{"trueup", "CreateOrUpdate"}
	parents, rates, silence := map[string][]*unstructured.Unstructured{}, map[string][]float64{}, map[string][]float64{}
	e, err := startEmbedded(ctx, s, embeddedNamespaces())
	if err != nil {
		return nil, err
	}
	defer e.stop()
	n, sent := max(1, b.parents/b.rounds), map[string]int{}
	for _, name := range names { // one more, which does not count, as in partsCreate
		first, err := b.makeHolders(ctx, e.operators[name].namespace, n*b.rounds, 1)
		if err == nil {
			err = e.operators[name].passed.await(ctx, first)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		e.quiet(ctx, name)
	}
	for round := range b.rounds {
		for turn := range names {
			name := names[(round+turn)%len(names)]
			o := e.operators[name]
			s.net.Reset()
			start := time.Now()
			made, err := b.makeHolders(ctx, o.namespace, round*n, n)
			if err == nil {
				err = o.passed.await(ctx, made)
			}
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			rates[name] = append(rates[name], float64(10*n)/time.Since(start).Seconds())
			parents[name] = append(parents[name], made...)
			silence[name] = append(silence[name], float64(10*n)/e.quiet(ctx, name).Sub(start).Seconds())
			sent[name] += e.requests(name)
		}
	}
	for _, name := range names {
		if err := counted(name, sent[name], 10*len(parents[name])); err != nil {
			return nil, err
		}
		b.book.Add(name+".embedded_create_rate", benchfigures.Percentile(rates[name], 0.5), "children/s")
		b.book.Add(name+".embedded_create_rate_until_silent", benchfigures.Percentile(silence[name], 0.5), "children/s")
		b.book.Add(name+".embedded_create_requests_per_parent", float64(sent[name])/float64(len(parents[name])), "requests")
	}
	for figure, of := range map[string]map[string][]float64{"create": rates, "create_until_silent": silence} {
		ratio := benchfigures.Percentile(benchfigures.Ratios(of["trueup"], of["CreateOrUpdate"]), 0.5)
		b.book.Add("of_CreateOrUpdate.embedded_"+figure+"_ratio", ratio, "x")
	}
	return parents, nil
}

// makeHolders creates some parents.
func (b *bench) makeHolders(ctx context.Context, namespace string, from, n int) ([]*unstructured.Unstructured, error) {
	made := holders(namespace, from, n)
	return made, benchobjects.Each(n, 8, func(i int) error {
		_, err := b.others.Client.Resource(holderResource()).Namespace(namespace).Create(ctx, made[i], metav1.CreateOptions{})
		return err
	})
}

// holders are parents as they are created.
func holders(namespace string, from, n int) []*unstructured.Unstructured {
	made := make([]*unstructured.Unstructured, n)
	for i := range made {
		made[i] = &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"size": int64(1)}}}
		made[i].SetGroupVersionKind(holderKind())
		made[i].SetNamespace(namespace)
		made[i].SetName(fmt.Sprintf("h%05d", from+i))
	}
	return made
}

// embeddedRest restarts the Manager, and counts what the operators send when nothing is to be done:
// after the restart, in a minute without a change, and in a pass for each parent.
func (b *bench) embeddedRest(ctx context.Context, s *side, parents map[string][]*unstructured.Unstructured) error {
	s.net.Reset()
	e, err := startEmbedded(ctx, s, embeddedNamespaces())
	if err != nil {
		return err
	}
	defer e.stop()
	count := func(figure string) {
		for name := range parents {
			b.book.Add(name+".embedded_requests_"+figure, float64(e.requests(name)), "requests")
		}
		s.net.Reset()
	}
	for name, o := range e.operators {
		if err := o.passed.await(ctx, parents[name]); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		e.quiet(ctx, name)
	}
	count("after_restart")
	pause(ctx, embeddedIdle)
	count("at_rest")
	for name, o := range e.operators {
		o.passed.forget()
		if err := o.again(ctx, parents[name]); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if err := o.passed.await(ctx, parents[name]); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		e.quiet(ctx, name)
	}
	count("in_a_pass_for_each")
	return ctx.Err()
}

// holdEmbedded is holdObjects of an operator in a Manager: what it takes for n children.
func holdEmbedded(ctx context.Context, name, kubeconfig string, n int) (func(context.Context) (any, error), error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig %s: %w", strconv.Quote(kubeconfig), err)
	}
	config.QPS = -1
	namespace := embeddedNamespaces()[name]
	// Its requests are not counted: that takes memory, too.
	return embeddedHolder(ctx, name, &side{name: "embedded", config: config}, namespace, holders(namespace, 0, n/10))
}
