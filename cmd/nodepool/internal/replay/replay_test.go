package replay_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cloud"
	"github.com/seed-9e1ffd66/trueup/cloud/demand"
	"github.com/seed-9e1ffd66/trueup/cmd/nodepool/internal/replay"
)

const (
	boot   = 20 * time.Second
	warmup = 3 * time.Minute
)

// settings are a pool of machines that take four pods of one core each.
func settings(size, standby int) replay.Settings {
	return replay.Settings{
		Pool: cloud.Pool{Size: size, MinStandby: standby}, Capacity: demand.Resources{CPU: 4000, Memory: 16 << 30, Pods: 20},
		Boot: boot, Warmup: warmup, Stop: 30 * time.Second, Price: 0.2, PriceStopped: 0.01,
	}
}

func onePod(name string, at, runs time.Duration) replay.Pod {
	return replay.Pod{Name: name, Arrival: at, Duration: runs, Requests: demand.Resources{CPU: 1000, Memory: 1 << 30}}
}

func play(t *testing.T, s replay.Settings, pods ...replay.Pod) replay.Result {
	t.Helper()
	r, err := s.Replay(pods)
	require.NoError(t, err)
	return r
}

// TestOnePodWithoutStandbyWaitsForAWarmupAndABoot: it arrives after 100s, and its machine
// warms up to 280s, starts to 300s, and runs the pod for 600s. The replay ends with it.
func TestOnePodWithoutStandbyWaitsForAWarmupAndABoot(t *testing.T) {
	t.Parallel()
	r := play(t, settings(5, 0), onePod("a", 100*time.Second, 10*time.Minute))
	require.Equal(t, replay.Wait{P50: warmup + boot, P95: warmup + boot, Max: warmup + boot}, r.Wait)
	require.Zero(t, r.Hits)
	require.Equal(t, []int{1, 1, 1}, []int{r.Pods, r.Launched, r.Started})
	require.InDelta(t, 180.0/3600, r.Hours.Warming, 1e-9)
	require.InDelta(t, 20.0/3600, r.Hours.Starting, 1e-9)
	require.InDelta(t, 600.0/3600, r.Hours.Running, 1e-9)
	require.Zero(t, r.Hours.Standby+r.Hours.Stopping)
	require.InDelta(t, 0.2*800/3600, r.Cost, 1e-9)
}

// TestOnePodWithStandbyWaitsForABoot: the machine on standby is started at once, and
// another warms up in its place.
func TestOnePodWithStandbyWaitsForABoot(t *testing.T) {
	t.Parallel()
	r := play(t, settings(5, 1), onePod("a", 100*time.Second, 10*time.Minute))
	require.Equal(t, replay.Wait{P50: boot, P95: boot, Max: boot}, r.Wait)
	require.Equal(t, 1, r.Hits)
	require.Equal(t, []int{1, 1}, []int{r.Launched, r.Started})
	require.InDelta(t, 180.0/3600, r.Hours.Warming, 1e-9)
	require.InDelta(t, 20.0/3600, r.Hours.Starting, 1e-9)
	require.InDelta(t, 600.0/3600, r.Hours.Running, 1e-9)
	require.InDelta(t, (100.0+720-280)/3600, r.Hours.Standby, 1e-9)
	require.InDelta(t, (0.2*800+0.01*540)/3600, r.Cost, 1e-9)
}

func TestAPodWithRoomOnARunningMachineWaitsForNothing(t *testing.T) {
	t.Parallel()
	r := play(t, settings(5, 1), onePod("a", 0, 10*time.Minute), onePod("b", time.Minute, time.Minute), onePod("c", time.Minute, time.Minute))
	require.Equal(t, replay.Wait{P50: 0, P95: boot, Max: boot}, r.Wait)
	require.Equal(t, 3, r.Hits)
	require.Equal(t, 1, r.Started)
}

// TestAPodThatComesDuringABootIsAHit: it has room on the machine that starts, and waits for
// the rest of the boot.
func TestAPodThatComesDuringABootIsAHit(t *testing.T) {
	t.Parallel()
	for _, size := range []int{1, 5} {
		r := play(t, settings(size, 1), onePod("a", 0, time.Minute), onePod("b", 15*time.Second, time.Minute))
		require.Equal(t, replay.Wait{P50: 5 * time.Second, P95: boot, Max: boot}, r.Wait)
		require.Equal(t, []int{2, 1}, []int{r.Hits, r.Started})
	}
}

// TestAPodThatComesDuringAWarmupIsAMiss: the machine that warms up in place of the first is
// on standby after 180s, and ready after 200s.
func TestAPodThatComesDuringAWarmupIsAMiss(t *testing.T) {
	t.Parallel()
	big := onePod("b", 150*time.Second, time.Minute)
	big.Requests.CPU = 4000
	r := play(t, settings(2, 1), onePod("a", 0, time.Hour), big)
	require.Equal(t, 50*time.Second, r.Wait.Max)
	require.Equal(t, 1, r.Hits)
}

