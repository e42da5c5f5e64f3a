package regions_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/controlplanetest"
	"github.com/seed-9e1ffd66/trueup/internal/bench/benchfigures"
	"github.com/seed-9e1ffd66/trueup/internal/test/await"
	"github.com/seed-9e1ffd66/trueup/internal/test/pgtest"
)

// TestSoak runs the agent for TRUEUP_SOAK (a duration) on each database while its link fails, it and the replicas of the
// control plane are stopped, and administrators and hands change everything, all drawn from TRUEUP_SEED. In the end the
// region is as wanted and at rest, and nothing that was wanted was deleted.
func TestSoak(t *testing.T) {
	t.Parallel()
	length, seed := controlplanetest.Soak(t)
	kube := startKubernetes(t)
	var mu sync.Mutex
	total := map[string]int{}
	t.Run("on", func(t *testing.T) {
		for i, kind := range controlplanetest.Databases(pgtest.Shared(t)) {
			t.Run(kind.Name, func(t *testing.T) {
				t.Parallel()
				s := &soak{
					bench: newBench(t, kube, "soak-"+kind.Name, kind.Fresh(t)), random: rand.New(rand.NewPCG(seed, uint64(i))),
					tags: map[string]string{}, edited: map[string]int{}, figures: map[string]int{},
				}
				t.Cleanup(func() {
					mu.Lock()
					defer mu.Unlock()
					for name, n := range s.figures {
						total[name] += n
					}
					total["region_soak_wrong_deletions"] += len(s.misjudged())
				})
				s.run(time.Now().Add(length))
			})
		}
	})
	figures := &benchfigures.Book{Out: os.Stdout}
	figures.Add("region_soak_minutes", length.Minutes(), "min")
	for _, name := range []string{"edits", "edits_by_hand", "faults", "restarts", "differences", "wrong_deletions"} {
		figures.Add("region_soak_"+name, float64(total["region_soak_"+name]), "")
	}
	require.Zero(t, total["region_soak_differences"])
	require.Zero(t, total["region_soak_wrong_deletions"])
}

// soak is one run.
type soak struct {
	*bench

	random  *rand.Rand
	agent   *worker
	next    int               // the number of the next deployment
	tags    map[string]string // of the deployments that are wanted
	edited  map[string]int    // edits of each object by hand: the sixth would be a fight
	figures map[string]int
}

func (s *soak) add(figure string) { s.figures["region_soak_"+figure]++ }

func (s *soak) run(until time.Time) {
	s.agent = s.worker()
	s.agent.agent.Periods.Absence = 10 * time.Second
	s.replica()
	for range 8 {
		s.change(0)
	}
	s.agent.start()
	for time.Now().Before(until) {
		switch n := s.random.IntN(20); {
		case n == 0:
			s.add("restarts")
			s.agent.start()
		case n == 1:
			s.add("restarts")
			s.replica()
			s.kill()
		case n == 2:
			s.disturb()
		case n < 10:
			s.add("edits")
			s.change(s.random.IntN(10))
		default:
			s.byHand()
		}
		time.Sleep(time.Duration(s.random.Int64N(int64(time.Second))))
	}
	var differences []string
	await.Until(s.t, 2*await.Moment, "all is as wanted", func() bool {
		differences = s.differences()
		return len(differences) == 0
	}, func() string { return strings.Join(differences, "\n") })
	s.rests()
	s.figures["region_soak_differences"] = len(s.differences())
	s.stop()
}

// change changes the desired state: it makes a deployment, has one go, or gives one another image.
func (s *soak) change(what int) {
	var all []string
	for name := range s.tags {
		all = append(all, name)
	}
	slices.Sort(all)
	switch {
	case len(all) < 5 || what == 0 && len(all) < 14:
		s.next++
		name := fmt.Sprintf("app-%03d", s.next)
		s.tags[name] = "1"
		s.want("1", name)
	case what == 1:
		name := all[s.random.IntN(len(all))]
		delete(s.tags, name)
		s.archive(name)
	default:
		name := all[s.random.IntN(len(all))]
		s.tags[name] = strconv.Itoa(s.random.IntN(1000))
		s.want(s.tags[name], name)
	}
}

