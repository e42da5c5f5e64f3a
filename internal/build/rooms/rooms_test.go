package main

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func arrowsOf(lines ...string) map[string]map[string]names {
	arrows := map[string]map[string]names{}
	for _, line := range lines {
		from, list, _ := strings.Cut(line, " -> ")
		arrows[from] = map[string]names{}
		for to := range strings.FieldsSeq(list) {
			arrows[from][to] = names{}
		}
	}
	return arrows
}

func TestFilesWithoutACircleHaveNoReferenceThatRunsUp(t *testing.T) {
	t.Parallel()
	b := build([]string{"a", "b", "c", "d"}, arrowsOf("a -> b c", "b -> c", "d -> a"))
	require.Equal(t, 4, b.floors())
	require.Empty(t, b.up())
	require.Equal(t, 1, b.knot())
}

func TestACircleIsOpenedWhereFewestReferencesRunUp(t *testing.T) {
	t.Parallel()
	b := build([]string{"a", "b", "c", "ground"}, arrowsOf("a -> b c ground", "b -> c ground", "c -> a ground"))
	require.Equal(t, [][2]string{{"c", "a"}}, b.up())
	require.Equal(t, 4, b.floors())
	require.Equal(t, 3, b.knot())
}

// The order that is found is compared with every order there is.
func TestTheFewestReferencesRunUp(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 1))
		files := strings.Split("abcdef", "")
		arrows := map[string]map[string]names{}
		for _, from := range files {
			arrows[from] = map[string]names{}
			for _, to := range files {
				if from != to && random.IntN(3) == 0 {
					arrows[from][to] = names{}
				}
			}
		}
		fewest := len(files) * len(files)
		permute(files, func(order []string) {
			up := 0
			for i, from := range order {
				for _, to := range order[i+1:] {
					if arrows[from][to] != nil {
						up++
					}
				}
			}
			fewest = min(fewest, up)
		})
		require.Len(t, build(files, arrows).up(), fewest, "seed %d", seed)
	}
}

func permute(list []string, f func([]string)) {
	if len(list) <= 1 {
		f(list)
		return
	}
	for i := range list {
		rest := slices.Delete(slices.Clone(list), i, i+1)
		permute(rest, func(tail []string) { f(append([]string{list[i]}, tail...)) })
	}
}

// Types lie below and verbs above: Apply, Plan, Prune and Delete each read from top to
// bottom.
func TestNoFileOfApplyRefersToOneAbove(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	require.NoError(t, run(t.Context(), &out, true, []string{"../../../apply"}))
	require.Contains(t, out.String(), "figure apply_arrows_up 0 references", out.String())
	require.Contains(t, out.String(), "figure apply_floors 8 floors", out.String())
}

func TestTheRoomsOfAPackageAreCountedFromItsCode(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	require.NoError(t, run(t.Context(), &out, true, []string{"../../../snapshot"}))
	require.Contains(t, out.String(), "figure snapshot_knot 1 files of ")
	require.Contains(t, out.String(), "figure snapshot_arrows_up 0 references")
	require.ErrorContains(t, run(t.Context(), &out, false, []string{"./nowhere"}), "go list")
}
