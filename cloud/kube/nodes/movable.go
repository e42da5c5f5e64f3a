package nodes

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed-9e1ffd66/trueup/cloud"
	"github.com/seed-9e1ffd66/trueup/cloud/demand"
	"github.com/seed-9e1ffd66/trueup/cloud/kube"
)

// budget is what is read of a PodDisruptionBudget.
type budget struct {
	selector labels.Selector
	open     bool // it allows an eviction now
}

// SawBudget stores a PodDisruptionBudget, which is nil if it is deleted.
func (c *Cluster) SawBudget(key types.NamespacedName, b *policyv1.PodDisruptionBudget) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if b == nil {
		delete(c.budgets, key)
		return
	}
	selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
	if err != nil {
		selector = labels.Everything() // what it is for is not known: it keeps all
	}
	c.budgets[key] = budget{selector, err == nil && b.Status.DisruptionsAllowed > 0}
}

// SawBudgets says that all PodDisruptionBudgets that there are were stored. Until then no pod is
// movable.
func (c *Cluster) SawBudgets() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.budgetsKnown = true
}

// SeenBudgets returns how many PodDisruptionBudgets are stored.
func (c *Cluster) SeenBudgets() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.budgets)
}

// forbids returns why an eviction of a pod would be refused now, empty if it would not: by its
// only budget, or because the server refuses pods of several ones.
func (c *Cluster) forbids(key types.NamespacedName, p *PodView) string {
	var names []string
	closed := false
	for of, b := range c.budgets {
		if of.Namespace == key.Namespace && b.selector.Matches(labels.Set(p.Pod.Labels)) {
			names = append(names, of.Name)
			closed = closed || !b.open
		}
	}
	slices.Sort(names)
	switch {
	case !c.budgetsKnown:
		return "the PodDisruptionBudgets are not read yet"
	case len(names) > 1:
		return "it has several PodDisruptionBudgets: " + strings.Join(names, ", ")
	case closed:
		return "PodDisruptionBudget " + names[0] + " allows no eviction now"
	default:
		return ""
	}
}

// ForMoves returns the Snapshot for [demand.Vacate]: pods and nodes state the volumes of all
// drivers, not of those alone that waiting pods need.
func (s Snapshot) ForMoves() Snapshot {
	s.drivers = map[string]bool{}
	for _, p := range s.c.pods {
		if p.Pod == nil || len(p.claims) == 0 {
			continue
		}
		for resource := range s.c.volumes.attach(&p).Requests.Extended {
			if strings.HasPrefix(resource, kube.AttachLimit("")) {
				s.drivers[resource] = true
			}
		}
	}
	return s
}

// Movable returns the pods that have to be evicted from a Node before its machine is stopped, or
// why one of them must not be without need: it asks for that, has no controller that makes
// another, is on its way to the Node or from it, or its PodDisruptionBudget forbids it now.
func (s Snapshot) Movable(node string) (pods []*demand.Pod, kept string) {
	if coming := s.coming[node]; len(coming) > 0 {
		return nil, fmt.Sprintf("pod %s/%s is about to be bound to it", coming[0].Pod.Namespace, coming[0].Pod.Name)
	}
	keys := make([]types.NamespacedName, 0, len(s.c.onNode[node]))
	for key := range s.c.onNode[node] {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, compareNames)
	for _, key := range keys {
		p := s.c.pods[key]
		if !p.evicted {
			continue
		}
		var why string
		switch {
		case p.kept:
			why = "it asks not to be disrupted"
		case p.stays:
			why = "it tolerates the taint of stopped machines, and would start one"
		case !p.replaced:
			why = "it has no ReplicaSet, StatefulSet or ReplicationController that makes another"
		case p.terminating:
			why = "it is being deleted"
		default:
			why = s.c.forbids(key, &p)
		}
		if why != "" {
			return nil, fmt.Sprintf("pod %s: %s", key, why)
		}
		pods = append(pods, s.c.volumes.attach(&p))
	}
	return pods, ""
}

// Coming returns the pods that need a place on a Node now or soon: those that are bound to none,
// whether or not the scheduler has looked at them, and those on machines that are being emptied.
// Pods with scheduling gates are left out. It contains what [Snapshot.Waiting] returns.
func (s Snapshot) Coming() []*demand.Pod {
	var pods []*demand.Pod
	for _, key := range slices.SortedFunc(maps.Keys(s.c.pods), compareNames) {
		p := s.c.pods[key]
		switch emptied := s.c.nodes[p.Node].Status.State == cloud.StateTerminating; {
		case p.Pod == nil:
		case p.Node == "" && !p.terminating && !p.gated, emptied && p.evicted:
			pod := *s.c.volumes.attach(&p)
			pod.Terminating = false // another one comes
			pods = append(pods, &pod)
		}
	}
	return pods
}
