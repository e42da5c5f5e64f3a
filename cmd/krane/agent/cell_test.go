package agent_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/internal/isolation"
	"github.com/seed-9e1ffd66/trueup/cmd/krane/agent"
	"github.com/seed-9e1ffd66/trueup/cmd/krane/config"
	"github.com/seed-9e1ffd66/trueup/cmd/krane/render"
)

func TestTheSettingsOfTheRegionDecideAboutItsObjects(t *testing.T) {
	t.Parallel()
	c, err := config.Read([]byte(`
instance_id: krane-0
control: {url: https://control.example.com, token: token}
cluster: {region: eu, platform: aws}
registry: {url: registry.example.com, username: krane, password: secret}
runtime_class: kata
storage_class_name: fast
pod_security: baseline
`), func(string) (string, bool) { return "", false })
	require.NoError(t, err)
	require.Equal(t, render.Cell{
		Region: "eu", Platform: "aws", RuntimeClass: "kata", StorageClass: "fast", PodSecurity: isolation.Baseline,
		Registry: render.Registry{URL: "registry.example.com", Username: "krane", Password: "secret"},
	}, agent.CellOf(&c))
}

func TestWhatANamespaceIsGivenIsMadeOnce(t *testing.T) {
	t.Parallel()
	cell := render.Cell{Region: "eu", Registry: render.Registry{URL: "registry.example.com", Username: "krane", Password: "secret"}}
	fresh, err := agent.Furnish(cell, 50, "a", "b")
	require.NoError(t, err)
	require.Equal(t, 2, fresh)
	// Too many are forgotten, and made again.
	names := make([]string, 1500)
	for i := range names {
		names[i] = fmt.Sprint("n-", i)
	}
	fresh, err = agent.Furnish(cell, 1, slices.Concat(names, []string{names[0], names[1499]})...)
	require.NoError(t, err)
	require.Equal(t, 1501, fresh)
	_, err = agent.Furnish(cell, 1, "Not a namespace")
	require.ErrorContains(t, err, "Not a namespace")
}
