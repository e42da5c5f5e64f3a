package operator_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"

	"github.com/seed-9e1ffd66/trueup/cmd/api/platform/v1alpha1"
	application "github.com/seed-9e1ffd66/trueup/cmd/application/operator"
)

func long() bool { return os.Getenv("TRUEUP_SWEEP") == "all" }

// all is an application with everything that is made outside of the cluster.
const all = ", imageRef: 'app:1', database: {enabled: true, migrations: {engine: knex}}, storage: {enabled: true, buckets: [{name: a}, {name: b, public: true}]}, auth: {enabled: true}, redis: {enabled: true}, scaling: {min: 1}"

// world is one run of the crash matrix: a namespace with an Application of its name, which
// stands in the name of everything that is made for it.
type world struct {
	*bench

	apps   dynamic.ResourceInterface
	before snapshot
}

func (c *cell) world(t *testing.T, n int) *world {
	t.Helper()
	client, err := dynamic.NewForConfig(c.cluster.Config)
	require.NoError(t, err)
	b := c.bench(t, fmt.Sprintf("w%04d", n))
	w := &world{bench: b, apps: client.Resource(v1alpha1.GroupVersion().WithResource("applications")).Namespace(b.name)}
	b.eventually("the namespace is set up", func() bool {
		return b.in(
			"get",
			"sa/default",
			"cm/kube-root-ca.crt",
			"--ignore-not-found",
			"-o",
			"name",
		) == "serviceaccount/default\nconfigmap/kube-root-ca.crt\n"
	})
	w.before = b.snapshot()
	return w
}

// until runs the operator with a life until the state is reached or the life has ended, and
// then for a moment more. Another life follows one that has ended.
func (w *world) until(l *life, done func(phase string) bool) {
	w.Helper()
	for _, l := range []*life{l, {world: w.name}} {
		r := w.run(w.T, l, 0)
		deadline := time.Now().Add(2 * time.Minute)
		for since := time.Now(); !l.ended(); time.Sleep(20 * time.Millisecond) {
			require.Less(w, time.Now(), deadline, "it does not come to its end after the end at %s, after %v: %v", l.end, l.after, l.calls())
			phase := ""
			if o, err := w.apps.Get(w.Context(), w.name, metav1.GetOptions{}); err == nil {
				phase = phaseOf(o.Object)
			}
			if !done(phase) {
				since = time.Now()
			}
			if calls := l.calls(); len(calls) > 0 && calls[len(calls)-1].at.After(since) {
				since = calls[len(calls)-1].at
			}
			if time.Since(since) > 300*time.Millisecond {
				r.stop()
				return
			}
		}
		r.stop()
		// Its holder is dead. Without this the next process waits for 15 s.
		_, err := w.cluster.Kubectl(w.Context(), "delete", "lease", application.LeaseName, "-n", application.Namespace, "--ignore-not-found")
		require.NoError(w, err)
	}
	require.Fail(w, "the second life has ended")
}

func phaseOf(o map[string]any) string {
	status, _ := o["status"].(map[string]any)
	phase, _ := status["phase"].(string)
	return phase + "."
}

func (w *world) make(l *life) {
	w.Helper()
	w.app(w.name, all)
	w.until(l, func(phase string) bool { return phase == "Running." })
}

func (w *world) remove(l *life) {
	w.Helper()
	w.in("delete", "app", w.name, "--wait=false")
	w.until(l, func(phase string) bool { return phase == "" })
}

// made returns what there is of the world, and requires that it is used with the password
// of the Secret, and that nothing else has changed.
func (w *world) made() []string {
	w.Helper()
	w.untouched(w.before, w.name, w.name)
	conn, err := w.login(w.name)
	require.NoError(w, err)
	var path string
	require.NoError(w, conn.QueryRow(w.Context(), "SHOW search_path").Scan(&path))
	require.Equal(w, "prod_"+w.name, path)
	require.NoError(w, conn.Close(context.WithoutCancel(w.Context())))
	require.Equal(w, []string{"prod_" + w.name, "prod_" + w.name + "_anon", "prod_" + w.name + "_app"}, w.left("prod_"+w.name))
	return ofOurs(w.everything(), w.name)
}

// boundary is a call and the side of it that a life ends on.
type boundary struct {
	call

	after bool
}

// boundariesOf returns both sides of each call of a run.
func boundariesOf(calls []sent) (all []boundary) {
	for _, s := range calls {
		all = append(all, boundary{s.call, false}, boundary{s.call, true})
	}
	return all
}

// sample returns all boundaries with TRUEUP_SWEEP=all, otherwise n of each dependency,
// drawn again by each run.
func sample(all []boundary, n int) []boundary {
	if long() {
		return all
	}
	of := map[string][]boundary{}
	for _, at := range all {
		of[at.to] = append(of[at.to], at)
	}
	var some []boundary
	for _, to := range slices.Sorted(maps.Keys(of)) {
		for range n {
			some = append(some, of[to][rand.IntN(len(of[to]))])
		}
	}
	return some
}

// TestCrashesOfTheOperator is D12 and D15: the operator ends before or after each write to
// Kubernetes, statement of SQL, request to S3 and to Keycloak, of a creation and of a
// deletion. The next one comes to the end of an undisturbed run, and what others have is
// untouched.
func TestCrashesOfTheOperator(t *testing.T) {
	if testing.Short() {
		t.Skip("long: a crash after each call")
	}
	t.Parallel()
	c := newWholeCell(t)
	c.bench(t, "default-strangers").strangers()

	undisturbed := c.world(t, 0)
	creation, deletion := &life{world: undisturbed.name}, &life{world: undisturbed.name}
	undisturbed.make(creation)
	want := undisturbed.made()
	require.Greater(t, len(want), 25, "%s", strings.Join(want, "\n"))
	undisturbed.remove(deletion)
	undisturbed.untouched(undisturbed.before, none, undisturbed.name)
	makes, removes := boundariesOf(creation.calls()), boundariesOf(deletion.calls())
	for _, all := range [][]boundary{makes, removes} {
		of := map[string]int{}
		for _, at := range all {
			of[at.to]++
		}
		require.Len(t, of, 4, "each dependency is used: %v", of)
		t.Logf("%d boundaries: %v", len(all), of)
	}

	// A world ends its creation at one, its deletion at another. What does not come, as one
	// of two writes of a status that became one, is tried again.
	first, second := sample(makes, 1), sample(removes, 1)
	reached, tried, again := 0, len(first)+len(second), map[boundary]int{}
	for n := 0; n < len(first) || n < len(second); n++ {
		w := c.world(t, n+1)
		for _, phase := range []struct {
			boundaries *[]boundary
			do         func(*life)
			check      func()
		}{
			{&first, w.make, func() {
				require.Empty(t, cmp.Diff(want, w.made()), "after the end at %v", first[min(n, len(first)-1)])
			}},
			{&second, w.remove, func() { w.untouched(w.before, none, w.name) }},
		} {
			l := &life{world: w.name}
			var at boundary
			if n < len(*phase.boundaries) {
				at = (*phase.boundaries)[n]
				l.end, l.after = at.call, at.after
			}
			phase.do(l)
			if l.ended() {
				reached++
			} else if again[at]++; at.to != "" && again[at] <= 2 {
				*phase.boundaries = append(*phase.boundaries, at)
			}
			phase.check()
		}
	}
	fmt.Printf("figure application_crash_boundaries %d of %d\n", reached, tried)
	fmt.Println("figure application_foreign_touched 0")
	require.LessOrEqual(t, tried-reached, max(1, tried/20), "nearly all are reached: %v", again)
}
