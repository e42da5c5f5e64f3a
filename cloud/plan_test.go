package cloud_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cloud"
)

var (
	scope = cloud.Scope{Domain: "stratos.sh", Cluster: "c", Pool: "p", PoolUID: "u"}
	noon  = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
)

// machines makes the observed state from lines such as
//
//	i-1 standby stopped ready since=10m
//
// : id, state, state in the cloud ("-" for one that is in no list), and words
// about the Node: none, ready, attested, partly, drifted, empty=D, pods=N, waiting=N,
// started=D, starting=D, since=D, intent=verb, unready (why, after the intent),
// zone=Z, tag=state.
func machines(t *testing.T, lines string) cloud.Observed {
	t.Helper()
	seen := cloud.Observed{Listed: noon}
	for line := range strings.Lines(lines) {
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		id, state := words[0], cloud.State(words[1])
		i := cloud.Instance{
			ID:               id,
			State:            cloud.InstanceState(words[2]),
			LaunchTime:       noon.Add(-time.Hour),
			InstanceType:     "m5.large",
			AvailabilityZone: "zone-a",
			Tags:             tags(scope, state),
		}
		i.Tags[scope.Key("node")] = "node-" + id
		n := &cloud.NodeStatus{Name: "node-" + id, ID: id, State: state, Since: noon.Add(-30 * time.Minute), Attestation: cloud.AttestedReady}
		for _, word := range words[3:] {
			key, value, _ := strings.Cut(word, "=")
			ago := func() time.Time {
				d, err := time.ParseDuration(value)
				require.NoError(t, err, line)
				return noon.Add(-d)
			}
			switch key {
			case "none":
				n = nil
				delete(i.Tags, scope.Key("node"))
			case "launched":
				i.LaunchTime = ago()
			case "ready":
				n.Ready, n.NetworkReady = true, true
			case "unattested":
				n.Attestation = ""
			case "partly":
				n.Attestation = cloud.AttestedPartly
			case "drifted":
				n.Drifted = true
			case "new":
				n.State = ""
			case "empty":
				n.EmptySince = ago()
			case "started":
				n.LastStarted = ago()
			case "starting":
				n.LastStarted, n.Starting = ago(), true
			case "unready":
				n.Intent.Reason = "its Node was ready and is not any more"
			case "since":
				n.Since = ago()
			case "pods":
				_, err := fmt.Sscan(value, &n.Pods)
				require.NoError(t, err, line)
			case "waiting":
				_, err := fmt.Sscan(value, &n.Waiting)
				require.NoError(t, err, line)
				n.Pods = n.Waiting
			case "intent":
				n.Intent = cloud.Intent{Verb: cloud.Verb(value), Since: n.Since}
			case "zone":
				i.AvailabilityZone = value
			case "op":
				i.Tags[scope.Key("operation")] = value
			default:
				require.Fail(t, "unknown word", word)
			}
		}
		if i.State != "-" {
			seen.Instances = append(seen.Instances, i)
		}
		if n != nil {
			seen.Nodes = append(seen.Nodes, *n)
		}
	}
	return seen
}

