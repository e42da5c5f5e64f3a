package benchfigures_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/internal/bench/benchfigures"
	"github.com/seed-9e1ffd66/trueup/internal/test/await"
)

func TestAFigureIsALineThatCanBeReadAgain(t *testing.T) {
	t.Parallel()
	for value, line := range map[float64]string{
		0: "figure a.b 0 us\n", 12345.678: "figure a.b 12346 us\n", 0.0123456: "figure a.b 0.0123 us\n", 3: "figure a.b 3 us\n", 0.9876: "figure a.b 0.988 us\n", -0.0123456: "figure a.b -0.0123 us\n",
	} {
		var out bytes.Buffer
		book := benchfigures.Book{Out: &out}
		book.Add("a.b", value, "us")
		require.Equal(t, line, out.String())
		read, ok := benchfigures.Parse(line)
		require.True(t, ok)
		require.InEpsilon(t, value+1, read.Value+1, 0.01)
		require.Equal(t, "us", read.Unit)
	}
	logged, ok := benchfigures.Parse("    usage_test.go:231: figure usage_mismatches 0 sums")
	require.True(t, ok)
	require.Equal(t, benchfigures.Figure{Name: "usage_mismatches", Unit: "sums"}, logged)
	for _, line := range []string{"", "figure", "figure a b c", "figures a 1 us", "figure a 1 us more"} {
		_, ok := benchfigures.Parse(line)
		require.False(t, ok, line)
	}
}

func TestATableTellsWhatIsReachedAndWhatIsNot(t *testing.T) {
	t.Parallel()
	book := benchfigures.Book{Out: &bytes.Buffer{}}
	book.Add("trueup.requests", 0, "requests")
	book.Add("flux.requests", 2, "requests")
	book.Add("trueup.rate", 0.8, "x")
	book.Add("trueup.allocations", 3, "allocations")
	book.Add("trueup.writes", 0, "writes") // nothing was counted
	book.Add("trueup.lost", -1, "changes")
	book.Add("trueup.found", 4, "of_5")
	table, err := book.Table([]benchfigures.Mark{
		{ID: "D1", What: "requests", Figure: "trueup.requests", Hard: true, Peers: []string{"flux.requests", "absent"}},
		{ID: "D3", What: "rate", Figure: "trueup.rate", Limit: 1, AtLeast: true},
		{ID: "D6", What: "allocations", Figure: "trueup.allocations", Hard: true},
		{ID: "D7", What: "absent", Figure: "absent", Hard: true},
		{What: "writes", Figure: "trueup.writes", Limit: 1, Exactly: true, Hard: true},
		{What: "lost", Figure: "trueup.lost", Hard: true},
		{What: "found", Figure: "trueup.found", Limit: 5, AtLeast: true, Hard: true},
		{What: "only told", Figure: "trueup.rate", NoLimit: true, Hard: true},
	})
	require.Equal(t, `| | what | trueup | mark | | peers | against a peer |
|---|---|---|---|---|---|---|
| D1 | requests | 0 requests | 0 requests | reached | flux 2 requests |  |
| D3 | rate | 0.8 x | ≥ 1 x | **not reached**: 0.80 of the mark |  |  |
| D6 | allocations | 3 allocations | 0 allocations | **not reached** |  |  |
| D7 | absent |  | 0 | not measured |  |  |
|  | writes | 0 writes | 1 writes | **not reached** |  |  |
|  | lost | -1 changes | 0 changes | **not reached** |  |  |
|  | found | 4 of 5 | ≥ 5 of 5 | **not reached**: 0.80 of the mark |  |  |
|  | only told | 0.8 x |  |  |  |  |
`, table)
	require.EqualError(t, err, "hard marks missed: "+
		"D6 trueup.allocations: is 3 allocations, must be 0 allocations; D7 absent: was not measured, must be 0; "+
		"trueup.writes: is 0 writes, must be 1 writes; trueup.lost: is -1 changes, must be 0 changes; trueup.found: is 4 of 5, must be ≥ 5 of 5")
	_, err = book.Table([]benchfigures.Mark{{Figure: "trueup.rate", Limit: 1, AtLeast: true}, {Figure: "absent"}})
	require.NoError(t, err, "none is hard")
}

