package external_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/reconcile/external"
)

// TestACrashAtAnyRequestChangesNothingInTheEnd ends the process before and after each request of
// a story, among them those between the record and the making, and between the making and the
// status. Then another process goes on, or the object is deleted.
func TestACrashAtAnyRequestChangesNothingInTheEnd(t *testing.T) {
	t.Parallel()
	for _, story := range []struct {
		name     string
		begin    func(*world)
		requests int
	}{
		{"made", func(*world) {}, 6},
		{"changed", func(w *world) { w.names, w.mail = []string{"www", "app"}, false }, 7},
		{"deleted", nil, 5},
	} {
		for at := range story.requests*2 + 1 {
			for _, deleted := range []bool{false, true} {
				name := fmt.Sprint(story.name, " at ", at/2+1, " after ", at%2 == 1, " deleted ", deleted)
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t)
					crashed := func() error { _, err := w.run(t.Context()); return err }
					if story.name != "made" {
						require.NoError(t, crashed())
					}
					if story.begin == nil {
						crashed, deleted = func() error { return w.teardown(t.Context()) }, true
					} else {
						story.begin(w)
					}
					w.requests, w.endAt, w.after = 0, at/2+1, at%2 == 1
					if at == story.requests*2 {
						require.NoError(t, crashed(), "%s: there is one request more", name)
					} else {
						require.ErrorIs(t, crashed(), errDead, name)
					}
					w.restart()
					for _, thing := range w.ours() {
						require.Contains(t, names(w.status), thing, name)
					}
					if deleted {
						require.NoError(t, w.teardown(t.Context()), name)
						require.True(t, w.finished, name)
						require.Empty(t, w.things, name)
						require.Empty(t, w.status, name)
						return
					}
					w.converged(name)
				})
			}
		}
	}
}

// converged does a pass, and checks that all is as it is wanted, that all of it is recorded, and that
// the next pass changes nothing.
func (w *world) converged(name string) {
	t := w.t
	t.Helper()
	_, err := w.run(t.Context())
	require.NoError(t, err, name)
	want := w.pass()
	var recorded, ours []string
	for _, part := range want.Parts {
		if !part.Wanted {
			continue
		}
		for _, e := range part.Things {
			recorded = append(recorded, key(e))
			if w.mark().Claim(w.things[key(e)]) != external.Foreign {
				ours = append(ours, key(e))
			}
		}
	}
	require.ElementsMatch(t, recorded, names(w.status), name)
	require.ElementsMatch(t, ours, w.ours(), name)
	for _, e := range w.status {
		if slices.Contains(ours, key(e)) != e.Made && !w.foreign(e.Kind) {
			t.Errorf("%s: %v is recorded otherwise", name, e)
		}
	}
	w.calls = nil
	status := slices.Clone(w.status)
	w.restart()
	_, err = w.run(t.Context())
	require.NoError(t, err, name)
	require.Empty(t, w.calls, "%s: at rest", name)
	require.Equal(t, status, w.status, name)
}

// foreign reports whether a thing of a kind is another's: then the part is not complete.
func (w *world) foreign(kind string) bool {
	return slices.ContainsFunc(w.status, func(e external.Thing) bool {
		text, exists := w.things[key(e)]
		return e.Kind == kind && exists && w.mark().Claim(text) == external.Foreign
	})
}

// TestAnyHistoryEndsAsItIsWanted edits the object, plants things of others, lets requests fail and
// the process end, each at random, and then deletes the object.
func TestAnyHistoryEndsAsItIsWanted(t *testing.T) {
	t.Parallel()
	for seed := range uint64(300) {
		name := fmt.Sprint("seed ", seed)
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 7))
			w := newWorld(t)
			other := w.mark()
			other.UID = "another"
			planted := map[string]string{}
			for range random.IntN(8) {
				w.edit(random)
				if thing := fmt.Sprint("Record/", random.IntN(4)); random.IntN(4) == 0 && w.things[thing] == "" {
					planted[thing] = other.String()
					w.things[thing] = other.String()
				}
				requests := []string{"create Zone", "create Record", "create Mail", "delete Zone", "delete Record", "delete Mail", "status"}
				clear(w.fails)
				if random.IntN(2) == 0 {
					w.fails[requests[random.IntN(len(requests))]] = errAway
				}
				w.requests, w.endAt, w.after = 0, random.IntN(12), random.IntN(2) == 0
				if _, err := w.run(t.Context()); err != nil && !w.dead {
					require.ErrorIs(t, err, errAway, name)
				}
				w.restart()
				for thing, text := range planted {
					require.Equal(t, text, w.things[thing], "%s: %s is another's", name, thing)
				}
			}
			clear(w.fails)
			w.zone = w.zone || w.records // a configuration that can be made
			w.policy = "Delete"
			w.converged(name)
			w.requests, w.endAt = 0, 1+random.IntN(6)
			if err := w.teardown(t.Context()); err != nil {
				require.True(t, w.dead, name)
				w.restart()
				require.NoError(t, w.teardown(t.Context()), name)
			}
			require.True(t, w.finished, name)
			require.Empty(t, w.status, name)
			require.Empty(t, w.ours(), name)
			for thing, text := range planted {
				require.Equal(t, text, w.things[thing], "%s: %s is another's", name, thing)
			}
		})
	}
}

// edit changes what is wanted.
func (w *world) edit(random *rand.Rand) {
	w.zone, w.records, w.mail = random.IntN(4) > 0, random.IntN(3) > 0, random.IntN(3) > 0
	w.names = nil
	for n := range 4 {
		if random.IntN(2) == 0 {
			w.names = append(w.names, fmt.Sprint(n))
		}
	}
	w.policy = []string{"Delete", "Retain"}[random.IntN(2)]
}
