package sim_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cloud"
	"github.com/seed-9e1ffd66/trueup/cloud/demand"
)

// planted are defects of programs in the field that concern machines. Each is put
// between the parts of package cloud, or in the place of one.
var planted = map[string]func(*Pool){
	"a launch without a token": func(p *Pool) {
		p.Executor.Provider = &tokenless{Provider: p.Provider}
	},
	"a launch that is not recorded before the call": func(p *Pool) {
		p.Executor.Journal = unwritten{}
	},
	"an empty list is believed": func(p *Pool) {
		see := &blind{Provider: p.Provider}
		p.Executor.Provider = see
		p.Observe = func(ctx context.Context) cloud.Observed { return p.Cluster.Observe(ctx, see, p.Memory) }
		p.Pass = p.PassWith(forgetMissing)
	},
	"a failed list is an empty list": func(p *Pool) {
		see := &blind{Provider: p.Provider}
		p.Executor.Provider = see
		p.Observe = func(ctx context.Context) cloud.Observed {
			seen := p.Cluster.Observe(ctx, see, p.Memory)
			seen.ListError = nil
			return seen
		}
		p.Pass = p.PassWith(forgetMissing)
	},
	"every machine over its runtime is drained at once": func(p *Pool) {
		p.Spec.MaxRuntime = 30 * time.Minute
		p.Pass = p.PassWith(func(plan *cloud.Plan, seen cloud.Observed) {
			for _, n := range seen.Nodes {
				if n.State == cloud.StateRunning && !n.LastStarted.IsZero() && time.Since(n.LastStarted) > p.Spec.MaxRuntime {
					plan.Actions = append(plan.Actions, cloud.Action{
						Verb: cloud.Stop, Machine: n.ID, Node: n.Name, From: n.State, To: n.State,
					})
				}
			}
		})
	},
	"starts are limited to standby": func(p *Pool) {
		want := p.Want
		p.Want = func(pool cloud.Pool, seen cloud.Observed) func(cloud.Memory) cloud.Want {
			inner := want(pool, seen)
			return func(m cloud.Memory) cloud.Want { return cloud.Want{Start: inner(m).Start} }
		}
	},
	"needs are the sum of requests": func(p *Pool) {
		p.Want = func(pool cloud.Pool, seen cloud.Observed) func(cloud.Memory) cloud.Want {
			inner := p.Cluster.Want(pool, seen)
			return func(m cloud.Memory) cloud.Want {
				want := inner(m)
				var sum int64
				for _, pod := range p.Cluster.Pending() {
					sum += pod.Requests.CPU
				}
				need := int(sum+3999) / 4000
				for _, n := range seen.Nodes {
					if n.State == cloud.StateRunning && !n.Ready {
						need--
					}
				}
				want.Start = want.Start[:max(0, min(len(want.Start), need))]
				want.Launch = nil
				return want
			}
		}
	},
	"the overhead of DaemonSets is ignored": func(p *Pool) {
		p.Cluster.Overhead = demand.Resources{CPU: 1000}
		p.Want = func(pool cloud.Pool, seen cloud.Observed) func(cloud.Memory) cloud.Want {
			inner := p.Cluster.Want(pool, seen)
			return func(m cloud.Memory) cloud.Want {
				p.Cluster.Overhead = demand.Resources{}
				defer func() { p.Cluster.Overhead = demand.Resources{CPU: 1000} }()
				return inner(m)
			}
		}
	},
	"a Node is opened before its machine is started": func(p *Pool) {
		p.Pass = p.PassWith(func(plan *cloud.Plan, _ cloud.Observed) {
			for i, a := range plan.Actions {
				if a.Verb == cloud.Start {
					plan.Actions[i].Verb = cloud.GiveUp // marks it running, and calls nothing
				}
			}
		})
	},
	"standby is written before the cloud has stopped": func(p *Pool) {
		p.Executor.Provider = &optimist{Provider: p.Provider}
		p.Pass = p.PassWith(func(plan *cloud.Plan, _ cloud.Observed) {
			for i, a := range plan.Actions {
				if a.Verb == cloud.Stop && a.From == cloud.StateTerminating {
					plan.Actions[i].Verb, plan.Actions[i].To = cloud.Shelve, cloud.StateStandby
				}
			}
		})
	},
	"machines are stopped without a drain": func(p *Pool) {
		p.Pass = p.PassWith(func(plan *cloud.Plan, _ cloud.Observed) {
			for i, a := range plan.Actions {
				if a.Verb == cloud.Drain {
					plan.Actions[i].Verb = cloud.Stop
				}
			}
		})
	},
	"a crash between start and label is never repaired": func(p *Pool) {
		p.Pass = p.PassWith(func(plan *cloud.Plan, _ cloud.Observed) {
			plan.Actions = slices.DeleteFunc(plan.Actions, func(a cloud.Action) bool { return a.Verb == cloud.Open })
		})
	},
	"a machine that is not ready for a moment is taken for one that never was": func(p *Pool) {
		p.Observe = observing(p, func(n *cloud.NodeStatus) { n.Starting = n.State == cloud.StateRunning })
	},
	"a taint of the cloud hides a standby machine": func(p *Pool) {
		p.Cluster.Passing = func(demand.Taint) bool { return false }
	},
	"the clock of a machine is compared with another": func(p *Pool) {
		p.Observe = observing(p, func(n *cloud.NodeStatus) {
			if p.Cluster.Heard(n.ID).Before(n.LastStarted) {
				n.Ready, n.NetworkReady, n.Starting = false, false, true
			}
		})
	},
	"a write on every pass": func(p *Pool) {
		p.Pass = p.PassWith(func(plan *cloud.Plan, seen cloud.Observed) {
			for _, n := range seen.Nodes {
				if n.State == cloud.StateStandby {
					plan.Actions = append(plan.Actions, cloud.Action{Verb: cloud.Retag, Machine: n.ID, Node: n.Name, From: n.State, To: n.State})
				}
			}
		})
	},
	"a pod on the Node of a stopped machine is not seen": func(p *Pool) {
		observe := p.Observe
		p.Observe = func(ctx context.Context) cloud.Observed {
			seen := observe(ctx)
			for i := range seen.Nodes {
				seen.Nodes[i].Waiting = 0
			}
			return seen
		}
	},
	"a stale view after an own write": func(p *Pool) {
		observe := p.Observe
		var last []cloud.LaunchIntent
		p.Observe = func(ctx context.Context) cloud.Observed {
			seen := observe(ctx)
			seen.Launches, last = last, seen.Launches
			return seen
		}
	},
	"a zone without capacity blocks all": func(p *Pool) {
		want := p.Want
		p.Want = func(pool cloud.Pool, seen cloud.Observed) func(cloud.Memory) cloud.Want {
			inner := want(pool, seen)
			return func(m cloud.Memory) cloud.Want {
				if len(m.Blocked) > 0 {
					return cloud.Want{}
				}
				return inner(m)
			}
		}
		p.Pass = p.PassWith(func(plan *cloud.Plan, _ cloud.Observed) {
			if len(plan.Memory.Blocked) > 0 {
				plan.Memory.LaunchAfter = time.Now().Add(24 * time.Hour)
			}
		})
	},
	"a machine that never joined counts as standby": func(p *Pool) {
		observe := p.Observe
		p.Observe = func(ctx context.Context) cloud.Observed {
			seen := observe(ctx)
			for i := range seen.Nodes {
				seen.Nodes[i].Attestation = cloud.AttestedReady
			}
			return seen
		}
	},
	"a good machine is terminated when its list is old": func(p *Pool) {
		p.Pass = p.PassWith(func(plan *cloud.Plan, _ cloud.Observed) {
			for i, a := range plan.Actions {
				if a.Verb == cloud.ForceStop || a.Verb == cloud.GiveUp {
					plan.Actions[i].Verb, plan.Actions[i].To = cloud.Terminate, a.From
				}
			}
		})
	},
}

