package simtest_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/simtest"
)

// scenario puts a controller of Widgets under test.
func scenario(c controller) simtest.Scenario {
	return simtest.Scenario{
		Kinds: []simtest.Kind{
			{Group: "example.com", Version: "v1", Resource: "widgets", Kind: "Widget", Status: true},
			{Group: "example.com", Version: "v1", Resource: "parts", Kind: "Part"},
			{Version: "v1", Resource: "configmaps", Kind: "ConfigMap"},
		},
		Program:   c.start,
		Edit:      editWidgets,
		Check:     checkWidgets,
		Converged: widgetsConverged,
	}
}

// editWidgets is what a user does: Widgets come, change and go, and so do ConfigMaps
// that only have the name of a Widget's.
func editWidgets(w *simtest.World) {
	name := fmt.Sprintf("w%d", w.Random.IntN(3))
	replicas, text := float64(w.Random.IntN(4)), []string{"", "hello", "bye"}[w.Random.IntN(3)]
	live := w.Object("widgets.example.com", "shop", name)
	var err error
	switch w.Random.IntN(8) {
	case 0:
		err = w.Delete("widgets.example.com", "shop", name)
	case 1:
		err = w.Delete("configmaps", "shop", name+"-text")
		if err == nil && w.Random.IntN(2) == 0 {
			err = w.Create(simtest.Object{
				"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"namespace": "shop", "name": name + "-text"}, "data": map[string]any{"mine": "yes"},
			})
		}
	default:
		spec := map[string]any{"replicas": replicas, "max": replicas}
		if text != "" {
			spec["text"] = text
		}
		if live == nil {
			err = w.Create(simtest.Object{
				"apiVersion": "example.com/v1", "kind": "Widget", "metadata": map[string]any{"namespace": "shop", "name": name}, "spec": spec,
			})
			break
		}
		if before, _ := live.Field("spec", "max").(float64); before > replicas {
			spec["max"] = before
		}
		err = w.Update("widgets.example.com", "shop", name, func(o simtest.Object) { o["spec"] = spec })
	}
	_ = err // a user who comes too late does nothing
}

// checkWidgets is what must never be.
func checkWidgets(w *simtest.World, c simtest.Change) error {
	if c.By != "program" {
		return nil
	}
	if c.Before != nil && c.Request.Resource != "widgets" && c.Before.Owner() == "" {
		return fmt.Errorf("%s changes an object that is not the program's", c.Request)
	}
	owner := simtest.Object(nil)
	for _, each := range w.Objects("widgets.example.com") {
		if c.Before.Owner() == each.UID() && c.Before != nil || c.After.Owner() == each.UID() && c.After != nil {
			owner = each
		}
	}
	if owner == nil || c.Request.Resource != "parts" {
		return nil
	}
	count := 0.0
	for _, each := range w.Objects("parts.example.com") {
		if each.Owner() == owner.UID() {
			count++
		}
	}
	most, _ := owner.Field("spec", "max").(float64)
	wanted, _ := owner.Field("spec", "replicas").(float64)
	switch {
	case c.After != nil && count > most:
		return fmt.Errorf("%s: Widget %s has %v Parts, and never wanted more than %v", c.Request, owner.Name(), count, most)
	case c.After == nil && count < wanted && wanted == most:
		return fmt.Errorf("%s: Widget %s has %v Parts, and never wanted less than %v", c.Request, owner.Name(), count, wanted)
	}
	return nil
}

func widgetsConverged(w *simtest.World) error {
	var all []error
	for _, widget := range w.Objects("widgets.example.com") {
		count := 0.0
		for _, each := range w.Objects("parts.example.com") {
			if each.Owner() == widget.UID() {
				count++
			}
		}
		if count != widget.Field("spec", "replicas") || count != widget.Field("status", "parts") {
			all = append(all, fmt.Errorf("widget %s wants %v parts, has %v, and reports %v", widget.Name(), widget.Field("spec", "replicas"), count, widget.Field("status", "parts")))
		}
		text := w.Object("configmaps", "shop", widget.Name()+"-text")
		switch want := widget.Field("spec", "text"); {
		case want == nil && text != nil && text.Owner() != "":
			all = append(all, fmt.Errorf("widget %s wants no text", widget.Name()))
		case want != nil && text == nil, want != nil && text.Owner() != "" && text.Field("data", "text") != want:
			all = append(all, fmt.Errorf("widget %s wants the text %v", widget.Name(), want))
		}
	}
	return errors.Join(all...)
}

func TestSpeed(t *testing.T) {
	start := time.Now()
	r := scenario(controller{}).Simulate(t, 1)
	t.Log(time.Since(start), r.Steps, r.Requests, r.Lives, r.Virtual)
	if len(r.Trace) > 20000 {
		r.Trace = r.Trace[:20000]
	}
	t.Log(r.Trace)
	require.Empty(t, r.Wrong)
}
