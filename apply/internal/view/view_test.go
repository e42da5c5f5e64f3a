package view //nolint:testpackage // plays the watch, in orders that no server can be made to produce

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed-9e1ffd66/trueup/apply/internal/identity"
	"github.com/seed-9e1ffd66/trueup/diff"
	"github.com/seed-9e1ffd66/trueup/internal/kubewatch"
)

// The view is tested from within: what matters is the order in which the watch
// and our own writes tell of an object, which no server can be made to produce.

func told(uid, version, fields string) *metav1.PartialObjectMetadata {
	m := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "x", UID: types.UID(uid), ResourceVersion: version}}
	if fields != "" {
		m.ManagedFields = []metav1.ManagedFieldsEntry{{
			Manager: "me", Operation: metav1.ManagedFieldsOperationApply, FieldsV1: &metav1.FieldsV1{Raw: []byte(fields)},
		}}
	}
	return m
}

const (
	ours   = `{"f:data":{"f:a":{},"f:b":{}}}`
	theirs = `{"f:data":{"f:a":{}}}`
)

// fixture is a kind and what its watch delivers.
type fixture struct {
	*Kind
	kubewatch.Sink
}

var me = &identity.Identity{
	Manager:             "me",
	HashAnnotation:      "example.com/desired-hash",
	DependsOnAnnotation: "example.com/depends-on",
	PartLabel:           "part",
}

func newView(t *testing.T) (v *fixture, drifts *int) {
	t.Helper()
	drifts = new(int)
	k := New(schema.GroupKind{Kind: "ConfigMap"}, me, Hooks{Drift: func(Object) { *drifts++ }})
	v = &fixture{k, k.Sink("")}
	require.NoError(t, v.Replace(nil, "10"))
	return v, drifts
}

func (v *fixture) held() *Record { return v.records[NameOf("x", "a")] }

func write1(v *fixture, answer *metav1.PartialObjectMetadata, meanwhile ...func()) {
	n := NameOf("x", "a")
	end, err := v.Begin(context.Background(), n)
	if err != nil {
		panic(err)
	}
	for _, f := range meanwhile {
		f()
	}
	v.Wrote(answer, diff.Sum{1})
	end(false)
}

func TestOurOwnWriteIsNoDriftWhicheverComesFirst(t *testing.T) {
	t.Parallel()
	v, drifts := newView(t)
	write1(v, told("u", "11", ours), func() { require.NoError(t, v.Put(told("u", "11", ours))) })
	require.False(t, v.held().Foreign())
	write1(v, told("u", "12", ours))
	require.NoError(t, v.Put(told("u", "12", ours)))
	require.False(t, v.held().Foreign())
	require.Zero(t, *drifts)
}

func TestAnOlderWordNeverReplacesANewer(t *testing.T) {
	t.Parallel()
	v, drifts := newView(t)
	write1(v, told("u", "12", ours))
	require.NoError(t, v.Put(told("u", "11", theirs)))
	require.EqualValues(t, 12, v.held().version)
	require.NoError(t, v.Drop(told("gone", "11", "")))
	require.NotNil(t, v.held(), "the end of a predecessor is not ours")
	require.NoError(t, v.Replace(nil, "11"))
	require.NotNil(t, v.held(), "the list was taken before our write")
	require.Zero(t, *drifts)

	require.NoError(t, v.Replace(nil, "13"))
	require.Nil(t, v.held())
	require.Equal(t, 1, *drifts)
}

func TestTheHookSeenIsNotToldOfWhatOurWriteHasReplaced(t *testing.T) {
	t.Parallel()
	v, _ := newView(t)
	var seen []string
	v.hooks.Seen = func(m *metav1.PartialObjectMetadata) { seen = append(seen, m.ResourceVersion) }
	require.NoError(t, v.Put(told("u", "11", ours)))
	write1(v, told("u", "13", ours))
	require.NoError(t, v.Put(told("u", "12", ours)))
	require.NoError(t, v.Replace([]any{told("u", "12", ours)}, "12"))
	require.NoError(t, v.Drop(told("predecessor", "12", ours)))
	require.NoError(t, v.Put(told("u", "13", ours)))
	require.NoError(t, v.Drop(told("u", "14", ours)))
	require.Equal(t, []string{"11", "13", "14"}, seen)
}