func TestPlans(t *testing.T) {
	templates := []cloud.Template{
		{
			Name:         "subnet-a",
			InstanceType: "m5.large",
			Zone:         "zone-a",
			Hash:         "1",
		},
		{Name: "subnet-b", InstanceType: "m5.large", Zone: "zone-b", Hash: "1"},
	}
	token := func(ordinal int64) string { return cloud.Token("u", ordinal, 0) }
	for name, c := range map[string]struct {
		pool     cloud.Pool
		machines string
		change   func(*cloud.Observed)
		want     cloud.Want
		plan     []string // actions and holds, with the times and tokens of noon
	}{
		"an empty pool is filled over its zones": {
			pool: cloud.Pool{Size: 5, MinStandby: 3},
			plan: []string{"launch 2 x subnet-a as " + token(1) + ": standby 0 of 3", "launch 1 x subnet-b as " + token(2) + ": standby 0 of 3"},
		},
		"a launch is bounded by the size": {
			pool: cloud.Pool{Size: 3, MinStandby: 3}, machines: "i-1 running running ready pods=1\ni-2 running running ready pods=1",
			plan: []string{"launch 1 x subnet-b as " + token(1) + ": standby 0 of 3"},
		},
		"machines that are missing count": {
			pool: cloud.Pool{Size: 2, MinStandby: 2}, machines: "i-1 standby - \ni-2 standby stopped",
		},
		"the ordinal continues from the highest one recorded": {
			pool: cloud.Pool{Size: 1, MinStandby: 1}, change: func(o *cloud.Observed) { o.LastOrdinal = 41 },
			plan: []string{"launch 1 x subnet-a as " + token(42) + ": standby 0 of 1"},
		},
		"a recorded launch without an answer is repeated, and counts": {
			pool: cloud.Pool{Size: 2, MinStandby: 2}, change: func(o *cloud.Observed) {
				o.Launches = []cloud.LaunchIntent{{Operation: "op", Ordinal: 1, Template: "subnet-a", Hash: "1", Count: 2, Since: noon.Add(-time.Second)}}
			},
			plan: []string{"launch 2 x subnet-a as op: its answer was never recorded"},
		},
		"a launch of another config is not repeated, and counts until two lists lack it": {
			pool: cloud.Pool{Size: 2, MinStandby: 2}, change: func(o *cloud.Observed) {
				o.Launches = []cloud.LaunchIntent{{Operation: "op", Ordinal: 1, Template: "subnet-a", Hash: "0", Count: 2, Since: noon.Add(-time.Second)}}
			},
			plan: []string{"held back: LaunchUnproven: launch op of 2 machines is not in the list yet"},
		},
		"nor is one whose token the cloud may have forgotten": {
			pool: cloud.Pool{Size: 2, MinStandby: 2}, change: func(o *cloud.Observed) {
				o.Launches = []cloud.LaunchIntent{{Operation: "op", Ordinal: 1, Template: "subnet-a", Hash: "1", Count: 2, Since: noon.Add(-61 * time.Minute)}}
			},
			plan: []string{"held back: LaunchUnproven: launch op of 2 machines is not in the list yet"},
		},
		"and is dropped then": {
			pool: cloud.Pool{Size: 2}, change: func(o *cloud.Observed) {
				o.Launches = []cloud.LaunchIntent{{Operation: "op", Ordinal: 1, Template: "subnet-a", Hash: "0", Count: 2, Since: noon.Add(-time.Hour)}}
				o.Memory.Unseen = map[string]time.Time{"op": noon.Add(-time.Minute)}
			},
			plan: []string{"abandon op: two complete lists have none of its machines"},
		},
		"machines of one launch that lists lack since different times are dropped together": {
			pool: cloud.Pool{Size: 9}, machines: "i-3 standby stopped\ni-4 standby stopped\ni-5 standby stopped", change: func(o *cloud.Observed) {
				o.Launches = []cloud.LaunchIntent{{Operation: "op", Ordinal: 1, Template: "subnet-a", Hash: "0", Count: 2, IDs: []string{"i-1", "i-2"}, Since: noon.Add(-time.Hour)}}
				o.Memory.Machines = map[string]cloud.MachineHistory{"i-1": {Since: noon.Add(-time.Hour), Listed: true}, "i-2": {Since: noon.Add(-time.Minute)}}
			},
			plan: []string{"abandon op: each of its machines has a Node or has ended"},
		},
		"one that was to end needs no second list": {
			pool: cloud.Pool{Size: 9}, machines: "i-3 standby stopped\ni-4 standby stopped\ni-5 standby stopped", change: func(o *cloud.Observed) {
				o.Launches = []cloud.LaunchIntent{{Operation: "op", Ordinal: 1, Template: "subnet-a", Hash: "0", Count: 1, IDs: []string{"i-1"}, Since: noon.Add(-time.Hour)}}
				o.Memory.Machines = map[string]cloud.MachineHistory{"i-1": {Since: noon.Add(-time.Second), Listed: true, Ending: true}}
			},
			plan: []string{"abandon op: each of its machines has a Node or has ended"},
		},
		"but waits for the others of its launch": {
			pool: cloud.Pool{Size: 9}, machines: "i-3 standby stopped\ni-4 standby stopped\ni-5 standby stopped", change: func(o *cloud.Observed) {
				o.Launches = []cloud.LaunchIntent{{Operation: "op", Ordinal: 1, Template: "subnet-a", Hash: "0", Count: 2, IDs: []string{"i-1", "i-2"}, Since: noon.Add(-time.Hour)}}
				o.Memory.Machines = map[string]cloud.MachineHistory{
					"i-1": {Since: noon.Add(-time.Second), Listed: true, Ending: true}, "i-2": {Since: noon.Add(-time.Second)},
				}
			},
		},
		"a Node of a machine that is gone is forgotten also while its launch is recorded": {
			pool: cloud.Pool{Size: 9}, machines: "i-1 standby -\ni-3 standby stopped\ni-4 standby stopped", change: func(o *cloud.Observed) {
				o.Launches = []cloud.LaunchIntent{{Operation: "op", Ordinal: 1, Template: "subnet-a", Hash: "0", Count: 1, IDs: []string{"i-1"}, Since: noon.Add(-time.Hour)}}
				o.Memory.Machines = map[string]cloud.MachineHistory{"i-1": {Since: noon.Add(-time.Minute), Listed: true}}
			},
			plan: []string{"abandon op: each of its machines has a Node or has ended", "forget i-1: missing from two complete lists"},
		},
		"and none of them before": {
			pool: cloud.Pool{Size: 9}, machines: "i-3 standby stopped\ni-4 standby stopped\ni-5 standby stopped", change: func(o *cloud.Observed) {
				o.Launches = []cloud.LaunchIntent{{Operation: "op", Ordinal: 1, Template: "subnet-a", Hash: "0", Count: 2, IDs: []string{"i-1", "i-2"}, Since: noon.Add(-time.Hour)}}
				o.Memory.Machines = map[string]cloud.MachineHistory{"i-1": {Since: noon.Add(-time.Hour), Listed: true}, "i-2": {Since: noon.Add(-time.Second)}}
			},
		},
		"but not by lists that are not trusted": {
			pool: cloud.Pool{Size: 4}, machines: "i-1 standby -\ni-2 standby -", change: func(o *cloud.Observed) {
				o.Launches = []cloud.LaunchIntent{{Operation: "op", Ordinal: 1, Template: "subnet-a", Hash: "0", Count: 2, Since: noon.Add(-time.Hour)}}
				o.Memory.Unseen = map[string]time.Time{"op": noon.Add(-time.Minute)}
			},
			plan: []string{
				"held back: ShortList: 2 of 2 machines are missing from the list, at most 1 may be deleted at once: nothing is launched or terminated",
				"held back: LaunchUnproven: launch op of 2 machines is not in the list yet",
			},
		},
		"a launch that could be repeated is not given up while it may not be": {
			pool: cloud.Pool{Size: 2, MinStandby: 2}, change: func(o *cloud.Observed) {
				o.Launches = []cloud.LaunchIntent{{Operation: "op", Ordinal: 1, Template: "subnet-a", Hash: "1", Count: 2, Since: noon.Add(-10 * time.Minute)}}
				o.Memory.Unseen = map[string]time.Time{"op": noon.Add(-time.Hour)}
				o.Memory.LaunchAfter = noon.Add(time.Minute)
			},
		},
		"machines are adopted by the tag of their launch": {
			pool: cloud.Pool{Size: 2, MinStandby: 2}, machines: "i-1 warmup running none op=op launched=1m\ni-2 warmup running none op=op launched=1m",
			change: func(o *cloud.Observed) {
				o.Launches = []cloud.LaunchIntent{{Operation: "op", Ordinal: 1, Template: "subnet-a", Hash: "1", Count: 2, Since: noon.Add(-time.Second)}}
			},
			plan: []string{"confirm op: its machines are in the list"},
		},
		"a standby machine that a bound pod waits for is started, and replaced": {
			pool: cloud.Pool{Size: 3, MinStandby: 2}, machines: "i-1 standby stopped waiting=1\ni-2 standby stopped pods=1",
			plan: []string{
				"start i-1 (standby -> running): a pod is bound to its Node and waits for it",
				"launch 1 x subnet-b as " + token(1) + ": standby 2 of 2",
			},
		},
		"not where the cloud had no capacity a moment ago": {
			pool: cloud.Pool{Size: 1}, machines: "i-1 standby stopped waiting=1", change: func(o *cloud.Observed) {
				o.Memory.Blocked = map[cloud.Placement]time.Time{{InstanceType: "m5.large", Zone: "zone-a"}: noon.Add(time.Minute)}
			},
		},
		"a running machine with such a pod is repaired like others": {
			pool: cloud.Pool{Size: 1}, machines: "i-1 running running started=3h waiting=1", change: unready(15*time.Minute, "i-1"),
			plan: []string{"drain i-1 (running -> terminating): its Node was ready and is not any more"},
		},
		"not before the cloud reports it as stopped": {
			pool: cloud.Pool{Size: 1}, machines: "i-1 standby stopping waiting=1",
		},
		"not without a list": {
			pool: cloud.Pool{Size: 1}, machines: "i-1 standby stopped waiting=1",
			change: func(o *cloud.Observed) { o.Instances, o.ListError = nil, errors.New("503") },
			plan:   []string{"held back: ListFailed: the list of machines failed: 503"},
		},
		"not for a pool that is deleted": {
			pool: cloud.Pool{Size: 1, Deleting: true}, machines: "i-1 standby stopped waiting=1",
			plan: []string{"terminate i-1 (standby -> terminating): the pool is being deleted"},
		},
		"and it is none of those that go when the pool shrinks": {
			pool: cloud.Pool{Size: 1}, machines: "i-1 standby stopped unattested waiting=1 since=2h\ni-2 standby stopped",
			plan: []string{
				"start i-1 (standby -> running): a pod is bound to its Node and waits for it",
				"terminate i-2 (standby -> terminating): the pool has 2 machines, its size is 1",
			},
		},
		"standby is started, and the rest is launched in the same pass": {
			pool: cloud.Pool{Size: 4, MinStandby: 1}, machines: "i-1 standby stopped",
			want: cloud.Want{Start: []string{"i-1"}, Launch: map[string]int{"subnet-b": 1}},
			plan: []string{
				"start i-1 (standby -> running): pods need it",
				"launch 1 x subnet-a as " + token(1) + ": standby 1 of 1, pods need 1 more", "launch 1 x subnet-b as " + token(2) + ": standby 1 of 1, pods need 1 more",
			},
		},
		"a full pool reports it": {
			pool: cloud.Pool{Size: 1}, machines: "i-1 running running ready pods=4", want: cloud.Want{Launch: map[string]int{"subnet-a": 2}},
			plan: []string{"held back: PoolFull: 2 more machines are wanted, there is room for 0 of a size of 1"},
		},
		"without a list nothing is launched or ended, and standby is started": {
			pool: cloud.Pool{Size: 9, MinStandby: 3}, machines: "i-1 standby stopped\ni-2 running running ready empty=1h",
			change: func(o *cloud.Observed) { o.Instances, o.ListError = nil, errors.New("503") }, want: cloud.Want{Start: []string{"i-1"}},
			plan: []string{"start i-1 (standby -> running): pods need it", "held back: ListFailed: the list of machines failed: 503"},
		},
		"a short list is not trusted": {
			pool: cloud.Pool{Size: 9, MinStandby: 3, MaxRuntime: time.Hour}, machines: "i-1 standby -\ni-2 standby -\ni-3 running -\ni-4 standby stopped drifted",
			plan: []string{"held back: ShortList: 3 of 4 machines are missing from the list, at most 1 may be deleted at once: nothing is launched or terminated"},
		},
		"a machine that two lists lack is forgotten": {
			pool: cloud.Pool{Size: 3}, machines: "i-1 standby -\ni-2 standby stopped\ni-3 standby stopped",
			change: func(o *cloud.Observed) {
				o.Memory.Machines = map[string]cloud.MachineHistory{"i-1": {Since: noon.Add(-time.Minute), Listed: true}}
			},
			plan: []string{"forget i-1: missing from two complete lists"},
		},
		"one that was to end is forgotten by the first list that lacks it": {
			pool: cloud.Pool{Size: 3}, machines: "i-1 terminating - intent=terminate\ni-2 standby stopped\ni-3 standby stopped",
			change: func(o *cloud.Observed) {
				o.Memory.Machines = map[string]cloud.MachineHistory{"i-1": {Since: noon.Add(-time.Second), Listed: true, Ending: true}}
			},
			plan: []string{"forget i-1: it was to end, and is not in the list"},
		},
		"at most the budget of a short list is forgotten": {
			pool: cloud.Pool{Size: 3}, machines: "i-1 standby -\ni-2 standby -\ni-3 standby -",
			change: func(o *cloud.Observed) {
				gone := cloud.MachineHistory{Since: noon.Add(-time.Hour), Listed: true}
				o.Memory.Machines = map[string]cloud.MachineHistory{"i-1": gone, "i-2": gone, "i-3": gone}
			},
			plan: []string{"forget i-1: missing from two complete lists", "held back: ShortList: 3 of 3 machines are missing from the list, at most 1 may be deleted at once: nothing is launched or terminated"},
		},
		"a new Node is adopted": {
			pool: cloud.Pool{Size: 1}, machines: "i-1 warmup running new ready launched=1m",
			plan: []string{"adopt i-1 ( -> warmup): its Node has no state yet"},
		},
		"a stopped machine that had joined is standby, also without its Node": {
			pool: cloud.Pool{Size: 2}, machines: "i-1 warmup stopped",
			plan: []string{"shelve i-1 (warmup -> standby): warm-up is complete"},
		},
		"a machine that stopped before it joined goes": {
			pool: cloud.Pool{Size: 2}, machines: "i-1 warmup stopped none",
			plan: []string{"terminate i-1 (warmup -> terminating): it stopped before it joined the cluster"},
		},
		"a late warm-up is stopped by force": {
			pool: cloud.Pool{Size: 1}, machines: "i-1 warmup running launched=10m unattested",
			plan: []string{"force-stop i-1: warm-up is over its time"},
		},
		"or terminated, if the pool demands it": {
			pool: cloud.Pool{Size: 1, TerminateLate: true}, machines: "i-1 warmup running launched=10m unattested",
			plan: []string{"terminate i-1 (warmup -> terminating): warm-up is over its time"},
		},
		"the pool stops a machine that is ready where machines do not": {
			pool: cloud.Pool{Size: 1, ControllerStop: true}, machines: "i-1 warmup running ready launched=1m",
			plan: []string{"stop i-1: warm-up is complete"},
		},
		"not before it is ready": {
			pool: cloud.Pool{Size: 1, ControllerStop: true}, machines: "i-1 warmup running launched=1m",
		},
		"a machine that is not stopped yet is no standby": {
			pool: cloud.Pool{Size: 2, MinStandby: 1}, machines: "i-1 standby stopping",
			plan: []string{"launch 1 x subnet-b as " + token(1) + ": standby 0 of 1"},
		},
		"nothing is terminated while the list is not trusted": {
			pool: cloud.Pool{Size: 9}, machines: "i-1 standby -\ni-2 standby -\ni-3 warmup stopped none\ni-4 running running ready pods=1 started=1h",
			plan: []string{"held back: ShortList: 2 of 4 machines are missing from the list, at most 1 may be deleted at once: nothing is launched or terminated"},
		},
		"not one that lacks an image": {
			pool: cloud.Pool{Size: 1, ControllerStop: true}, machines: "i-1 warmup running ready partly launched=1m",
		},
		"unless images are best effort": {
			pool: cloud.Pool{Size: 1, ControllerStop: true, BestEffortImages: true}, machines: "i-1 warmup running ready partly launched=1m",
			plan: []string{"stop i-1: warm-up is complete"},
		},
		"standby that never attested does not count, and few are kept": {
			pool: cloud.Pool{Size: 4, MinStandby: 1}, machines: "i-1 standby stopped unattested\ni-2 standby stopped unattested since=2h",
			plan: []string{
				"terminate i-2 (standby -> terminating): its warm-up was never attested, and there are enough of those",
				"launch 1 x subnet-b as " + token(1) + ": standby 0 of 1",
			},
		},
		"an empty machine is marked": {
			pool: cloud.Pool{Size: 1}, machines: "i-1 running running ready",
			plan: []string{"mark-empty i-1: no pod is left on it"},
		},
		"not one that pods are on their way to": {
			pool: cloud.Pool{Size: 1}, machines: "i-1 running running ready", change: func(o *cloud.Observed) { o.Reserved = map[string]bool{"i-1": true} },
		},
		"the mark goes when pods return": {
			pool: cloud.Pool{Size: 1}, machines: "i-1 running running ready pods=1 empty=4m59s",
			plan: []string{"clear-empty i-1: it has pods again"},
		},
		"a machine that was empty for its time is drained": {
			pool: cloud.Pool{Size: 1}, machines: "i-1 running running ready empty=5m",
			plan: []string{"drain i-1 (running -> terminating): it was empty for its time"},
		},
		"not where empty machines are kept": {
			pool: cloud.Pool{Size: 1, KeepEmpty: true}, machines: "i-1 running running ready empty=5h",
		},
		"one machine at a time is recycled, the oldest": {
			pool: cloud.Pool{Size: 3, MaxRuntime: time.Hour}, machines: "i-1 running running ready pods=1 started=2h\ni-2 running running ready pods=1 started=3h\ni-3 running running ready pods=1 started=10m",
			plan: []string{"drain i-2 (running -> terminating): it is over its runtime"},
		},
		"not one with a pod that asks not to be disrupted": {
			pool: cloud.Pool{Size: 2, MaxRuntime: time.Hour}, machines: "i-1 running running ready pods=1 started=2h\ni-2 running running ready pods=1 started=3h",
			change: func(o *cloud.Observed) { o.Nodes[1].DoNotDisrupt = true },
			plan:   []string{"drain i-1 (running -> terminating): it is over its runtime"},
		},
		"no second machine is recycled while the first is drained": {
			pool: cloud.Pool{Size: 2, MaxRuntime: time.Hour}, machines: "i-1 terminating running pods=1 since=1m intent=stop\ni-2 running running ready pods=1 started=2h",
			change: func(o *cloud.Observed) { o.Nodes[0].Intent.Reason = cloud.ReasonRuntime },
			plan:   []string{"drain i-1: pods are left on it"},
		},
		"nor while it is stopped": {
			pool: cloud.Pool{Size: 2, MaxRuntime: time.Hour}, machines: "i-1 terminating stopping since=1m intent=stop\ni-2 running running ready pods=1 started=2h",
			change: func(o *cloud.Observed) { o.Nodes[0].Intent.Reason = cloud.ReasonRuntime },
		},
		"but while one is drained that was empty": {
			pool: cloud.Pool{Size: 2, MaxRuntime: time.Hour}, machines: "i-1 terminating stopping since=1m intent=stop\ni-2 running running ready pods=1 started=2h",
			plan: []string{"drain i-2 (running -> terminating): it is over its runtime"},
		},
		"a drain goes on where another process left it": {
			pool: cloud.Pool{Size: 1}, machines: "i-1 terminating running pods=2 since=1m intent=stop",
			plan: []string{"drain i-1: pods are left on it"},
		},
		"a drain that does not end is given up": {
			pool: cloud.Pool{Size: 1}, machines: "i-1 terminating running pods=2 since=5m intent=stop",
			plan: []string{"give-up i-1 (terminating -> running): its drain is over its time"},
		},
		"unless the machine is being terminated": {
			pool: cloud.Pool{Size: 1}, machines: "i-1 terminating running pods=2 since=5m intent=terminate",
			plan: []string{"terminate i-1: its drain is over its time"},
		},
		"a drained machine is stopped": {
			pool: cloud.Pool{Size: 1}, machines: "i-1 terminating running since=1m intent=stop", plan: []string{"stop i-1: it is drained"},
		},
		"and standby only when the cloud reports stopped": {
			pool: cloud.Pool{Size: 1}, machines: "i-1 terminating stopping since=1m intent=stop",
		},
		"a stop that hangs is forced": {
			pool: cloud.Pool{Size: 1}, machines: "i-1 terminating stopping since=1h intent=stop", change: hung(5 * time.Minute),
			plan: []string{"force-stop i-1: it does not stop"},
		},
		"and ends": {
			pool: cloud.Pool{Size: 1}, machines: "i-1 terminating stopping since=1h intent=stop", change: hung(15 * time.Minute),
			plan: []string{"terminate i-1: it does not stop, not even by force"},
		},
		"a machine that was started and not labelled is opened": {
			pool: cloud.Pool{Size: 1}, machines: "i-1 standby running", plan: []string{"open i-1 (standby -> running): the cloud reports it as started"},
		},
		"a machine that another hand stopped is standby": {
			pool: cloud.Pool{Size: 1}, machines: "i-1 running stopped pods=1", plan: []string{"shelve i-1 (running -> standby): the cloud reports it as stopped"},
		},
		"a list from before a start proves nothing": {
			pool: cloud.Pool{Size: 1}, machines: "i-1 running stopped since=-1s",
		},
		"a started machine that is not ready goes after two minutes if it never attested": {
			pool: cloud.Pool{Size: 2}, machines: "i-1 running running unattested starting=2m\ni-2 running running starting=2m",
			plan: []string{"drain i-1 (running -> terminating): it was started and did not become ready"},
		},
		"an attested one after ten": {
			pool: cloud.Pool{Size: 2}, machines: "i-1 running running starting=10m\ni-2 running running starting=9m59s",
			plan: []string{"drain i-1 (running -> terminating): it was started and did not become ready"},
		},
		"or after the time of the pool, if that is less, attested or not": {
			pool: cloud.Pool{Size: 3, StartTimeout: time.Minute}, machines: "i-1 running running unattested starting=1m\ni-2 running running starting=1m\ni-3 running running unattested starting=59s",
			plan: []string{"drain i-1 (running -> terminating): it was started and did not become ready", "drain i-2 (running -> terminating): it was started and did not become ready"},
		},
		"one that starts has lost no readiness": {
			pool: cloud.Pool{Size: 1, StartTimeout: time.Hour, UnreadyTimeout: time.Minute}, machines: "i-1 running running starting=5m", change: unready(5*time.Minute, "i-1"),
		},
		"one that was ready since its start has more time, whether it attested or not": {
			pool: cloud.Pool{Size: 4}, machines: "i-1 running running started=3h pods=5\ni-2 running running unattested started=3h pods=5\ni-3 running running started=3h pods=5\ni-4 running running ready started=3h pods=5",
			change: unready(14*time.Minute+59*time.Second, "i-1", "i-2", "i-3"),
		},
		"and goes after its time": {
			pool: cloud.Pool{Size: 2}, machines: "i-1 running running started=3h pods=5\ni-2 running running ready started=3h pods=5",
			change: unready(15*time.Minute, "i-1"),
			plan:   []string{"drain i-1 (running -> terminating): its Node was ready and is not any more"},
		},
		"or after another, if the pool demands it": {
			pool: cloud.Pool{Size: 1, UnreadyTimeout: time.Minute}, machines: "i-1 running running started=3h", change: unready(time.Minute, "i-1"),
			plan: []string{"drain i-1 (running -> terminating): its Node was ready and is not any more"},
		},
		"of many that have lost readiness one budget goes, the first to lose it": {
			pool: cloud.Pool{Size: 4}, machines: "i-1 running running started=3h pods=5\ni-2 running running started=3h pods=5\ni-3 running running started=3h pods=5\ni-4 running running ready started=3h pods=5",
			change: func(o *cloud.Observed) {
				unready(16*time.Minute, "i-1", "i-3")(o)
				o.Memory.Machines["i-2"] = cloud.MachineHistory{State: cloud.InstanceRunning, Unready: noon.Add(-17 * time.Minute)}
			},
			plan: []string{
				"drain i-2 (running -> terminating): its Node was ready and is not any more",
				"held back: NodesNotReady: the Nodes of 2 of 4 running machines were ready and have not been so for 15m0s: at most 1 is drained in 1h0m0s",
			},
		},
		"and not the next once the first is terminated": {
			pool: cloud.Pool{Size: 2}, machines: "i-1 running running started=3h pods=5\ni-2 running running started=3h pods=5",
			change: func(o *cloud.Observed) {
				unready(time.Hour, "i-1", "i-2")(o)
				o.Memory.Repaired, o.Memory.Repairs = noon.Add(-59*time.Minute), 1
			},
			plan: []string{"held back: NodesNotReady: the Nodes of 2 of 2 running machines were ready and have not been so for 15m0s: at most 1 is drained in 1h0m0s"},
		},
		"but an hour after it": {
			pool: cloud.Pool{Size: 2}, machines: "i-1 running running started=3h pods=5\ni-2 running running started=3h pods=5",
			change: func(o *cloud.Observed) {
				unready(time.Hour, "i-1", "i-2")(o)
				o.Memory.Repaired, o.Memory.Repairs = noon.Add(-time.Hour), 1
			},
			plan: []string{
				"drain i-1 (running -> terminating): its Node was ready and is not any more",
				"held back: NodesNotReady: the Nodes of 1 of 2 running machines were ready and have not been so for 15m0s: at most 1 is drained in 1h0m0s",
			},
		},
		"those that are drained for it count for the budget": {
			pool: cloud.Pool{Size: 4, Budget: 0.75}, machines: "i-1 terminating running started=3h pods=5 since=1m intent=terminate unready\ni-2 terminating running started=3h pods=5 since=1m intent=terminate unready\ni-3 running running started=3h pods=5\ni-4 running running started=3h pods=5",
			change: unready(time.Hour, "i-3", "i-4"),
			plan: []string{
				"drain i-1: pods are left on it", "drain i-2: pods are left on it", "drain i-3 (running -> terminating): its Node was ready and is not any more",
				"held back: NodesNotReady: the Nodes of 1 of 2 running machines were ready and have not been so for 15m0s: at most 3 is drained in 1h0m0s",
			},
		},
		"nor while another process has begun with one": {
			pool: cloud.Pool{Size: 2}, machines: "i-1 terminating running started=3h pods=5 since=1m intent=terminate unready\ni-2 running running started=3h pods=5",
			change: unready(time.Hour, "i-2"),
			plan: []string{
				"drain i-1: pods are left on it",
				"held back: NodesNotReady: the Nodes of 1 of 1 running machines were ready and have not been so for 15m0s: at most 1 is drained in 1h0m0s",
			},
		},
		"a machine that is ready again is kept": {
			pool: cloud.Pool{Size: 1}, machines: "i-1 terminating running ready started=3h since=4m intent=terminate unready",
			plan: []string{"give-up i-1 (terminating -> running): its Node is ready again"},
		},
		"also when its drain is over its time": {
			pool: cloud.Pool{Size: 1}, machines: "i-1 terminating running ready started=3h pods=1 since=6m intent=terminate unready",
			plan: []string{"give-up i-1 (terminating -> running): its Node is ready again"},
		},
		"not one that the cloud is terminating": {
			pool: cloud.Pool{Size: 1}, machines: "i-1 terminating shutting-down ready started=3h since=4m intent=terminate unready",
		},
		"not one of a pool that is deleted": {
			pool: cloud.Pool{Size: 1, Deleting: true}, machines: "i-1 terminating running ready started=3h since=4m intent=terminate unready",
			plan: []string{"terminate i-1: it is drained"},
		},
		"standby goes when the pool shrinks, never a running machine": {
			pool: cloud.Pool{Size: 2}, machines: "i-1 running running ready pods=1\ni-2 standby stopped since=1h\ni-3 standby stopped\ni-4 standby stopped unattested\ni-5 running running ready pods=1",
			plan: []string{
				"terminate i-2 (standby -> terminating): the pool has 5 machines, its size is 2", "terminate i-3 (standby -> terminating): the pool has 5 machines, its size is 2",
				"terminate i-4 (standby -> terminating): the pool has 5 machines, its size is 2",
			},
		},
		"surplus standby stays without a limit": {
			pool: cloud.Pool{Size: 3, MinStandby: 1}, machines: "i-1 standby stopped\ni-2 standby stopped",
		},
		"and goes after it": {
			pool: cloud.Pool{Size: 3, MinStandby: 1, SurplusTTL: time.Minute}, machines: "i-1 standby stopped\ni-2 standby stopped since=1h",
			change: func(o *cloud.Observed) { o.Memory.SurplusSince = noon.Add(-time.Minute) },
			plan:   []string{"terminate i-2 (standby -> terminating): surplus standby for 1m0s"},
		},
		"a drifted machine is replaced first": {
			pool: cloud.Pool{Size: 3, MinStandby: 1}, machines: "i-1 standby stopped drifted", plan: []string{"launch 1 x subnet-b as " + token(1) + ": standby 0 of 1"},
		},
		"and one at a time goes then": {
			pool: cloud.Pool{Size: 3, MinStandby: 1}, machines: "i-1 standby stopped drifted\ni-2 standby stopped drifted\ni-3 standby stopped",
			plan: []string{"terminate i-1 (standby -> terminating): it was made from an older template"},
		},
		"a pool that is deleted drains what runs, and ends the rest": {
			pool: cloud.Pool{Size: 5, MinStandby: 2, Deleting: true}, machines: "i-1 running running ready pods=1\ni-2 standby stopped\ni-3 warmup running none launched=1m\ni-4 standby running",
			plan: []string{
				"drain i-1 (running -> terminating): the pool is being deleted", "terminate i-2 (standby -> terminating): the pool is being deleted",
				"terminate i-3 (warmup -> terminating): the pool is being deleted", "terminate i-4 (standby -> terminating): the pool is being deleted",
			},
		},
		"three failed warm-ups hold launches back": {
			pool: cloud.Pool{Size: 5, MinStandby: 2}, machines: "i-1 warmup stopped none",
			change: func(o *cloud.Observed) { o.Memory.Failures = 2 },
			plan: []string{
				"terminate i-1 (warmup -> terminating): it stopped before it joined the cluster",
				"held back: WarmupFailing: 3 warm-ups failed in a row, the last one because it stopped before it joined the cluster; no launch before 2026-01-01T12:01:00Z",
			},
		},
		"they are reported while another machine warms up": {
			pool: cloud.Pool{Size: 5, MinStandby: 1}, machines: "i-1 warmup running none launched=1m",
			change: func(o *cloud.Observed) { o.Memory.Failures, o.Memory.LaunchAfter = 3, noon.Add(-time.Hour) },
			plan:   []string{"held back: WarmupFailing: 3 warm-ups failed in a row, the last one because ; no launch before 2026-01-01T11:00:00Z"},
		},
		"and not once no machine is wanted and one may be launched again": {
			pool:   cloud.Pool{Size: 5},
			change: func(o *cloud.Observed) { o.Memory.Failures, o.Memory.LaunchAfter = 3, noon.Add(-time.Hour) },
		},
		"nor are launches that were refused, while another machine warms up": {
			pool: cloud.Pool{Size: 5, MinStandby: 1}, machines: "i-1 warmup running none launched=1m",
			change: func(o *cloud.Observed) {
				o.Memory.Refused = cloud.Refusal{Kind: cloud.HoldLaunchFailed, Message: "no", Count: 3}
				o.Memory.LaunchAfter = noon.Add(-time.Hour)
			},
		},
		"a zone without capacity is left out": {
			pool: cloud.Pool{Size: 5, MinStandby: 2}, change: func(o *cloud.Observed) {
				o.Memory.Blocked = map[cloud.Placement]time.Time{{InstanceType: "m5.large", Zone: "zone-a"}: noon.Add(time.Minute)}
			},
			plan: []string{"launch 2 x subnet-b as " + token(1) + ": standby 0 of 2"},
		},
		"a throttled account is left alone": {
			pool: cloud.Pool{Size: 5, MinStandby: 2}, change: func(o *cloud.Observed) { o.Memory.ThrottledUntil = noon.Add(time.Minute) },
			plan: []string{"held back: Throttled: the cloud asks for no calls before 2026-01-01T12:01:00Z"},
		},
		"nothing that calls it is done, an eviction is": {
			pool:     cloud.Pool{Size: 9, MinStandby: 1, UnreadyTimeout: time.Minute},
			machines: "i-1 standby stopped\ni-2 terminating running since=1m intent=stop\ni-3 warmup stopped none\ni-4 running running ready empty=1h\ni-5 terminating running since=1m intent=stop pods=1\ni-6 running running ready\ni-7 running running started=3h pods=1",
			want:     cloud.Want{Start: []string{"i-1"}},
			change:   func(o *cloud.Observed) { unready(time.Hour, "i-7")(o); o.Memory.ThrottledUntil = noon.Add(time.Minute) },
			plan:     []string{"drain i-5: pods are left on it", "mark-empty i-6: no pod is left on it", "held back: Throttled: the cloud asks for no calls before 2026-01-01T12:01:00Z"},
		},
		"also not a tag that is wrong": {
			pool: cloud.Pool{Size: 1}, machines: "i-1 standby stopped", change: func(o *cloud.Observed) {
				o.Instances[0].Tags = tags(scope, cloud.StateRunning)
				o.Memory.ThrottledUntil = noon.Add(time.Minute)
			},
			plan: []string{"held back: Throttled: the cloud asks for no calls before 2026-01-01T12:01:00Z"},
		},
		"a machine of another pool is none of ours": {
			pool: cloud.Pool{Size: 1}, machines: "i-1 standby stopped", change: func(o *cloud.Observed) {
				o.Instances[0].Tags[scope.Key("pool-uid")] = "other"
				o.Nodes = nil
			},
		},
		"a tag without the name of the Node is written again": {
			pool: cloud.Pool{Size: 1}, machines: "i-1 standby stopped", change: func(o *cloud.Observed) { delete(o.Instances[0].Tags, scope.Key("node")) },
			plan: []string{`retag i-1: its tag names the Node ""`},
		},
		"a machine that has lost its Node and the name of it goes": {
			pool: cloud.Pool{Size: 1}, machines: "i-1 running stopped none",
			plan: []string{"terminate i-1 (running -> terminating): its Node was deleted, and no tag has its name"},
		},
		"a wrong tag is written again": {
			pool: cloud.Pool{Size: 1}, machines: "i-1 standby stopped", change: func(o *cloud.Observed) { o.Instances[0].Tags[scope.Key("state")] = "running" },
			plan: []string{`retag i-1: its tag says "running"`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c.pool.Scope, c.pool.Templates = scope, templates
			seen := machines(t, c.machines)
			if c.change != nil {
				c.change(&seen)
			}
			require.NoError(t, c.pool.Validate())
			plan := c.pool.Plan(seen, c.want, noon)
			lines := strings.Split(strings.TrimSpace(plan.String()), "\n")[1:]
			if diff := cmp.Diff(c.plan, append([]string(nil), lines...)); diff != "" {
				t.Error(diff)
			}
			again := c.pool.Plan(seen, c.want, noon)
			require.Equal(t, plan, again, "a plan is a function of what it is given")

			data, err := json.Marshal(plan.Memory)
			require.NoError(t, err)
			var back cloud.Memory
			require.NoError(t, json.Unmarshal(data, &back))
			seen.Memory = back
			once := c.pool.Plan(seen, c.want, noon)
			seen.Memory = plan.Memory
			require.Equal(t, c.pool.Plan(seen, c.want, noon).String(), once.String(), "memory survives JSON")
		})
	}
}

