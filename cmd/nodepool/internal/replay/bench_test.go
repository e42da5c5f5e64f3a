package replay_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cloud"
	"github.com/seed-9e1ffd66/trueup/cloud/demand"
	"github.com/seed-9e1ffd66/trueup/cmd/nodepool/internal/replay"
)

// history is hours of 10,000 pods each, more of them by day than by night. They run ten
// minutes on average.
func history(hours int) (pods []replay.Pod) {
	dice := rand.New(rand.NewPCG(1, 1))
	for hour := range hours {
		n := 5000 + 10000*(hour%24)/23
		for i := range n {
			at := time.Duration(hour)*time.Hour + time.Duration(i)*time.Hour/time.Duration(n)
			pods = append(pods, replay.Pod{
				Name: fmt.Sprint(len(pods)), Arrival: at, Duration: 30*time.Second + time.Duration(dice.ExpFloat64()*float64(10*time.Minute)),
				Requests: demand.Resources{CPU: 250 * (1 + dice.Int64N(8)), Memory: 1 << 30},
			})
		}
	}
	return pods
}

// BenchmarkReplay is mark N9: a month of 10,000 pods an hour within a minute is 120,000
// pods a second. The month takes 2 GB.
func BenchmarkReplay(b *testing.B) {
	pods := history(720)
	s := replay.Settings{
		Pool:     cloud.Pool{Size: 400, MinStandby: 20, EmptyTTL: 5 * time.Minute},
		Capacity: demand.Resources{CPU: 15500, Memory: 60 << 30, Pods: 58}, Price: 0.7, PriceStopped: 0.01,
	}
	for b.Loop() {
		r, err := s.Replay(pods)
		require.NoError(b, err)
		require.Equal(b, len(pods), r.Pods)
	}
	fmt.Printf("\nfigure nodepool_replay_pods_per_s %.0f pods/s\n", float64(len(pods)*b.N)/b.Elapsed().Seconds())
}
