package buffers_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed-9e1ffd66/trueup/cloud/demand"
	"github.com/seed-9e1ffd66/trueup/cloud/kube/buffers"
)

const zoneLabel = "topology.kubernetes.io/zone"

func TestABufferAsksForANumberOfPods(t *testing.T) {
	t.Parallel()
	pod := demand.Pod{Requests: demand.Resources{CPU: 1500, Memory: 2 << 30, Extended: map[string]int64{"example.com/gpu": 1}}}
	limits := func(list ...string) corev1.ResourceList {
		out := corev1.ResourceList{}
		for i := 0; i < len(list); i += 2 {
			out[corev1.ResourceName(list[i])] = resource.MustParse(list[i+1])
		}
		return out
	}
	scalable := &buffers.ScalableRef{APIGroup: "apps", Kind: "Deployment", Name: "web"}
	for name, c := range map[string]struct {
		spec    buffers.Spec
		current int32
		units   int32
		limited string
		wrong   string
	}{
		"replicas":              {spec: buffers.Spec{Replicas: new(int32(4))}, units: 4},
		"no replicas":           {spec: buffers.Spec{Replicas: new(int32(0))}},
		"less than none":        {spec: buffers.Spec{Replicas: new(int32(-1))}},
		"a share is rounded up": {spec: buffers.Spec{ScalableRef: scalable, Percentage: new(int32(20))}, current: 11, units: 3},
		"and at least one":      {spec: buffers.Spec{ScalableRef: scalable, Percentage: new(int32(1))}, current: 0, units: 1},
		"unless it is none":     {spec: buffers.Spec{ScalableRef: scalable, Percentage: new(int32(0))}, current: 9},
		"more than all":         {spec: buffers.Spec{ScalableRef: scalable, Percentage: new(int32(250))}, current: 4, units: 10},
		"a share of very many":  {spec: buffers.Spec{ScalableRef: scalable, Percentage: new(int32(1 << 30))}, current: 1 << 30, units: 1<<31 - 1},
		"the larger of both":    {spec: buffers.Spec{ScalableRef: scalable, Percentage: new(int32(50)), Replicas: new(int32(3))}, current: 10, units: 5},
		"limits cut it off": {
			spec: buffers.Spec{Replicas: new(int32(9)), Limits: limits("cpu", "7", "memory", "1Ti")}, units: 4,
			limited: "spec.limits.cpu: is 7, which allows 4 of 9 pods",
		},
		"limits alone":              {spec: buffers.Spec{Limits: limits("memory", "9Gi", "cpu", "100")}, units: 4},
		"limits of other resources": {spec: buffers.Spec{Limits: limits("example.com/gpu", "2")}, units: 2},
		"limits below one pod": {
			spec:    buffers.Spec{Replicas: new(int32(9)), Limits: limits("cpu", "100m")},
			limited: "spec.limits.cpu: is 100m, which allows 0 of 9 pods",
		},
		"no limit at all": {
			spec:    buffers.Spec{Replicas: new(int32(9)), Limits: limits("cpu", "0")},
			limited: "spec.limits.cpu: is 0, which allows 0 of 9 pods",
		},
		"limits below nothing": {
			spec:  buffers.Spec{Replicas: new(int32(9)), Limits: limits("cpu", "-1")},
			wrong: "spec.limits.cpu: is -1, must not be negative",
		},
		"of what is not requested": {
			spec:  buffers.Spec{Replicas: new(int32(9)), Limits: limits("ephemeral-storage", "-5")},
			wrong: "spec.limits.ephemeral-storage: is -5, must not be negative",
		},
		"limits beyond all numbers": {
			spec: buffers.Spec{Replicas: new(int32(9)), Limits: limits("cpu", "1e30", "memory", "1e30")}, units: 9,
		},
		"processors beyond all numbers": {
			spec: buffers.Spec{Replicas: new(int32(9)), Limits: limits("cpu", "9223372036854775807")}, units: 9,
		},
		"very many processors": {spec: buffers.Spec{Replicas: new(int32(9)), Limits: limits("cpu", "1e16")}, units: 9},
		"many processors":      {spec: buffers.Spec{Replicas: new(int32(9)), Limits: limits("cpu", "1e15")}, units: 9},
		"and memory that is little": {
			spec: buffers.Spec{Replicas: new(int32(9)), Limits: limits("cpu", "1e16", "memory", "5Gi")}, units: 2,
			limited: "spec.limits.memory: is 5Gi, which allows 2 of 9 pods",
		},
		"beyond all numbers alone":        {spec: buffers.Spec{Limits: limits("memory", "1e30")}, units: 1<<31 - 1},
		"limits of what is not requested": {spec: buffers.Spec{Replicas: new(int32(2)), Limits: limits("ephemeral-storage", "1")}, units: 2},
		"which alone say nothing": {
			spec: buffers.Spec{Limits: limits("ephemeral-storage", "1")}, wrong: "spec.limits: bounds [ephemeral-storage]",
		},
		"nothing":            {spec: buffers.Spec{ScalableRef: scalable}, wrong: "spec.replicas: is not set"},
		"a share of nothing": {spec: buffers.Spec{Replicas: new(int32(2)), Percentage: new(int32(2))}, wrong: "spec.percentage: must not be set without spec.scalableRef"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := buffers.CapacityBuffer{Spec: c.spec}
			units, limited, err := b.Units(&pod, c.current)
			if c.wrong != "" {
				require.ErrorContains(t, err, c.wrong)
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.units, units)
			require.Equal(t, c.limited, limited)
		})
	}
}

