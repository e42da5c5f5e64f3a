package kubewatch //nolint:testpackage // the watchdog is not to be seen from outside

import (
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
)

func TestASilentWatchIsEnded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		source := watch.NewFake()
		silent := 0
		var ended atomic.Int32
		var running sync.WaitGroup
		w := newWatchdog(source, time.Minute, func() { silent++ }, func() { ended.Add(1) }, &running)
		for range 5 { // bookmarks keep it alive
			time.Sleep(50 * time.Second)
			go source.Action(watch.Bookmark, &unstructured.Unstructured{})
			require.Equal(t, watch.Bookmark, (<-w.ResultChan()).Type)
		}
		quiet := time.Now()
		_, open := <-w.ResultChan()
		require.False(t, open)
		require.Equal(t, time.Minute, time.Since(quiet))
		require.Equal(t, 1, silent)
		require.True(t, source.IsStopped())
		w.Stop()
		w.Stop()

		// Stopped while an event waits for its reader, it leaves no goroutine.
		source = watch.NewFake()
		w = newWatchdog(source, time.Minute, func() { silent++ }, func() { ended.Add(1) }, &running)
		source.Action(watch.Bookmark, &unstructured.Unstructured{})
		w.Stop()
		synctest.Wait()
		require.True(t, source.IsStopped())
		require.Equal(t, 1, silent, "stopped is not silent")
		running.Wait()
		require.EqualValues(t, 2, ended.Load())
	})
}
