package simtest_test

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/apply/applytest"
	"github.com/seed-9e1ffd66/trueup/reconcile/simtest"
)

// TestMain has garbage collected seldom: histories make much and keep little. A history does one
// thing at a time; on one processor, handing it over costs least.
func TestMain(m *testing.M) {
	debug.SetGCPercent(400)
	runtime.GOMAXPROCS(1)
	os.Exit(m.Run())
}

// scenario puts a controller of Widgets under test.
func scenario(c controller) simtest.Scenario {
	return simtest.Scenario{
		Kinds: []simtest.Kind{
			{Group: "example.com", Version: "v1", Resource: "widgets", Kind: "Widget", Status: true},
			{Group: "example.com", Version: "v1", Resource: "parts", Kind: "Part"},
			{Version: "v1", Resource: "configmaps", Kind: "ConfigMap"},
		},
		Admit: func(a *simtest.Admission) error {
			if a.Object.Field("data", "text") == "forbidden" {
				return errors.New("data.text: the word is forbidden")
			}
			return nil
		},
		Program:   c.start,
		Edit:      editWidgets,
		Actors:    []func(*simtest.World, simtest.Change){forget},
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
		takeOver := w.Random.IntN(2) == 0
		if takeOver && live != nil {
			err = w.Update("widgets.example.com", "shop", name, func(o simtest.Object) { delete(o["spec"].(map[string]any), "text") })
		}
		_ = w.Delete("configmaps", "shop", name+"-text")
		if takeOver {
			err = w.Create(simtest.Object{
				"apiVersion": "v1",
				"kind":       "ConfigMap",
				"metadata":   map[string]any{"namespace": "shop", "name": name + "-text"},
				"data":       map[string]any{"mine": "yes"},
			})
		}
	default:
		spec := map[string]any{"replicas": replicas, "max": replicas, "min": replicas}
		if text != "" {
			spec["text"] = text
		}
		if live == nil {
			if w.Random.IntN(4) == 0 {
				spec["text"] = "forbidden"
			}
			err = w.Create(simtest.Object{
				"apiVersion": "example.com/v1", "kind": "Widget", "metadata": map[string]any{"namespace": "shop", "name": name}, "spec": spec,
			})
			break
		}
		if before, _ := live.Field("spec", "max").(float64); before > replicas {
			spec["max"] = before
		}
		if before, _ := live.Field("spec", "min").(float64); before < replicas {
			spec["min"] = before
		}
		err = w.Update("widgets.example.com", "shop", name, func(o simtest.Object) { o["spec"] = spec })
	}
	_ = err // a user who comes too late does nothing
}

// forget takes a Widget of a restored backup for one that may have wanted any number: the program
// may have read it just before. It wants no text that is refused: the text of its last state
// would stay.
func forget(w *simtest.World, c simtest.Change) {
	if c.By == "backup" && c.After["kind"] == "Widget" {
		_ = w.Update("widgets.example.com", "shop", c.After.Name(), func(o simtest.Object) { // it exists
			o.Set(3, "spec", "max")
			o.Set(0, "spec", "min")
			if o.Field("spec", "text") == "forbidden" {
				o.Set("bye", "spec", "text")
			}
		})
	}
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
	if owner == nil || owner.Deleting() || c.Request.Resource != "parts" {
		return nil
	}
	count := 0.0
	for _, each := range w.Objects("parts.example.com") {
		if each.Owner() == owner.UID() {
			count++
		}
	}
	most, _ := owner.Field("spec", "max").(float64)
	least, _ := owner.Field("spec", "min").(float64)
	switch {
	case c.After != nil && count > most:
		return fmt.Errorf("%s: Widget %s has %v Parts, and never wanted more than %v", c.Request, owner.Name(), count, most)
	case c.After == nil && count < least:
		return fmt.Errorf("%s: Widget %s has %v Parts, and never wanted less than %v", c.Request, owner.Name(), count, least)
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
		reported, _ := widget.Field("status", "parts").(float64)
		if count != widget.Field("spec", "replicas") || count != reported {
			all = append(
				all,
				fmt.Errorf("widget %s wants %v parts, has %v, and reports %v", widget.Name(), widget.Field("spec", "replicas"), count, reported),
			)
		}
		text := w.Object("configmaps", "shop", widget.Name()+"-text")
		switch want := widget.Field("spec", "text"); {
		case want == nil && text != nil && text.Owner() != "":
			all = append(all, fmt.Errorf("widget %s wants no text", widget.Name()))
		case want == "forbidden":
		case want != nil && text == nil, want != nil && text.Owner() != "" && text.Field("data", "text") != want:
			all = append(all, fmt.Errorf("widget %s wants the text %v", widget.Name(), want))
		}
	}
	return errors.Join(all...)
}

