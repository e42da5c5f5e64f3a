package simtest_test

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/apply/applytest"
	"github.com/seed-9e1ffd66/trueup/reconcile/simtest"
)

// runs is the spec of a pod with one container.
func runs(image string) map[string]any {
	return map[string]any{"containers": []any{map[string]any{"name": "web", "image": image}}}
}

// imageOf returns the image of the first container of a pod.
func imageOf(spec any) string {
	containers, _ := simtest.Object(spec.(map[string]any)).Field("containers").([]any)
	return fmt.Sprint(containers[0].(map[string]any)["image"])
}

// rolled returns what is wrong about a Deployment and its pods.
func rolled(w *simtest.World, d simtest.Object) error {
	running, image := 0.0, imageOf(d.Field("spec", "template", "spec"))
	for _, pod := range w.Objects("pods") {
		if pod.Label("app") != d.Name() {
			continue
		}
		if pod.Deleting() || imageOf(pod["spec"]) != image || pod.Field("status", "phase") != "Running" {
			return fmt.Errorf("pod %s of %s: %v %v", pod.Name(), image, pod.Field("spec"), pod.Field("status", "phase"))
		}
		running++
	}
	if running != d.Field("spec", "replicas") {
		return fmt.Errorf("%v pods run: %v", running, d["spec"])
	}
	for _, field := range []string{"replicas", "updatedReplicas", "readyReplicas", "availableReplicas"} {
		if d.Field("status", field) != running {
			return fmt.Errorf("%v pods run: %v", running, d["status"])
		}
	}
	if d.Field("status", "observedGeneration") != d.Field("metadata", "generation") {
		return fmt.Errorf("generation %v: %v", d.Field("metadata", "generation"), d["status"])
	}
	return nil
}

func TestADeploymentRunsItsTemplateAlone(t *testing.T) {
	t.Parallel()
	images, seen := 0, 0
	for seed := range uint64(5) {
		r := simtest.Simulate(t, func() simtest.Scenario {
			s := pods(simtest.Kubelet{})
			s.Kinds = append(
				s.Kinds[:1],
				simtest.Kind{Group: "apps", Version: "v1", Resource: "deployments", Kind: "Deployment", Status: true},
				simtest.Kind{Group: "apps", Version: "v1", Resource: "replicasets", Kind: "ReplicaSet", Status: true},
			)
			s.Actors = append(s.Actors, simtest.ReplicaSets, simtest.Deployments)
			s.Edit = func(w *simtest.World) {
				name := fmt.Sprint("d", w.Random.IntN(2))
				images++
				spec := map[string]any{
					"replicas": float64(w.Random.IntN(4)), "selector": map[string]any{"matchLabels": map[string]any{"app": name}},
					"template": map[string]any{
						"metadata": map[string]any{"labels": map[string]any{"app": name}},
						"spec":     runs(fmt.Sprint("image", images)),
					},
				}
				if w.Update("deployments.apps", "shop", name, func(o simtest.Object) { o["spec"] = spec }) != nil {
					_ = w.Create(simtest.Object{ // it does not exist
						"apiVersion": "apps/v1", "kind": "Deployment", "metadata": map[string]any{"namespace": "shop", "name": name}, "spec": spec,
					})
				}
			}
			s.Converged = func(w *simtest.World) error {
				for _, d := range w.Objects("deployments.apps") {
					if err := rolled(w, d); err != nil {
						return err
					}
					seen++
				}
				return nil
			}
			return s
		}, seed+1)
		require.Empty(t, r.Wrong, "seed %d", seed+1)
	}
	require.Greater(t, seen, 10)
}

// TestADeploymentThatIsDeletedInTheForegroundOutlivesItsPods has a program that deletes it once
// its pods run.
func TestADeploymentThatIsDeletedInTheForegroundOutlivesItsPods(t *testing.T) {
	t.Parallel()
	gone := 0
	r := simtest.Simulate(t, func() simtest.Scenario {
		s := pods(simtest.Kubelet{})
		s.Kinds = append(
			s.Kinds[:1],
			simtest.Kind{Group: "apps", Version: "v1", Resource: "deployments", Kind: "Deployment", Status: true},
			simtest.Kind{Group: "apps", Version: "v1", Resource: "replicasets", Kind: "ReplicaSet", Status: true},
		)
		s.Disturbances, s.Edits, s.ReadOnly = []applytest.Disturbance{}, 1, false
		s.Actors = append(s.Actors, simtest.ReplicaSets, simtest.Deployments)
		labels := map[string]any{"app": "web"}
		s.Edit = func(w *simtest.World) {
			if err := w.Create(simtest.Object{
				"apiVersion": "apps/v1", "kind": "Deployment", "metadata": map[string]any{"namespace": "shop", "name": "web"},
				"spec": map[string]any{
					"replicas": 2.0, "selector": map[string]any{"matchLabels": labels},
					"template": map[string]any{"metadata": map[string]any{"labels": labels}, "spec": runs("web")},
				},
			}); err != nil {
				panic(err)
			}
		}
		s.Program = func(ctx context.Context, net http.RoundTripper) error {
			time.Sleep(3 * time.Minute)
			r, err := http.NewRequestWithContext(
				ctx, http.MethodDelete, "http://simtest/apis/apps/v1/namespaces/shop/deployments/web?propagationPolicy=Foreground", nil,
			)
			if err != nil {
				return err
			}
			answer, err := net.RoundTrip(r)
			if err != nil {
				return err
			}
			<-ctx.Done()
			return answer.Body.Close()
		}
		s.Check = func(w *simtest.World, c simtest.Change) error {
			if c.After != nil || c.Before["kind"] != "Deployment" {
				return nil
			}
			gone++
			if left := w.Objects("pods"); len(left) > 0 {
				return fmt.Errorf("%d pods are left", len(left))
			}
			return nil
		}
		return s
	}, 1)
	require.Empty(t, r.Wrong)
	require.Equal(t, 1, gone)
}