func TestABufferNamesOneTemplate(t *testing.T) {
	t.Parallel()
	template, deployment := &buffers.TemplateRef{Name: "t"}, &buffers.ScalableRef{APIGroup: "apps", Kind: "Deployment", Name: "d"}
	for want, spec := range map[string]buffers.Spec{
		"spec.podTemplateRef: is not set":                     {},
		"spec.scalableRef: must not be set beside":            {PodTemplateRef: template, ScalableRef: deployment},
		`spec.scalableRef: is a Job of the group "batch"`:     {ScalableRef: &buffers.ScalableRef{APIGroup: "batch", Kind: "Job", Name: "j"}},
		`spec.scalableRef: is a Deployment of the group "xx"`: {ScalableRef: &buffers.ScalableRef{APIGroup: "xx", Kind: "Deployment", Name: "j"}},
	} {
		_, _, err := (&buffers.CapacityBuffer{Spec: spec}).Reference()
		require.ErrorContains(t, err, want)
		_, ok := errors.AsType[*buffers.Error](err)
		require.True(t, ok)
	}
	_, got, err := (&buffers.CapacityBuffer{Spec: buffers.Spec{ScalableRef: deployment}}).Reference()
	require.NoError(t, err)
	require.Equal(t, deployment, got)
}

func TestABufferOfAnotherStrategyIsNotOurs(t *testing.T) {
	t.Parallel()
	const strategy = "buffer.example.com/standby-capacity"
	c := &buffers.Controller{Strategy: strategy}
	for other, ours := range map[string]bool{strategy: true, "": false, "buffer.x-k8s.io/active-capacity": false, "buffer.gke.io/standby-capacity": false} {
		require.Equal(t, ours, c.Serves(&buffers.CapacityBuffer{Spec: buffers.Spec{ProvisioningStrategy: other}}), other)
	}
	gone := buffers.CapacityBuffer{
		ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &metav1.Time{Time: time.Now()}},
		Spec:       buffers.Spec{ProvisioningStrategy: strategy},
	}
	require.False(t, c.Serves(&gone))
}

// site is a machine with four cores.
func site(id, zone string) *demand.Node {
	return &demand.Node{
		Name:        "node-" + id,
		Machine:     id,
		Labels:      map[string]string{zoneLabel: "zone-" + zone, "kubernetes.io/hostname": "node-" + id},
		Allocatable: demand.Resources{CPU: 4000, Memory: 16 << 30, Pods: 110},
	}
}

// pool has machines such as "a" and "b" for the zones they are in, and room for more.
func pool(name string, room int, machines ...string) buffers.Stock {
	p := buffers.Stock{Supply: demand.Supply{Pool: name, MaxLaunches: room}}
	for i, zone := range machines {
		p.Standby = append(p.Standby, site(fmt.Sprintf("%s-%d", name, i), zone))
	}
	for _, zone := range []string{"a", "b"} {
		p.Templates = append(p.Templates, demand.NodeTemplate{Name: "subnet-" + zone, Node: *site("", zone)})
	}
	p.Every = p.Templates
	return p
}

func pods(name string, cpu int64, units int32) buffers.Ask {
	return buffers.Ask{
		Key:   types.NamespacedName{Namespace: "default", Name: name},
		Units: units,
		Pod:   &demand.Pod{Namespace: "default", Name: name, Requests: demand.Resources{CPU: cpu}},
	}
}