func TestAForeignChangeDuringOurWriteIsSeenAfterIt(t *testing.T) {
	t.Parallel()
	v, drifts := newView(t)
	write1(v, told("u", "11", ours), func() {
		require.NoError(t, v.Put(told("u", "11", ours)))
		require.NoError(t, v.Put(told("u", "12", theirs)))
	})
	require.True(t, v.held().Foreign())
	require.Equal(t, 1, *drifts)
}

func TestOurOwnWriteIsNoChangeWhicheverComesFirst(t *testing.T) {
	t.Parallel()
	v, _ := newView(t)
	var changes []uint64
	v.hooks.Change = func(o Object) { changes = append(changes, o.Record.Version()) }
	shows := func(version, fields string) func() {
		return func() { require.NoError(t, v.Put(told("u", version, fields))) }
	}
	announced := func(why string, want ...uint64) {
		t.Helper()
		require.Equal(t, want, changes, why)
		changes = nil
	}
	write1(v, told("u", "11", ours), shows("11", ours))
	announced("its creation comes before the answer")
	write1(v, told("u", "12", theirs))
	shows("12", theirs)()
	announced("it comes after the answer")
	write1(v, told("u", "14", ours), shows("13", theirs), shows("14", ours))
	announced("another's write came between", 14)
	write1(v, told("u", "16", theirs), shows("15", ours))
	shows("16", theirs)()
	announced("another's write came before the answer, and ours after it", 16)
	write1(v, told("u", "17", theirs), shows("17", theirs))
	announced("we have changed nothing: the version is another's", 17)
	write1(v, told("u", "18", ours), shows("18", ours), shows("19", ours))
	announced("another's write came after ours", 19)

	end, err := v.Begin(t.Context(), NameOf("x", "a"))
	require.NoError(t, err)
	shows("20", ours)()
	announced("it may be our own")
	end(false)
	announced("no answer came", 20)
	shows("21", ours)()
	announced("nothing is written", 21)
}

func TestADeletionDuringOurWriteIsNotUndoneByItsAnswer(t *testing.T) {
	t.Parallel()
	v, drifts := newView(t)
	var last Object
	count := v.hooks.Drift
	v.hooks.Drift = func(o Object) { last = o; count(o) }
	write1(v, told("u", "11", ours))
	write1(v, told("u", "12", ours), func() { require.NoError(t, v.Drop(told("u", "13", ours))) })
	require.Nil(t, v.held())
	require.Equal(t, 1, *drifts)
	require.True(t, last.Gone)
	require.Equal(t, "u", last.Record.UID(), "its last state leads to what it was made for")
}

func TestStatusAndForeignFieldsAreNoDrift(t *testing.T) {
	t.Parallel()
	v, drifts := newView(t)
	write1(v, told("u", "11", ours))
	changed := told("u", "12", ours)
	changed.Labels = map[string]string{"foreign": "x"}
	require.NoError(t, v.Put(changed))
	require.Zero(t, *drifts)
	require.Equal(t, "x", v.held().Label("foreign", me))

	// Nor is an object that we never applied, however often it changes.
	v.drop(NameOf("x", "a"), v.held())
	require.NoError(t, v.Replace([]any{told("u", "20", theirs)}, "20"))
	before := *drifts
	require.NoError(t, v.Put(told("u", "21", theirs)))
	require.Equal(t, before, *drifts)
}

