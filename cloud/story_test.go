package cloud_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cloud"
	"github.com/seed-9e1ffd66/trueup/cloud/cloudtest"
	"github.com/seed-9e1ffd66/trueup/cloud/demand"
	"github.com/seed-9e1ffd66/trueup/internal/test/storytest"
)

// TestStoriesOfAPool runs testdata/*.txtar in virtual time: a pool, a cloud and a cluster in
// memory. The commands:
//
//	pool NAME=VALUE...     its settings: size, standby, emptyttl, maxruntime, zones (a,b,c)
//	pods COUNT DURATION    so many pods that each need most of a machine, for that time
//	run DURATION           passes, one every 30 s; prints what they do, and why not
//	fail OPERATION ERROR   throttled, lost (carried out): how calls of it end from now on
//	room ZONE COUNT        the zone has no more machines than that
//	mend                   calls succeed again, lists are whole, zones have room
//	hide COUNT             the cloud's lists lack that many machines
//	interrupt              the cloud takes a running machine away
//	silence COUNT DURATION the Nodes of so many running machines are not ready for that time
//	crash                  the next pass begins with the memory of a new process
//	delete                 the pool is being deleted
//	machines               by state, as the cloud has them
func TestStoriesOfAPool(t *testing.T) {
	t.Parallel()
	storytest.Each(t, "testdata/*.txtar", func(t *testing.T, s *storytest.Story) { //nolint:thelper // a test
		synctest.Test(t, func(t *testing.T) { s.Play(t, newPoolStory(t).run) })
	})
}

// poolStory is a running script.
type poolStory struct {
	t        *testing.T
	began    time.Time
	fake     *cloudtest.Fake
	cluster  *cloudtest.Cluster
	executor *cloud.Executor
	pool     cloud.Pool
	memory   cloud.Memory
	faults   map[string]cloudtest.Fault
	hidden   int
	pods     int
}

func newPoolStory(t *testing.T) *poolStory {
	t.Helper()
	p := &poolStory{t: t, began: time.Now(), faults: map[string]cloudtest.Fault{}}
	scope := cloud.Scope{Domain: "example.com", Cluster: "c1", Pool: "batch", PoolUID: "0b6f"}
	p.fake = &cloudtest.Fake{
		Transition: 2 * time.Second,
		Zones:      map[string]string{"subnet-a": "a", "subnet-b": "b", "subnet-c": "c"},
		Capacity:   map[cloud.Placement]int{},
		Fault:      func(c cloudtest.Call) cloudtest.Fault { return p.faults[c.Operation] },
	}
	p.cluster = &cloudtest.Cluster{Fake: p.fake, Scope: scope}
	p.pool = cloud.Pool{Scope: scope}
	p.executor = &cloud.Executor{
		Provider: shortLists{p.fake, p}, Nodes: p.cluster, Journal: p.cluster, Parallel: 1,
		Config: func(template string) (cloud.LaunchConfig, error) {
			return cloud.LaunchConfig{ImageID: "image", InstanceType: "m5.large", SubnetID: template}, nil
		},
	}
	return p
}

// shortLists is the cloud with lists that may lack machines.
type shortLists struct {
	*cloudtest.Fake

	story *poolStory
}

func (l shortLists) ListInstances(ctx context.Context, tags map[string]string) ([]cloud.Instance, error) {
	all, err := l.Fake.ListInstances(ctx, tags)
	return all[:max(0, len(all)-l.story.hidden)], err
}

