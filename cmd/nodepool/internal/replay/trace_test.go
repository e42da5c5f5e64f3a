package replay_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cloud/demand"
	"github.com/seed-9e1ffd66/trueup/cmd/nodepool/internal/replay"
)

func TestATraceIsReadInTheOrderOfArrival(t *testing.T) {
	t.Parallel()
	pods, err := replay.ReadTrace(strings.NewReader("\ufeffname, arrival ,CPU,memory,duration,count\n" +
		"# a comment\n\n" +
		"late,2026-03-02T00:01:30Z,500m,1Gi,90s,\n" +
		"early,2026-03-02T01:00:00+01:00,2,512M,60.5,2\n" +
		",2026-03-02T00:00:01.5Z,,,1h30m,1\n"))
	require.NoError(t, err)
	early := replay.Pod{Duration: 60500 * time.Millisecond, Requests: demand.Resources{CPU: 2000, Memory: 512e6}}
	first, second := early, early
	first.Name, second.Name = "early/1", "early/2"
	require.Empty(t, cmp.Diff([]replay.Pod{
		first, second,
		{Name: "line-6", Arrival: 1500 * time.Millisecond, Duration: 90 * time.Minute},
		{Name: "late", Arrival: 90 * time.Second, Duration: 90 * time.Second, Requests: demand.Resources{CPU: 500, Memory: 1 << 30}},
	}, pods))

	pods, err = replay.ReadTrace(strings.NewReader("arrival,duration,cpu,memory\n10,1,1,1Gi\n2.5,1,1,1Gi\n"))
	require.NoError(t, err)
	require.Equal(
		t,
		[]time.Duration{2500 * time.Millisecond, 10 * time.Second},
		[]time.Duration{pods[0].Arrival, pods[1].Arrival},
		"seconds are from the beginning",
	)
}

func TestAWrongTraceIsRefusedByLineColumnAndValue(t *testing.T) {
	t.Parallel()
	const head = "arrival,duration,cpu,memory,name,count\n"
	for _, c := range []struct {
		trace string
		texts []string
	}{
		{"", []string{"the trace is empty, must begin with a line such as arrival,duration,cpu,memory"}},
		{head, []string{"the trace has no pods"}},
		{"arrival,duration,cpu\n", []string{"line 1: column memory is missing"}},
		{"arrival,duration,cpu,mem\n", []string{`line 1, column 4: is "mem", must be one of arrival, duration, cpu, memory, name, count`}},
		{"arrival,duration,cpu,memory,cpu\n", []string{`line 1, column 5: "cpu" stands there twice`}},
		{head + "1,2,3\n", []string{"line 2: has 3 values, must have 6"}},
		{head + "noon,soon,x,-1,a,0\n", []string{
			`line 2, column arrival: is "noon", must be a time such as`, `line 2, column duration: is "soon", must be a span such as 90s`,
			`line 2, column cpu: is "x", must be a quantity such as 500m`, `line 2, column memory: is "-1", must be a quantity such as 2Gi`, `line 2, column count: is "0", must be a number from 1 to 1000000`,
		}},
		{head + "1,1,1,1,a,\n2,1,1,1,a,\n", []string{`line 3, column name: is "a", must be unique: line 2 has it too`}},
		{head + "1,1,1,1,,\n2026-03-02T00:00:00Z,1,1,1,,\n", []string{`line 3, column arrival: is "2026-03-02T00:00:00Z", must be seconds, as in the lines before`}},
		{head + "2026-03-02T00:00:00Z,1,1,1,,\n5,1,1,1,,\n", []string{`line 3, column arrival: is "5", must be a time, as in the lines before`}},
		{head + "2026-03-02T00:00:00Z,1,1,1,,\n2028-03-02T00:00:00Z,1,1,1,,\n", []string{"line 3, column arrival", "within a year"}},
		{head + "-1,1,1,1,,\n", []string{`line 2, column arrival: is "-1"`}},
		{head + "NaN,0,1,1,,\n", []string{`column arrival: is "NaN"`, `column duration: is "0"`}},
		{head + "1,1,1,1,,900000\n1,1,1,1,,900000\n", []string{"line 3: the trace has more than 1000000 pods"}},
		{head + "1,1,\"1,1,,\n", []string{"line 2"}},
	} {
		_, err := replay.ReadTrace(strings.NewReader(c.trace))
		for _, text := range c.texts {
			require.ErrorContains(t, err, text, c.trace)
		}
	}
	_, err := replay.ReadTrace(strings.NewReader(head + strings.Repeat("x,1,1,1,,\n", 500)))
	require.Len(t, strings.Split(err.Error(), "\n"), 10, "no more than a person reads")
}

func FuzzReadTrace(f *testing.F) {
	for _, seed := range []string{"arrival,duration,cpu,memory\n1,1,1,1\n", "arrival,duration,cpu,memory,count\n2026-03-02T00:00:00Z,1h,500m,1Gi,3\n", "count\n", "\"", "arrival,duration,cpu,memory\n1e8,1e-9,1E,1n\n"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		pods, err := replay.ReadTrace(strings.NewReader(text))
		if err != nil {
			require.Empty(t, pods)
			return
		}
		require.NotEmpty(t, pods)
		for i, p := range pods {
			require.NotEmpty(t, p.Name)
			require.Positive(t, p.Duration)
			require.GreaterOrEqual(t, p.Arrival, time.Duration(0))
			require.GreaterOrEqual(t, min(p.Requests.CPU, p.Requests.Memory), int64(0))
			if i > 0 {
				require.GreaterOrEqual(t, p.Arrival, pods[i-1].Arrival)
			}
		}
	})
}
