package sim_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cloud"
)

// TestStandbyThatIsKeptForPodsBreaksNoPromise repeats the histories while standby machines
// are kept for pods that may come, of which more and less are wanted as time goes by.
func TestStandbyThatIsKeptForPodsBreaksNoPromise(t *testing.T) {
	t.Parallel()
	for seed := uint64(1); seed <= uint64(max(20, many()/5)); seed++ {
		asked, began := 0, time.Time{}
		wrong, trace := history(t, seed, func(p *Pool) {
			inner := p.Want
			began = time.Now()
			p.Spec.SurplusTTL = min(p.Spec.SurplusTTL, 5*time.Minute)
			p.Want = func(pool cloud.Pool, seen cloud.Observed) func(cloud.Memory) cloud.Want {
				pods := inner(pool, seen)
				return func(m cloud.Memory) cloud.Want {
					want := pods(m)
					// The history has to settle at its end: nothing is wanted of a place then, which
					// a full pool would have to make room in, one machine after the other.
					at := min(time.Since(began), 70*time.Minute) / (10 * time.Minute)
					r := rand.New(rand.NewPCG(seed, uint64(at)))
					want.Standby = map[string]int{"": r.IntN(3)}
					for _, t := range pool.Templates {
						if at < 7 {
							want.Standby[t.Name] = r.IntN(3)
						}
					}
					asked++
					return want
				}
			}
		})
		require.Positive(t, asked)
		require.Empty(t, wrong, "seed %d\n%s", seed, trace)
	}
}