// unready makes a memory in which the Nodes of running machines have not been ready
// for a time.
func unready(d time.Duration, ids ...string) func(*cloud.Observed) {
	return func(o *cloud.Observed) {
		o.Memory.Machines = map[string]cloud.MachineHistory{}
		for _, id := range ids {
			o.Memory.Machines[id] = cloud.MachineHistory{
				State:   cloud.InstanceRunning,
				Since:   noon.Add(-time.Hour),
				Listed:  true,
				Unready: noon.Add(-d),
			}
		}
	}
}

// hung makes a memory in which the cloud has been stopping i-1 for a time.
func hung(d time.Duration) func(*cloud.Observed) {
	return func(o *cloud.Observed) {
		o.Memory.Machines = map[string]cloud.MachineHistory{"i-1": {State: cloud.InstanceStopping, Since: noon.Add(-d), Listed: true}}
	}
}

func TestAWrongPoolIsRefusedByField(t *testing.T) {
	err := cloud.Pool{
		Size:       -1,
		MinStandby: 3,
		Budget:     2,
		EmptyTTL:   -time.Second,
		Templates:  []cloud.Template{{}, {Name: "a"}, {Name: "a"}},
	}.Validate()
	for _, text := range []string{
		"cloud: Scope.Domain: is required", "cloud: Pool.Size: is -1, must be at least 0", "Pool.MinStandby: is 3, must be from 0 to Size (-1)", "Pool.Budget: is 2, must be from 0 to 1",
		"Templates[0].Name: is required", `Templates[2].Name: is "a", must be unique`, "EmptyTTL: is -1s, must not be negative",
	} {
		require.ErrorContains(t, err, text)
	}
	require.NoError(t, cloud.Pool{Scope: scope}.Validate())
}

