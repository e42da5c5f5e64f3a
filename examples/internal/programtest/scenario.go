package programtest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"k8s.io/client-go/kubernetes/scheme"

	"github.com/seed-9e1ffd66/trueup/reconcile/simtest"
	"github.com/seed-9e1ffd66/trueup/reconcile/simtest/upstream"
)

// Scenario is a program that is an operator of WebApps, and a user who edits two of them.
func Scenario(program func(context.Context, http.RoundTripper) error) simtest.Scenario {
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
		Program:   program,
		Actors:    []func(*simtest.World, simtest.Change){rollOut},
		Edits:     8,
		Edit: func(w *simtest.World) {
			name := fmt.Sprint("w", w.Random.IntN(2))
			spec := map[string]any{"image": fmt.Sprint("example.com/w:", w.Random.IntN(3)), "replicas": w.Random.IntN(3), "port": 8080}
			if w.Random.IntN(2) == 0 {
				spec["config"] = map[string]any{"COLOR": fmt.Sprint(w.Random.IntN(3))}
			}
			switch live := w.Stored("webapps.example.com", "shop", name); {
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
			for _, app := range w.AllStored("webapps.example.com") {
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

// rollOut is the controller of Deployments. A backup may bring back an older status.
func rollOut(w *simtest.World, c simtest.Change) {
	generation := c.After.Field("metadata", "generation")
	seen := c.Before != nil && c.Before.Field("metadata", "generation") == generation && c.By != "backup"
	if c.After["kind"] != "Deployment" || seen {
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
	web := w.Stored("deployments.apps", "shop", app.Name())
	config := w.Stored("configmaps", "shop", app.Name()+"-config")
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