// ready has all standby machines of the pools on standby.
func ready(in *buffers.Input) {
	in.Ready = map[string]bool{}
	for _, p := range in.Pools {
		for _, n := range p.Standby {
			in.Ready[n.Machine] = true
		}
	}
}

func TestBuffersTakeMachines(t *testing.T) {
	t.Parallel()
	inZone := func(a buffers.Ask, zone string) buffers.Ask {
		a.Pod.NodeSelector = map[string]string{zoneLabel: "zone-" + zone}
		return a
	}
	for name, c := range map[string]struct {
		in       buffers.Input
		standby  map[string]map[string]int
		outcomes []string
	}{
		"as many as their pods need": {
			in:       buffers.Input{Buffers: []buffers.Ask{pods("web", 1500, 4)}, Pools: []buffers.Stock{pool("p", 5)}},
			standby:  map[string]map[string]int{"p": {"": 2}},
			outcomes: []string{"buffer default/web: 4 of 4 pods have room on standby machines: 2 of pool p, 4 of them once these have warmed up"},
		},
		"those that are there first, wherever they are": {
			in:       buffers.Input{Buffers: []buffers.Ask{pods("web", 1500, 4)}, Pools: []buffers.Stock{pool("p", 5, "a", "b")}},
			standby:  map[string]map[string]int{"p": {"": 2}},
			outcomes: []string{"buffer default/web: 4 of 4 pods have room on standby machines: 2 of pool p"},
		},
		"of a zone if the pods are": {
			in:       buffers.Input{Buffers: []buffers.Ask{inZone(pods("web", 4000, 2), "b"), pods("any", 4000, 1)}, Pools: []buffers.Stock{pool("p", 5, "a", "b")}},
			standby:  map[string]map[string]int{"p": {"subnet-b": 2, "": 1}},
			outcomes: []string{"buffer default/web: 2 of 2 pods have room on standby machines: 2 of pool p, 1 of them once these have warmed up", "buffer default/any: 1 of 1 pods have room on standby machines: 1 of pool p"},
		},
		"two share one": {
			in:       buffers.Input{Buffers: []buffers.Ask{pods("x", 1000, 2), pods("y", 1000, 2)}, Pools: []buffers.Stock{pool("p", 5)}},
			standby:  map[string]map[string]int{"p": {"": 1}},
			outcomes: []string{"buffer default/x: 2 of 2 pods have room on standby machines: 1 of pool p, 2 of them once these have warmed up", "buffer default/y: 2 of 2 pods have room on standby machines: 1 of pool p, 2 of them once these have warmed up"},
		},
		"no more than the pool has room for": {
			in:       buffers.Input{Buffers: []buffers.Ask{pods("web", 4000, 4)}, Pools: []buffers.Stock{pool("p", 1, "a")}},
			standby:  map[string]map[string]int{"p": {"": 2}},
			outcomes: []string{"buffer default/web: 2 of 4 pods have room on standby machines: 2 of pool p, 1 of them once these have warmed up; pool p: all 1 standby machines and 1 launches are taken"},
		},
		"the rest of another pool": {
			in:       buffers.Input{Buffers: []buffers.Ask{pods("web", 4000, 3)}, Pools: []buffers.Stock{pool("p", 1, "a"), pool("q", 1)}},
			standby:  map[string]map[string]int{"p": {"": 2}, "q": {"": 1}},
			outcomes: []string{"buffer default/web: 3 of 3 pods have room on standby machines: 2 of pool p, 1 of pool q, 2 of them once these have warmed up"},
		},
		"none for a pod that is too large": {
			in:       buffers.Input{Buffers: []buffers.Ask{pods("web", 100_000, 1)}, Pools: []buffers.Stock{pool("p", 1)}},
			outcomes: []string{"buffer default/web: 0 of 1 pods have room; pool p: needs 100 cpu, the largest machine has 4 cpu"},
		},
		"none without a pool": {
			in:       buffers.Input{Buffers: []buffers.Ask{pods("web", 1000, 1)}},
			outcomes: []string{"buffer default/web: 0 of 1 pods have room; there is no pool"},
		},
		"none for what cannot be known": {
			in: buffers.Input{Buffers: []buffers.Ask{func() buffers.Ask {
				a := pods("web", 1000, 1)
				a.Pod.Unmodelled = []string{"a volume lives in a zone"}
				return a
			}()}, Pools: []buffers.Stock{pool("p", 1)}},
			outcomes: []string{"buffer default/web: 0 of 1 pods have room; a volume lives in a zone"},
		},
		"away from pods that run": {
			in: buffers.Input{
				Buffers: []buffers.Ask{func() buffers.Ask {
					a := pods("web", 1000, 1)
					a.Pod.Labels = map[string]string{"app": "web"}
					a.Pod.AntiAffinity = []demand.PodTerm{{TopologyKey: zoneLabel, Selector: demand.Selector{{Key: "app", Operator: demand.In, Values: []string{"web"}}}}}
					return a
				}()},
				Pools: []buffers.Stock{pool("p", 5, "a")},
				Nodes: []*demand.Node{func() *demand.Node {
					n := site("running", "a")
					n.Pods = []*demand.Pod{{Namespace: "default", Name: "one", Labels: map[string]string{"app": "web"}}}
					return n
				}()},
			},
			standby:  map[string]map[string]int{"p": {"subnet-b": 1}},
			outcomes: []string{"buffer default/web: 1 of 1 pods have room on standby machines: 1 of pool p, 1 of them once these have warmed up"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ready(&c.in)
			if c.standby == nil {
				c.standby = map[string]map[string]int{}
			}
			r := buffers.Plan(c.in)
			require.Empty(t, cmp.Diff(c.standby, r.Standby))
			var got []string
			for _, o := range r.Outcomes {
				got = append(got, o.String())
			}
			require.Equal(t, c.outcomes, got)
		})
	}
}

