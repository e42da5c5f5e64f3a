package apply_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/seed-9e1ffd66/trueup/apply"
	"github.com/seed-9e1ffd66/trueup/internal/test/await"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube/kubetest"
)

// TestHistoriesToOneDesiredStateEndEqual lets programs live through random
// histories: other sets, foreign edits and deletions, restarts, frozen, lost and
// replayed watches. In the end all want the same, and must have the same, and be
// silent. TRUEUP_SEED chooses another run: a number, or "random".
func TestHistoriesToOneDesiredStateEndEqual(t *testing.T) {
	t.Parallel()
	seed := seedOf(t)
	cluster := bare.Cluster(t)
	random := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // a seed is wanted
	final := randomSet(random)
	plain := newHistory(t, cluster, random)
	want := plain.settle(t, final, "")
	for i := 1; i <= 6; i++ {
		own := rand.New(rand.NewPCG(seed, uint64(i))) //nolint:gosec // a seed is wanted
		t.Run(strconv.Itoa(i), func(t *testing.T) {
			t.Parallel()
			h := newHistory(t, cluster, own)
			for range 15 {
				h.step(t)
			}
			h.settle(t, final, want)
		})
	}
}

func seedOf(t *testing.T) uint64 {
	t.Helper()
	seed := uint64(1)
	switch text := os.Getenv("TRUEUP_SEED"); text {
	case "":
	case "random":
		seed = rand.Uint64() //nolint:gosec // any number will do
	default:
		var err error
		seed, err = strconv.ParseUint(text, 10, 64)
		require.NoError(t, err)
	}
	t.Logf("TRUEUP_SEED=%d", seed)
	return seed
}

// history is a program and what happens to it.
type history struct {
	*bench
	random *rand.Rand
	admin  dynamic.Interface
	agent  *agent
	wanted []string
	log    []string
}

func newHistory(t *testing.T, cluster *kubetest.Cluster, random *rand.Rand) *history {
	t.Helper()
	ns := fmt.Sprintf("history-%d", benches.Add(1))
	h := &history{bench: &bench{cluster: cluster, ns: ns, config: rest.CopyConfig(cluster.Config)}, random: random}
	h.owner = apply.Owner{Manager: "bench", Labels: map[string]string{"example.com/owner": ns}, Domain: "example.com"}
	admin, err := dynamic.NewForConfig(h.config)
	require.NoError(t, err)
	h.admin = admin
	h.kubectl(t, "create", "namespace", ns)
	h.agent = h.startKinds(t, nil, kinds[:len(kinds)-1]...)
	waitSynced(t, h.agent)
	return h
}

// randomSet states some of ten objects, each in one of some forms.
func randomSet(random *rand.Rand) []string {
	var set []string
	for i := range 10 {
		form := random.IntN(4)
		if form == 0 {
			continue
		}
		name := fmt.Sprintf("o%d", i)
		switch i % 4 {
		case 0:
			set = append(set, configMap(name, strconv.Itoa(form)))
		case 1:
			set = append(
				set,
				"{apiVersion: v1, kind: Secret, metadata: {name: "+name+", namespace: NAMESPACE}, stringData: {password: x"+strconv.Itoa(form)+"}}",
			)
		case 2:
			ports := []string{"{name: a, port: 53}", "{name: b, port: 53, protocol: UDP}", "{name: c, port: 80}"}[:form]
			set = append(
				set,
				"{apiVersion: v1, kind: Service, metadata: {name: "+name+", namespace: NAMESPACE}, spec: {ports: ["+strings.Join(ports, ", ")+"]}}",
			)
		default:
			web := strings.Replace(selecting("one"), "name: web", "name: "+name, 1)
			set = append(
				set,
				strings.Replace(
					web,
					"image: example.com/web",
					"image: example.com/web, env: [{name: E"+strconv.Itoa(form)+", value: x}], resources: {requests: {cpu: '0."+strconv.Itoa(form)+"'}}",
					1,
				),
			)
		}
	}
	return set
}

