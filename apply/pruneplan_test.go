package apply //nolint:testpackage // views that have seen a part are hard to come by

import (
	"errors"
	"testing"

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
