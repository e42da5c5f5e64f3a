package reconcile_test

import (
	"sync"
	"testing"

	"github.com/seed-9e1ffd66/trueup/reconcile"
)

func TestGenerationsRemembersOnlyWhatIsDone(t *testing.T) {
	var generations reconcile.Generations[string]
	same(t, "never seen", generations.Changed("pod", 0), true)
	same(t, "asked again, not done", generations.Changed("pod", 0), true)
	generations.Done("pod", 0)
	same(t, "done", generations.Changed("pod", 0), false)
	same(t, "newer", generations.Changed("pod", 1), true)
	same(t, "another key", generations.Changed("node", 0), true)
	generations.Forget("pod")
	same(t, "forgotten", generations.Changed("pod", 0), true)
	generations.Done("pod", 3)
	generations.Done("node", 3)
	generations.Reset()
	same(t, "reset", generations.Changed("pod", 3), true)
	same(t, "another key, reset", generations.Changed("node", 3), true)
}

func TestAnOlderGenerationNeverOverwritesANewerOne(t *testing.T) {
	var generations reconcile.Generations[int]
	var all sync.WaitGroup
	for generation := range int64(100) {
		all.Go(func() {
			generations.Changed(1, generation)
			generations.Done(1, generation)
		})
	}
	all.Wait()
	same(t, "the newest", generations.Changed(1, 99), false)
	same(t, "a stale one", generations.Changed(1, 50), false)
	generations.Done(1, 7)
	same(t, "the newest after a stale Done", generations.Changed(1, 99), false)
	same(t, "a newer one", generations.Changed(1, 100), true)
}
