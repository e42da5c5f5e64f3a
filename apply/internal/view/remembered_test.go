package view //nolint:testpackage // plays the watch, in orders that no server can be made to produce

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// of is an object of a part.
func of(name, version, part string) *metav1.PartialObjectMetadata {
	m := told("uid-of-"+name, version, ours)
	m.Name, m.Labels = name, map[string]string{"part": part}
	return m
}

func (v *fixture) lost() string { return v.Look(NameOf("x", "a")).Lost }

func (v *fixture) members(part string) (names []string) {
	v.EachOf(PartOf(part), func(n Name, r *Record) bool {
		if r != nil {
			names = append(names, n.Name())
		} else {
			names = append(names, n.Name()+" without a record")
		}
		return true
	})
	return names
}

func TestALossIsRememberedUntilItIsExplained(t *testing.T) {
	t.Parallel()
	n := NameOf("x", "a")
	lose := func() *fixture {
		v, _ := newView(t)
		write1(v, told("u", "12", ours))
		require.NoError(t, v.Drop(told("u", "13", ours)))
		require.Equal(t, "13", v.lost())
		require.Equal(t, "u", v.Look(n).LostUID)
		return v
	}
	v := lose()
	require.NoError(t, v.Replace(nil, "14"))
	require.Empty(t, v.lost(), "a list does not show how an object went")

	v = lose()
	require.NoError(t, v.Put(told("u2", "14", ours)))
	v.Prune(n, "u2")
	require.NoError(t, v.Drop(told("u2", "15", ours)))
	require.Empty(t, v.lost(), "its successor was pruned")

	v, _ = newView(t)
	write1(v, told("u", "12", ours))
	end, err := v.Begin(t.Context(), n)
	require.NoError(t, err)
	require.NoError(t, v.Drop(told("u", "13", ours)))
	require.Equal(t, "13", v.lost())
	end(true)
	require.Empty(t, v.lost(), "our own deletion explains it")
}

func TestAListIsNoOlderThanOurWriteTwice(t *testing.T) {
	t.Parallel()
	v, drifts := newView(t)
	write1(v, told("u", "20", ours))
	require.NoError(t, v.Replace([]any{told("u", "15", theirs)}, "16"))
	require.EqualValues(t, 20, v.held().version, "the list was taken before our write")
	require.False(t, v.held().Foreign())
	require.Zero(t, *drifts)
	require.NoError(t, v.Replace([]any{told("u", "15", theirs)}, "17"))
	require.EqualValues(t, 15, v.held().version, "the next one is believed")
}

func TestPartsAreIndexedThroughMovesAndRemovals(t *testing.T) {
	t.Parallel()
	v, _ := newView(t)
	for _, name := range []string{"a", "b", "c"} {
		require.NoError(t, v.Put(of(name, "11", "p")))
	}
	require.ElementsMatch(t, []string{"a", "b", "c"}, v.members("p"))
	require.NoError(t, v.Put(of("b", "12", "q")))
	require.ElementsMatch(t, []string{"a", "c"}, v.members("p"))
	require.Equal(t, []string{"b"}, v.members("q"))
	require.NoError(t, v.Put(of("b", "13", "p")))
	require.ElementsMatch(t, []string{"a", "b", "c"}, v.members("p"))
	require.Empty(t, v.members("q"))
	// In each order, from the head, the tail and the middle.
	for _, order := range [][]string{{"b", "c", "a"}, {"a", "c", "b"}, {"c", "b", "a"}, {"a", "b", "c"}} {
		v, _ := newView(t)
		for _, name := range []string{"a", "b", "c"} {
			require.NoError(t, v.Put(of(name, "11", "p")))
		}
		for i, name := range order {
			require.NoError(t, v.Drop(of(name, "14", "p")))
			require.ElementsMatch(t, order[i+1:], v.members("p"), "%v", order)
		}
		require.Empty(t, v.parts, "an empty part is no longer in the index")
	}
}

func TestADeletionMarksOnlyTheObjectThatItWasFor(t *testing.T) {
	t.Parallel()
	v, _ := newView(t)
	write1(v, told("u", "12", ours))
	v.Prune(NameOf("x", "a"), "another")
	require.False(t, v.held().Pruned())
	v.Prune(NameOf("x", "a"), "u")
	require.True(t, v.held().Pruned())
}

func TestAKindThatIsNotServedHasNoObjectsUntilItIsListed(t *testing.T) {
	t.Parallel()
	v, _ := newView(t)
	var gone []types.UID
	v.hooks.Change = func(o Object) {
		if o.Gone {
			gone = append(gone, types.UID(o.Record.UID()))
		}
	}
	require.NoError(t, v.Put(of("a", "11", "p")))
	v.fail("", errors.New("not found"))
	require.Error(t, v.Known().Doubt())
	v.vanish()
	require.NoError(t, v.Known().Doubt(), "there is nothing to see")
	require.Zero(t, v.Len())
	require.Empty(t, v.parts)
	require.Equal(t, []types.UID{"uid-of-a"}, gone)
	v.doubt(errors.New("discovery is down"))
	require.EqualError(t, v.Known().Doubt(), "not found\ndiscovery is down", "the proof of before is over")
	require.Equal(t, Unknown, v.Known().State)
	v.fail(lookup, nil)

	require.NoError(t, v.Replace(nil, "12"))
	v.fail("", errors.New("forbidden"))
	require.EqualError(t, v.Known().Doubt(), "forbidden", "it is served again")
}

