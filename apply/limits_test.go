package apply_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/apply"
	"github.com/seed-9e1ffd66/trueup/apply/applytest"
)

func TestWritesUnderWayAreBounded(t *testing.T) {
	t.Parallel()
	b := serverBench(t)
	a := b.start(t)
	var mu sync.Mutex
	under, most := 0, 0
	a.net.Fault = func(r applytest.Request) applytest.Fault {
		if !r.Writes() {
			return applytest.Fault{}
		}
		mu.Lock()
		defer mu.Unlock()
		under++
		most = max(most, under)
		return applytest.Fault{Delay: 20 * time.Millisecond}
	}
	a.OnWrite = func(apply.Write) {
		mu.Lock()
		defer mu.Unlock()
		under--
	}
	a.Concurrency = 3
	var all []string
	for i := range 12 {
		all = append(all, configMap(fmt.Sprintf("c%d", i), "1"))
	}
	require.Equal(t, 12, apply1(t, a, b.set(t, all...)).Count(apply.Created))
	require.Equal(t, 3, most)
}

func TestASetOfAnotherOwnerIsRefused(t *testing.T) {
	t.Parallel()
	b := serverBench(t)
	a := b.start(t)
	other := *b
	other.owner.Labels = map[string]string{"example.com/owner": "another"}
	_, err := a.Apply(t.Context(), other.set(t, configMap("a", "1")))
	require.ErrorContains(
		t,
		err,
		`the set's owner is "bench" (example.com/owner=another); must be the Live's owner, "bench" (example.com/owner=`+b.ns+`)`,
	)
	_, err = a.Prune(t.Context(), other.set(t, configMap("a", "1")), complete)
	require.ErrorContains(t, err, "must be the Live's owner")
	_, err = a.Plan(t.Context(), other.set(t, configMap("a", "1")), complete)
	require.ErrorContains(t, err, "must be the Live's owner")
	a.net.NoWrites(t)
}
