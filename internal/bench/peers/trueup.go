package main

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/seed-9e1ffd66/trueup/apply"
	"github.com/seed-9e1ffd66/trueup/internal/bench/benchobjects"
)

// trueup is package apply as its documentation uses it.
type trueup struct {
	*side
	*apply.Applier
	cancel func()
	synced time.Duration // from the start until every kind was known
}

func owner() apply.Owner {
	return apply.Owner{Manager: "trueup-bench", Labels: map[string]string{contenderLabel: "trueup"}, Domain: "bench.example.com"}
}

// newLive is a view of the kinds in a mix that has not begun.
func newLive(config *rest.Config) (*apply.Live, error) {
	client, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	mapper := meta.NewDefaultRESTMapper(nil)
	live := &apply.Live{Client: client, Mapper: mapper, Owner: owner()}
	for kind := range benchobjects.Resources() {
		mapper.Add(kind, meta.RESTScopeNamespace)
		live.Kinds = append(live.Kinds, kind)
	}
	return live, nil
}

// startTrueup is a start of the program, with no memory.
func startTrueup(ctx context.Context, s *side, onDrift func(apply.Observed)) (*trueup, error) {
	live, err := newLive(s.config)
	if err != nil {
		return nil, err
	}
	live.OnDrift = onDrift
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	begun := time.Now()
	go func() { ended <- live.Start(ctx) }()
	t := &trueup{side: s, Applier: &apply.Applier{Live: live}, cancel: func() {
		cancel()
		<-ended
	}}
	if err := live.WaitSynced(ctx); err != nil {
		t.cancel()
		return nil, err
	}
	t.synced = time.Since(begun)
	return t, nil
}

func (t *trueup) stop() { t.cancel() }

func (t *trueup) prepare(objects []*unstructured.Unstructured) (pass, error) {
	set, err := apply.NewSet(owner(), objects, apply.SetOptions{})
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		_, err := t.Apply(ctx, set)
		return err
	}, nil
}

// sweep is a pass that must find everything unchanged.
func (t *trueup) sweep(ctx context.Context, set *apply.Set) error {
	report, err := t.Apply(ctx, set)
	if err != nil {
		return err
	}
	if report.Unchanged != set.Len() {
		return fmt.Errorf(
			"%d of %d objects unchanged, %d created, %d updated",
			report.Unchanged,
			set.Len(),
			report.Count(apply.Created),
			report.Count(apply.Updated),
		)
	}
	return nil
}