// TestPlantedDefectsAreFound plants each defect, and simulates until something is
// wrong.
func TestPlantedDefectsAreFound(t *testing.T) {
	if testing.Short() {
		t.Skip("long: many histories of each defect")
	}
	t.Parallel()
	const most = 300
	var found atomic.Int64
	t.Run("defects", func(t *testing.T) {
		for name, plant := range planted {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				for seed := uint64(1); seed <= most; seed++ {
					if wrong, _ := history(t, seed, plant); len(wrong) > 0 {
						t.Logf("seed %d: %s", seed, wrong[0])
						found.Add(1)
						return
					}
				}
				require.Fail(t, "not found", "%d histories passed", most)
			})
		}
	})
	fmt.Printf("figure pool_planted_found %d of %d\n", found.Load(), len(planted))
}

// TestNothingPlantedIsNotFound is the control: what the plants are made of changes
// nothing by itself.
func TestNothingPlantedIsNotFound(t *testing.T) {
	if testing.Short() {
		t.Skip("long: many histories")
	}
	t.Parallel()
	for seed := uint64(1); seed <= 100; seed++ {
		wrong, _ := history(t, seed, func(p *Pool) { p.Pass = p.PassWith(func(*cloud.Plan, cloud.Observed) {}) })
		require.Empty(t, wrong, "seed %d", seed)
	}
}

