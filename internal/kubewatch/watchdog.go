package kubewatch

import (
	"errors"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/watch"
)

// ErrSilent is reported when a watch had no event or bookmark for [Watch.Silence]. It is
// ended, even if its connection looks open, and resumed from its last version.
var ErrSilent = errors.New("the watch is silent")

// watchdog passes on the events of a watch and ends it when it is silent for too
// long. The reflector then watches on from the last version.
type watchdog struct {
	watch  watch.Interface
	silent func() // called when it ends the watch
	events chan watch.Event
	done   chan struct{}
	stop   sync.Once
}

// newWatchdog watches over w. It calls silent when it ends the watch, and end when that has ended.
func newWatchdog(w watch.Interface, silence time.Duration, silent, end func(), running *sync.WaitGroup) *watchdog {
	v := &watchdog{watch: w, silent: silent, events: make(chan watch.Event), done: make(chan struct{})}
	running.Go(func() {
		defer end()
		v.pass(silence)
	})
	return v
}

func (v *watchdog) pass(silence time.Duration) {
	defer close(v.events)
	defer v.watch.Stop()
	quiet := time.NewTimer(silence)
	defer quiet.Stop()
	for {
		select {
		case <-v.done:
			return
		case <-quiet.C:
			v.silent()
			return
		case event, ok := <-v.watch.ResultChan():
			if !ok {
				return
			}
			select {
			case v.events <- event:
			case <-v.done:
				return
			}
			quiet.Reset(silence)
		}
	}
}

// Stop implements watch.Interface.
func (v *watchdog) Stop() { v.stop.Do(func() { close(v.done) }) }

// ResultChan implements watch.Interface.
func (v *watchdog) ResultChan() <-chan watch.Event { return v.events }