// TestAMachineThatWarmsUpIsNotReady: it counts, and the buffer is not Ready.
func TestAMachineThatWarmsUpIsNotReady(t *testing.T) {
	t.Parallel()
	in := buffers.Input{
		Buffers: []buffers.Ask{pods("web", 4000, 2)},
		Pools:   []buffers.Stock{pool("p", 0, "a", "a")},
		Ready:   map[string]bool{"p-0": true},
	}
	in.Buffers[0].Generation = 3
	o := buffers.Plan(in).Outcomes[0]
	require.Equal(t, [3]int32{1, 1, 0}, [3]int32{o.Ready, o.Coming, o.Missing})
	var s buffers.Status
	s.Report(&buffers.TemplateRef{Name: "t"}, o)
	require.True(t, meta.IsStatusConditionTrue(s.Conditions, buffers.ConditionProvisioning))
	require.Equal(t, "WarmingUp", meta.FindStatusCondition(s.Conditions, buffers.ConditionReady).Reason)
	require.Equal(t, int32(2), *s.Replicas)
	require.Equal(t, int64(3), *s.PodTemplateGeneration)
	s.Refuse(&buffers.Error{Reason: "PodTemplateNotFound", Message: "gone"})
	require.Nil(t, s.Replicas)
	require.Nil(t, s.PodTemplateRef)
	for _, kind := range buffers.Conditions() {
		require.Equal(t, "PodTemplateNotFound", meta.FindStatusCondition(s.Conditions, kind).Reason)
	}
}

// TestALimitThatCutsABufferIsNamed in each condition, also where no pod is left.
func TestALimitThatCutsABufferIsNamed(t *testing.T) {
	t.Parallel()
	a := pods("web", 2000, 0)
	a.Limited = "spec.limits.cpu: is 100m, which allows 0 of 3 pods"
	o := buffers.Plan(buffers.Input{Buffers: []buffers.Ask{a}, Pools: []buffers.Stock{pool("p", 1)}}).Outcomes[0]
	require.Equal(t, "buffer default/web: 0 of 0 pods have room; "+a.Limited, o.String())
	var s buffers.Status
	s.Report(nil, o)
	require.Equal(t, "Limited", meta.FindStatusCondition(s.Conditions, buffers.ConditionReadyForProvisioning).Reason)
	for _, kind := range buffers.Conditions() {
		require.Contains(t, meta.FindStatusCondition(s.Conditions, kind).Message, a.Limited, kind)
	}
}

func TestAVeryLargeBufferCostsNoMoreThanItsBound(t *testing.T) {
	t.Parallel()
	in := buffers.Input{Buffers: []buffers.Ask{pods("web", 1, 1<<31-1)}, Pools: []buffers.Stock{pool("p", 1000)}}
	o := buffers.Plan(in).Outcomes[0]
	require.Equal(t, int32(buffers.MaxUnits), o.Coming)
	require.Contains(t, o.String(), "at most 20000 are planned for")
}