func TestTokensAreNeverShared(t *testing.T) {
	seen := map[string]string{}
	for _, uid := range []string{"a", "b", "a\x00", ""} {
		for ordinal := range int64(50) {
			for attempt := range int64(5) {
				token, who := cloud.Token(uid, ordinal, attempt), fmt.Sprintf("%q %d %d", uid, ordinal, attempt)
				require.Len(t, token, 32)
				require.Empty(t, seen[token], who)
				seen[token] = who
			}
		}
	}
}

// TestAMachineWithoutItsNodeEnds has machines whose Nodes were deleted. The name of a Node is
// in a tag: without it none can be made.
func TestAMachineWithoutItsNodeEnds(t *testing.T) {
	t.Parallel()
	scope := cloud.Scope{Domain: "stratos.sh", Cluster: "c", Pool: "p", PoolUID: "u"}
	for name, c := range map[string]struct {
		use   cloud.State
		state cloud.InstanceState
		node  string
		want  []cloud.Verb // at once, and after a while

		deleting bool
	}{
		"standby":                        {cloud.StateStandby, cloud.InstanceStopped, "n", []cloud.Verb{"", cloud.Terminate}, false},
		"standby, and started":           {cloud.StateStandby, cloud.InstanceRunning, "n", []cloud.Verb{cloud.Open, cloud.Open}, false},
		"standby, started, with no name": {cloud.StateStandby, cloud.InstanceRunning, "", []cloud.Verb{"", cloud.Terminate}, false},
		"terminating, with no name": {
			cloud.StateTerminating, cloud.InstanceStopped, "", []cloud.Verb{cloud.Terminate, cloud.Terminate}, false,
		},
		"running":                    {cloud.StateRunning, cloud.InstanceRunning, "n", []cloud.Verb{"", cloud.Stop}, false},
		"running, in a deleted pool": {cloud.StateRunning, cloud.InstanceRunning, "n", []cloud.Verb{cloud.Terminate, cloud.Terminate}, true},
	} {
		pool := cloud.Pool{Scope: scope, Size: 5, StartTimeout: 5 * time.Minute, Deleting: c.deleting}
		all := tags(scope, c.use)
		if c.node != "" {
			all[scope.Key("node")] = c.node
		}
		seen := cloud.Observed{Instances: []cloud.Instance{{ID: "i-1", State: c.state, LaunchTime: noon.Add(-time.Hour), Tags: all}}}
		var got []cloud.Verb
		for _, at := range []time.Time{noon, noon.Add(6 * time.Minute)} {
			seen.Listed = at
			plan := pool.Plan(seen, cloud.Want{}, at)
			seen.Memory = plan.Memory
			verb := cloud.Verb("")
			for _, a := range plan.Actions {
				verb = a.Verb
			}
			got = append(got, verb)
		}
		if !slices.Equal(c.want, got) {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}
