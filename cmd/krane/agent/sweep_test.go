package agent //nolint:testpackage // lists are empty as a test says

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed-9e1ffd66/trueup/apply"
	"github.com/seed-9e1ffd66/trueup/cmd/krane/stream"
	"github.com/seed-9e1ffd66/trueup/internal/test/logtest"
	"github.com/seed-9e1ffd66/trueup/reconcile"
	"github.com/seed-9e1ffd66/trueup/statesync"
)

// An empty list deletes only the objects of the last item, and only if the log has new
// changes in the same epoch and no other collection is empty.
func TestAnEmptyListLetsOnlyTheLastItemGo(t *testing.T) {
	t.Parallel()
	r := of(string(stream.Deployments))
	last := lastItem{r.collection.Key("shop", "web"), statesync.Cursor{Epoch: "e", Version: 7}}
	for name, test := range map[string]struct {
		last lastItem
		now  statesync.Cursor
		lost int
		goes bool
	}{
		"withdrawn":               {last, statesync.Cursor{Epoch: "e", Version: 8}, 1, true},
		"the log has not gone on": {last, statesync.Cursor{Epoch: "e", Version: 7}, 1, false},
		"the log is older":        {last, statesync.Cursor{Epoch: "e", Version: 6}, 1, false},
		"another epoch":           {last, statesync.Cursor{Epoch: "f", Version: 8}, 1, false},
		"two are empty":           {last, statesync.Cursor{Epoch: "e", Version: 8}, 2, false},
		"no last item":            {lastItem{}, statesync.Cursor{Version: 8}, 1, false},
		"another was the last": {
			lastItem{r.collection.Key("shop", "api"), last.at}, statesync.Cursor{Epoch: "e", Version: 8}, 1, false,
		},
	} {
		s := &sweeper{
			last:   map[stream.Collection]lastItem{r.collection: test.last},
			absent: map[types.UID]absence{"root": {lists: 1}, "part": {lists: 1}, "other": {lists: 1}},
		}
		orphans := map[types.UID]apply.ID{
			"root":  r.rootID(last.key),
			"part":  {Kind: "Service", Namespace: "shop", Name: "web"},
			"other": r.rootID(r.collection.Key("shop", "other")),
		}
		held, want := 2, map[types.UID]apply.ID{"part": orphans["part"]} // which has no root: a root has its parts
		if test.goes {
			held, want["root"] = 1, r.rootID(last.key)
		}
		require.Equal(t, held, s.keep(r, statesync.Snapshot{Cursor: test.now}, orphans, test.lost), name)
		require.Equal(t, want, orphans, name)
		require.Len(t, s.absent, len(want), "the absence of the others begins again: %s", name)
	}
}

func TestWhatIsKeptForAnEmptyListIsSaidOnceAndReported(t *testing.T) {
	t.Parallel()
	var log logtest.Log
	s := &sweeper{problems: newProblems(allSeen), logger: slog.New(slog.NewTextHandler(&log, nil))}
	changed := 0
	s.problems.changed = func() { changed++ }
	for _, n := range []int{0, 21, 21, 20, 0, 0} {
		s.kept(t.Context(), stream.Deployments, n)
		if n == 0 {
			require.Empty(t, s.problems.report())
			continue
		}
		require.Len(t, s.problems.report(), 1)
		require.Equal(t, "deployments", s.problems.report()[0].GetResource())
		require.Contains(t, s.problems.report()[0].GetMessage(), fmt.Sprintf("%d objects are not deleted", n))
	}
	require.Equal(t, 3, changed)
	require.Equal(t, 2, strings.Count(log.String(), "orphans kept: the list is empty"))
}

func TestThoseThatAreNotWantedAnyMoreAreNoProblem(t *testing.T) {
	t.Parallel()
	p := newProblems(allSeen)
	key := func(name string) statesync.Key { return stream.Deployments.Key("ws", name) }
	for _, name := range []string{"a", "b"} {
		p.item(reconcile.KeyPass[statesync.Key]{Key: key(name), Parked: true, Err: errors.New("no")})
	}
	p.set("deployments", "kept")
	p.item(reconcile.KeyPass[statesync.Key]{Key: key("a"), Err: errors.New("another")})
	p.keep(stream.Sentinels, nil)
	require.Len(t, p.report(), 3, "an attempt that fails changes nothing")
	p.keep(stream.Deployments, map[statesync.Key]statesync.Item{key("a"): {}})
	require.Equal(t, "deployments", p.report()[0].GetResource())
	require.Equal(t, "deployments/ws/a", p.report()[1].GetResource())
	require.Len(t, p.report(), 2)
	p.item(reconcile.KeyPass[statesync.Key]{Key: key("a")})
	require.Len(t, p.report(), 1)
	for n := range 200 {
		p.set(fmt.Sprint("r", n), strings.Repeat("é", 600))
	}
	p.set("a", "webhook\x00 says\xff no")
	require.Equal(t, "webhook says no", p.report()[0].GetMessage(), "a heartbeat with it is not refused")
	require.Len(t, p.report(), maxProblems)
	require.LessOrEqual(t, len(p.report()[1].GetMessage()), maxProblemMessage)
	require.True(t, utf8.ValidString(p.report()[1].GetMessage()))
}

func TestAnAbsenceLastsOverTwoListsThatAreFarEnoughApart(t *testing.T) {
	t.Parallel()
	type list struct {
		at    time.Duration
		isNew bool
	}
	for name, test := range map[string]struct {
		lists []list
		want  bool
	}{
		"one list":                            {[]list{{0, true}}, false},
		"one list, looked at again":           {[]list{{0, true}, {0, false}}, false},
		"two lists, just far enough apart":    {[]list{{0, true}, {time.Minute, true}}, true},
		"two lists, too close":                {[]list{{0, true}, {time.Minute - 1, true}}, false},
		"three lists, two far enough apart":   {[]list{{0, true}, {time.Second, true}, {time.Minute, true}}, true},
		"one list that is not new, and a new": {[]list{{0, false}, {time.Minute, true}}, false},
	} {
		s, lasts := &sweeper{grace: time.Minute, absent: map[types.UID]absence{}}, false
		for _, l := range test.lists {
			lasts = s.lasts("u", statesync.Snapshot{Listed: time.Unix(0, 0).Add(l.at)}, l.isNew)
		}
		require.Equal(t, test.want, lasts, name)
		require.False(t, s.lasts("another", statesync.Snapshot{Listed: time.Unix(3600, 0)}, true), "each object has its own: %s", name)
	}
	s := &sweeper{absent: map[types.UID]absence{}}
	require.False(t, s.lasts("u", statesync.Snapshot{}, true), "one list, without a grace")
	require.True(t, s.lasts("u", statesync.Snapshot{}, true))
}
