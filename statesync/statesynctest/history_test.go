package statesynctest_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/statesync"
	"github.com/seed-9e1ffd66/trueup/statesync/statesynctest"
)

func set(id string, value int) statesync.Change {
	return statesync.Change{Scope: "s", Key: statesync.Key{Collection: "things", ID: id}, Value: fmt.Append(nil, value)}
}

func gone(id string) statesync.Change {
	return statesync.Change{Scope: "s", Key: statesync.Key{Collection: "things", ID: id}, Deleted: true}
}

func at(version uint64, c statesync.Change) statesync.Item {
	return statesync.Item{Version: version, Key: c.Key, Deleted: c.Deleted, Value: c.Value}
}

func page(head uint64, items ...statesync.Item) statesync.Page {
	return statesync.Page{Position: statesync.Position{Epoch: "e", Head: head}, Items: items}
}

func more(p statesync.Page) statesync.Page {
	p.More = true
	return p
}

func TestAHistoryAcceptsWhatIsRight(t *testing.T) {
	t.Parallel()
	log := &statesync.Memory{}
	require.NoError(t, log.AddScope("s"))
	h := statesynctest.NewHistory("s")
	early := h.Reader("early")
	for n := range 20 {
		changes := []statesync.Change{set("a", 2*n), gone("b"), set("b", 2*n+1), set(fmt.Sprint(n), n)}
		commit := h.Begin(changes...)
		if n%5 == 0 {
			commit.RolledBack()
			continue
		}
		require.NoError(t, log.Commit(changes...))
		if n%7 != 0 { // whether the others were committed is unknown
			commit.Committed()
		}
		if n%2 == 0 {
			require.NoError(t, early.Follow(t.Context(), log, 3, func(statesync.Position) bool { return true }))
		}
	}
	require.NoError(t, h.Check(t.Context(), log))
	p, err := log.Read(t.Context(), "s", 0, 1)
	require.NoError(t, err)
	require.NoError(t, log.Forget("s", p.Head))
	require.NoError(t, h.Check(t.Context(), log))
}

func TestAHistoryNamesWhatIsWrong(t *testing.T) {
	t.Parallel()
	a1, a2, b1, c1, never, undone := set("a", 1), set("a", 2), set("b", 1), set("c", 1), set("a", 9), set("a", 3)
	for name, wrong := range map[string]struct {
		pages []statesync.Page
		err   string
	}{
		"inversion":      {[]statesync.Page{page(4, at(3, b1), at(4, a2)), page(5, at(5, a1))}, "not newer than the item before"},
		"twice":          {[]statesync.Page{page(4, at(3, b1), at(4, a2)), page(5, at(5, a2))}, "not newer than the item before"},
		"invented":       {[]statesync.Page{page(1, at(1, never))}, "never written"},
		"rolled back":    {[]statesync.Page{page(1, at(1, undone))}, "rolled back"},
		"half a commit":  {[]statesync.Page{page(3, at(1, a1), at(3, b1))}, "half a commit"},
		"hole":           {[]statesync.Page{page(3, at(1, a1))}, "versions were skipped"},
		"below":          {[]statesync.Page{page(2, at(1, a1), at(2, b1)), page(2, at(2, b1))}, "do not ascend"},
		"descending":     {[]statesync.Page{page(2, at(2, b1), at(1, a1))}, "do not ascend"},
		"above the head": {[]statesync.Page{page(1, at(2, c1))}, "above the head"},
		"endless":        {[]statesync.Page{more(page(1, at(1, a1)))}, "there is more above the head"},
		"head falls":     {[]statesync.Page{more(page(9, at(1, a1))), page(3)}, "the head was 9"},
		"other epoch":    {[]statesync.Page{more(page(9, at(1, a1))), {Position: statesync.Position{Epoch: "f", Head: 9}}}, "the epoch was"},
		"floor falls": {[]statesync.Page{
			{Position: statesync.Position{Epoch: "e", Floor: 2}}, {Position: statesync.Position{Epoch: "e", Floor: 1}},
		}, "the floor was 2"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := statesynctest.NewHistory("s")
			h.Begin(a1).Committed()
			h.Begin(a2, b1, c1).Committed()
			h.Begin(undone).RolledBack()
			r := h.Reader("r")
			var err error
			for _, p := range wrong.pages {
				err = errors.Join(err, r.Page(p))
			}
			require.ErrorContains(t, err, wrong.err)
		})
	}
}

func TestAHistoryFindsAtTheEndWhatIsMissing(t *testing.T) {
	t.Parallel()
	for name, wrong := range map[string]struct {
		told, stored []statesync.Change
		err          string
	}{
		"skipped":     {[]statesync.Change{set("a", 1), set("b", 1), set("a", 2)}, []statesync.Change{set("a", 1), set("b", 1), set("b", 1)}, "was skipped|skipped things/a=2"},
		"too few":     {[]statesync.Change{set("a", 1), set("a", 2)}, []statesync.Change{set("a", 2)}, "the head is 1"},
		"too many":    {[]statesync.Change{set("a", 1)}, []statesync.Change{set("a", 1), set("a", 1)}, "the head is 2"},
		"a tombstone": {[]statesync.Change{set("a", 1), gone("a")}, []statesync.Change{set("a", 1), set("a", 1)}, "skipped things/a="},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			log := &statesync.Memory{}
			require.NoError(t, log.AddScope("s"))
			h := statesynctest.NewHistory("s")
			for _, c := range wrong.told {
				h.Begin(c).Committed()
			}
			require.NoError(t, log.Commit(wrong.stored...))
			require.Regexp(t, wrong.err, h.Check(t.Context(), log))
		})
	}
}
