package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clientmetadata "k8s.io/client-go/metadata"

	"github.com/seed-9e1ffd66/trueup/apply"
	"github.com/seed-9e1ffd66/trueup/cmd/krane/render"
)

// parts are all components in the cluster.
type parts map[render.Component]*part

// waitSynced waits until all kinds of all components are known, or ctx ends.
func (ps parts) waitSynced(ctx context.Context) error {
	var errs []error
	for _, c := range components() {
		errs = append(errs, ps[c].live.WaitSynced(ctx))
	}
	return errors.Join(errs...)
}

// synced returns nil when all kinds of all components are known.
func (ps parts) synced() error {
	for _, c := range components() {
		if err := ps[c].synced(); err != nil {
			return err
		}
	}
	return nil
}

// contested counts the objects that are fought over.
func (ps parts) contested() (count int) {
	for _, p := range ps {
		count += p.live.Contested()
	}
	return count
}

// components are all that the agent applies.
func components() []render.Component {
	return []render.Component{render.Namespace, render.Account, render.Deployment, render.Sentinel, render.Policy}
}

// newParts returns the components of a region. drifted is called for each object
// that another manager has changed, and ended for each that is gone.
func newParts(
	client clientmetadata.Interface,
	discovery apply.Discovery,
	region string,
	logger *slog.Logger,
	drifted, ended func(render.Component, apply.ID),
) parts {
	mapper := newMapper()
	ps := parts{}
	for _, c := range components() {
		owner := render.Owner(c, region)
		live := &apply.Live{
			Client: client, Mapper: mapper, Owner: owner, Kinds: render.Kinds(c), Discovery: discovery,
			Logger:  logger.With(slog.String("component", string(c))), // several watch a kind
			OnDrift: func(o apply.Observed) { drifted(c, o.ID) },
			OnChange: func(o apply.Observed) {
				if o.Gone {
					ended(c, o.ID)
				}
			},
		}
		applier := &apply.Applier{Live: live, Concurrency: 16}
		switch c {
		case render.Namespace:
			applier.Adoption = apply.SkipForeign
		case render.Account:
			applier.Adoption = apply.AdoptForeign
		default:
		}
		ps[c] = &part{owner: owner, live: live, applier: applier}
	}
	return ps
}

// newMapper returns the resources of all kinds, which are fixed, so that none is
// discovered.
func newMapper() meta.RESTMapper {
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.AddSpecific(schema.GroupVersionKind{Group: "cilium.io", Version: "v2", Kind: "CiliumNetworkPolicy"},
		schema.GroupVersionResource{Group: "cilium.io", Version: "v2", Resource: "ciliumnetworkpolicies"},
		schema.GroupVersionResource{Group: "cilium.io", Version: "v2", Resource: "ciliumnetworkpolicy"}, meta.RESTScopeNamespace)
	for _, c := range components() {
		for _, kind := range render.Kinds(c) {
			switch kind.Kind {
			case "CiliumNetworkPolicy":
			case "Namespace":
				mapper.Add(kind, meta.RESTScopeRoot)
			default:
				mapper.Add(kind, meta.RESTScopeNamespace)
			}
		}
	}
	return mapper
}

// part is one component in the cluster.
type part struct {
	owner   apply.Owner
	live    *apply.Live
	applier *apply.Applier
}

// passTimeout bounds one pass.
const passTimeout = time.Minute

func idOf(o *unstructured.Unstructured) apply.ID {
	kind := o.GroupVersionKind()
	return apply.ID{Group: kind.Group, Kind: kind.Kind, Namespace: o.GetNamespace(), Name: o.GetName()}
}

// apply applies the objects and returns the results of those that differed from
// the desired state, valid with an error.
func (p *part) apply(ctx context.Context, objects []*unstructured.Unstructured) ([]apply.Result, error) {
	return p.applyMade(ctx, p.make(objects))
}

// made is a set of objects, and what was wrong with them. It does not change: passes may share it.
type made struct {
	set     *apply.Set
	invalid error
}

func (p *part) make(objects []*unstructured.Unstructured) made {
	set, invalid := apply.NewSet(p.owner, objects, apply.SetOptions{Gate: true})
	return made{set, invalid}
}

// applyMade is apply for objects of which a set was made.
func (p *part) applyMade(ctx context.Context, m made) ([]apply.Result, error) {
	if m.set == nil {
		return nil, m.invalid
	}
	ctx, cancel := context.WithTimeout(ctx, passTimeout)
	defer cancel()
	report, err := p.applier.Apply(ctx, m.set)
	return report.Results, errors.Join(m.invalid, err)
}

// remove deletes the objects, and no other. Each must be ours, and is deleted only
// in the version that was observed.
func (p *part) remove(ctx context.Context, ids []apply.ID) (apply.PruneReport, error) {
	ctx, cancel := context.WithTimeout(ctx, passTimeout)
	defer cancel()
	return p.applier.Delete(ctx, ids, apply.DeleteOptions{Propagation: afterPods, PodsOf: podsOf})
}

// afterPods is how a workload is deleted: it is there until its pods are gone, and so is what isolates them.
const afterPods = metav1.DeletePropagationForeground

// podsOf selects the pods of a deployment by its ingress policy, which goes with all of it. A policy of its own goes at
// once: it may have let others in.
func podsOf(o apply.Observed) string {
	id := o.Label(labelDeploymentID)
	if id == "" {
		return ""
	}
	return labels.Set{labelDeploymentID: id}.String()
}

// sweep deletes objects that the desired state lacks, within the limits of the guard.
func (p *part) sweep(ctx context.Context, ids []apply.ID, guard *apply.Guard, approved string) (apply.PruneReport, error) {
	ctx, cancel := context.WithTimeout(ctx, passTimeout)
	defer cancel()
	return p.applier.Delete(ctx, ids, apply.DeleteOptions{Guard: guard, Approved: approved, Propagation: afterPods, PodsOf: podsOf})
}

// synced returns nil when all kinds of the component are known.
func (p *part) synced() error { return p.live.Unseen() }

// known reports whether all kinds of the component are known.
func (p *part) known() bool { return p.synced() == nil }

// uid returns the UID of the object, "" if there is none or it is being deleted.
func (p *part) uid(id apply.ID) types.UID {
	o, err := p.live.Get(id)
	if err != nil || o.Deleting {
		return ""
	}
	return o.UID
}

// foreign returns an error if an object was not deleted because it is not ours.
func foreign(report apply.PruneReport) error {
	for _, result := range report.Results {
		if errors.Is(result.Err, apply.ErrNotOurs) {
			return fmt.Errorf("%s: %w", result.ID, errForeign)
		}
	}
	return nil
}
