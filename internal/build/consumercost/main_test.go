package main

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAPackageThatIsImportedIsMeasured(t *testing.T) {
	t.Parallel()
	repo, err := filepath.Abs("../../..")
	require.NoError(t, err)
	lines, err := consumer{name: "reconcile", pkg: trueup + "/reconcile", module: trueup}.measure(t.Context(), repo)
	require.NoError(t, err)
	require.Zero(t, lines, "package reconcile adds no line")
	_, err = consumer{name: "nothing", pkg: "fmt", module: trueup}.measure(t.Context(), repo)
	require.ErrorContains(t, err, "fmt: is no package of "+trueup, "what is not imported costs nothing")
	_, err = consumer{name: "wrong", pkg: trueup + "/nowhere", module: trueup}.measure(t.Context(), repo)
	require.ErrorContains(t, err, "go mod tidy")
}

func TestAMarkIsTheMost(t *testing.T) {
	t.Parallel()
	require.NoError(t, consumer{limit: 5}.missed(5))
	require.ErrorContains(t, consumer{name: "apply", limit: 5}.missed(6), "apply: is 6 lines, must be at most 5")
	require.Error(t, consumer{limit: 0}.missed(1))
	require.NoError(t, consumer{limit: -1}.missed(1000), "it has no mark")
}