func (p *poolStory) run(line string) string {
	words := strings.Fields(line)
	command, args := words[0], words[1:]
	switch command {
	case "pool":
		for _, arg := range args {
			p.configure(arg)
		}
	case "pods":
		for range p.number(args[0]) {
			p.pods++
			p.cluster.AddPod(demand.Pod{Name: fmt.Sprint("pod-", p.pods), Requests: demand.Resources{CPU: 3000}}, p.duration(args[1]), false)
		}
	case "run":
		return p.passes(p.duration(args[0]))
	case "fail":
		require.Contains(p.t, []string{"LaunchInstance", "TerminateInstance", "StartInstance", "StopInstance", "ListInstances"}, args[0])
		p.faults[args[0]] = map[string]cloudtest.Fault{
			"throttled": {Err: &cloud.RateLimitError{RetryAfter: 10 * time.Second}},
			"lost":      {Err: errors.New("connection reset by peer"), Lost: true},
		}[args[1]]
		require.Error(p.t, p.faults[args[0]].Err)
	case "mend":
		clear(p.faults)
		clear(p.fake.Capacity)
		p.hidden = 0
	case "room":
		p.fake.Capacity[cloud.Placement{InstanceType: "m5.large", Zone: args[0]}] = p.number(args[1])
	case "hide":
		p.hidden = p.number(args[0])
	case "interrupt":
		id := p.ids(cloud.InstanceRunning)[0]
		p.cluster.Lose(id)
		require.NoError(p.t, p.fake.Interrupt(id))
	case "silence":
		for _, id := range p.ids(cloud.InstanceRunning)[:p.number(args[0])] {
			p.cluster.LoseReadiness(id, p.duration(args[1]))
		}
	case "crash":
		p.memory = cloud.Memory{}
	case "delete":
		p.pool.Deleting = true
	case "machines":
		return p.machines()
	default:
		require.Fail(p.t, "no such command", line)
	}
	return ""
}

func (p *poolStory) configure(setting string) {
	name, value, _ := strings.Cut(setting, "=")
	switch name {
	case "size":
		p.pool.Size = p.number(value)
	case "standby":
		p.pool.MinStandby = p.number(value)
	case "emptyttl":
		p.pool.EmptyTTL = p.duration(value)
	case "maxruntime":
		p.pool.MaxRuntime = p.duration(value)
	case "zones":
		p.pool.Templates = nil
		for zone := range strings.SplitSeq(value, ",") {
			p.pool.Templates = append(p.pool.Templates, cloud.Template{Name: "subnet-" + zone, InstanceType: "m5.large", Zone: zone})
		}
	default:
		require.Fail(p.t, "no such setting", setting)
	}
}

// passes are what a program does for a while. A row of passes with the same text is
// printed once.
func (p *poolStory) passes(d time.Duration) string {
	var lines []string
	last := ""
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(30 * time.Second) {
		p.cluster.Step()
		seen := p.cluster.Observe(p.t.Context(), p.executor.Provider, p.memory)
		plan, results, err := p.executor.Pass(p.t.Context(), p.pool, seen, p.cluster.Want(p.pool, seen))
		p.memory = plan.Memory
		var texts []string
		for _, r := range results {
			text := r.Action.String()
			if r.Err != nil {
				text += ": " + r.Err.Error()
			}
			texts = append(texts, text)
		}
		for _, b := range plan.Holds {
			texts = append(texts, b.String())
		}
		if err != nil && len(results) == 0 {
			texts = append(texts, err.Error())
		}
		text := strings.Join(texts, "\n")
		if text != last {
			for _, t := range texts {
				lines = append(lines, fmt.Sprintf("%s %s", time.Since(p.began), t))
			}
		}
		last = text
	}
	require.Empty(p.t, p.cluster.Wrong())
	return strings.Join(lines, "\n")
}

func (p *poolStory) ids(states ...cloud.InstanceState) (ids []string) {
	for _, i := range p.fake.Instances() {
		if slices.Contains(states, i.State) {
			ids = append(ids, i.ID)
		}
	}
	return ids
}

func (p *poolStory) machines() string {
	counts := map[cloud.InstanceState]int{}
	for _, i := range p.fake.Instances() {
		counts[i.State]++
	}
	return fmt.Sprint(counts)
}

func (p *poolStory) number(text string) int {
	n, err := strconv.Atoi(text)
	require.NoError(p.t, err)
	return n
}

func (p *poolStory) duration(text string) time.Duration {
	d, err := time.ParseDuration(text)
	require.NoError(p.t, err)
	return d
}