// TestAWorldEndsOnce has an end for the world with a history, and for the one to compare with.
func TestAWorldEndsOnce(t *testing.T) {
	t.Parallel()
	ended := 0
	s := short(copier{})
	s.Disturbances, s.End = []applytest.Disturbance{}, func(*simtest.World) { ended++ }
	require.Empty(t, simtest.Simulate(t, always(s), 1).Wrong)
	require.Equal(t, 2, ended)
	s.Converged = func(*simtest.World) error { return fmt.Errorf("never") }
	require.NotEmpty(t, simtest.Simulate(t, always(s), 1).Wrong)
	require.Equal(t, 3, ended, "of a history that is wrong there is no second world")
}

// TestWritesAtRestThatChangeNothingAreBounded has a program that writes the same again and again.
func TestWritesAtRestThatChangeNothingAreBounded(t *testing.T) {
	t.Parallel()
	s := short(copier{restless: true})
	s.Disturbances, s.Rest, s.Refreshes = []applytest.Disturbance{}, 10*time.Minute, 1
	wrong := simtest.Simulate(t, always(s), 1).Wrong
	require.Regexp(t, `writes at rest, the first of them: update configmaps shop/\S+ \(it changed nothing\)$`, wrong[0])
	s.Refreshes = 1_000_000
	require.Empty(t, simtest.Simulate(t, always(s), 1).Wrong)
}

// managing is a Machinery in which each write of an object moves its managedFields.
type managing struct{ simtest.Machinery }

func (managing) Update(_, next simtest.Object, _ simtest.Write) (simtest.Object, error) {
	next, metadata := maps.Clone(next), maps.Clone(next["metadata"].(map[string]any))
	metadata["managedFields"] = []any{map[string]any{"manager": fmt.Sprint("after ", metadata["resourceVersion"])}}
	next["metadata"] = metadata
	return next, nil
}

// TestARefreshIsCounted has a program that writes an object once at each start. It starts once
// within the rest.
func TestARefreshIsCounted(t *testing.T) {
	t.Parallel()
	starts := 0
	refreshing := func(data string, refreshes int, machinery simtest.Machinery) []string {
		s := short(copier{})
		s.Disturbances, s.Rest, s.Refreshes, s.Machinery = []applytest.Disturbance{}, 10*time.Minute, refreshes, machinery
		run := s.Program
		s.Program = func(ctx context.Context, net http.RoundTripper) error {
			starts++
			_, _ = send(ctx, net, http.MethodPut, "/api/v1/namespaces/shop/configmaps/first", // at first it does not exist
				`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"first"}`+strings.ReplaceAll(data, "N", fmt.Sprint(starts))+`}`)
			return run(ctx, net)
		}
		return simtest.Simulate(t, always(s), 1).Wrong
	}
	const blame = "1 writes at rest, the first of them: update configmaps shop/first"
	require.Equal(t, []string{blame + " (it changed nothing)"}, refreshing("", 0, nil))
	require.Empty(t, refreshing("", 1, nil))
	require.Equal(t, []string{blame + " (it changed the managers of fields alone)"}, refreshing("", 0, managing{}))
	require.Empty(t, refreshing("", 1, managing{}))
	require.Contains(t, refreshing(`,"data":{"start":"N"}`, 1, nil), blame, "a change is no refresh")
}

func TestAChangeOfManagersAloneIsKnown(t *testing.T) {
	t.Parallel()
	object := func(version, manager, image string) simtest.Object {
		return simtest.Object{
			"metadata": map[string]any{"resourceVersion": version, "managedFields": []any{map[string]any{"manager": manager}}},
			"spec":     map[string]any{"image": image},
		}
	}
	before := object("1", "a", "x")
	require.True(t, simtest.MovesAlone(simtest.Change{Before: before, After: object("2", "b", "x")}))
	require.False(t, simtest.MovesAlone(simtest.Change{Before: before, After: object("2", "b", "y")}))
	require.False(t, simtest.MovesAlone(simtest.Change{After: before}))
	require.False(t, simtest.MovesAlone(simtest.Change{Before: before}))
}

// TestAPodOfABackupRuns has one that runs, and of which a restored backup knows nothing yet.
func TestAPodOfABackupRuns(t *testing.T) {
	t.Parallel()
	restored := 0
	s := pods(simtest.Kubelet{})
	s.Kinds, s.Edits = s.Kinds[:1], 1
	s.Edit = func(w *simtest.World) {
		pod := simtest.Object{
			"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"namespace": "shop", "name": "a"},
			"spec": map[string]any{"restartPolicy": "Always"},
		}
		if err := w.Create(pod); err != nil {
			panic(err)
		}
		w.After(2*time.Minute, func() {
			if w.Object("pods", "shop", "a").Field("status", "phase") == "Running" {
				restored++
			}
			_ = w.As("backup").Update("pods", "shop", "a", func(o simtest.Object) { o.Set("Pending", "status", "phase") }) // it exists
		})
	}
	s.Converged = func(w *simtest.World) error {
		if phase := w.Object("pods", "shop", "a").Field("status", "phase"); phase != "Running" {
			return fmt.Errorf("it is %v", phase)
		}
		return nil
	}
	require.Empty(t, simtest.Simulate(t, always(s), 1).Wrong)
	require.Equal(t, 1, restored)
}
