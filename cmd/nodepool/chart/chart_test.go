package chart_test

import (
	"encoding/xml"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/nodepool/chart"
)

var update = flag.Bool("update", false, "write the golden file")

func demo() chart.States {
	return chart.States{
		Title: "Machines <by> state", Names: []string{"running", "standby"}, Line: "pods waiting",
		Samples: []chart.Sample{
			{
				At:     0,
				Counts: []int{0, 3},
			},
			{At: 10 * time.Second, Counts: []int{2, 1}, Line: 4},
			{At: 30 * time.Second, Counts: []int{2, 1}},
			{At: time.Minute, Counts: []int{2, 1}},
		},
	}
}

func TestAChartOfAFewSamples(t *testing.T) {
	t.Parallel()
	got := demo().SVG()
	const file = "testdata/states.svg"
	if *update {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(file, got, 0o600))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err, "go test -update writes it")
	require.Equal(t, string(want), string(got))
	require.Contains(t, string(got), "Machines &lt;by&gt; state")
}

// area is the size of a path in squared pixels, by the formula of the shoelace.
func area(t *testing.T, path string) float64 {
	t.Helper()
	var points [][2]float64
	for _, p := range regexp.MustCompile(`[ML]([0-9.]+) ([0-9.]+)`).FindAllStringSubmatch(path, -1) {
		x, err := strconv.ParseFloat(p[1], 64)
		require.NoError(t, err)
		y, err := strconv.ParseFloat(p[2], 64)
		require.NoError(t, err)
		points = append(points, [2]float64{x, y})
	}
	sum := 0.0
	for i, p := range points {
		q := points[(i+1)%len(points)]
		sum += p[0]*q[1] - q[0]*p[1]
	}
	return math.Abs(sum) / 2
}

// TestAnAreaIsAsLargeAsTheTimeThatMachinesWereInTheState also with more samples than pixels.
func TestAnAreaIsAsLargeAsTheTimeThatMachinesWereInTheState(t *testing.T) {
	t.Parallel()
	for _, n := range []int{7, 200, 20_000} {
		s := chart.States{Names: []string{"a", "b", "never"}}
		var spent [2]float64
		for i := range n {
			counts := []int{1 + i*i%5, 1 + (i/3)%4, 0}
			s.Samples = append(s.Samples, chart.Sample{At: time.Duration(i) * time.Second, Counts: counts})
			if i < n-1 {
				spent[0] += float64(counts[0])
				spent[1] += float64(counts[1])
			}
		}
		paths := regexp.MustCompile(`<path d="([^"]*Z)"`).FindAllStringSubmatch(string(s.SVG()), -1)
		require.Len(t, paths, 2, "a state without machines has no area")
		a, b := area(t, paths[0][1]), area(t, paths[1][1])
		require.InEpsilon(t, spent[0]/spent[1], a/b, 0.01, "%d samples", n)
	}
}

func TestChartsOfEveryExtentAreWellFormedAndHaveRoundTicks(t *testing.T) {
	t.Parallel()
	round := regexp.MustCompile(`^(0|(\d+d)?(\d+h)?(\d+m)?(\d+s)?|\d+ms|[0-9]+(\.[0-9]+)?)$`)
	ticks := regexp.MustCompile(`<text [^>]*>([^<]*)</text>`)
	for _, end := range []time.Duration{0, 50 * time.Millisecond, time.Second, 47 * time.Second, 13 * time.Minute, 5 * time.Hour, 26 * time.Hour, 9 * 24 * time.Hour, 366 * 24 * time.Hour} {
		for _, most := range []int{0, 1, 3, 7, 10, 99, 1000, 123456} {
			s := chart.States{
				Names:   []string{"n"},
				Line:    "l",
				Samples: []chart.Sample{{Counts: []int{most}, Line: most}, {At: end, Counts: []int{0}}},
			}
			f := chart.Figure{Name: "f", Values: []float64{float64(most) / 1000, 0}}
			picture := string(chart.Page("", s, chart.Tradeoff{Choices: []int{0, 3}, Left: f, Right: f}))
			for d := xml.NewDecoder(strings.NewReader(picture)); ; {
				_, err := d.Token()
				if errors.Is(err, io.EOF) {
					break
				}
				require.NoError(t, err)
			}
			require.NotRegexp(t, "NaN|Inf", picture)
			numbers := 0
			for _, m := range ticks.FindAllStringSubmatch(picture, -1) {
				if strings.Trim(m[1], "0123456789.dhms") == "" {
					numbers++
					require.Regexp(t, round, m[1])
				}
			}
			require.Less(t, numbers, 50, fmt.Sprint(end, most))
		}
	}
	require.NotEmpty(t, chart.Page("", chart.States{}, chart.Tradeoff{}), "nothing to draw is no failure")
}
