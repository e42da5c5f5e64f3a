package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAFlagThatWouldMeasureNothingIsRefused(t *testing.T) {
	t.Parallel()
	usual := func() *bench {
		return &bench{objects: 20, peers: 20, created: 10, edits: 10, parents: 10, rounds: 1, grownTo: 1000, stages: []string{"rest", "memory"}}
	}
	require.NoError(t, usual().validate())
	for want, change := range map[string]func(*bench){
		"-objects: is 19, must be 20 or more":                              func(b *bench) { b.objects = 19 },
		"-peer-objects: is 0, must be 20 or more":                          func(b *bench) { b.peers = 0 },
		"-created: is -1, must be 10 or more":                              func(b *bench) { b.created = -1 },
		"-edits: is 9, must be 10 or more":                                 func(b *bench) { b.edits = 9 },
		"-watched: is -5, must be 0 or more":                               func(b *bench) { b.watched = -5 },
		"-parents: is 9, must be 10 or more":                               func(b *bench) { b.parents = 9 },
		"-rounds: is 0, must be 1 or more":                                 func(b *bench) { b.rounds = 0 },
		"-grown-real: is -1, must be 0 or more":                            func(b *bench) { b.grownReal = -1 },
		"-grown-to: is 5000, must be 1000, 10000, 100000 or 1000000":       func(b *bench) { b.grownTo = 5000 },
		`-stages: "rset" is none of create, drift, embedded, growth, memo`: func(b *bench) { b.stages[0] = "rset" },
		`-stages: "" is none of`:                                           func(b *bench) { b.stages[0] = "" },
	} {
		b := usual()
		change(b)
		require.ErrorContains(t, b.validate(), want)
	}
}

func TestGrowthIsSeenBetweenAnySizes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		costs []float64
		want  float64
	}{
		{nil, 1}, {[]float64{3}, 1}, {[]float64{1, 2}, 2}, {[]float64{4, 2, 1}, 0.5}, {[]float64{1, 3, 2}, 3}, {[]float64{4, 1, 1.5}, 1.5},
	} {
		require.InDelta(t, c.want, mostGrowth(c.costs), 1e-9, "%v", c.costs)
	}
}