func TestWritersOfAnObjectTakeTurns(t *testing.T) {
	t.Parallel()
	n := NameOf("x", "a")
	v, _ := newView(t)
	end, err := v.Begin(t.Context(), n)
	require.NoError(t, err)
	given, cancel := context.WithCancelCause(t.Context())
	enough := errors.New("enough")
	cancel(enough)
	_, err = v.Begin(given, n)
	require.ErrorIs(t, err, enough, "it is the turn of another writer")
	end(false)
	require.Empty(t, v.writing)
	end, err = v.Begin(t.Context(), n)
	require.NoError(t, err)
	end(false)
}

func TestATurnStartsWithoutWhatWentInTheLast(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := NameOf("x", "a")
		v, drifts := newView(t)
		write1(v, told("u", "12", ours))
		end, err := v.Begin(t.Context(), n)
		require.NoError(t, err)
		go func() {
			next, err := v.Begin(t.Context(), n)
			if err == nil {
				next(false)
			}
		}()
		synctest.Wait()
		require.NoError(t, v.Drop(told("u", "13", ours)))
		end(true)
		synctest.Wait()
		require.Zero(t, *drifts, "the deletion was the other writer's")
		require.Empty(t, v.writing)
	})
}

func TestAnAnswerSaysNothingOfASuccessor(t *testing.T) {
	t.Parallel()
	v, _ := newView(t)
	write1(v, told("u", "11", ours), func() { require.NoError(t, v.Put(told("u2", "20", ours))) })
	require.Equal(t, "u2", v.held().UID())
	require.True(t, v.held().Unknown(), "it was not applied by us as far as is known")
}

// An object that has taken the name of one of ours is another object: nothing is known of an
// apply, of a deletion, or of its part.
func TestASuccessorInheritsNothing(t *testing.T) {
	t.Parallel()
	for name, show := range map[string]func(v *fixture, m *metav1.PartialObjectMetadata) error{
		"by an event": func(v *fixture, m *metav1.PartialObjectMetadata) error { return v.Put(m) },
		"by a list":   func(v *fixture, m *metav1.PartialObjectMetadata) error { return v.Replace([]any{m}, "20") },
	} {
		v, _ := newView(t)
		before := told("u", "11", ours)
		before.Labels = map[string]string{"part": "p"}
		write1(v, before)
		v.Prune(NameOf("x", "a"), "u")
		require.True(t, v.held().Pruned())
		require.NoError(t, show(v, told("successor", "12", ours)), name)
		r := v.held()
		require.Equal(t, "successor", r.UID(), name)
		require.False(t, r.Pruned(), name)
		require.True(t, r.Unknown(), name)
		require.Empty(t, r.Part(), name)
		require.NotEmpty(t, r.Owned(), name)
	}
}

// TestAnObjectOfABackupIsNotDeleted has an object whose deletion the server has accepted, and that
// is there again because a backup was restored before the watch showed the deletion.
func TestAnObjectOfABackupIsNotDeleted(t *testing.T) {
	t.Parallel()
	n := NameOf("x", "a")
	v, _ := newView(t)
	require.NoError(t, v.Replace([]any{told("u", "12", ours)}, "12"))
	v.Prune(n, "u")
	require.NoError(t, v.Put(told("u", "13", ours)))
	look := v.Look(n)
	require.True(t, look.Record.Pruned(), "an event may be older than the deletion")
	require.NoError(t, v.Replace([]any{told("u", "12", ours)}, "1013"))
	look = v.Look(n)
	require.False(t, look.Record.Pruned())
}

// A proxy may answer a deletion in the server's place: then the watch goes on showing the object.
func TestADeletionThatTheWatchDoesNotShowIsVoid(t *testing.T) {
	t.Parallel()
	for name, shown := range map[string]func(v *fixture){
		"nothing":      nil,
		"its deletion": func(v *fixture) { require.NoError(t, v.Drop(told("u", "13", ours))) },
		"that it goes": func(v *fixture) {
			dying := told("u", "13", ours)
			dying.DeletionTimestamp = &metav1.Time{}
			require.NoError(t, v.Put(dying))
		},
		"another object": func(v *fixture) { require.NoError(t, v.Put(told("u2", "13", ours))) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				n := NameOf("x", "a")
				v, drifts := newView(t)
				write1(v, told("u", "12", ours))
				v.Prune(n, "u")
				if shown != nil {
					shown(v)
				}
				before := *drifts
				time.Sleep(pruneShows - time.Second)
				look := v.Look(n)
				require.Equal(t, shown == nil || name == "that it goes", look.Found && look.Record.Pruned())
				time.Sleep(2 * time.Second)
				synctest.Wait()
				look = v.Look(n)
				require.Equal(t, name == "that it goes", look.Found && look.Record.Pruned())
				if shown == nil {
					before++
				}
				require.Equal(t, before, *drifts)
			})
		})
	}
}

func TestADeletionOfASuccessorHasItsOwnTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		v, _ := newView(t)
		n := NameOf("x", "a")
		write1(v, told("u", "12", ours))
		v.Prune(n, "u")
		time.Sleep(pruneShows - 10*time.Second)
		require.NoError(t, v.Put(told("u2", "13", ours)))
		v.Prune(n, "u2")
		pruned := func() bool {
			synctest.Wait()
			look := v.Look(n)
			return look.Record.Pruned()
		}
		time.Sleep(20 * time.Second)
		require.True(t, pruned(), "the time of the first one is over")
		time.Sleep(20 * time.Second)
		require.False(t, pruned())
	})
}
