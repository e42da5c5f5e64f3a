package benchfigures_test

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/internal/bench/benchfigures"
)

func TestAFigureIsALineThatCanBeReadAgain(t *testing.T) {
	t.Parallel()
	for value, line := range map[float64]string{
		0: "figure a.b 0 us\n", 12345.678: "figure a.b 12346 us\n", 0.0123456: "figure a.b 0.0123 us\n", 3: "figure a.b 3 us\n", 0.9876: "figure a.b 0.988 us\n",
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
	table, missed := book.Table([]benchfigures.Mark{
		{ID: "D1", What: "requests", Figure: "trueup.requests", Hard: true, Peers: []string{"flux.requests", "absent"}},
		{ID: "D3", What: "rate", Figure: "trueup.rate", Limit: 1, AtLeast: true},
		{ID: "D6", What: "allocations", Figure: "trueup.allocations", Hard: true},
		{ID: "D7", What: "absent", Figure: "absent", Hard: true},
	})
	require.Equal(t, `| | what | trueup | mark | | peers | against a peer |
|---|---|---|---|---|---|---|
| D1 | requests | 0 requests | 0 requests | reached | flux 2 requests |  |
| D3 | rate | 0.8 x | ≥ 1 x | **not reached**: 0.80 of the mark |  |  |
| D6 | allocations | 3 allocations | 0 allocations | **not reached** |  |  |
| D7 | absent |  | 0 | not measured |  |  |
`, table)
	require.Equal(t, []string{"D6 (trueup.allocations)", "D7 (absent)"}, missed)
}

func TestAPercentileIsInterpolated(t *testing.T) {
	t.Parallel()
	sample := []float64{4, 1, 3, 2}
	require.InDelta(t, 2.5, benchfigures.Percentile(sample, 0.5), 1e-9)
	require.InDelta(t, 4, benchfigures.Percentile(sample, 1), 1e-9)
	require.InDelta(t, 0, benchfigures.Percentile(nil, 0.5), 1e-9)
	require.Equal(t, []float64{4, 1, 3, 2}, sample)
}