func TestAFightStopsWakingUntilTheWindowEnds(t *testing.T) {
	t.Parallel()
	for name, round := range map[string]func(v *fixture, version int){
		"edits": func(v *fixture, version int) {
			require.NoError(t, v.Put(told("u", fmt.Sprint(version), theirs)))
			write1(v, told("u", fmt.Sprint(version+1), ours))
		},
		"deletions": func(v *fixture, version int) {
			require.NoError(t, v.Drop(told(v.held().uid.String(), fmt.Sprint(version), "")))
			write1(v, told(fmt.Sprint("u", version), fmt.Sprint(version+1), ours))
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			v, drifts := newView(t)
			write1(v, told("u", "1000", ours))
			for i := range 20 {
				round(v, 1001+2*i)
			}
			require.Equal(t, wakeLimit, *drifts, name)
			time.Sleep(wakeWindow)
			round(v, 2000)
			require.Equal(t, wakeLimit+1, *drifts, name)
		})
	}
}

func TestARestoredServerIsBelieved(t *testing.T) {
	t.Parallel()
	v, _ := newView(t)
	write1(v, told("u", "5000", ours))
	require.NoError(t, v.Put(told("u", "5000", ours))) // the watch has told of it, too
	require.NoError(t, v.Replace(nil, "100"))
	require.Nil(t, v.held(), "objects that the restore lost are dropped")

	write1(v, told("u2", "5000", ours)) // the watch has not
	require.NoError(t, v.Replace(nil, "100"))
	require.NotNil(t, v.held(), "the list may be from before the write")
	require.NoError(t, v.Replace(nil, "101"))
	require.Nil(t, v.held(), "the next one is not")
}

func TestAnUnreadableResourceVersionTrustsTheNewestWord(t *testing.T) {
	t.Parallel()
	v, _ := newView(t)
	require.NoError(t, v.Put(told("u", "abc", ours)))
	require.NoError(t, v.Put(told("u", "abd", theirs)))
	require.Equal(t, uint64(0), v.held().version)
	require.NoError(t, v.Drop(told("u", "abe", theirs)))
	require.Nil(t, v.held())
}

func TestTheViewTakesMetadataOnly(t *testing.T) {
	t.Parallel()
	v, _ := newView(t)
	require.EqualError(t, v.Put("x"), "apply: the watch delivered a string; want *metav1.PartialObjectMetadata")
	require.Error(t, errors.Join(v.Drop("x"), v.Replace([]any{"x"}, "1")))
}

func TestTheFirstListIsAnnouncedOnce(t *testing.T) {
	t.Parallel()
	calls := 0
	v := New(schema.GroupKind{Kind: "ConfigMap"}, me, Hooks{Synced: func() { calls++ }}).Sink("")
	require.NoError(t, v.Replace(nil, "10"))
	require.NoError(t, v.Replace(nil, "11"))
	require.Equal(t, 1, calls)
}

func TestAKindIsKnownWhenAllOfItIs(t *testing.T) {
	t.Parallel()
	v, _ := newView(t)
	v.state, v.listed, v.sources = Unknown, nil, []string{"x", "y"}
	seen := func() (n int) {
		v.Each(func(Name, *Record) bool { n++; return true })
		return n
	}
	require.NoError(t, v.Kind.Sink("x").Replace([]any{told("u", "11", ours)}, "11"))
	require.Zero(t, seen(), "the other namespace may hold more")
	require.NoError(t, v.Kind.Sink("y").Replace(nil, "12"))
	require.Equal(t, 1, seen(), "the list of one takes nothing from the other")
	require.NoError(t, v.Kind.Sink("x").Replace(nil, "13"))
	require.Zero(t, seen())
}

func TestTheEndOfAnObjectIsJudgedByItsIdentityAndVersion(t *testing.T) {
	t.Parallel()
	v, drifts := newView(t)
	write1(v, told("u", "12", ours))
	require.NoError(t, v.Drop(told("u", "11", ours)))
	require.NotNil(t, v.held(), "we know of a later state")
	require.NoError(t, v.Drop(told("other", "13", ours)))
	require.NotNil(t, v.held(), "it is another object's end")
	require.Zero(t, *drifts)
	require.NoError(t, v.Drop(told("u", "13", ours)))
	require.Nil(t, v.held())
	require.Equal(t, 1, *drifts)
}

