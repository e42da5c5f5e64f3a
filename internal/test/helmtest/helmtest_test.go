package helmtest_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/internal/test/helmtest"
)

func TestObjectsOfAStreamHaveTheirKindAndName(t *testing.T) {
	t.Parallel()
	all := helmtest.Objects(t, "---\n# Source: x\nkind: Role\nmetadata: {name: a}\n---\n# nothing\n---\nkind: Service\nmetadata: {name: b}\n")
	require.Equal(t, []string{"Role a", "Service b"}, slices.Sorted(maps.Keys(all)))
}

func TestWhatHelmRefusesIsInTheError(t *testing.T) {
	t.Parallel()
	_, err := helmtest.Run(t, nil, "template", "x", t.TempDir())
	require.ErrorContains(t, err, "Chart.yaml")
}