// TestANewerBufferTakesNothingFromOlderOnes adds one that asks for everything to random
// buffers and pools, of another tenant and with a name before all others.
func TestANewerBufferTakesNothingFromOlderOnes(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for round := range 500 {
		in := buffers.Input{}
		for i := range 1 + r.IntN(4) {
			a := pods(fmt.Sprint(i), int64(500+r.IntN(4000)), int32(r.IntN(6))) //nolint:gosec // small
			a.Created = time.Unix(int64(r.IntN(3)), 0)
			in.Buffers = append(in.Buffers, a)
		}
		for i := range 1 + r.IntN(2) {
			var machines []string
			for range r.IntN(9) {
				machines = append(machines, []string{"a", "b"}[r.IntN(2)])
			}
			in.Pools = append(in.Pools, pool(fmt.Sprint(i), r.IntN(4), machines...))
		}
		ready(&in)
		before := buffers.Plan(in).Outcomes
		newer := pods("all", int64(500+r.IntN(4000)), 200)
		newer.Key.Namespace, newer.Created = "a", time.Unix(3, 0)
		in.Buffers = slices.Insert(in.Buffers, r.IntN(len(in.Buffers)), newer)
		after := slices.DeleteFunc(buffers.Plan(in).Outcomes, func(o buffers.Outcome) bool { return o.Ask.Key.Name == "all" })
		for i := range before {
			require.Equal(t, before[i].Missing, after[i].Missing, "round %d: %s was %s", round, after[i], before[i])
			require.Equal(t, before[i].Ready, after[i].Ready, "round %d: %s was %s", round, after[i], before[i])
		}
	}
}

// TestAPlanIsBoundedAndItsEndIsAPlanOfItself makes random buffers and pools. No pool is
// asked for more machines than it has and has room for, each pod is accounted for, and a
// pool that has the machines it was asked for is asked for the same number again.
func TestAPlanIsBoundedAndItsEndIsAPlanOfItself(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for round := range 500 {
		in := buffers.Input{}
		for i := range 1 + r.IntN(4) {
			a := pods(fmt.Sprint(i), int64(500+r.IntN(4000)), int32(r.IntN(12))) //nolint:gosec // small
			if r.IntN(3) == 0 {
				a.Pod.NodeSelector = map[string]string{zoneLabel: []string{"zone-a", "zone-b"}[r.IntN(2)]}
			}
			in.Buffers = append(in.Buffers, a)
		}
		for i := range 1 + r.IntN(2) {
			var machines []string
			for range r.IntN(5) {
				machines = append(machines, []string{"a", "b"}[r.IntN(2)])
			}
			in.Pools = append(in.Pools, pool(fmt.Sprint(i), r.IntN(8), machines...))
		}
		ready(&in)
		first := buffers.Plan(in)
		for i, o := range first.Outcomes {
			require.Equal(t, in.Buffers[i].Units, o.Ready+o.Coming+o.Missing, "round %d", round)
		}
		for i := range in.Pools {
			p := &in.Pools[i]
			total := 0
			for _, n := range first.Standby[p.Pool] {
				total += n
			}
			require.LessOrEqual(t, total, len(p.Standby)+p.MaxLaunches, "round %d", round)
			// The pool launches what it lacks, as cloud.Pool does.
			have := map[string]int{}
			for _, n := range p.Standby {
				have["subnet-"+n.Labels[zoneLabel][len("zone-"):]]++
			}
			launch := func(subnet string) {
				p.Standby = append(p.Standby, site(fmt.Sprintf("%d-new-%d", i, len(p.Standby)), subnet[len("subnet-"):]))
				have[subnet]++
				p.MaxLaunches--
			}
			for _, subnet := range []string{"subnet-a", "subnet-b"} {
				for have[subnet] < first.Standby[p.Pool][subnet] {
					launch(subnet)
				}
			}
			for len(p.Standby) < total {
				launch([]string{"subnet-a", "subnet-b"}[r.IntN(2)])
			}
			require.GreaterOrEqual(t, p.MaxLaunches, 0, "round %d", round)
		}
		ready(&in)
		second := buffers.Plan(in)
		for i, o := range second.Outcomes {
			require.Zero(t, o.Coming, "round %d: %s was %s", round, o, first.Outcomes[i])
			require.Equal(t, first.Outcomes[i].Missing, o.Missing, "round %d", round)
		}
	}
}
