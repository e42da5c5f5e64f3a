package simtest_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/apply/applytest"
	"github.com/seed-9e1ffd66/trueup/internal/pause"
	"github.com/seed-9e1ffd66/trueup/reconcile/simtest"
)

// deployer keeps what each Widget wants in a ConfigMap, a Secret and a Deployment of its name, and
// a Service. It looks every ten seconds. The switches are defects of controllers in the field.
type deployer struct {
	patchesList bool // replaces the containers by a merge patch
	dropsLabels bool // writes its own labels, which are none
	replaces    bool // writes its own data
	undoes      bool // takes the defaults of a Service for a change
	strings     bool // writes a Secret with stringData (no defect)
	moves       bool // lets the selector follow the spec
}

func (d deployer) run(ctx context.Context, net http.RoundTripper) error {
	for {
		_ = d.look(ctx, net) // it looks again
		if !pause.For(ctx, 10*time.Second) {
			return nil
		}
	}
}

func (d deployer) look(ctx context.Context, net http.RoundTripper) error {
	list, err := send(ctx, net, http.MethodGet, "/apis/example.com/v1/widgets", "")
	if err != nil {
		return err
	}
	items, _ := list["items"].([]any)
	for _, each := range items {
		widget := simtest.Object(each.(map[string]any))
		image, ok := widget.Field("spec", "image").(string)
		if !ok {
			continue
		}
		for _, wanted := range d.wanted(widget.Name(), image) {
			if err := d.keep(ctx, net, wanted); err != nil {
				return err
			}
		}
	}
	return nil
}

// wanted are the objects of a Widget.
func (d deployer) wanted(name, image string) []simtest.Object {
	labels, service := map[string]any{"app": name}, map[string]any{"app": name}
	if d.moves {
		labels["app"] = strings.ReplaceAll(image, ":", "-")
	}
	secret := map[string]any{"data": map[string]any{"image": base64.StdEncoding.EncodeToString([]byte(image))}}
	if d.strings {
		secret = map[string]any{"stringData": map[string]any{"image": image}}
	}
	all := []simtest.Object{
		{"apiVersion": "v1", "kind": "ConfigMap", "data": map[string]any{"image": image}},
		{"apiVersion": "v1", "kind": "Secret"},
		{"apiVersion": "v1", "kind": "Service", "spec": map[string]any{"selector": service, "ports": []any{map[string]any{"port": 80.0}}}},
		{"apiVersion": "apps/v1", "kind": "Deployment", "spec": map[string]any{
			"selector": map[string]any{"matchLabels": labels},
			"template": map[string]any{"metadata": map[string]any{"labels": labels}, "spec": runs(image)},
		}},
	}
	maps.Copy(all[1], secret)
	for _, o := range all {
		o["metadata"] = map[string]any{"name": name, "namespace": "shop"}
	}
	return all
}

// keep makes an object what is wanted of it.
func (d deployer) keep(ctx context.Context, net http.RoundTripper, wanted simtest.Object) error {
	path := "/api/v1/namespaces/shop/" + strings.ToLower(fmt.Sprint(wanted["kind"])) + "s"
	if wanted["kind"] == "Deployment" {
		path = "/apis/apps/v1/namespaces/shop/deployments"
	}
	live, err := send(ctx, net, http.MethodGet, path+"/"+wanted.Name(), "")
	method, next := http.MethodPut, live
	switch {
	case err != nil:
		return err
	case live["kind"] == "Status" && live["reason"] == "NotFound":
		method, next = http.MethodPost, wanted
	case live["kind"] == "Status":
		return fmt.Errorf("%v", live["message"])
	case wanted["kind"] == "Service":
		if !d.undoes || reflect.DeepEqual(live["spec"], wanted["spec"]) {
			return nil
		}
		next = wanted
	case !d.stale(live, wanted):
		return nil
	case d.patchesList && wanted["kind"] == "Deployment":
		method, next = http.MethodPatch, simtest.Object{}
		next.Set(wanted.Field("spec", "template", "spec"), "spec", "template", "spec")
	case d.moves:
		next = wanted
	default:
		d.adopt(next, wanted)
	}
	body, err := json.Marshal(next)
	if err != nil {
		return err
	}
	if method != http.MethodPost {
		path += "/" + wanted.Name()
	}
	if method == http.MethodPatch {
		return patch(ctx, net, path, string(body))
	}
	_, err = send(ctx, net, method, path, string(body))
	return err
}