// step lets one thing happen.
func (h *history) step(t *testing.T) {
	t.Helper()
	what := h.random.IntN(9)
	h.log = append(h.log, fmt.Sprint(what))
	switch what {
	case 0, 1:
		h.wanted = randomSet(h.random)
	case 2:
		h.edit(t)
	case 3:
		h.remove(t)
	case 4:
		h.agent.stop()
		h.agent = h.startKinds(t, nil, kinds[:len(kinds)-1]...)
		waitSynced(t, h.agent)
	case 5:
		h.agent.net.Freeze()
	case 6:
		h.agent.net.Thaw()
		h.agent.net.Replay()
	case 7:
		h.agent.net.Expire()
	case 8:
		h.agent.net.Cut()
	}
	_, _ = h.pass(t)
}

// pass may fail while the view is behind; only the end counts.
func (h *history) pass(t *testing.T) (apply.Report, error) {
	t.Helper()
	set := h.set(t, slices.Concat(h.wanted, []string{configMap("always", "1")})...)
	report, err := h.agent.Apply(t.Context(), set)
	pruned, pruneErr := h.agent.Prune(t.Context(), set, apply.PruneOptions{Complete: true, Guard: noLimit()})
	report.Results = append(report.Results, pruned.Results...)
	if err == nil {
		err = pruneErr
	}
	return report, err
}

func (h *history) resource(i int) dynamic.ResourceInterface {
	gvr := []schema.GroupVersionResource{
		{Version: "v1", Resource: "configmaps"},
		{Version: "v1", Resource: "secrets"},
		{Version: "v1", Resource: "services"},
		{Group: "apps", Version: "v1", Resource: "deployments"},
	}[i%4]
	return h.admin.Resource(gvr).Namespace(h.ns)
}

// edit is another manager's change of a field that the sets state.
func (h *history) edit(t *testing.T) {
	t.Helper()
	i := h.random.IntN(10)
	patch := []string{
		`{"data":{"key":"theirs"}}`, `{"stringData":{"password":"theirs"}}`,
		`{"spec":{"ports":[{"name":"a","port":53,"targetPort":53}]}}`, `{"spec":{"replicas":2}}`,
	}[i%4]
	_, err := h.resource(i).
		Patch(t.Context(), fmt.Sprintf("o%d", i), types.MergePatchType, []byte(patch), metav1.PatchOptions{FieldManager: "somebody"})
	if err != nil && !apierrors.IsNotFound(err) {
		require.NoError(t, err)
	}
}

func (h *history) remove(t *testing.T) {
	t.Helper()
	i := h.random.IntN(10)
	if err := h.resource(i).Delete(t.Context(), fmt.Sprintf("o%d", i), metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		require.NoError(t, err)
	}
}

// settle ends the history: everything is as wanted within a minute, and stays so
// without a request. It returns what there is in the end.
func (h *history) settle(t *testing.T, final []string, want string) string {
	t.Helper()
	h.agent.net.Thaw()
	h.wanted = final
	var got string
	quiet := 0
	await.Eventually(t, "the end of the history", func() bool {
		h.agent.net.Reset()
		report, err := h.pass(t)
		if err != nil || len(report.Results) > 0 || len(h.agent.net.Writes()) > 0 {
			quiet = 0
			return false
		}
		if quiet++; quiet < 5 {
			return false
		}
		got, err = (&world{bench: h.bench, admin: h.admin}).state(t.Context())
		require.NoError(t, err)
		return want == "" || got == want
	}, func() string {
		return fmt.Sprintf("after %v there is\n%s\nwant\n%s", h.log, got, want)
	})
	h.agent.net.Reset()
	for range 10 {
		_, err := h.pass(t)
		require.NoError(t, err)
	}
	h.agent.net.NoRequests(t)
	return got
}
