package apply //nolint:testpackage // views that have seen a part are hard to come by

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/seed-9e1ffd66/trueup/diff"
)

func TestPruneSparesWhatTheUnseenMayNeed(t *testing.T) {
	t.Parallel()
	namespace := ID{Kind: "Namespace", Name: "shop"}
	definition := ID{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition", Name: "widgets.example.com"}
	other := ID{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition", Name: "gadgets.other.example.org"}
	plain := ID{Kind: "ConfigMap", Namespace: "shop", Name: "a"}
	widget := schema.GroupKind{Group: "example.com", Kind: "Widget"}
	for name, test := range map[string]struct {
		unseen []unseen
		want   []ID // what waits
	}{
		"known":        {nil, nil},
		"not listed":   {[]unseen{{widget, "widgets.example.com", errors.New("forbidden")}}, []ID{namespace, definition}},
		"not resolved": {[]unseen{{widget, "", errors.New("discovery is down")}}, []ID{namespace, definition}},
	} {
		plan := prunePlan{due: []Observed{{ID: namespace}, {ID: definition}, {ID: other}, {ID: plain}}, unseen: test.unseen}
		plan.contradict(nil, nil)
		var waits []ID
		for _, r := range plan.refused {
			require.ErrorIs(t, r.Err, ErrNotSynced, name)
			require.ErrorContains(t, r.Err, "Widget.example.com", name)
			require.Equal(t, Waiting, r.Action)
			waits = append(waits, r.ID)
		}
		require.Equal(t, test.want, waits, name)
		require.Len(t, plan.due, 4-len(test.want), name)
	}
}

func TestAnAbsenceIsCountedUntilItsGraceIsOver(t *testing.T) {
	t.Parallel()
	start := time.Unix(0, 0)
	o := Observed{ID: ID{Kind: "ConfigMap", Namespace: "x", Name: "a"}, UID: "u"}
	options := PruneOptions{Grace: func(schema.GroupKind) Grace { return Grace{Passes: 2, Age: time.Minute} }}
	choose := func(before absence, options PruneOptions, after time.Duration) (prunePlan, absence) {
		var plan prunePlan
		next, absent := plan.choose(o, map[string]absence{"u": before}, options, start.Add(after))
		require.True(t, absent)
		return plan, next
	}
	waits := prunePlan{pending: 1}
	plan, first := choose(absence{}, options, 0)
	require.Equal(t, waits, plan)
	require.Equal(t, absence{start, 1}, first)
	plan, _ = choose(first, options, time.Minute-1)
	require.Equal(t, waits, plan, "often enough, and not long enough")
	often := PruneOptions{Grace: func(schema.GroupKind) Grace { return Grace{Passes: 3, Age: time.Minute} }}
	plan, _ = choose(first, often, time.Hour)
	require.Equal(t, waits, plan, "long enough, and not often enough")
	plan, second := choose(first, options, time.Minute)
	require.Equal(t, prunePlan{due: []Observed{o}}, plan)
	require.Equal(t, absence{start, 2}, second)

	options.Gone = func(Observed) bool { return true }
	plan, _ = choose(absence{}, options, 0)
	require.Equal(t, prunePlan{due: []Observed{o}}, plan, "an object named as deleted needs no grace")

	options.Keep = func(Observed) bool { return true }
	plan = prunePlan{}
	_, absent := plan.choose(o, map[string]absence{"u": second}, options, start)
	require.False(t, absent, "its absence is counted from zero")
	require.Equal(t, prunePlan{}, plan)
}

func TestWhatIsNeededStays(t *testing.T) {
	t.Parallel()
	namespace := ID{Kind: "Namespace", Name: "shop"}
	definition := ID{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition", Name: "widgets.example.com"}
	empty := ID{Kind: "Namespace", Name: "empty"}
	needs := ID{Group: "example.com", Kind: "Widget", Namespace: "shop", Name: "w"}
	plan := prunePlan{due: []Observed{{ID: namespace}, {ID: definition}, {ID: empty}}}
	plan.contradict(map[string]ID{"shop": needs}, map[string]ID{"widgets.example.com": needs})
	require.Equal(t, []Observed{{ID: empty}}, plan.due)
	require.Len(t, plan.refused, 2)
	for _, r := range plan.refused {
		require.Equal(t, Refused, r.Action)
		require.ErrorIs(t, r.Err, ErrNeeded)
		require.ErrorContains(t, r.Err, needs.String())
	}
}

func TestAPlannedChangeIsOneInWhateverVersion(t *testing.T) {
	t.Parallel()
	c := diff.Change{
		Action:          diff.Update,
		Kind:            "ConfigMap",
		Name:            "a",
		UID:             "u",
		ResourceVersion: "1",
		Desired:         diff.Sum{1},
		Fields:          []diff.Field{{Path: ".data.a"}},
	}
	for name, change := range map[string]func(*diff.Change){
		"another version": func(c *diff.Change) { c.ResourceVersion = "2" },
		"another object":  func(c *diff.Change) { c.UID = "v" },
		"another state":   func(c *diff.Change) { c.Desired = diff.Sum{2} },
		"another action":  func(c *diff.Change) { c.Action = diff.Recreate },
		"other fields":    func(c *diff.Change) { c.Fields = nil },
	} {
		other := c
		change(&other)
		require.Equal(t, name == "another version", sameChange(c, other), name)
	}
}