// stale reports whether an object has another image.
func (d deployer) stale(live, wanted simtest.Object) bool {
	if wanted["kind"] == "Deployment" {
		return imageOf(live.Field("spec", "template", "spec")) != imageOf(wanted.Field("spec", "template", "spec"))
	}
	image := wanted.Field("data", "image")
	if strings, ok := wanted.Field("stringData", "image").(string); ok {
		image = base64.StdEncoding.EncodeToString([]byte(strings))
	}
	return live.Field("data", "image") != image
}

// adopt sets the image alone.
func (d deployer) adopt(live, wanted simtest.Object) {
	if d.dropsLabels {
		live.Set(nil, "metadata", "labels")
	}
	if d.replaces {
		delete(live, "data")
	}
	for _, field := range []string{"data", "stringData"} {
		if image := wanted.Field(field, "image"); image != nil {
			live.Set(image, field, "image")
		}
	}
	if wanted["kind"] != "Deployment" {
		return
	}
	containers := live.Field("spec", "template", "spec").(map[string]any)["containers"].([]any)
	for _, each := range containers {
		if c := each.(map[string]any); c["name"] == "web" {
			c["image"] = imageOf(wanted.Field("spec", "template", "spec"))
		}
	}
}

// scenario has a user who wants other images.
func (d deployer) scenario() simtest.Scenario {
	return simtest.Scenario{
		Kinds: append(
			kinds(), builtIn()[1], builtIn()[2],
			simtest.Kind{Group: "apps", Version: "v1", Resource: "deployments", Kind: "Deployment", Status: true},
		),
		Program: d.run, Settle: 5 * time.Minute, Rest: 10 * time.Minute,
		Start: func(w *simtest.World) { makeWidget(w, "first") },
		Edit: func(w *simtest.World) {
			if err := w.Update("widgets.example.com", "shop", "first", func(o simtest.Object) {
				o.Set(fmt.Sprint("web:", w.Random.IntN(5)), "spec", "image")
			}); err != nil {
				panic(err)
			}
		},
		Without: []applytest.Disturbance{simtest.RecreateKind, simtest.RestoreStore}, // the Widget goes for good
		Check: simtest.Checks(
			simtest.KeepsOthers("configmaps"), simtest.KeepsOthers("secrets"), simtest.KeepsOthers("services"),
			simtest.KeepsOthers("deployments.apps"),
		),
		Converged: func(w *simtest.World) error {
			image := w.Object("widgets.example.com", "shop", "first").Field("spec", "image")
			if now := w.Object("configmaps", "shop", "first").Field("data", "image"); now != image {
				return fmt.Errorf("the text is %v, and is to be %v", now, image)
			}
			if now := imageOf(w.Object("deployments.apps", "shop", "first").Field("spec", "template", "spec")); now != image {
				return fmt.Errorf("%v runs, and %v is to", now, image)
			}
			return nil
		},
	}
}

// TestDefectsOfWritersAreFound has programs that take from others, and that undo or change what they
// may not, and sound ones.
func TestDefectsOfWritersAreFound(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		program deployer
		want    string // empty for a sound one
	}{
		"a sound one":                 {},
		"a sound one with stringData": {program: deployer{strings: true}},
		"a container of another goes with a patch": {
			deployer{patchesList: true}, "it takes away spec.template.spec.containers[simtest-another]",
		},
		"a key of another goes with an update":      {deployer{replaces: true}, "it takes away data.simtest-another"},
		"a label of another goes with an update":    {deployer{dropsLabels: true}, "it takes away metadata.labels.simtest/labelled"},
		"the defaults of a Service are undone":      {deployer{undoes: true}, "writes at rest, the first of them: update services shop/first"},
		"the selector of a Deployment is to change": {deployer{moves: true}, "not converged: web:"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const most = 50
			for seed := range uint64(map[bool]int{true: 10, false: most}[c.want == ""]) {
				wrong := strings.Join(simtest.Simulate(t, c.program.scenario, seed+1).Wrong, "; ")
				if c.want != "" && strings.Contains(wrong, c.want) {
					t.Logf("seed %d: %s", seed+1, wrong)
					return
				}
				require.True(t, c.want != "" || wrong == "", "seed %d: %s", seed+1, wrong)
			}
			require.Empty(t, c.want, "not found in %d histories", most)
		})
	}
}