// TestAMachineThatIsEmptyForItsTimeIsStoppedAndStartedAgain: empty at 80s, drained at 140s,
// standby at 170s.
func TestAMachineThatIsEmptyForItsTimeIsStoppedAndStartedAgain(t *testing.T) {
	t.Parallel()
	s := settings(1, 1)
	s.Pool.EmptyTTL = time.Minute
	r := play(t, s, onePod("a", 0, time.Minute), onePod("b", 150*time.Second, time.Minute))
	require.Equal(t, boot+20*time.Second, r.Wait.Max, "it waits for the stop, and for a boot")
	require.Equal(t, []int{0, 2}, []int{r.Launched, r.Started})
	require.InDelta(t, 30.0/3600, r.Hours.Stopping, 1e-9)
	require.Zero(t, r.Hours.Standby)
}

// TestAMachineOverItsRuntimeIsDrained: its pod waits again, for the rest of its time.
func TestAMachineOverItsRuntimeIsDrained(t *testing.T) {
	t.Parallel()
	s := settings(2, 2)
	s.Pool.MaxRuntime = 30 * time.Minute
	r := play(t, s, onePod("a", 0, 40*time.Minute))
	require.Equal(t, 1, r.Evicted)
	require.Equal(t, 2*boot, r.Wait.Max)
	require.InDelta(t, 40.0/60, r.Hours.Running, 1e-9)
}

// TestAPodGoesToTheEmptiestMachine as the scheduler places it by default: the small pod goes
// to the machine with the medium one. The other machine is empty after 1820s, and stopped a
// minute later; the machine of the small pod runs until the pod ends.
func TestAPodGoesToTheEmptiestMachine(t *testing.T) {
	t.Parallel()
	s := settings(2, 2)
	s.Pool.EmptyTTL = time.Minute
	large, medium, small := onePod("large", 0, 30*time.Minute), onePod("medium", 0, 10*time.Minute), onePod("small", time.Minute, time.Hour)
	large.Requests.CPU, medium.Requests.CPU = 3000, 2000
	r := play(t, s, large, medium, small)
	require.Zero(t, r.Wait.P50-boot)
	require.Equal(t, 2, r.Started)
	require.InDelta(t, (31*time.Minute + 3640*time.Second).Hours(), r.Hours.Running, 1e-9)
}

// TestPodsThatWaitForAStartAreNotCountedTwice: the machine that starts is kept for them.
func TestPodsThatWaitForAStartAreNotCountedTwice(t *testing.T) {
	t.Parallel()
	var pods []replay.Pod
	for n := range 8 {
		pods = append(pods, onePod(fmt.Sprint(n), time.Duration(n)*time.Second, 10*time.Minute))
	}
	require.Equal(t, 2, play(t, settings(8, 8), pods...).Started)
}

func TestAPoolIsNeverLargerThanItsSize(t *testing.T) {
	t.Parallel()
	var pods []replay.Pod
	for n := range 40 {
		pods = append(pods, onePod(fmt.Sprint(n), time.Duration(n)*time.Second, 10*time.Minute))
	}
	r := play(t, settings(3, 1), pods...)
	require.Equal(t, 40, r.Pods, "each runs in the end")
	for _, sample := range r.Samples {
		total := 0
		for _, n := range sample.Counts {
			total += n
		}
		require.LessOrEqual(t, total, 3)
	}
}

func TestAPodThatFitsOnNoMachineIsReported(t *testing.T) {
	t.Parallel()
	large := onePod("large", 0, time.Minute)
	large.Requests.CPU = 4001
	r := play(t, settings(3, 1), large, onePod("small", 0, time.Minute))
	require.Equal(t, []string{"large"}, r.Unplaced)
	require.Equal(t, 1, r.Pods)
}

// day is a trace of pods in bursts.
func day(seed uint64, pods int, span time.Duration) []replay.Pod {
	random := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // a test
	var all []replay.Pod
	at := time.Duration(0)
	for len(all) < pods {
		at += time.Duration(random.ExpFloat64() * float64(span) / float64(pods) * 4)
		for range 1 + random.IntN(7) {
			all = append(all, replay.Pod{
				Name: fmt.Sprint(
					len(all),
				),
				Arrival:  at,
				Duration: time.Minute + time.Duration(random.ExpFloat64()*float64(10*time.Minute)).Truncate(time.Second),
				Requests: demand.Resources{CPU: 500 * (1 + random.Int64N(5)), Memory: 1 << 30 * (1 + random.Int64N(4))},
			})
		}
	}
	return all[:pods]
}

