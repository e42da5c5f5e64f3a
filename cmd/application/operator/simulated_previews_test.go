package operator_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/apply/applytest"
	"github.com/seed-9e1ffd66/trueup/cmd/api/platform/v1alpha1"
	"github.com/seed-9e1ffd66/trueup/reconcile/simtest"
)

const previewsKind = "previewenvironments." + v1alpha1.Group

func aPreview(n int, ttl string) simtest.Object {
	return simtest.Object{
		"apiVersion": v1alpha1.GroupVersion().String(), "kind": "PreviewEnvironment",
		"metadata": map[string]any{"namespace": "blue", "name": fmt.Sprint("pr-", n)},
		"spec":     map[string]any{"applicationRef": "shop", "pullRequest": float64(n), "branch": "b", "ttl": ttl},
	}
}

// expires is an actor that has each preview gone 30 s after its end: it, its namespace, and what is
// outside.
func (p *platform) expires(w *simtest.World, c simtest.Change) {
	if c.After == nil || c.After["kind"] != "PreviewEnvironment" || c.Before.Field("spec", "ttl") == c.After.Field("spec", "ttl") {
		return
	}
	text := fmt.Sprint(c.After.Field("spec", "ttl"))
	ttl, err := time.ParseDuration(text)
	if err != nil {
		panic(err)
	}
	created, err := time.Parse(time.RFC3339, fmt.Sprint(c.After.Field("metadata", "creationTimestamp")))
	if err != nil {
		panic(err)
	}
	left := max(0, ttl-time.Since(created)) + 30*time.Second
	w.Within(left, fmt.Sprintf("%s of a ttl of %s is gone", c.After.Name(), text), func(w *simtest.World) bool {
		live := w.Stored(previewsKind, "blue", c.After.Name())
		if live != nil {
			return live.UID() != c.After.UID() || live.Field("spec", "ttl") != text
		}
		return len(p.copied(w, fmt.Sprint(c.After.Field("spec", "pullRequest")))) == 0
	})
}

// copied returns what is there of the preview of a pull request.
func (p *platform) copied(w *simtest.World, n string) (all []string) {
	for _, o := range w.AllStored("namespaces") {
		if strings.HasPrefix(o.Name(), "preview-shop-pr-"+n) {
			all = append(all, "namespace "+o.Name())
		}
	}
	for _, name := range keysOf(p.things) {
		if strings.HasSuffix(name, "_pr"+n) || strings.Contains(name, "-pr"+n+"-") {
			all = append(all, name)
		}
	}
	return all
}

// previewed is a world of an Application and its previews, which all expire before the end. ran is
// what was made of those that ran.
func previewed(ran map[string]bool) simtest.Scenario {
	p, s := newPlatform()
	start := s.Start
	s.Start = func(w *simtest.World) {
		start(w)
		if err := w.Create(anApp("blue", "shop", withAll("app:1"))); err != nil {
			panic(err)
		}
	}
	s.Actors = append(s.Actors, p.expires, func(w *simtest.World, c simtest.Change) {
		if c.After != nil && c.After["kind"] == "PreviewEnvironment" && c.After.Field("status", "phase") == "Running" {
			for _, each := range p.copied(w, fmt.Sprint(c.After.Field("spec", "pullRequest"))) {
				ran[serviceOf(each)] = true
			}
		}
	})
	// A preview ends by the clock of the server that made it.
	s.Without = append(s.Without, simtest.SkewClock)
	s.Edits, s.Pause, s.Settle, s.Rest, s.Converged = 14, 2*time.Minute, 25*time.Minute, time.Hour, p.converged
	s.Edit = func(w *simtest.World) {
		dice := w.Random
		n, act, image, ttl := 1+dice.IntN(3), dice.IntN(8), fmt.Sprint("app:", dice.IntN(3)), []any{"5m", "7m", "10m"}[dice.IntN(3)]
		name := fmt.Sprint("pr-", n)
		update := func(value any, field string) {
			_ = w.Update(previewsKind, "blue", name, func(o simtest.Object) { o.Set(value, "spec", field) }) // it may be going
		}
		switch live := w.Stored(previewsKind, "blue", name); {
		case act == 0 && w.Delete(appsKind, "blue", "shop") != nil:
			_ = w.Create(anApp("blue", "shop", withAll(image))) // its name may still be going
		case act == 0:
		case live == nil:
			_ = w.Create(aPreview(n, fmt.Sprint(ttl))) // its name may still be going
		case act == 1:
			_ = w.Delete(previewsKind, "blue", name) // it may be going
		case act < 4:
			update(ttl, "ttl")
		default:
			update(image, "imageRef")
		}
	}
	return s
}

// TestPreviewsInASimulatedWorld is C21 and C22: each preview ends in time, whatever fails.
func TestPreviewsInASimulatedWorld(t *testing.T) {
	t.Parallel()
	simtest.Histories(t, func() simtest.Scenario {
		s := previewed(map[string]bool{})
		if s.Histories = 4; testing.Short() {
			s.Histories = 1
		}
		return s
	})
}

// TestPreviewsEndInTime is D24 to the second.
func TestPreviewsEndInTime(t *testing.T) {
	t.Parallel()
	ran := map[string]bool{}
	simtest.Histories(t, func() simtest.Scenario {
		s := previewed(ran)
		s.Disturbances, s.Without, s.Histories = []applytest.Disturbance{}, nil, 3
		return s
	})
	require.Equal(t, map[string]bool{"namespace": true, theDatabase: true, theStorage: true}, ran)
}
