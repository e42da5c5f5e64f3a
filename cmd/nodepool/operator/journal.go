package operator

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed-9e1ffd66/trueup/cloud"
	"github.com/seed-9e1ffd66/trueup/cloud/kube/nodes"
	"github.com/seed-9e1ffd66/trueup/cmd/api/stratos/v1alpha1"
)

// journal keeps the launches of a pool in its status.
type journal = nodes.Journal[*v1alpha1.NodePool]

func (o *operator) newJournal() journal {
	return journal{Write: o.status.Update, Get: launchesOf, Set: setLaunches, Copy: copyOf}
}

// launchesOf returns the launches of a status, and the highest ordinal.
func launchesOf(p *v1alpha1.NodePool) ([]cloud.LaunchIntent, int64) {
	out := make([]cloud.LaunchIntent, 0, len(p.Status.Launches))
	for _, l := range p.Status.Launches {
		out = append(out, cloud.LaunchIntent{
			Operation: l.Operation,
			Ordinal:   l.Ordinal,
			Attempt:   l.Attempt,
			Template:  l.Template,
			Hash:      l.Hash,
			Count:     int(l.Count),
			IDs:       slices.Clone(l.InstanceIDs),
			Since:     l.Since.Time,
		})
	}
	return out, p.Status.LastOrdinal
}

// setLaunches is the opposite of launchesOf.
func setLaunches(p *v1alpha1.NodePool, launches []cloud.LaunchIntent, ordinal int64) {
	p.Status.Launches, p.Status.LastOrdinal = nil, ordinal
	for _, l := range launches {
		p.Status.Launches = append(p.Status.Launches, v1alpha1.Launch{
			Operation:   l.Operation,
			Ordinal:     l.Ordinal,
			Attempt:     l.Attempt,
			Template:    l.Template,
			Hash:        l.Hash,
			Count:       int32(l.Count), //nolint:gosec // at most 1000
			InstanceIDs: l.IDs,
			Since:       metav1.NewTime(l.Since),
		})
	}
}

// copyOf returns a pool whose status can be changed without the other's.
func copyOf(p *v1alpha1.NodePool) *v1alpha1.NodePool {
	c := *p
	c.ObjectMeta = *p.DeepCopy()
	c.Status.Launches, c.Status.Conditions = slices.Clone(p.Status.Launches), slices.Clone(p.Status.Conditions)
	c.Status.Regions, c.Status.PodAssignments = slices.Clone(p.Status.Regions), slices.Clone(p.Status.PodAssignments)
	return &c
}