func TestMoreStandbyNeverMakesPodsWaitLonger(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		t.Logf("seed %d", seed)
		results, err := settings(100, 0).Sweep(day(seed, 150, 2*time.Hour), []int{0, 1, 2, 3, 5, 8})
		require.NoError(t, err)
		for i := range results[1:] {
			require.LessOrEqual(t, results[i+1].Wait.P95, results[i].Wait.P95+30*time.Second, "minStandby %d", results[i+1].MinStandby)
		}
		require.Less(t, results[0].HitShare, results[5].HitShare)
	}
}

func TestTheMachineHoursAreThoseOfTheSamples(t *testing.T) {
	t.Parallel()
	for seed := range uint64(5) {
		s := settings(20, 3)
		s.Pool.EmptyTTL, s.Pool.MaxRuntime, s.Pool.SurplusTTL = 2*time.Minute, 20*time.Minute, 10*time.Minute
		r := play(t, s, day(seed, 300, 4*time.Hour)...)
		var sum [5]float64
		for i, sample := range r.Samples[1:] {
			for state, n := range r.Samples[i].Counts {
				sum[state] += float64(n) * (sample.At - r.Samples[i].At).Hours()
			}
		}
		for state, hours := range []float64{r.Hours.Running, r.Hours.Starting, r.Hours.Warming, r.Hours.Stopping, r.Hours.Standby} {
			require.InDelta(t, sum[state], hours, 1e-6, "seed %d, state %d", seed, state)
			require.Positive(t, hours)
		}
	}
}

func TestAReplayIsAFunctionOfItsInput(t *testing.T) {
	t.Parallel()
	pods := day(7, 300, time.Hour)
	one, two := play(t, settings(10, 2), pods...), play(t, settings(10, 2), pods...)
	require.Empty(t, cmp.Diff(one, two))
	a, err := json.Marshal(one)
	require.NoError(t, err)
	b, err := json.Marshal(two)
	require.NoError(t, err)
	require.Equal(t, string(a), string(b))
}

// TestAPassThatIsLeftOutWouldHaveDoneNothing compares with a pass at each event.
func TestAPassThatIsLeftOutWouldHaveDoneNothing(t *testing.T) {
	t.Parallel()
	for seed := range uint64(12) {
		s := settings(4+int(seed)*3, int(seed)%4)
		s.Pool.EmptyTTL, s.Pool.MaxRuntime, s.Pool.SurplusTTL = 2*time.Minute, 20*time.Minute, 10*time.Minute
		if seed%3 == 0 {
			s.Boot = 90 * time.Second // longer than pods wait for one machine
		}
		pods := day(seed, 200, 3*time.Hour)
		want, err := replay.Diligently(s, pods)
		require.NoError(t, err)
		require.Empty(t, cmp.Diff(want, play(t, s, pods...)), "seed %d", seed)
	}
}

func TestWrongSettingsAreRefusedByField(t *testing.T) {
	t.Parallel()
	s := settings(0, 3)
	s.Boot, s.Warmup, s.Stop, s.Interval, s.Price, s.PriceStopped = time.Hour, 11*time.Minute, time.Millisecond, -1, -1, -2
	_, err := s.Replay([]replay.Pod{onePod("a", 0, 1)})
	for _, text := range []string{
		"MinStandby: is 3, must be from 0 to Size (0)", "pool size: is 0, must be at least 1", "boot: is 1h0m0s, must be at least 1s and at most 9m59s",
		"warmup: is 11m0s", "stop: is 1ms", "interval: is -1ns", "price: is -1", "price of a stopped machine: is -2",
	} {
		require.ErrorContains(t, err, text)
	}
	s = settings(1, 0)
	s.Pool.MaxRuntime = 39 * time.Second
	_, err = s.Replay([]replay.Pod{onePod("a", 0, time.Hour)})
	require.ErrorContains(t, err, "maximum runtime: is 39s, must be at least twice the boot (20s)")
	_, err = settings(1, 0).Replay(nil)
	require.ErrorContains(t, err, "no pods")
}

// BenchmarkADayOfTenThousandPods replays it on a pool with room for all, and on one that is
// full for most of the day.
func BenchmarkADayOfTenThousandPods(b *testing.B) {
	pods := day(1, 10_000, 24*time.Hour)
	for _, c := range []struct {
		name, figure string
		size         int
	}{{"room", "nodepool_replay_pods_per_second", 100}, {"full", "nodepool_replay_full_pods_per_second", 20}} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := settings(c.size, 4).Replay(pods); err != nil {
					b.Fatal(err)
				}
			}
			fmt.Printf("figure %s %.0f pods/s\n", c.figure, float64(b.N*len(pods))/b.Elapsed().Seconds())
		})
	}
}