// observing returns what a pass begins with, with a change of each running Node.
func observing(p *Pool, change func(*cloud.NodeStatus)) func(context.Context) cloud.Observed {
	observe := p.Observe
	return func(ctx context.Context) cloud.Observed {
		seen := observe(ctx)
		for i := range seen.Nodes {
			if seen.Nodes[i].State == cloud.StateRunning {
				change(&seen.Nodes[i])
			}
		}
		return seen
	}
}

func forgetMissing(plan *cloud.Plan, seen cloud.Observed) {
	there := map[string]bool{}
	for _, i := range seen.Instances {
		there[i.ID] = true
	}
	for _, n := range seen.Nodes {
		if !there[n.ID] {
			plan.Actions = append(plan.Actions, cloud.Action{Verb: cloud.Forget, Machine: n.ID, Node: n.Name})
		}
	}
}

// tokenless launches with a token of its own each time.
type tokenless struct {
	*Provider
	n int64
}

func (l *tokenless) LaunchInstances(ctx context.Context, config cloud.LaunchConfig, count int) ([]cloud.Instance, error) {
	l.n++
	config.Token = cloud.Token("random", l.n, 0)
	return l.Provider.LaunchInstances(ctx, config, count)
}

// blind believes that a machine is gone which the last list did not have.
type blind struct {
	*Provider
	listed map[string]bool
}

func (b *blind) ListInstances(ctx context.Context, tags map[string]string) ([]cloud.Instance, error) {
	out, err := b.Provider.ListInstances(ctx, tags)
	b.listed = map[string]bool{}
	for _, i := range out {
		b.listed[i.ID] = true
	}
	return out, err
}

func (b *blind) GetInstances(ctx context.Context, ids []string) (map[string]cloud.Instance, error) {
	found, err := b.Provider.GetInstances(ctx, ids)
	maps.DeleteFunc(found, func(id string, _ cloud.Instance) bool { return !b.listed[id] })
	return found, err
}

// optimist reports every machine as what it is about to be.
type optimist struct{ *Provider }

func (o *optimist) GetInstances(ctx context.Context, ids []string) (map[string]cloud.Instance, error) {
	found, err := o.Provider.GetInstances(ctx, ids)
	for id, i := range found {
		if i.State == cloud.InstanceRunning {
			i.State = cloud.InstanceStopped
			found[id] = i
		}
	}
	return found, err
}

// unwritten loses what is recorded.
type unwritten struct{}

func (unwritten) Record(context.Context, cloud.LaunchIntent) error { return nil }
func (unwritten) Erase(context.Context, string) error              { return nil }
