package view //nolint:testpackage // plays the watch, in orders that no server can be made to produce

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWhatIsWaitedForWakesOnce(t *testing.T) {
	t.Parallel()
	n := NameOf("x", "a")
	v, drifts := newView(t)
	write1(v, told("u", "12", ours))
	v.Await(n, 12, "key", func() { *drifts++ })
	require.Zero(t, *drifts, "it has not changed since it was read")
	require.NoError(t, v.Put(told("u", "11", ours)))
	require.Zero(t, *drifts, "nor by an old word")
	require.NoError(t, v.Put(told("u", "13", ours)))
	require.Equal(t, 1, *drifts)
	require.NoError(t, v.Put(told("u", "14", ours)))
	require.Equal(t, 1, *drifts, "there is no waiter any more")

	v.Await(n, 13, "key", func() { *drifts++ })
	require.Equal(t, 2, *drifts, "it had changed before we began to wait")
	require.NoError(t, v.Put(told("u", "15", ours)))
	require.Equal(t, 2, *drifts)

	// A list may hide a change.
	v.Await(n, 15, "key", func() { *drifts++ })
	require.NoError(t, v.Replace([]any{told("u", "20", ours)}, "20"))
	require.Equal(t, 3, *drifts)
	require.NoError(t, v.Replace([]any{told("u", "20", ours)}, "21"))
	require.Equal(t, 3, *drifts)
}

func TestTheEndOfADoubtWakes(t *testing.T) {
	t.Parallel()
	v, _ := newView(t)
	require.NoError(t, v.Replace(nil, "10"))
	woken := 0
	wait := func(key string) { v.Await(NameOf("x", "unseen"), 0, key, func() { woken++ }) }

	v.fail("", errors.New("reset"))
	v.fail(lookup, errors.New("discovery is down"))
	wait("a")
	wait("b")
	v.fail(lookup, nil)
	require.Zero(t, woken, "one of two failures is left")
	v.fail("", nil)
	require.Equal(t, 2, woken, "the watch was resumed, and no list was needed")
	v.fail("", errors.New("reset"))
	v.fail("", nil)
	require.Equal(t, 2, woken, "each only once")

	wait("a")
	v.fail("", nil)
	require.Equal(t, 2, woken, "there was no doubt")
	v.fail("", errors.New("not found"))
	v.vanish()
	require.Equal(t, 3, woken, "the kind is not served: there is none")
}