// disturb cuts or slows the link to the control plane for some seconds. Edits go on after it.
func (s *soak) disturb() {
	s.add("faults")
	fault := [][2]string{
		{"timeout", `{"timeout":0}`},
		{"latency", `{"latency":800,"jitter":400}`},
		{"reset_peer", `{"timeout":100}`},
		{"limit_data", `{"bytes":2000}`},
	}[s.random.IntN(4)]
	s.toxic(fault[0], fault[1], func() {
		for range 1 + s.random.IntN(4) {
			s.change(s.random.IntN(10))
			s.byHand()
			time.Sleep(time.Duration(s.random.Int64N(int64(3 * time.Second))))
		}
	})
}

// byHand deletes or changes an object behind the agent's back.
func (s *soak) byHand() {
	kinds := []schema.GroupVersionResource{
		{Group: "apps", Version: "v1", Resource: "replicasets"},
		{Version: "v1", Resource: "pods"},
		{Group: "cilium.io", Version: "v2", Resource: "ciliumnetworkpolicies"},
	}
	kind := kinds[s.random.IntN(len(kinds))]
	at, ctx := s.objects.Resource(kind).Namespace(s.name), s.t.Context()
	list, err := at.List(ctx, metav1.ListOptions{})
	require.NoError(s.t, err)
	if len(list.Items) == 0 {
		return
	}
	o := list.Items[s.random.IntN(len(list.Items))]
	if s.edited[o.GetName()]++; s.edited[o.GetName()] > 4 {
		return
	}
	switch what := s.random.IntN(3); {
	case kind.Resource == "pods" || what == 0:
		err = at.Delete(ctx, o.GetName(), metav1.DeleteOptions{})
	case what == 1 && kind.Resource == "replicasets":
		_, err = at.Patch(ctx, o.GetName(), types.JSONPatchType,
			[]byte(`[{"op":"replace","path":"/spec/template/spec/containers/0/image","value":"example.com/by-hand"}]`), metav1.PatchOptions{})
	default:
		_, err = at.Patch(ctx, o.GetName(), types.MergePatchType,
			[]byte(`{"metadata":{"labels":{"app.kubernetes.io/managed-by":null}}}`), metav1.PatchOptions{})
	}
	if !apierrors.IsNotFound(err) {
		require.NoError(s.t, err)
	}
	s.add("edits_by_hand")
}

// differences returns how the region differs from what is wanted, in Kubernetes and in the reports.
func (s *soak) differences() (found []string) {
	sets, err := s.kube.AppsV1().ReplicaSets(s.name).List(s.t.Context(), metav1.ListOptions{})
	require.NoError(s.t, err)
	there := map[string]*appsv1.ReplicaSet{}
	for i := range sets.Items {
		there[sets.Items[i].Name] = &sets.Items[i]
	}
	shown := func(set *appsv1.ReplicaSet) string {
		if set == nil {
			return "no ReplicaSet"
		}
		return fmt.Sprintf("image %q, labels %v, deleted %v, finalizers %v, status %+v",
			set.Spec.Template.Spec.Containers[0].Image, set.Labels, set.DeletionTimestamp, set.Finalizers, set.Status)
	}
	for name, tag := range s.tags {
		set := there[name]
		if set == nil || set.Spec.Template.Spec.Containers[0].Image != image(tag) || !s.runs(tag, name) {
			found = append(found, fmt.Sprintf("%s: want %s, is %s, reported %+v", name, image(tag), shown(set), s.stored(name).Instances))
		}
		delete(there, name)
	}
	for name, set := range there {
		found = append(found, name+" is left: "+shown(set))
	}
	return found
}
