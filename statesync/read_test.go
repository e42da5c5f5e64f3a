package statesync_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/statesync"
)

// TestWhatIsCommittedAfterTheFirstReadIsReportedOnce: not what was there, not again after a new
// epoch, not for a second stream; a commit of many pages is reported page by page.
func TestWhatIsCommittedAfterTheFirstReadIsReportedOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		key := func(n int) statesync.Key { return statesync.Key{Collection: "c", ID: fmt.Sprint(n)} }
		log := &statesync.Memory{}
		require.NoError(t, log.AddScope("eu"))
		require.NoError(t, log.AddScope("us"))
		commit := func(scope string, keys ...int) {
			var changes []statesync.Change
			for _, k := range keys {
				changes = append(changes, statesync.Change{Scope: scope, Key: key(k), Value: []byte(`1`)})
			}
			require.NoError(t, log.Commit(changes...))
		}
		commit("eu", 1, 2)
		var seen []string
		server := &statesync.Server{Log: log, OnRead: func(scope string, changes statesync.Page) {
			from, to := changes.Items[0].Version, changes.Items[len(changes.Items)-1].Version
			seen = append(seen, fmt.Sprintf("%s %d-%d of %d, more %t", scope, from, to, changes.Head, changes.More))
		}}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		watch := func(scope string) {
			go func() {
				ended <- server.Watch(ctx, statesync.Watch{Scope: scope}, func(statesync.Frame) error { return nil })
			}()
			synctest.Wait()
		}
		started := make(chan error)
		go func() { started <- server.Start(ctx) }()
		watch("eu")
		watch("us")
		watch("eu")
		require.Empty(t, seen, "nothing was committed since")
		commit("eu", 1)
		synctest.Wait()
		commit("us", 1, 2)
		synctest.Wait()
		var many []int
		for n := range 1500 {
			many = append(many, n)
		}
		commit("eu", many...)
		synctest.Wait()
		require.Equal(t, []string{
			"eu 3-3 of 3, more false", "us 1-2 of 2, more false", "eu 4-1003 of 1503, more true", "eu 1004-1503 of 1503, more false",
		}, seen)

		seen = nil
		require.NoError(t, log.Restore("eu", []statesync.Item{
			{Version: 1, Key: key(1), Value: []byte(`2`)}, {Version: 2, Key: key(2), Value: []byte(`2`)},
		}))
		synctest.Wait()
		require.Empty(t, seen, "another epoch is read as a whole")
		watch("eu") // the others ended
		commit("eu", 7)
		synctest.Wait()
		require.Len(t, seen, 1)
		stop()
		for range 4 {
			<-ended
		}
		require.NoError(t, <-started)
	})
}

// TestWhatIsReadAgainIsNoChange: a log that has lost the history that was read, in the same epoch, is
// read as a whole.
func TestWhatIsReadAgainIsNoChange(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		item := func(version uint64) statesync.Item {
			return statesync.Item{Version: version, Key: statesync.Key{Collection: "c", ID: fmt.Sprint(version)}, Value: []byte(`1`)}
		}
		paged := func(id, since string, head, read uint64, items ...statesync.Item) []statesync.Page {
			p := page(head, 0, false, items...)
			p[0].Mark = statesync.Mark{Version: head, ID: id}
			if since != "" {
				p[0].Since = statesync.Mark{Version: read, ID: since}
			}
			return p
		}
		log := &written{}
		log.write(map[uint64][]statesync.Page{0: paged("a", "", 2, 0, item(1), item(2))})
		var seen []uint64
		pages := 0
		server := &statesync.Server{Log: log, OnRead: func(_ string, changes statesync.Page) {
			pages++
			for _, i := range changes.Items {
				seen = append(seen, i.Version)
			}
		}}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- server.Start(ctx) }()
		go func() {
			done <- server.Watch(ctx, statesync.Watch{Scope: "eu"}, func(statesync.Frame) error { return nil })
		}()
		synctest.Wait()
		log.write(map[uint64][]statesync.Page{
			2: paged("c", "b", 3, 2, item(3)), 0: paged("c", "", 3, 0, item(1), item(2), item(3)),
			3: paged("d", "c", 4, 3, item(4)),
		})
		synctest.Wait()
		require.Empty(t, seen)
		log.write(map[uint64][]statesync.Page{3: paged("d", "c", 4, 3, item(4))})
		synctest.Wait()
		log.write(map[uint64][]statesync.Page{4: paged("d", "d", 4, 4)})
		synctest.Wait()
		stop()
		<-done
		<-done
		require.Equal(t, []uint64{4}, seen)
		require.Equal(t, 1, pages, "a page without items has no change")
	})
}
