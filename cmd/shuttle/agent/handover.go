package agent

import (
	"context"
	"errors"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed-9e1ffd66/trueup/apply"
	"github.com/seed-9e1ffd66/trueup/diff"
)

// newSet makes the set of a state. The replicas of an autoscaled Deployment are
// stated at its creation only, and keep their value when they are handed over.
func newSet(owner apply.Owner, objects []*unstructured.Unstructured) (*apply.Set, error) {
	ignore, err := diff.NewIgnore(diff.Rule{
		Kind: "Deployment.apps", Selector: labelReplicas + "=" + byAutoscaler, Paths: []string{".spec.replicas"},
	})
	if err != nil {
		return nil, err
	}
	return apply.NewSet(owner, objects, apply.SetOptions{Ignore: ignore})
}

// handOver leaves the replicas of a Deployment to its autoscaler.
func handOver(o *unstructured.Unstructured) {
	labels := o.GetLabels()
	labels[labelReplicas] = byAutoscaler
	o.SetLabels(labels)
}

// handover takes back the replicas of services whose autoscaler must be deleted. They are
// stated only once the autoscaler is deleted, so the two never fight.
type handover struct {
	applier *apply.Applier
	deleted map[apply.ID]types.UID // autoscalers that the view may still show

	// The set of a state in which some replicas are still the autoscaler's.
	of    *accepted
	ids   []apply.ID
	later *apply.Set
}

// autoscalers returns those that are there, by the ID of the autoscaler, of services
// that state their replicas.
func (h *handover) autoscalers(current *accepted) map[apply.ID]apply.ID {
	var found map[apply.ID]apply.ID
	for i := range current.rendered.Services {
		s := &current.rendered.Services[i]
		if s.Autoscaled {
			continue
		}
		deployment := apply.ID{Group: "apps", Kind: "Deployment", Namespace: s.Deployment.Namespace, Name: s.Deployment.Name}
		id := apply.ID{Group: "autoscaling", Kind: "HorizontalPodAutoscaler", Namespace: s.Deployment.Namespace, Name: s.Deployment.Name}
		o, err := h.applier.Live.Get(id)
		switch {
		case errors.Is(err, apply.ErrAbsent):
			delete(h.deleted, id)
			continue
		case err != nil:
			// If autoscalers cannot be read, the Deployment's label shows whether it has one.
			if o, err := h.applier.Live.Get(deployment); err != nil || o.Label(labelReplicas) != byAutoscaler {
				continue
			}
		case !o.Deleting && h.deleted[id] == o.UID:
			continue // it is deleted, and the watch has not shown it
		}
		if found == nil {
			found = map[apply.ID]apply.ID{}
		}
		found[id] = deployment
	}
	return found
}

// set returns the set to apply while these autoscalers are there.
func (h *handover) set(current *accepted, autoscalers map[apply.ID]apply.ID) (*apply.Set, error) {
	if len(autoscalers) == 0 {
		h.of, h.ids, h.later = nil, nil, nil
		return current.set, nil
	}
	ids := slices.SortedFunc(maps.Values(autoscalers), apply.ID.Compare)
	if h.of == current && slices.Equal(h.ids, ids) {
		return h.later, nil
	}
	objects := slices.Clone(current.rendered.Objects)
	for i, o := range objects {
		if _, found := slices.BinarySearchFunc(ids, idOfObject(o), apply.ID.Compare); found {
			labelled := &unstructured.Unstructured{Object: maps.Clone(o.Object)}
			metadata, _ := o.Object["metadata"].(object)
			labelled.Object["metadata"] = maps.Clone(metadata)
			handOver(labelled)
			objects[i] = labelled
		}
	}
	set, err := newSet(h.applier.Live.Owner, objects)
	if set == nil {
		return nil, err // an invalid object is left out, and named when the state is accepted
	}
	h.of, h.ids, h.later = current, ids, set
	return set, nil
}

// finish states the replicas of services whose autoscaler a prune has deleted. The
// report is that of the whole pass then.
func (h *handover) finish(
	ctx context.Context,
	current *accepted,
	autoscalers map[apply.ID]apply.ID,
	pruned apply.PruneReport,
) (report apply.Report, done bool, err error) {
	left := maps.Clone(autoscalers)
	for _, r := range pruned.Results {
		if _, ours := left[r.ID]; !ours || r.Action != apply.Deleted {
			continue
		}
		if o, err := h.applier.Live.Get(r.ID); err == nil {
			if h.deleted == nil {
				h.deleted = map[apply.ID]types.UID{}
			}
			h.deleted[r.ID] = o.UID
		}
		delete(left, r.ID)
	}
	if len(left) == len(autoscalers) {
		return apply.Report{}, false, nil
	}
	set, err := h.set(current, left)
	if err != nil {
		return apply.Report{}, false, err
	}
	report, err = h.applier.Apply(ctx, set)
	return report, true, err
}
