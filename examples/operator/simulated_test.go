package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/seed-9e1ffd66/trueup/reconcile/simtest"
	"github.com/seed-9e1ffd66/trueup/reconcile/simtest/upstream"
)

// simulated is the whole program, with its Lease, and a user who edits two WebApps.
func simulated() simtest.Scenario {
	return simtest.Scenario{
		Kinds: []simtest.Kind{
			{Group: "example.com", Version: "v1", Resource: "webapps", Kind: "WebApp", Status: true},
			{Group: "apps", Version: "v1", Resource: "deployments", Kind: "Deployment", Status: true},
			{Version: "v1", Resource: "services", Kind: "Service", Status: true},
			{Version: "v1", Resource: "configmaps", Kind: "ConfigMap"},
			{Version: "v1", Resource: "pods", Kind: "Pod", Status: true},
			{Group: "events.k8s.io", Version: "v1", Resource: "events", Kind: "Event"},
		},
		Machinery: &upstream.Machinery{Scheme: scheme.Scheme},
		Program: func(ctx context.Context, net http.RoundTripper) error {
			return run(ctx, &rest.Config{Host: "http://simtest", Transport: net}, "system", "0", slog.New(slog.DiscardHandler))
		},
		Actors: []func(*simtest.World, simtest.Change){rollOut},
		// A Lease is written every two seconds: an hour is many.
		Edits: 8, Rest: time.Hour,
		Edit: func(w *simtest.World) {
			name := fmt.Sprint("w", w.Random.IntN(2))
			spec := map[string]any{"image": fmt.Sprint("example.com/w:", w.Random.IntN(3)), "replicas": w.Random.IntN(3), "port": 8080}
			if w.Random.IntN(2) == 0 {
				spec["config"] = map[string]any{"COLOR": fmt.Sprint(w.Random.IntN(3))}
			}
			switch live := w.Object("webapps.example.com", "shop", name); {
			case w.Random.IntN(6) == 0:
				_ = w.Delete("webapps.example.com", "shop", name) // it may not exist
			case live == nil:
				_ = w.Create(simtest.Object{ // its name may still be going
					"apiVersion": "example.com/v1", "kind": "WebApp", "metadata": map[string]any{"namespace": "shop", "name": name}, "spec": spec,
				})
			default:
				_ = w.Update("webapps.example.com", "shop", name, func(o simtest.Object) { o["spec"] = spec }) // it exists
			}
		},
		Check: simtest.Checks(
			simtest.NotAnothers("deployments.apps", owned), simtest.NotAnothers("services", owned), simtest.NotAnothers("configmaps", owned),
		),
		Converged: func(w *simtest.World) (err error) {
			for _, app := range w.Objects("webapps.example.com") {
				err = errors.Join(err, converged(w, app))
			}
			return errors.Join(err, simtest.TrueAtRest("webapps.example.com", "Ready")(w))
		},
		// What is wanted is hashed with the UID of the WebApp.
		State: func(w *simtest.World) string {
			lines := strings.Split(regexp.MustCompile(`"example.com/desired-hash":"[0-9a-f]+",?`).ReplaceAllString(w.State(), ""), "\n")
			slices.Sort(lines)
			return strings.Join(lines, "\n")
		},
	}
}

// rollOut is the controller of Deployments.
func rollOut(w *simtest.World, c simtest.Change) {
	generation := c.After.Field("metadata", "generation")
	if c.After["kind"] != "Deployment" || c.Before != nil && c.Before.Field("metadata", "generation") == generation {
		return
	}
	w.After(time.Duration(1+w.Dice("deployment "+c.After.Name()).IntN(20))*time.Second, func() {
		// It may have gone.
		_ = w.As("deployment controller").Update("deployments.apps", c.After.Namespace(), c.After.Name(), func(o simtest.Object) {
			n := o.Field("spec", "replicas")
			o["status"] = map[string]any{
				"observedGeneration": o.Field("metadata", "generation"),
				"replicas":           n, "updatedReplicas": n, "readyReplicas": n, "availableReplicas": n,
				"conditions": []any{map[string]any{"type": "Available", "status": "True"}},
			}
		})
	})
}

func converged(w *simtest.World, app simtest.Object) error {
	web := w.Object("deployments.apps", "shop", app.Name())
	config := w.Object("configmaps", "shop", app.Name()+"-config")
	switch {
	case app.Deleting():
		return fmt.Errorf("%s is still there", app.Name())
	case web == nil || fmt.Sprint(web.Field("spec", "replicas")) != fmt.Sprint(app.Field("spec", "replicas")):
		return fmt.Errorf("the Deployment of %s is %v", app.Name(), web)
	case (config != nil) != (app.Field("spec", "config") != nil):
		return fmt.Errorf("%s wants the configuration %v, and has %v", app.Name(), app.Field("spec", "config"), config)
	}
	return nil
}

func owned(o simtest.Object) bool { return o.Owner() != "" }

func TestTheOperatorInASimulatedWorld(t *testing.T) {
	t.Parallel()
	histories := uint64(20)
	if testing.Short() {
		histories = 4
	}
	for seed := range histories {
		r := simtest.Simulate(t, simulated, seed+1)
		require.Empty(t, r.Wrong, "seed %d", seed+1)
	}
}

// unschedulable makes a pod for each Deployment, for which there is no node. Nothing changes the
// Deployment.
func unschedulable(w *simtest.World, c simtest.Change) {
	name := c.After.Name()
	if c.After["kind"] != "Deployment" || c.Before != nil {
		return
	}
	w.After(20*time.Second, func() {
		_ = w.As("replica set controller").Create(simtest.Object{ // it may exist
			"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"namespace": "shop", "name": name, "labels": map[string]any{"app": name}},
			"spec": map[string]any{"containers": []any{map[string]any{"name": "web", "image": "web"}}},
		})
		_ = w.As("scheduler").Update("pods", "shop", name, func(o simtest.Object) { // it exists
			o["status"] = map[string]any{"phase": "Pending", "conditions": []any{map[string]any{
				"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes are available",
			}}}
		})
	})
}

func TestTheCauseIsSeenOfPodsWhoseWorkloadStaysAsItIs(t *testing.T) {
	t.Parallel()
	r := simtest.Simulate(t, func() simtest.Scenario {
		s := simulated()
		s.Actors = []func(*simtest.World, simtest.Change){unschedulable}
		s.Converged = func(w *simtest.World) (err error) {
			for _, app := range w.Objects("webapps.example.com") {
				if !strings.Contains(fmt.Sprint(app.Field("status", "conditions")), "Unschedulable") {
					err = errors.Join(err, fmt.Errorf("%s: %v", app.Name(), app.Field("status")))
				}
			}
			return err
		}
		return s
	}, 1)
	require.Empty(t, r.Wrong)
}

// TestTheOperatorMayBeKilledAnywhere kills it before and after each request.
func TestTheOperatorMayBeKilledAnywhere(t *testing.T) {
	if testing.Short() {
		t.Skip("long: a history for each request")
	}
	t.Parallel()
	c := simtest.Sweep(t, func() simtest.Scenario {
		s := simulated()
		s.Edits, s.Settle = 2, time.Minute
		return s
	}, 1)
	c.Check(t, 97)
	fmt.Printf("figure sim_operator_boundaries %d count\n", c.Boundaries)
}
