package kube_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed-9e1ffd66/trueup/cloud/demand"
	"github.com/seed-9e1ffd66/trueup/cloud/kube"
)

// verdictFile holds the situations that -situations writes, with what
// cluster-autoscaler says of them: its predicates for each pod and node, and its
// estimator for the machines. Its module is not served by the Go module proxy, so
// that no program of this repository can ask it; its answers are recorded.
const verdictFile = "testdata/verdicts.json"

type verdicts struct {
	// Peer is the program whose verdicts these are, with its version.
	Peer       string
	Situations []situation
}

// situation is nodes with pods on them, and pods that wait.
type situation struct {
	Name  string
	Nodes []*corev1.Node
	Bound []*corev1.Pod
	Pods  []*corev1.Pod
	// Template is a machine that may be launched.
	Template *corev1.Node
	// Refused has, for each pod and each node that it cannot be placed on now,
	// "pod@node".
	Refused []string
	// Alike reports that the pods have no constraints. Then Machines is how many
	// machines of the template they need if there are no nodes, and Placed how
	// many of the pods that helps.
	Alike            bool
	Machines, Placed int
}

var situationsTo = flag.String("situations", "", "write the situations, without verdicts, to this file")

func situations() []situation {
	var all []situation
	for seed := range uint64(60) {
		b := newBatch(seed+1, fmt.Sprint("v", seed))
		s := situation{Name: fmt.Sprintf("seed %d", seed+1), Alike: seed%4 == 3, Template: b.node("template", "none", "x", 4, 10)}
		tainted := func(n *corev1.Node) *corev1.Node {
			if b.one(3) {
				n.Spec.Taints = []corev1.Taint{
					{
						Key:    "pool",
						Value:  "a",
						Effect: pick(b, corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute, corev1.TaintEffectPreferNoSchedule),
					},
				}
			}
			n.Spec.Unschedulable = b.one(8)
			if b.one(8) {
				delete(n.Labels, zoneKey)
			}
			return n
		}
		for i := range 4 {
			s.Nodes = append(s.Nodes, tainted(b.node(fmt.Sprint("n", i), "none", pick(b, "x", "y", "z"), pick(b, 2, 4), pick(b, 2, 5))))
		}
		names := []string{"app-0", "app-1", "app-2"}
		for _, app := range names {
			p := b.pod(app)
			if !s.Alike {
				b.constrain(&p, names...)
				b.constrain(&p, names...)
				if b.one(3) {
					p.Spec.Tolerations = []corev1.Toleration{
						{
							Key:      "pool",
							Operator: pick(b, corev1.TolerationOpExists, corev1.TolerationOpEqual),
							Effect:   pick(b, corev1.TaintEffectNoSchedule, ""),
						},
					}
				}
			}
			p.UID = types.UID(app)
			for i := range b.IntN(3) {
				old := p.DeepCopy()
				old.Name, old.UID, old.Spec.NodeName = fmt.Sprint(app, "-old-", i), types.UID(fmt.Sprint(app, "-old-", i)), s.Nodes[b.IntN(4)].Name
				if b.one(6) {
					old.DeletionTimestamp = &metav1.Time{Time: metav1.Unix(1, 0).UTC()}
				}
				s.Bound = append(s.Bound, old)
			}
			for i := range map[bool]int{false: 1, true: 7}[s.Alike] {
				one := p.DeepCopy()
				one.Name, one.UID = fmt.Sprint(app, "-", i), types.UID(fmt.Sprint(app, "-", i))
				s.Pods = append(s.Pods, one)
			}
		}
		all = append(all, s)
	}
	return all
}

func TestWriteTheSituations(t *testing.T) {
	t.Parallel()
	if *situationsTo == "" {
		t.Skip("only with -situations")
	}
	text, err := json.Marshal(verdicts{Situations: situations()})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(*situationsTo, text, 0o600))
}

func TestDemandSaysWhatClusterAutoscalerSays(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.FromSlash(verdictFile))
	require.NoError(t, err)
	var recorded verdicts
	require.NoError(t, json.Unmarshal(text, &recorded))
	require.NotEmpty(t, recorded.Peer)
	questions, refusals, ours, theirs := 0, 0, 0, 0
	for _, s := range recorded.Situations {
		in := demand.Input{}
		for _, n := range s.Nodes {
			node := kube.Node(n, slices.DeleteFunc(slices.Clone(s.Bound), func(p *corev1.Pod) bool { return p.Spec.NodeName != n.Name })...)
			in.Nodes = append(in.Nodes, &node)
		}
		for _, p := range s.Pods {
			pod := kube.Pod(p)
			for _, n := range in.Nodes {
				one := demand.Input{Pods: []*demand.Pod{&pod}}
				for _, other := range in.Nodes {
					full := *other
					if other != n {
						full.Allocatable.Pods = 0 // it is there, but has no room
					}
					one.Nodes = append(one.Nodes, &full)
				}
				want := !slices.Contains(s.Refused, p.Name+"@"+n.Name)
				require.Equal(t, want, len(demand.Place(one).Placements) == 1, "%s: %s on %s", s.Name, p.Name, n.Name)
				questions++
				if !want {
					refusals++
				}
			}
		}
		if s.Alike {
			var alone demand.Input
			for _, p := range s.Pods {
				pod := kube.Pod(p)
				alone.Pods = append(alone.Pods, &pod)
			}
			alone.Supplies = []demand.Supply{{Pool: "a", MaxLaunches: 100, Templates: []demand.NodeTemplate{{Node: kube.Node(s.Template)}}}}
			r, machines := demand.Place(alone), 0
			for _, d := range r.Pools {
				machines = d.Launch[0].Count
			}
			require.Len(t, r.Placements, s.Placed, s.Name)
			ours, theirs = ours+machines, theirs+s.Machines
		}
	}
	t.Logf("%d questions, %d of them answered no, as by %s; %d machines, %d there", questions, refusals, recorded.Peer, ours, theirs)
	// It goes on where it has placed the last pod, which is sometimes better and
	// sometimes worse than the first machine with room.
	require.InEpsilon(t, theirs, ours, 0.05)
}