func TestAPercentileIsInterpolated(t *testing.T) {
	t.Parallel()
	sample := []float64{4, 1, 3, 2}
	require.InDelta(t, 2.5, benchfigures.Percentile(sample, 0.5), 1e-9)
	require.InDelta(t, 4, benchfigures.Percentile(sample, 1), 1e-9)
	require.InDelta(t, 0, benchfigures.Percentile(nil, 0.5), 1e-9)
	require.Equal(t, []float64{4, 1, 3, 2}, sample)
}

func TestAFigureThatIsMeasuredAgainReplacesTheOneBefore(t *testing.T) {
	t.Parallel()
	book := benchfigures.Book{Out: &bytes.Buffer{}}
	book.Add("a", 1, "ms")
	book.Add("a", 2, "s")
	is, ok := book.Get("a")
	require.True(t, ok)
	require.Equal(t, benchfigures.Figure{Name: "a", Value: 2, Unit: "s"}, is)
}

func TestARatioHasTheFirstAboveTheSecond(t *testing.T) {
	t.Parallel()
	book := benchfigures.Book{Out: &bytes.Buffer{}}
	book.Add("theirs", 6, "ms")
	book.Add("ours", 4, "ms")
	book.Add("none", 0, "ms")
	book.Ratio("takes", "theirs", "ours")
	is, ok := book.Get("takes")
	require.True(t, ok)
	require.Equal(t, benchfigures.Figure{Name: "takes", Value: 1.5, Unit: "x"}, is)
	for _, of := range [][2]string{{"theirs", "none"}, {"theirs", "absent"}, {"absent", "ours"}} {
		book.Ratio("without", of[0], of[1])
		_, ok := book.Get("without")
		require.False(t, ok, "%v", of)
	}
	require.Equal(t, []float64{2, 0.5}, benchfigures.Ratios([]float64{8, 1}, []float64{4, 2}))
}

// TestMeasuredCountsAllocationsAndReturnsTheError is not parallel, because allocations are counted for the process.
//
//nolint:paralleltest // see above
func TestMeasuredCountsAllocationsAndReturnsTheError(t *testing.T) {
	wrong := errors.New("wrong")
	var kept [][]byte
	took, allocations, err := benchfigures.Measured(func() error {
		for range 1000 {
			kept = append(kept, make([]byte, 1000))
		}
		clear(kept)
		runtime.GC() // what is freed counts, too
		for begun := time.Now(); time.Since(begun) < 10*time.Millisecond; {
			continue
		}
		return wrong
	})
	require.ErrorIs(t, err, wrong)
	require.InDelta(t, 1000, allocations, 500, "it counts allocations, not bytes, and not what is left")
	require.GreaterOrEqual(t, took, 10*time.Millisecond)
	require.InDelta(t, 1500, benchfigures.Micros(3*time.Millisecond, 2), 1e-9)
}

// TestTheMemoryOfAProcessIsInBytes is not parallel: another test counts the processes.
//
//nolint:paralleltest // see above
func TestTheMemoryOfAProcessIsInBytes(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("there is no /proc")
	}
	is, err := benchfigures.MemoryOf(os.Getpid())
	require.NoError(t, err)
	pages, err := os.ReadFile("/proc/self/statm")
	require.NoError(t, err)
	var total, own float64
	_, err = fmt.Sscan(string(pages), &total, &own)
	require.NoError(t, err)
	require.InEpsilon(t, own*float64(os.Getpagesize()), is.Resident, 0.3)
	require.GreaterOrEqual(t, is.Peak, is.Resident)
	require.Less(t, is.Peak, total*float64(os.Getpagesize()))

	ended := exec.CommandContext(t.Context(), "true")
	require.NoError(t, ended.Start())
	await.Eventually(t, "it has ended", func() bool {
		_, err = benchfigures.MemoryOf(ended.Process.Pid)
		return err != nil
	})
	require.ErrorContains(t, err, "no VmRSS", "a process that has ended is not one that takes nothing")
	require.NoError(t, ended.Wait())
	_, err = benchfigures.MemoryOf(ended.Process.Pid)
	require.Error(t, err)
}