// planted are defects of controllers in the field.
var planted = map[string]controller{
	"decision on a stale cache after an own write":     {staleCache: true},
	"delete of a newer object by a stale UID":          {staleUID: true},
	"crash between two writes never repaired":          {onceOnly: true},
	"a write on every pass after convergence":          {alwaysWrites: true},
	"transient error swallowed":                        {swallows: true},
	"what is not synced is taken for empty":            {unsynced: true},
	"a failed read of the parent is taken for absence": {notFoundIsGone: true},
	"a foreign object adopted by its name":             {adopts: true},
	"retry without growth":                             {hotLoop: true},
	"a refusal of a child swallowed":                   {forgives: true},
}

// TestPlantedDefectsAreFound simulates histories of each defect, and now and then a
// sweep, until something is wrong.
func TestPlantedDefectsAreFound(t *testing.T) {
	if testing.Short() {
		t.Skip("long: many histories of each defect")
	}
	t.Parallel()
	const most = 300
	var found atomic.Int64
	t.Run("defects", func(t *testing.T) {
		for name, defect := range planted {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				start := time.Now()
				for seed := uint64(1); seed <= most; seed++ {
					s := scenario(defect)
					s.Rest = time.Hour
					r := simtest.Simulate(t, always(s), seed)
					if s.Edits = 5; len(r.Wrong) == 0 && seed == 5 {
						if c := simtest.Sweep(t, always(s), seed); len(c.Failed) > 0 {
							r = c.Failed[0]
						}
					}
					if len(r.Wrong) > 0 {
						t.Logf("seed %d, cut %q, after %v: %s", r.Seed, r.Cut, time.Since(start).Round(time.Millisecond), r.Wrong[0])
						found.Add(1)
						return
					}
				}
				require.Fail(t, "not found", "%d histories passed", most)
			})
		}
	})
	fmt.Printf("figure sim_planted_found %d/%d\n", found.Load(), len(planted))
}

// TestASwallowedRefusalIsFoundSoon has rights that are taken, and quotas that are full, where the
// program writes its children. A sound one gets over it.
func TestASwallowedRefusalIsFoundSoon(t *testing.T) {
	t.Parallel()
	both := []applytest.Disturbance{simtest.LoseRights, simtest.FillQuota}
	// The seeds among twenty that are wrong, or as many of them as are asked for.
	wrong := func(c controller, disturbances []applytest.Disturbance, most int) (all []uint64) {
		for seed := uint64(1); seed <= 20 && len(all) < most; seed++ {
			s := scenario(c)
			s.Rest, s.Disturbances = time.Minute, disturbances
			if len(simtest.Simulate(t, always(s), seed).Wrong) > 0 {
				all = append(all, seed)
			}
		}
		return all
	}
	often := 3
	if testing.Short() {
		often = 1
	}
	require.Empty(t, wrong(controller{}, both, 1))
	for _, habit := range both {
		require.Len(t, wrong(controller{forgives: true}, []applytest.Disturbance{habit}, often), often, habit)
	}
	require.NotEmpty(t, wrong(controller{forgives: true}, nil, 1), "among all habits")
}
