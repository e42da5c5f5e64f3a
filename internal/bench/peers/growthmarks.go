package main

import (
	"fmt"

	"github.com/seed-9e1ffd66/trueup/internal/bench/benchfigures"
)

// growthLimit is by how much an object may cost more among more of them.
const growthLimit = 1.5

// growthMarks are those of the stage growth. They are of times and memory, so none is hard.
func (b *bench) growthMarks() []benchfigures.Mark {
	mark := func(what, figure, unit string, from, to int) benchfigures.Mark {
		value := func(n int) string { return fmt.Sprintf("%s_%s_%d", figure, unit, n) }
		return benchfigures.Mark{
			ID: "G1", What: fmt.Sprintf("%s: growth from %d to %d at the most", what, from, to), Figure: figure + "_ratio", Limit: growthLimit,
			Peers: []string{value(from), value(to)},
		}
	}
	most, parents := b.grownTo, b.grownTo/growthChildren
	return []benchfigures.Mark{
		mark("pass at rest, CPU for each object", "growth_sweep", "us", 1000, most),
		mark("first pass with its lists, CPU for each object", "growth_restart", "us", 1000, most),
		mark("prune of one in a thousand, CPU for each object", "growth_prune", "us", 1000, most),
		mark("prune of nothing, CPU for each object", "growth_prune_nothing", "us", 1000, most),
		mark("memory for each object", "growth_memory", "bytes", 1000, most),
		mark("pass for a parent, CPU", "growth_parts_pass", "us", 100, parents),
		mark("the same for few of all parents, over and over", "growth_parts_pass_same", "us", 100, parents),
		mark("prune of one child, CPU", "growth_parts_prune", "us", 100, parents),
		mark("memory for each child", "growth_parts_memory", "bytes", 100, parents),
	}
}
