package main

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/internal/bench/benchfigures"
)

// TestTheReportFailsForAHardMark: also for one that was not measured, and for writes that were not counted.
func TestTheReportFailsForAHardMark(t *testing.T) {
	t.Parallel()
	measured := map[string]float64{
		"trueup.agentjob_writes_per_child": 1, "trueup.agentjob_requests_at_rest": 0,
		"trueup.agentjob_resident_mib": 40, "trueup.agentjob_resident_mib_idle": 30,
		peerName + ".agentjob_resident_mib": 80, peerName + ".agentjob_resident_mib_idle": 40,
		"trueup.agentjob_converge_seconds": 4, peerName + ".agentjob_converge_seconds": 3,
	}
	report := func(name string, value float64) (*bench, error) {
		b := &bench{book: benchfigures.Book{Out: &bytes.Buffer{}}, jobs: 1024}
		for figure, is := range measured {
			if figure == name {
				is = value
			}
			if is >= 0 {
				b.book.Add(figure, is, "unit")
			}
		}
		return b, b.report()
	}
	b, err := report("", 0)
	require.NoError(t, err)
	for name, want := range map[string]float64{
		"trueup.agentjob_kib_per_job": 10, peerName + ".agentjob_kib_per_job": 40, "agentjob_memory_per_job_ratio": 4,
		"agentjob_memory_ratio": 2, "agentjob_converge_ratio": 0.75,
	} {
		f, ok := b.book.Get(name)
		require.True(t, ok, name)
		require.InDelta(t, want, f.Value, 1e-9, name)
	}
	for _, wrong := range []struct {
		figure string
		is     float64 // -1: it was not measured
	}{
		{"writes_per_child", 0}, {"writes_per_child", 1.001}, {"writes_per_child", -1}, {"requests_at_rest", 1}, {"requests_at_rest", -1},
	} {
		_, err := report("trueup.agentjob_"+wrong.figure, wrong.is)
		require.ErrorContains(t, err, "agentjob_"+wrong.figure, wrong.is)
	}
}
