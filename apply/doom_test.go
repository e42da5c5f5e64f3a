package apply //nolint:testpackage // views that have seen a part are hard to come by

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/seed-9e1ffd66/trueup/diff"
)

func TestPruneSparesWhatTheUnseenMayNeed(t *testing.T) {
	t.Parallel()
	namespace := ID{Kind: "Namespace", Name: "shop"}
	definition := ID{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition", Name: "widgets.example.com"}
	other := ID{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition", Name: "gadgets.other.example.org"}
	plain := ID{Kind: "ConfigMap", Namespace: "shop", Name: "a"}
	widget := schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}
	resolved := &meta.RESTMapping{Resource: schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}}
	for name, test := range map[string]struct {
		view *view
		want []ID // what waits
	}{
		"known":          {&view{synced: true, mapping: resolved}, nil},
		"not listed":     {&view{mapping: resolved}, []ID{namespace, definition}},
		"not resolved":   {&view{}, []ID{namespace, definition}},
		"failing":        {&view{mapping: resolved, errs: map[string]error{"": errors.New("timeout")}}, []ID{namespace, definition}},
		"not served":     {&view{errs: map[string]error{"": &meta.NoKindMatchError{}}}, nil},
		"served no more": {&view{mapping: resolved, errs: map[string]error{"": apierrors.NewNotFound(schema.GroupResource{}, "")}}, nil},
	} {
		live := &Live{Kinds: []schema.GroupVersionKind{widget}, views: map[schema.GroupKind]*view{widget.GroupKind(): test.view}}
		d := doom{doomed: []Observed{{ID: namespace}, {ID: definition}, {ID: other}, {ID: plain}}}
		d.contradict(live, &Set{}, nil)
		var waits []ID
		for _, r := range d.refused {
			require.ErrorIs(t, r.Err, ErrNotSynced, name)
			require.ErrorContains(t, r.Err, "Widget.example.com", name)
			require.Equal(t, Waiting, r.Action)
			waits = append(waits, r.ID)
		}
		require.Equal(t, test.want, waits, name)
		require.Len(t, d.doomed, 4-len(test.want), name)
	}
}

func TestAKindIsKnownWhenAllOfItIs(t *testing.T) {
	t.Parallel()
	widget := schema.GroupKind{Group: "example.com", Kind: "Widget"}
	v, _ := newView(t)
	v.synced, v.listed, v.sources = false, nil, []string{"x", "y"}
	seen := func() (n int) {
		v.each(widget, func(Observed) bool { n++; return true })
		return n
	}
	require.NoError(t, v.replace("x", []any{told("u", "11", ours)}, "11"))
	require.Zero(t, seen(), "the other namespace may hold more")
	require.NoError(t, v.replace("y", nil, "12"))
	require.Equal(t, 1, seen(), "the list of one takes nothing from the other")
	require.NoError(t, v.replace("x", nil, "13"))
	require.Zero(t, seen())
}

func TestAPlannedChangeIsOneInWhateverVersion(t *testing.T) {
	t.Parallel()
	c := diff.Change{Action: diff.Update, Kind: "ConfigMap", Name: "a", UID: "u", ResourceVersion: "1", Desired: diff.Sum{1}, Fields: []diff.Field{{Path: ".data.a"}}}
	for name, change := range map[string]func(*diff.Change){
		"another version": func(c *diff.Change) { c.ResourceVersion = "2" },
		"another object":  func(c *diff.Change) { c.UID = "v" },
		"another wish":    func(c *diff.Change) { c.Desired = diff.Sum{2} },
		"another action":  func(c *diff.Change) { c.Action = diff.Recreate },
		"other fields":    func(c *diff.Change) { c.Fields = nil },
	} {
		other := c
		change(&other)
		require.Equal(t, name == "another version", sameChange(c, other), name)
	}
}

func TestTheEndOfAnObjectIsJudgedByItsIdentityAndVersion(t *testing.T) {
	t.Parallel()
	v, drifts := newView(t)
	write1(v, told("u", "12", ours))
	require.NoError(t, v.Delete(told("u", "11", ours)))
	require.NotNil(t, v.held(), "we know of a later state")
	require.NoError(t, v.Delete(told("other", "13", ours)))
	require.NotNil(t, v.held(), "it is another object's end")
	require.Zero(t, *drifts)
	require.NoError(t, v.Delete(told("u", "13", ours)))
	require.Nil(t, v.held())
	require.Equal(t, 1, *drifts)
}

func TestWhatDiesOrIsPrunedCallsForNoPass(t *testing.T) {
	t.Parallel()
	v, drifts := newView(t)
	write1(v, told("u", "12", ours))
	dying := told("u", "13", theirs)
	dying.DeletionTimestamp = &metav1.Time{}
	require.NoError(t, v.Update(dying))
	require.Zero(t, *drifts)

	v, drifts = newView(t)
	write1(v, told("u", "12", ours))
	v.held().pruned = true
	require.NoError(t, v.Update(told("u", "13", theirs)))
	require.NoError(t, v.Delete(told("u", "14", theirs)))
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
	require.NoError(t, v.Update(told("u", "12", ours)))
	n := name{"x", "a"}
	seen := v.held().observed
	require.NoError(t, v.Update(told("u", "13", theirs)))
	require.False(t, v.remember(n, seen, diff.Sum{1}), "it has changed since it was compared")
	require.True(t, v.remember(n, v.held().observed, diff.Sum{1}))
}