func TestWhatDiesOrIsPrunedCallsForNoPass(t *testing.T) {
	t.Parallel()
	v, drifts := newView(t)
	write1(v, told("u", "12", ours))
	dying := told("u", "13", theirs)
	dying.DeletionTimestamp = &metav1.Time{}
	require.NoError(t, v.Put(dying))
	require.Zero(t, *drifts)

	v, drifts = newView(t)
	write1(v, told("u", "12", ours))
	v.Prune(NameOf("x", "a"), "u")
	require.NoError(t, v.Put(told("u", "13", theirs)))
	require.NoError(t, v.Drop(told("u", "14", theirs)))
	require.Zero(t, *drifts)
}

func TestAChangeThatAListShowsCallsForAPass(t *testing.T) {
	t.Parallel()
	v, drifts := newView(t)
	write1(v, told("u", "12", ours))
	require.NoError(t, v.Replace([]any{told("u", "13", theirs)}, "14"))
	require.Equal(t, 1, *drifts)
}

func TestMemoryIsRestoredOnlyOfWhatWasSeen(t *testing.T) {
	t.Parallel()
	v, _ := newView(t)
	require.NoError(t, v.Put(told("u", "12", ours)))
	n := NameOf("x", "a")
	seen := v.held().observed
	require.NoError(t, v.Put(told("u", "13", theirs)))
	require.False(t, v.Remember(n, seen, diff.Sum{1}), "it has changed since it was compared")
	require.True(t, v.Remember(n, v.held().observed, diff.Sum{1}))
}

func TestAPartIsFoundByItsObjectsAndKeepsOneWithoutItsLabel(t *testing.T) {
	t.Parallel()
	v, _ := newView(t)
	object := func(name, uid, version, part string) *metav1.PartialObjectMetadata {
		m := told(uid, version, ours)
		m.Name = name
		if part != "" {
			m.Labels = map[string]string{"part": part}
		}
		return m
	}
	members := func(part string) string {
		var names []string
		v.EachOf(PartOf(part), func(n Name, r *Record) bool {
			require.Equal(t, part, r.Part())
			names = append(names, n.Name())
			return true
		})
		slices.Sort(names)
		return strings.Join(names, " ")
	}
	require.NoError(t, v.Replace([]any{object("a", "1", "11", "p"), object("b", "2", "11", "q"), object("c", "3", "11", "p")}, "11"))
	require.Equal(t, "a c", members("p"))
	require.Equal(t, "b", members("q"))
	require.NoError(t, v.Put(object("a", "1", "12", "")))
	require.Equal(t, "a c", members("p"), "the label is put back by a repair")
	require.NoError(t, v.Put(object("c", "3", "12", "q")))
	require.Equal(t, "a", members("p"))
	require.Equal(t, "b c", members("q"))
	require.NoError(t, v.Drop(object("a", "1", "13", "")))
	require.NoError(t, v.Put(object("a", "4", "14", "")))
	require.Empty(t, members("p"), "its successor was never in it")
	require.NoError(t, v.Replace([]any{object("c", "3", "20", "p")}, "20"))
	require.Equal(t, "c", members("p"))
	require.Empty(t, members("q"))
	require.Len(t, v.parts, 1, "an empty part takes nothing")
}

func TestAnyHistoryOfPartsLeadsToTheIndexOfItsEnd(t *testing.T) {
	t.Parallel()
	const seed = 1
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // a seed
	v, _ := newView(t)
	want := map[string]string{} // part by name
	for i := range 5000 {
		name, part := fmt.Sprint("n", random.IntN(50)), fmt.Sprint("p", random.IntN(7))
		m := told("u"+name, fmt.Sprint(1000+i), ours)
		m.Name, m.Labels = name, map[string]string{"part": part}
		if random.IntN(4) == 0 {
			require.NoError(t, v.Drop(m))
			delete(want, name)
			continue
		}
		require.NoError(t, v.Put(m))
		want[name] = part
	}
	have := map[string]string{}
	for i := range 7 {
		part := fmt.Sprint("p", i)
		v.EachOf(PartOf(part), func(n Name, _ *Record) bool { have[n.Name()] = part; return true })
	}
	require.Equal(t, want, have)
	require.Equal(t, len(want), v.Len())
}
