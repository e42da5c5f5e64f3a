package operator_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cloud"
	"github.com/seed-9e1ffd66/trueup/cmd/api/stratos/v1alpha1"
	"github.com/seed-9e1ffd66/trueup/reconcile/simtest"
)

// TestAnotherNameOfTheClusterTouchesNoMachine starts the operator with another --cluster-name for
// ten minutes, within which the pool is deleted. Its lists lack all machines then.
func TestAnotherNameOfTheClusterTouchesNoMachine(t *testing.T) {
	t.Parallel()
	looked := false
	var told, deleting []string
	var full map[string]any
	r := simtest.Simulate(t, func() simtest.Scenario {
		var p *pooled
		var before, wrong []string
		machines := func(w *simtest.World) (all []string) {
			for _, i := range p.Cloud.Instances() {
				all = append(all, fmt.Sprint(i.ID, i.State, i.Tags))
			}
			for _, n := range w.Objects("nodes") {
				all = append(all, fmt.Sprint(n.Name(), n.Field("metadata", "labels"), n.Field("metadata", "annotations"), n.Field("spec")))
			}
			slices.Sort(all)
			return all
		}
		p, s := calm(func(w *simtest.World) {
			w.After(5*time.Minute, func() { // as an older version has left it
				_ = w.As("older").Update(poolsKind, "", "p0", func(o simtest.Object) { o.Set("", "status", "clusterName") }) // it exists
			})
			w.After(7*time.Minute, func() {
				p.cluster, before = "other", machines(w)
				if name := w.Object(poolsKind, "", "p0").Field("status", "clusterName"); name != "c" {
					w.Blame("status.clusterName is %v", name)
				}
			})
			w.After(9*time.Minute, func() { _ = w.Create(replicas("r1", "p0", 1, "3")) }) // it does not exist
			w.After(11*time.Minute, func() { told = eventNotes(w, "r1", "NoMachineFits") })
			w.After(12*time.Minute, func() { _ = w.Delete(poolsKind, "", "p0") })
			w.After(17*time.Minute, func() {
				p.cluster, looked = "", true
				pool := w.Object(poolsKind, "", "p0")
				deleting, full = eventNotes(w, "p0", "Deleting"), conditionOf(pool, v1alpha1.ConditionFull)
				if pool == nil {
					w.Blame("the pool is gone, its machines are left")
					return
				}
				for _, is := range pool.Field("status", "conditions").([]any) { //nolint:forcetypeassert // a list
					c := simtest.Object(is.(map[string]any)) //nolint:forcetypeassert // of objects
					if c.Field("type") == v1alpha1.ConditionDegraded {
						wrong = append(wrong, fmt.Sprint(c.Field("reason"), ": ", c.Field("message")))
					}
				}
				if now := machines(w); !slices.Equal(before, now) {
					w.Blame("machines and Nodes were %q, and are %q", before, now)
				}
			})
		}, poolOf(3, 1, nil), replicas("r0", "p0", 1, "3"))
		run := s.Program
		s.Program = func(ctx context.Context, net http.RoundTripper) error {
			for _, until := range []time.Duration{8 * time.Minute, 10 * time.Minute, time.Hour} {
				life, end := context.WithTimeout(ctx, until)
				err := run(life, net)
				end()
				if err != nil || ctx.Err() != nil {
					return err
				}
			}
			return nil
		}
		s.Converged = func(w *simtest.World) error {
			if before == nil {
				return nil // the world to compare with
			}
			want := []string{`ClusterNameChanged: --cluster-name is "other", and the pool has machines of cluster "c": ` +
				"none is drained or terminated, and the pool is not deleted, until the operator is started with that name"}
			if !slices.Equal(want, wrong) {
				return fmt.Errorf("the pool said %q", wrong)
			}
			for _, i := range p.Cloud.Instances() {
				if i.Tags["stratos.sh/cluster"] == "c" && i.State != cloud.InstanceTerminated {
					return fmt.Errorf("machine %s of the deleted pool is %s", i.ID, i.State)
				}
			}
			if w.Object(poolsKind, "", "p0") != nil {
				return errors.New("the pool is left")
			}
			return nil
		}
		return s
	}, 1)
	require.Empty(t, r.Wrong)
	require.True(t, looked)
	require.Len(t, told, 1)
	require.Contains(t, told[0], `pool p0: has no machine that can be started or launched: ClusterNameChanged: --cluster-name is "other"`)
	require.Empty(t, deleting, "none is drained")
	require.Equal(t, "Unknown", full["status"])
	require.Equal(t, 2, integer(full["observedGeneration"]))
}

// TestAPoolWhoseClassIsBeingDeletedSaysSo in its conditions, to pods that wait for it, and in the class.
func TestAPoolWhoseClassIsBeingDeletedSaysSo(t *testing.T) {
	t.Parallel()
	var told []string
	var full, inUse map[string]any
	r := simtest.Simulate(t, func() simtest.Scenario {
		_, s := calm(func(w *simtest.World) {
			w.After(5*time.Minute, func() { _ = w.Delete(classesKind, "", "c0") })        // it exists
			w.After(6*time.Minute, func() { _ = w.Create(replicas("r1", "p0", 1, "3")) }) // it does not exist
			w.After(7*time.Minute, func() {
				told = eventNotes(w, "r1", "NoMachineFits")
				full, inUse = conditionOf(w.Object(poolsKind, "", "p0"), v1alpha1.ConditionFull),
					conditionOf(w.Object(classesKind, "", "c0"), v1alpha1.ConditionInUse)
			})
		}, poolOf(3, 0, nil), replicas("r0", "p0", 1, "3"))
		return s
	}, 1)
	require.Empty(t, r.Wrong)
	require.Len(t, told, 1)
	require.Contains(t, told[0],
		`pool p0: has no machine that can be started or launched: NodeClassNotReady: AWSNodeClass "c0": it is being deleted`)
	require.Equal(t, "False", full["status"])
	require.Equal(t, "NodeClassNotReady", full["reason"])
	require.Contains(t, full["message"], "it is being deleted")
	require.Equal(t, "WaitsForPools", inUse["reason"])
	require.Contains(t, inUse["message"], "stays until the 1 pools that use it")
}
