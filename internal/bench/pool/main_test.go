package main

import (
	"bytes"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/internal/bench/benchfigures"
)

func TestAStageThatThereIsNotIsNamed(t *testing.T) {
	t.Parallel()
	for _, only := range []string{"", "karpenter", "autoscaler,karpenter"} {
		require.NoError(t, known(only), only)
	}
	for _, only := range []string{"kapenter", "karpenter,", "karpenter autoscaler"} {
		require.ErrorContains(t, known(only), "must be of karpenter,autoscaler", only)
	}
}

func TestFewerPodsOrMoreMachinesAreNoComparison(t *testing.T) {
	t.Parallel()
	peer := sample{perSecond: 2, allocations: 60, machines: 10, placed: 100}
	for _, test := range []struct {
		ours  sample
		wrong string
	}{
		{sample{perSecond: 20, allocations: 3, machines: 10, placed: 100}, ""},
		{sample{perSecond: 20, allocations: 3, machines: 9, placed: 101}, ""},
		{sample{perSecond: 20, allocations: 3, machines: 10, placed: 99}, "99 pods are placed on 10 machines, must be 100 or more on 10 or fewer"},
		{sample{perSecond: 20, allocations: 3, machines: 11, placed: 100}, "100 pods are placed on 11 machines"},
	} {
		b := &bench{book: &benchfigures.Book{Out: &bytes.Buffer{}}, pods: 101}
		err := b.compare(8, test.ours, peer)
		for name, want := range map[string]float64{"pool_demand_ratio_karpenter_8": 10, "pool_demand_allocations_ratio_karpenter_8": 20} {
			f, ok := b.book.Get(name)
			require.Equal(t, test.wrong == "", ok, name)
			require.True(t, !ok || f.Value == want, "%s: %v", name, f.Value)
		}
		if test.wrong != "" {
			require.ErrorContains(t, err, test.wrong)
			continue
		}
		require.NoError(t, err)
		unplaced, ok := b.book.Get("karpenter_8_unplaced")
		require.True(t, ok)
		require.InDelta(t, 1, unplaced.Value, 0)
	}
}

// TestTheMedianIsOfRuns: the preparation is not measured, and an error of either ends it.
func TestTheMedianIsOfRuns(t *testing.T) {
	t.Parallel()
	runs := 0
	s, err := median(1000, func() (func() (int, int, error), error) {
		runs++
		return func() (int, int, error) { return 7, 1000, nil }, nil
	})
	require.NoError(t, err)
	require.Equal(t, 5, runs)
	require.Equal(t, []int{7, 1000}, []int{s.machines, s.placed})
	require.Positive(t, s.perSecond)
	wrong := errors.New("wrong")
	_, err = median(1, func() (func() (int, int, error), error) { return nil, wrong })
	require.ErrorIs(t, err, wrong)
	_, err = median(1, func() (func() (int, int, error), error) { return func() (int, int, error) { return 0, 0, wrong }, nil })
	require.ErrorIs(t, err, wrong)
}

func TestThePodsThatHaveNoMachineAreAFigure(t *testing.T) {
	t.Parallel()
	b := &bench{book: &benchfigures.Book{Out: &bytes.Buffer{}}, pods: 100}
	b.add("trueup_8", sample{perSecond: 5, allocations: 2, machines: 9, placed: 97})
	for name, want := range map[string]float64{"pods_per_second": 5, "allocations": 2, "machines": 9, "unplaced": 3} {
		f, ok := b.book.Get("trueup_8_" + name)
		require.True(t, ok, name)
		require.InDelta(t, want, f.Value, 0, name)
	}
}
